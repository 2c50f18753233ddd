# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Nomic BERT: a BERT with rotated positions, gated feed-forward layers and few biases."""

from .bert import NAMES, POOLER
from .family import ENCODER, Family, Head
from .fields import always, same
from .llama import ATTENTION, GATED, HEAD_DIM, rope
from .weights import layers, rule

NOMIC_BERT = Family(
    model_type="nomic_bert",
    kind=ENCODER,
    fields=(
        *NAMES,
        same("max_position_embeddings"),
        HEAD_DIM,
        rope(),
        always(norm_position="post", embedding_norm=True, lm_head_bias=True, add_pooling_layer=True),
    ),
    weights=(
        rule("embeddings.word_embeddings", "embed_tokens"),
        rule("embeddings.token_type_embeddings", "embed_types"),
        rule("embeddings.LayerNorm", "embed_norm"),
        *layers(
            "layers",
            "layers",
            **ATTENTION,
            **GATED,
            mixer_norm="post_attention_layernorm",
            mlp_norm="post_mlp_layernorm",
        ),
        POOLER,
    ),
    heads=(
        Head("NomicBertModel", "TxEncoderModel"),
        Head(
            "NomicBertForMaskedLM",
            "TxEncoderForMaskedLM",
            "nomic_bert",
            (
                rule("cls.predictions.transform.dense", "transform.dense"),
                rule("cls.predictions.transform.layer_norm", "transform.norm"),
                rule("cls.predictions.decoder", "lm_head"),
            ),
        ),
        *(
            Head(f"NomicBert{kind}", f"TxEncoder{kind}", "nomic_bert", (rule("classifier", "score"),))
            for kind in ("ForSequenceClassification", "ForTokenClassification")
        ),
    ),
    dropped={r"cls\.predictions\.bias": "a second name of the bias of the decoder, which is what the head adds"},
    by_weights=("add_pooling_layer",),
)

FAMILIES = (NOMIC_BERT,)
