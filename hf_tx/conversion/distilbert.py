# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""DistilBERT: a BERT without token types."""

from .family import ENCODER, Family, Head
from .fields import always, renamed, same, unread
from .weights import layers, rule

_TEXT = (rule("pre_classifier", "model.pooler.dense"), rule("classifier", "score"))
_POOLED = {"add_pooling_layer": True, "pooler_act": "relu"}

DISTILBERT = Family(
    model_type="distilbert",
    kind=ENCODER,
    fields=(
        same("vocab_size", "max_position_embeddings", "attention_dropout"),
        renamed(
            n_layers="num_hidden_layers",
            n_heads="num_attention_heads",
            dim="hidden_size",
            hidden_dim="intermediate_size",
            activation="hidden_act",
            dropout="hidden_dropout",
            seq_classif_dropout="classifier_dropout",
        ),
        unread("sinusoidal_pos_embds"),  # what the table of positions begins with
        unread("qa_dropout"),
        always(
            position_type="learned",
            norm_position="post",
            embedding_norm=True,
            norm_eps=1e-12,
            type_vocab_size=0,
            ffn_type="mlp",
            attention_bias=True,
            attention_out_bias=True,
            mlp_bias=True,
            lm_head_bias=True,
        ),
    ),
    weights=(
        rule("embeddings.word_embeddings", "embed_tokens"),
        rule("embeddings.position_embeddings", "positions.learned.embed_positions"),
        rule("embeddings.LayerNorm", "embed_norm"),
        *layers(
            "transformer.layer",
            "layers",
            **{f"mixer__{part}_proj": f"attention.{part}_lin" for part in "qkv"},
            mixer__o_proj="attention.out_lin",
            mixer_norm="sa_layer_norm",
            mlp__up_proj="ffn.lin1",
            mlp__down_proj="ffn.lin2",
            mlp_norm="output_layer_norm",
        ),
    ),
    heads=(
        Head("DistilBertModel", "TxEncoderModel"),
        Head(
            "DistilBertForMaskedLM",
            "TxEncoderForMaskedLM",
            "distilbert",
            (
                rule("vocab_transform", "transform.dense"),
                rule("vocab_layer_norm", "transform.norm"),
                rule("vocab_projector", "lm_head"),
            ),
        ),
        Head(
            "DistilBertForSequenceClassification", "TxEncoderForSequenceClassification", "distilbert", _TEXT, _POOLED
        ),
        Head("DistilBertForMultipleChoice", "TxEncoderForMultipleChoice", "distilbert", _TEXT, _POOLED),
        Head(
            "DistilBertForTokenClassification",
            "TxEncoderForTokenClassification",
            "distilbert",
            (rule("classifier", "score"),),
            {"classifier_dropout": None},  # that of the layers
        ),
        Head(
            "DistilBertForQuestionAnswering",
            "TxEncoderForQuestionAnswering",
            "distilbert",
            (rule("qa_outputs", "qa_outputs"),),
        ),
    ),
)

FAMILIES = (DISTILBERT,)
