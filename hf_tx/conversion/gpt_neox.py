# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""GPT-NeoX (Pythia)."""

from .family import DECODER, Family, decoder_heads
from .fields import always, renamed, same, unread
from .llama import ATTENTION_BIAS, DERIVED_HEAD_DIM, HEADS, rope
from .weights import layers, rule

FEED_FORWARD_AND_NORMS = dict(
    mlp__up_proj="mlp.dense_h_to_4h",
    mlp__down_proj="mlp.dense_4h_to_h",
    mixer_norm="input_layernorm",
    mlp_norm="post_attention_layernorm",
)

GPT_NEOX = Family(
    model_type="gpt_neox",
    kind=DECODER,
    fields=(
        same("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"),
        same("hidden_act", "max_position_embeddings"),
        same("attention_dropout", "hidden_dropout", "classifier_dropout"),
        renamed(layer_norm_eps="norm_eps", use_parallel_residual="parallel_residual"),
        DERIVED_HEAD_DIM,
        rope(partial=True),
        ATTENTION_BIAS,
        unread("is_decoder"),
        always(norm_type="layernorm", ffn_type="mlp", mlp_bias=True),
    ),
    weights=(
        rule("embed_in", "embed_tokens"),
        rule("layers.*.attention.query_key_value", *(f"layers.*.mixer.{part}_proj" for part in "qkv"), by_head=True),
        *layers(
            "layers",
            "layers",
            mixer__o_proj="attention.dense",
            **FEED_FORWARD_AND_NORMS,
        ),
        rule("final_layer_norm", "norm"),
    ),
    heads=decoder_heads("GPTNeoX", *HEADS, prefix="gpt_neox", token_classifier="classifier"),
)

FAMILIES = (GPT_NEOX,)
