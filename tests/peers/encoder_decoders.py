# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""The library's encoder-decoders, and the variants that their code tells apart."""

from typing import Any

import transformers as hf
from peers.tables import HEADS, INNER, LAYERS, LENGTH, TOKENS, VOCABULARY, WIDTH, converted
from torch import nn

T5 = dict(
    vocab_size=VOCABULARY,
    d_model=WIDTH,
    d_kv=12,
    d_ff=INNER,
    num_layers=LAYERS,
    num_heads=HEADS,
    relative_attention_num_buckets=8,
    relative_attention_max_distance=10,
    decoder_start_token_id=0,
    **TOKENS,
)
BART = dict(
    vocab_size=VOCABULARY,
    d_model=WIDTH,
    encoder_layers=LAYERS,
    decoder_layers=LAYERS,
    encoder_attention_heads=HEADS,
    decoder_attention_heads=HEADS,
    encoder_ffn_dim=INNER,
    decoder_ffn_dim=INNER,
    max_position_embeddings=LENGTH,
    decoder_start_token_id=2,
    forced_eos_token_id=None,
    **TOKENS,
)


def _untie(model: Any) -> None:
    """The library ties T5 v1.1 as well, whose checkpoints have a head of their own."""
    model.lm_head.weight = nn.Parameter(model.lm_head.weight.clone())


t5 = converted(hf.T5ForConditionalGeneration, T5, positions="own")
t5_untied = converted(hf.T5ForConditionalGeneration, T5, positions="own", adapt=_untie)
mt5 = converted(hf.MT5ForConditionalGeneration, T5, positions="own")
bart = converted(hf.BartForConditionalGeneration, BART, positions="rows")
mbart = converted(hf.MBartForConditionalGeneration, BART, positions="rows", same_shift=False)

SEQ2SEQ = {
    "t5": t5(feed_forward_proj="relu"),
    "t5_v1_1": t5_untied(feed_forward_proj="gated-gelu", tie_word_embeddings=False),
    "t5_gated_tied": t5(feed_forward_proj="gated-silu"),
    "mt5": mt5(),
    "bart": bart(),
    "bart_scaled_untied": bart(scale_embedding=True, tie_word_embeddings=False, activation_function="relu"),
    "mbart": mbart(scale_embedding=True),
    "mbart_unscaled": mbart(decoder_ffn_dim=INNER + 4),
}
