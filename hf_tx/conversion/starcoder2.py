# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""StarCoder2."""

from .family import CLASSIFIER_DROPOUT, DECODER, Family, decoder_heads
from .fields import always, renamed, same, several
from .llama import ATTENTION, HEAD_DIM, ONE_WINDOW, SIZES, rope, weights

STARCODER2 = Family(
    model_type="starcoder2",
    kind=DECODER,
    fields=(
        *SIZES,
        HEAD_DIM,
        CLASSIFIER_DROPOUT,
        same("hidden_act", "attention_dropout", "embedding_dropout"),
        renamed(norm_epsilon="norm_eps", residual_dropout="hidden_dropout"),
        several("use_bias", "attention_bias", "attention_out_bias", "mlp_bias"),
        rope(),
        ONE_WINDOW,
        always(norm_type="layernorm", ffn_type="mlp"),
    ),
    weights=weights(
        dict(
            **ATTENTION,
            mlp__up_proj="mlp.c_fc",
            mlp__down_proj="mlp.c_proj",
            mixer_norm="input_layernorm",
            mlp_norm="post_attention_layernorm",
        )
    ),
    heads=decoder_heads("Starcoder2", "ForSequenceClassification", "ForTokenClassification"),
)

FAMILIES = (STARCODER2,)
