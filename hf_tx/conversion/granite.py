# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Granite."""

from .family import DECODER, Family, decoder_heads
from .fields import computed, same
from .llama import ATTENTION_BIAS, HEAD_DIM, LAYER, LLAMA_FIELDS, rope, weights


def _unless(value: float, default: float) -> float | None:
    """A factor that is the default is none of ours."""
    return None if value == default else value


GRANITE = Family(
    model_type="granite",
    kind=DECODER,
    fields=(
        *LLAMA_FIELDS,
        rope(),
        ATTENTION_BIAS,
        same("mlp_bias", "residual_multiplier"),
        computed(
            "embedding_multiplier",
            "embedding_scale",
            lambda config: _unless(config.embedding_multiplier, 1),
            lambda settings: settings["embedding_scale"] or 1.0,
        ),
        computed(
            "attention_multiplier",
            "attention_scale",
            lambda config: _unless(config.attention_multiplier, HEAD_DIM.read(config)["head_dim"] ** -0.5),
            lambda settings: settings["attention_scale"] or settings["head_dim"] ** -0.5,
        ),
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
