# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""EuroBERT: a Llama that is an encoder."""

from .family import ENCODER, Family, Head
from .fields import always, one_of, renamed, same, several, unread
from .llama import ATTENTION_BIAS, HEAD_DIM, LAYER, SIZES, rope, weights
from .weights import rule

_POOLINGS = {"bos": "first", "mean": "mean", "late": "late"}

EUROBERT = Family(
    model_type="eurobert",
    kind=ENCODER,
    fields=(
        *SIZES,
        HEAD_DIM,
        same("hidden_act", "attention_dropout"),
        renamed(rms_norm_eps="norm_eps"),
        rope(),
        ATTENTION_BIAS,
        several("mlp_bias", "mlp_bias", "lm_head_bias"),
        one_of("classifier_pooling", "pooler_pooling", _POOLINGS),
        unread("use_cache"),  # an encoder has none
        unread("pretraining_tp", "mask_token_id"),
        always(norm_type="rmsnorm", type_vocab_size=0, mlm_head_transform=False, classifier_dropout=0.0),
    ),
    weights=weights(LAYER),
    heads=(
        Head("EuroBertModel", "TxEncoderModel"),
        Head("EuroBertForMaskedLM", "TxEncoderForMaskedLM", "model", (rule("lm_head", "lm_head"),)),
        Head(
            "EuroBertForSequenceClassification",
            "TxEncoderForSequenceClassification",
            "model",
            (rule("dense", "model.pooler.dense"), rule("classifier", "score")),
            {"add_pooling_layer": True, "pooler_act": "gelu"},
        ),
        Head(
            "EuroBertForTokenClassification",
            "TxEncoderForTokenClassification",
            "model",
            (rule("classifier", "score"),),
        ),
    ),
)

FAMILIES = (EUROBERT,)
