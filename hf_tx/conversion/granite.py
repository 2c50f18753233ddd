# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Granite."""

from .family import DECODER, Family, decoder_heads
from .fields import computed, renamed, same
from .llama import ATTENTION_BIAS, LAYER, LLAMA_FIELDS, rope, weights

GRANITE = Family(
    model_type="granite",
    kind=DECODER,
    fields=(
        *LLAMA_FIELDS,
        rope(),
        ATTENTION_BIAS,
        same("mlp_bias", "residual_multiplier"),
        renamed(embedding_multiplier="embedding_scale", attention_multiplier="attention_scale"),
        computed(
            "logits_scaling",
            "logit_scale",
            lambda config: 1 / config.logits_scaling,
            lambda settings: 1 / settings["logit_scale"],
        ),
    ),
    weights=weights(LAYER),
    heads=decoder_heads("Granite"),
)

FAMILIES = (GRANITE,)
