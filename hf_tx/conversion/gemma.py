# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Gemma, Gemma 2 and the texts of Gemma 3."""

from .family import CLASSIFIER_DROPOUT, DECODER, Family, decoder_heads
from .fields import always, computed, derived, only, renamed, same, unread
from .llama import ATTENTION, ATTENTION_BIAS, GATED, HEAD_DIM, LAYER, QK_NORMS, SIZES, layer_types, rope, weights

SANDWICH = dict(
    **ATTENTION,
    **GATED,
    mixer_norm="input_layernorm",
    mixer_post_norm="post_attention_layernorm",
    mlp_norm="pre_feedforward_layernorm",
    mlp_post_norm="post_feedforward_layernorm",
)

_FIRST_BLOCK = (
    *SIZES,
    HEAD_DIM,
    ATTENTION_BIAS,
    rope(),
    renamed(rms_norm_eps="norm_eps"),
    derived("embedding_scale", lambda config: config.hidden_size**0.5),
    always(norm_unit_offset=True),
)
_COMMON = (
    *_FIRST_BLOCK,
    CLASSIFIER_DROPOUT,
    same("attention_dropout"),
    only("a decoder is causal", use_bidirectional_attention=False),
)
_SECOND_BLOCK = (
    renamed(hidden_activation="hidden_act"),
    same("final_logit_softcapping"),
    computed(
        "query_pre_attn_scalar",
        "attention_scale",
        lambda config: config.query_pre_attn_scalar**-0.5,
        lambda settings: round((settings["attention_scale"] or 256**-0.5) ** -2),  # or the default
    ),
    always(norm_position="sandwich"),
)
_SECOND = (*_COMMON, *_SECOND_BLOCK)
_SOFTCAP = same("attn_logit_softcapping")

#: What a stack of Gemma 2 says, whatever it is a part of.
GEMMA2_STACK = (*_FIRST_BLOCK, *_SECOND_BLOCK, _SOFTCAP, layer_types())

GEMMA = Family(
    model_type="gemma",
    kind=DECODER,
    fields=(*_COMMON, same("hidden_act")),
    weights=weights(LAYER),
    heads=decoder_heads("Gemma", "ForSequenceClassification", "ForTokenClassification"),
)

GEMMA2 = Family(
    model_type="gemma2",
    kind=DECODER,
    fields=(*_SECOND, _SOFTCAP, layer_types()),
    weights=weights(SANDWICH),
    heads=decoder_heads("Gemma2", "ForSequenceClassification", "ForTokenClassification"),
)

GEMMA3_TEXT = Family(
    model_type="gemma3_text",
    kind=DECODER,
    fields=(
        *_SECOND,
        layer_types(),
        always(qk_norm=True),
        unread("attn_logit_softcapping"),  # its attention is not told
        unread("_sliding_window_pattern"),
    ),
    weights=weights(SANDWICH | QK_NORMS),
    heads=decoder_heads("Gemma3Text", "ForSequenceClassification", causal="Gemma3ForCausalLM"),
)

FAMILIES = (GEMMA, GEMMA2, GEMMA3_TEXT)
