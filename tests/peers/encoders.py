# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""The library's encoders, and the variants that their code tells apart."""

from functools import partial
from typing import Any

import transformers as hf
from peers.tables import (
    HEADS,
    INNER,
    LAYERS,
    LENGTH,
    STANDARD,
    VOCABULARY,
    WIDTH,
    Peer,
    block,
    converted,
    half,
    qkv,
    third,
)
from torch import nn

import hf_tx

# Their table counts the two rows that the offset skips.
ROBERTA = STANDARD | dict(pad_token_id=1, bos_token_id=0, max_position_embeddings=LENGTH + 2)
DISTILBERT = dict(
    vocab_size=VOCABULARY,
    max_position_embeddings=LENGTH,
    n_layers=LAYERS,
    n_heads=HEADS,
    dim=WIDTH,
    hidden_dim=INNER,
    pad_token_id=0,
)


def roberta(theirs: Any, **facts: Any) -> Any:
    return converted(theirs, ROBERTA, positions="own", **facts)


def distilbert(theirs: Any, **facts: Any) -> Any:
    return converted(theirs, DISTILBERT, **facts)


def _give_first_norm(model: Any) -> None:
    """ModernBERT's first layer has no norm before its attention; ours always has one."""
    first = model.model.layers[0]
    first.attn_norm = nn.LayerNorm(WIDTH, eps=model.config.norm_eps, bias=False)


ENCODERS = {
    "bert_masked_lm": converted(hf.BertForMaskedLM, STANDARD)(),
    "bert_masked_lm_untied": converted(hf.BertForMaskedLM, STANDARD)(tie_word_embeddings=False, hidden_act="gelu_new"),
    "bert_classifier": converted(hf.BertForSequenceClassification, STANDARD, sides=("right",))(num_labels=3),
    "bert_token_classifier": converted(hf.BertForTokenClassification, STANDARD)(num_labels=3),
    "bert_question_answering": converted(hf.BertForQuestionAnswering, STANDARD)(),
    "bert_multiple_types": converted(hf.BertForMaskedLM, STANDARD)(type_vocab_size=3, hidden_act="gelu_new"),
    "roberta_masked_lm": roberta(hf.RobertaForMaskedLM)(),
    "roberta_masked_lm_untied": roberta(hf.RobertaForMaskedLM)(tie_word_embeddings=False),
    "roberta_classifier": roberta(hf.RobertaForSequenceClassification, sides=("right",))(num_labels=3),
    "roberta_token_classifier": roberta(hf.RobertaForTokenClassification)(num_labels=3),
    "xlm_roberta_masked_lm": roberta(hf.XLMRobertaForMaskedLM)(),
    "xlm_roberta_classifier": roberta(hf.XLMRobertaForSequenceClassification, sides=("right",))(num_labels=3),
    "distilbert_masked_lm": distilbert(hf.DistilBertForMaskedLM)(),
    "distilbert_masked_lm_untied": distilbert(hf.DistilBertForMaskedLM)(tie_word_embeddings=False, activation="relu"),
    "distilbert_classifier": distilbert(hf.DistilBertForSequenceClassification, sides=("right",))(num_labels=3),
    "distilbert_token_classifier": distilbert(hf.DistilBertForTokenClassification)(num_labels=3),
    "distilbert_question_answering": distilbert(hf.DistilBertForQuestionAnswering)(),
    "electra_masked_lm": converted(hf.ElectraForMaskedLM, STANDARD)(embedding_size=20),
    "electra_masked_lm_untied": converted(hf.ElectraForMaskedLM, STANDARD)(
        embedding_size=WIDTH, tie_word_embeddings=False
    ),
    "electra_classifier": converted(hf.ElectraForSequenceClassification, STANDARD, sides=("right",))(
        num_labels=3, embedding_size=20
    ),
    "electra_token_classifier": converted(hf.ElectraForTokenClassification, STANDARD)(num_labels=3),
    "electra_question_answering": converted(hf.ElectraForQuestionAnswering, STANDARD)(),
    "modernbert_masked_lm": Peer(
        theirs=hf.ModernBertForMaskedLM,
        config=lambda: hf.ModernBertConfig(
            **STANDARD,
            local_attention=6,
            global_attn_every_n_layers=2,
            classifier_bias=True,  # ours cannot leave it out
            rope_parameters={
                "full_attention": dict(rope_type="default", rope_theta=500.0),
                "sliding_attention": dict(rope_type="default", rope_theta=50.0),
            },
        ),
        ours=hf_tx.TxEncoderForMaskedLM,
        settings=dict(
            **STANDARD,
            mixers="full,sliding",
            sliding_window=3,
            type_vocab_size=0,
            embedding_norm=True,
            norm_bias=False,
            rope_parameters={
                "full_attention": dict(rope_type="default", rope_theta=500.0),
                "sliding_attention": dict(rope_type="default", rope_theta=50.0),
            },
        ),
        names={
            "model.embed_tokens": "model.embeddings.tok_embeddings",
            "model.embed_norm": "model.embeddings.norm",
            **qkv("model.layers.*.mixer", "model.layers.*.attn.Wqkv", third),
            "model.layers.*.mlp.gate_proj": ("model.layers.*.mlp.Wi", partial(half, 0)),
            "model.layers.*.mlp.up_proj": ("model.layers.*.mlp.Wi", partial(half, 1)),
            **block(
                "model.layers",
                "model.layers",
                mixer__o_proj="attn.Wo",
                mlp__down_proj="mlp.Wo",
                mixer_norm="attn_norm",
                mlp_norm="mlp_norm",
            ),
            "model.norm": "model.final_norm",
            "transform.dense": "head.dense",
            "transform.norm": "head.norm",
            "lm_head": "decoder",
        },
        adapt=_give_first_norm,
    ),
}
