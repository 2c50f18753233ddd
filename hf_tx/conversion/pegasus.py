# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""PEGASUS: an mBART with sinusoids."""

from .bart import CONSTANTS, FIELDS, LOGITS_BIAS, SINUSOIDS, UNREAD_EMBEDDINGS, heads, stacks, weights
from .family import ENCODER_DECODER, Family

FAMILIES = (
    Family(
        model_type="pegasus",
        kind=ENCODER_DECODER,
        fields=(
            *FIELDS,
            LOGITS_BIAS,
            *stacks(position_type="sinusoidal", sinusoidal_type="concatenated", norm_position="pre"),
        ),
        weights=weights,
        heads=heads("Pegasus"),
        dropped=UNREAD_EMBEDDINGS | SINUSOIDS,
        constants=CONSTANTS,
    ),
)
