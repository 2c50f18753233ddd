# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Blenderbot: an mBART without an offset of its positions and without a norm of its embeddings."""

from .bart import FIELDS, LOGITS_BIAS, UNREAD_EMBEDDINGS, heads, stacks, weights
from .family import ENCODER_DECODER, Family
from .fields import unread

FAMILIES = (
    Family(
        model_type="blenderbot",
        kind=ENCODER_DECODER,
        fields=(
            *FIELDS,
            LOGITS_BIAS,
            *stacks(position_type="learned", norm_position="pre"),
            unread("encoder_no_repeat_ngram_size"),  # of the generation config
        ),
        weights=weights,
        heads=heads("Blenderbot"),
        dropped=UNREAD_EMBEDDINGS,
    ),
)
