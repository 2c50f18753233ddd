# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""ELECTRA: a BERT whose embeddings may be smaller than its states."""

from .bert import FIELDS, WEIGHTS
from .family import ENCODER, Family, Head
from .fields import only, same, unread
from .weights import rule

ELECTRA = Family(
    model_type="electra",
    kind=ENCODER,
    fields=(
        *FIELDS,
        same("max_position_embeddings", "embedding_size"),
        only("its heads always use gelu", hidden_act="gelu"),
        # Of a class that is not converted.
        unread("summary_type", "summary_use_proj", "summary_activation", "summary_last_dropout"),
    ),
    weights=(*WEIGHTS, rule("embeddings_project", "embed_proj")),
    heads=(
        Head("ElectraModel", "TxEncoderModel"),
        Head(
            "ElectraForMaskedLM",
            "TxEncoderForMaskedLM",
            "electra",
            (
                rule("generator_predictions.dense", "transform.dense"),
                rule("generator_predictions.LayerNorm", "transform.norm"),
                rule("generator_lm_head", "lm_head"),
            ),
        ),
        Head(
            "ElectraForSequenceClassification",
            "TxEncoderForSequenceClassification",
            "electra",
            (rule("classifier.dense", "model.pooler.dense"), rule("classifier.out_proj", "score")),
            {"add_pooling_layer": True, "pooler_act": "gelu"},
        ),
        Head(
            "ElectraForTokenClassification",
            "TxEncoderForTokenClassification",
            "electra",
            (rule("classifier", "score"),),
        ),
        Head(
            "ElectraForQuestionAnswering",
            "TxEncoderForQuestionAnswering",
            "electra",
            (rule("qa_outputs", "qa_outputs"),),
        ),
    ),
    other_heads=("discriminator_predictions", "sequence_summary"),
)

FAMILIES = (ELECTRA,)
