# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""BERT, and the encoders whose modules have its names."""

from .family import ENCODER, Family, Head
from .fields import always, only, renamed, same, unread
from .weights import Rule, layers, rule

LAYER = dict(
    mixer__q_proj="attention.self.query",
    mixer__k_proj="attention.self.key",
    mixer__v_proj="attention.self.value",
    mixer__o_proj="attention.output.dense",
    mixer_norm="attention.output.LayerNorm",
    mlp__up_proj="intermediate.dense",
    mlp__down_proj="output.dense",
    mlp_norm="output.LayerNorm",
)
WEIGHTS: tuple[Rule, ...] = (
    rule("embeddings.word_embeddings", "embed_tokens"),
    rule("embeddings.token_type_embeddings", "embed_types"),
    rule("embeddings.position_embeddings", "positions.learned.embed_positions"),
    rule("embeddings.LayerNorm", "embed_norm"),
    *layers("encoder.layer", "layers", **LAYER),
)
POOLER = rule("pooler.dense", "pooler.dense")

NAMES = (
    same("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "hidden_act"),
    same("type_vocab_size", "classifier_dropout"),
    renamed(
        hidden_dropout_prob="hidden_dropout",
        attention_probs_dropout_prob="attention_dropout",
        layer_norm_eps="norm_eps",
    ),
)
BLOCKS = dict(
    norm_position="post",
    embedding_norm=True,
    ffn_type="mlp",
    attention_bias=True,
    attention_out_bias=True,
    mlp_bias=True,
    lm_head_bias=True,
)
FIELDS = (
    *NAMES,
    only("transformers does not support any other value any more", position_embedding_type="absolute"),
    only("an encoder is bidirectional", is_decoder=False),
    only("the layers of an encoder have no cross-attention", add_cross_attention=False),
    unread("use_cache"),  # an encoder has none
    always(position_type="learned", **BLOCKS),
)

BERT = Family(
    model_type="bert",
    kind=ENCODER,
    fields=(*FIELDS, same("max_position_embeddings"), always(add_pooling_layer=True)),
    weights=(*WEIGHTS, POOLER),
    heads=(
        Head("BertModel", "TxEncoderModel"),
        Head(
            "BertForMaskedLM",
            "TxEncoderForMaskedLM",
            "bert",
            (
                rule("cls.predictions.transform.dense", "transform.dense"),
                rule("cls.predictions.transform.LayerNorm", "transform.norm"),
                rule("cls.predictions.decoder", "lm_head"),
            ),
        ),
        *(
            Head(f"Bert{kind}", f"TxEncoder{kind}", "bert", (rule(theirs, ours),))
            for kind, theirs, ours in (
                ("ForSequenceClassification", "classifier", "score"),
                ("ForTokenClassification", "classifier", "score"),
                ("ForMultipleChoice", "classifier", "score"),
                ("ForQuestionAnswering", "qa_outputs", "qa_outputs"),
            )
        ),
    ),
    dropped={r"cls\.predictions\.bias": "a second name of the bias of the decoder, which is what the head adds"},
    other_heads=("cls.seq_relationship",),
    by_weights=("add_pooling_layer",),
)

FAMILIES = (BERT,)
