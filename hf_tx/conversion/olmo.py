# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""OLMo: a Llama whose norms have no weights. OLMo 2 and 3: a Llama that normalises what a layer adds, and all queries
and keys of a layer together."""

from .family import CLASSIFIER_DROPOUT, DECODER, Family, decoder_heads
from .fields import always, only, renamed, same
from .llama import ATTENTION, ATTENTION_BIAS, GATED, HEAD_DIM, QK_NORMS, SIZES, layer_types, rope, weights

_FIELDS = (
    *SIZES,
    HEAD_DIM,
    CLASSIFIER_DROPOUT,
    same("hidden_act", "attention_dropout"),
    rope(),
    ATTENTION_BIAS,
)
_LAYER = dict(**ATTENTION, **GATED)

OLMO = Family(
    model_type="olmo",
    kind=DECODER,
    fields=(
        *_FIELDS,
        only("hf_tx does not clip queries, keys and values", clip_qkv=None),
        always(norm_type="layernorm", norm_affine=False, norm_bias=False, norm_eps=1e-5),
    ),
    weights=weights(_LAYER),
    heads=decoder_heads("Olmo", "ForSequenceClassification"),
)

_SECOND = (
    *_FIELDS,
    renamed(rms_norm_eps="norm_eps"),
    always(norm_position="residual_post", qk_norm=True, qk_norm_scope="all"),
)
_SECOND_LAYER = dict(
    **_LAYER,
    **QK_NORMS,
    mixer_post_norm="post_attention_layernorm",
    mlp_post_norm="post_feedforward_layernorm",
)

OLMO2 = Family(
    model_type="olmo2",
    kind=DECODER,
    fields=_SECOND,
    weights=weights(_SECOND_LAYER),
    heads=decoder_heads("Olmo2", "ForSequenceClassification"),
)

OLMO3 = Family(
    model_type="olmo3",
    kind=DECODER,
    fields=(*_SECOND, layer_types()),
    weights=weights(_SECOND_LAYER),
    heads=decoder_heads("Olmo3", "ForSequenceClassification"),
)

FAMILIES = (OLMO, OLMO2, OLMO3)
