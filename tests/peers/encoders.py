# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""transformers' encoders, and the variants that their code tells apart."""

from typing import Any

import transformers as hf
from peers.tables import HEADS, INNER, LAYERS, LENGTH, STANDARD, VOCABULARY, WIDTH, converted

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
MODERNBERT = STANDARD | dict(
    local_attention=6,
    global_attn_every_n_layers=2,
    rope_parameters={
        "full_attention": dict(rope_type="default", rope_theta=500.0),
        "sliding_attention": dict(rope_type="default", rope_theta=50.0),
    },
)


def roberta(theirs: Any, **facts: Any) -> Any:
    return converted(theirs, ROBERTA, positions="own", **facts)


def distilbert(theirs: Any, **facts: Any) -> Any:
    return converted(theirs, DISTILBERT, **facts)


def modernbert(theirs: Any, **facts: Any) -> Any:
    return converted(theirs, MODERNBERT, **facts)


def mpnet(theirs: Any, **facts: Any) -> Any:
    return converted(theirs, ROBERTA, positions="own", backends=("eager",), **facts)


def eurobert(theirs: Any, **facts: Any) -> Any:
    return converted(theirs, STANDARD, dict(num_key_value_heads=2), **facts)


def nomic_bert(theirs: Any, **facts: Any) -> Any:
    return converted(theirs, STANDARD, **facts)


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
    "modernbert_masked_lm": modernbert(hf.ModernBertForMaskedLM)(),
    "modernbert_masked_lm_biases_untied": modernbert(hf.ModernBertForMaskedLM)(
        tie_word_embeddings=False,
        attention_bias=True,
        mlp_bias=True,
        norm_bias=True,
        classifier_bias=True,
        decoder_bias=False,
        local_attention=7,
    ),
    "modernbert_masked_lm_full": modernbert(hf.ModernBertForMaskedLM)(layer_types=["full_attention"] * LAYERS),
    "modernbert_classifier": modernbert(hf.ModernBertForSequenceClassification, sides=("right",))(num_labels=3),
    "modernbert_classifier_mean": modernbert(hf.ModernBertForSequenceClassification)(
        num_labels=3, classifier_pooling="mean", classifier_bias=True
    ),
    "modernbert_token_classifier": modernbert(hf.ModernBertForTokenClassification)(num_labels=3),
    "modernbert_question_answering": modernbert(hf.ModernBertForQuestionAnswering)(),
    "mpnet_masked_lm": mpnet(hf.MPNetForMaskedLM)(),
    "mpnet_masked_lm_untied": mpnet(hf.MPNetForMaskedLM)(tie_word_embeddings=False),
    "mpnet_classifier": mpnet(hf.MPNetForSequenceClassification, sides=("right",))(num_labels=3),
    "mpnet_token_classifier": mpnet(hf.MPNetForTokenClassification)(num_labels=3),
    "eurobert_masked_lm": eurobert(hf.EuroBertForMaskedLM)(),
    "eurobert_masked_lm_mha_biases_tied": eurobert(hf.EuroBertForMaskedLM)(
        num_key_value_heads=None, head_dim=12, attention_bias=True, mlp_bias=True, tie_word_embeddings=True
    ),
    "eurobert_classifier": eurobert(hf.EuroBertForSequenceClassification, sides=("right",))(
        num_labels=3, classifier_pooling="bos"
    ),
    **{
        f"eurobert_classifier_{pooling}": eurobert(hf.EuroBertForSequenceClassification)(
            num_labels=3, classifier_pooling=pooling
        )
        for pooling in ("mean", "late")
    },
    "eurobert_token_classifier": eurobert(hf.EuroBertForTokenClassification)(num_labels=3),
    "nomic_bert_masked_lm": nomic_bert(hf.NomicBertForMaskedLM)(),
    "nomic_bert_masked_lm_untied": nomic_bert(hf.NomicBertForMaskedLM)(
        tie_word_embeddings=False, hidden_act="gelu", head_dim=12, type_vocab_size=3
    ),
    "nomic_bert_classifier": nomic_bert(hf.NomicBertForSequenceClassification, sides=("right",))(num_labels=3),
    "nomic_bert_token_classifier": nomic_bert(hf.NomicBertForTokenClassification)(num_labels=3),
}
