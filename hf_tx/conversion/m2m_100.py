# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""M2M-100 and NLLB: an mBART with sinusoids that begin after the padding token's index."""

from typing import Any

from .bart import FIELDS, UNREAD_EMBEDDINGS, heads, stacks, weights
from .family import ENCODER_DECODER, Family
from .fields import NotExpressible, derived, in_stacks
from .roberta import offset_of


def _offset(config: Any) -> int:
    if config.decoder_start_token_id == config.pad_token_id:
        reason = "a text that begins with padding has no first position in theirs"
        raise NotExpressible("decoder_start_token_id", config.decoder_start_token_id, reason)
    return offset_of(config)


FAMILIES = (
    Family(
        model_type="m2m_100",
        kind=ENCODER_DECODER,
        fields=(
            *FIELDS,
            *in_stacks(derived("position_offset", _offset)),
            *stacks(position_type="sinusoidal", sinusoidal_type="tensor2tensor", norm_position="pre"),
        ),
        weights=weights,
        heads=heads("M2M100", bias=False),
        dropped=UNREAD_EMBEDDINGS,
    ),
)
