# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""OLMo 2 and OLMo 3: a Llama whose norms stand behind what a layer adds, and over all queries and keys together."""

from .family import CLASSIFIER_DROPOUT, DECODER, Family, decoder_heads
from .fields import always, renamed, same
from .llama import ATTENTION, ATTENTION_BIAS, GATED, HEAD_DIM, QK_NORMS, SIZES, layer_types, rope, weights

_FIELDS = (
    *SIZES,
    HEAD_DIM,
    CLASSIFIER_DROPOUT,
    same("hidden_act", "attention_dropout"),
    renamed(rms_norm_eps="norm_eps"),
    rope(),
    ATTENTION_BIAS,
    always(norm_position="residual_post", qk_norm=True, qk_norm_scope="all"),
)
_WEIGHTS = weights(
    dict(
        **ATTENTION,
        **QK_NORMS,
        **GATED,
        mixer_post_norm="post_attention_layernorm",
        mlp_post_norm="post_feedforward_layernorm",
    )
)

FAMILIES = tuple(
    Family(
        model_type=model_type,
        kind=DECODER,
        fields=(*_FIELDS, *layers),
        weights=_WEIGHTS,
        heads=decoder_heads(name, "ForSequenceClassification"),
    )
    for model_type, name, layers in (("olmo2", "Olmo2", ()), ("olmo3", "Olmo3", (layer_types(),)))
)
