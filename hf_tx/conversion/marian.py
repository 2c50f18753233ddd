# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Marian (Opus-MT): a BART with sinusoids, whose stacks may have vocabularies of their own."""

from typing import Any

from .bart import CONSTANTS, LOGITS_BIAS, SINUSOIDS, SIZES, UNREAD_EMBEDDINGS, heads, stacks, weights
from .family import ENCODER_DECODER, Family
from .fields import Entry, NotExpressible, Settings


def _read_vocabularies(config: Any) -> dict[str, Any]:
    sizes = config.vocab_size, config.decoder_vocab_size
    shared, tied = config.share_encoder_decoder_embeddings, config.tie_word_embeddings
    if shared and sizes[0] != sizes[1]:
        reason = f"the stacks share embeddings, so it must equal vocab_size = {sizes[0]}"
        raise NotExpressible("decoder_vocab_size", sizes[1], reason)
    return {
        "encoder.vocab_size": sizes[0],
        "decoder.vocab_size": sizes[1],
        "tie_word_embeddings": tied,
        "share_embeddings": shared and tied,  # without tying, theirs has shared ones that no stack reads
    }


def _write_vocabularies(settings: Settings) -> dict[str, Any]:
    return {
        "vocab_size": settings["encoder.vocab_size"],
        "decoder_vocab_size": settings["decoder.vocab_size"],
        "tie_word_embeddings": settings["tie_word_embeddings"],
        "share_encoder_decoder_embeddings": settings["share_embeddings"],
    }


VOCABULARIES = Entry(
    ("vocab_size", "decoder_vocab_size", "tie_word_embeddings", "share_encoder_decoder_embeddings"),
    ("encoder.vocab_size", "decoder.vocab_size", "tie_word_embeddings", "share_embeddings"),
    _read_vocabularies,
    _write_vocabularies,
)

FAMILIES = (
    Family(
        model_type="marian",
        kind=ENCODER_DECODER,
        fields=(
            *SIZES,
            VOCABULARIES,
            LOGITS_BIAS,
            *stacks(position_type="sinusoidal", sinusoidal_type="concatenated", norm_position="post"),
        ),
        weights=weights,
        heads=heads("Marian", writer="MTModel"),
        dropped=UNREAD_EMBEDDINGS | SINUSOIDS,
        constants=CONSTANTS,
    ),
)
