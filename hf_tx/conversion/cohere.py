# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Cohere (Command R)."""

from .family import DECODER, Family, decoder_heads
from .fields import always, renamed, same
from .llama import ATTENTION, ATTENTION_BIAS, GATED, HEAD_DIM, QK_NORMS, SIZES, norms_of_heads, rope, weights

COHERE = Family(
    model_type="cohere",
    kind=DECODER,
    fields=(
        *SIZES,
        HEAD_DIM,
        same("hidden_act", "attention_dropout", "logit_scale"),
        renamed(layer_norm_eps="norm_eps"),
        rope(),
        ATTENTION_BIAS,
        norms_of_heads("use_qk_norm"),
        always(norm_type="layernorm", norm_bias=False, parallel_residual=True, parallel_shared_norm=True),
        always(rope_interleaved=True),
    ),
    weights=weights(dict(**ATTENTION, **GATED, **QK_NORMS, mixer_norm="input_layernorm")),
    heads=decoder_heads("Cohere"),
)

FAMILIES = (COHERE,)
