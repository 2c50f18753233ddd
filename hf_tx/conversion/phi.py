# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Phi (1, 1.5, 2), and Phi-3."""

from .family import CLASSIFIER_DROPOUT, DECODER, Family, decoder_heads
from .fields import always, renamed, same, unread
from .llama import HEAD_DIM, LLAMA_FIELDS, ONE_WINDOW, SIZES, rope
from .weights import layers, rule

PHI = Family(
    model_type="phi",
    kind=DECODER,
    fields=(
        *SIZES,
        HEAD_DIM,
        CLASSIFIER_DROPOUT,
        same("hidden_act", "attention_dropout"),
        renamed(layer_norm_eps="norm_eps", qk_layernorm="qk_norm"),
        renamed(embd_pdrop="embedding_dropout", resid_pdrop="hidden_dropout"),
        rope(partial=True),
        always(norm_type="layernorm", parallel_residual=True, parallel_shared_norm=True, ffn_type="mlp"),
        always(attention_bias=True, attention_out_bias=True, mlp_bias=True, lm_head_bias=True),
    ),
    weights=(
        rule("embed_tokens", "embed_tokens"),
        *layers(
            "layers",
            "layers",
            **{f"mixer__{part}_proj": f"self_attn.{part}_proj" for part in "qkv"},
            mixer__o_proj="self_attn.dense",
            mixer__q_norm="self_attn.q_layernorm",
            mixer__k_norm="self_attn.k_layernorm",
            mlp__up_proj="mlp.fc1",
            mlp__down_proj="mlp.fc2",
            mixer_norm="input_layernorm",
        ),
        rule("final_layernorm", "norm"),
    ),
    heads=decoder_heads("Phi", "ForSequenceClassification", "ForTokenClassification"),
)

PHI3 = Family(
    model_type="phi3",
    kind=DECODER,
    fields=(
        *LLAMA_FIELDS,
        rope(partial=True),
        ONE_WINDOW,
        renamed(resid_pdrop="hidden_dropout"),
        always(embedding_dropout=0.0),
        # No model uses the first; the second is also in the parameters of the rope type that needs it.
        unread("embd_pdrop", "original_max_position_embeddings"),
    ),
    weights=(
        rule("embed_tokens", "embed_tokens"),
        rule("layers.*.self_attn.qkv_proj", *(f"layers.*.mixer.{part}_proj" for part in "qkv")),
        rule("layers.*.mlp.gate_up_proj", "layers.*.mlp.gate_proj", "layers.*.mlp.up_proj"),
        *layers(
            "layers",
            "layers",
            mixer__o_proj="self_attn.o_proj",
            mlp__down_proj="mlp.down_proj",
            mixer_norm="input_layernorm",
            mlp_norm="post_attention_layernorm",
        ),
        rule("norm", "norm"),
    ),
    heads=decoder_heads("Phi3", "ForSequenceClassification", "ForTokenClassification"),
)

FAMILIES = (PHI, PHI3)
