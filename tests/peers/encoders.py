# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""The library's encoders as settings of hf_tx."""

from functools import partial
from typing import Any

import transformers as hf
from peers.tables import (
    LENGTH,
    STANDARD,
    WIDTH,
    Names,
    Peer,
    block,
    half,
    qkv,
    third,
)
from torch import nn

import hf_tx

BERT = dict(
    **STANDARD,
    position_type="learned",
    norm_position="post",
    embedding_norm=True,
    norm_eps=1e-12,
    ffn_type="mlp",
    attention_bias=True,
    mlp_bias=True,
)


def bert_names(base: str) -> Names:
    return {
        "model.embed_tokens": f"{base}.embeddings.word_embeddings",
        "model.embed_types": f"{base}.embeddings.token_type_embeddings",
        "model.positions.learned.embed_positions": f"{base}.embeddings.position_embeddings",
        "model.embed_norm": f"{base}.embeddings.LayerNorm",
        **block(
            "model.layers",
            f"{base}.encoder.layer",
            mixer__q_proj="attention.self.query",
            mixer__k_proj="attention.self.key",
            mixer__v_proj="attention.self.value",
            mixer__o_proj="attention.output.dense",
            mixer_norm="attention.output.LayerNorm",
            mlp__up_proj="intermediate.dense",
            mlp__down_proj="output.dense",
            mlp_norm="output.LayerNorm",
        ),
    }


def _give_first_norm(model: Any) -> None:
    """ModernBERT's first layer has no norm before its attention; ours always has one."""
    first = model.model.layers[0]
    first.attn_norm = nn.LayerNorm(WIDTH, eps=model.config.norm_eps, bias=False)


ENCODERS = {
    "bert_masked_lm": Peer(
        theirs=hf.BertForMaskedLM,
        config=lambda: hf.BertConfig(**STANDARD),
        ours=hf_tx.TxEncoderForMaskedLM,
        settings=BERT,
        names={
            **bert_names("bert"),
            "transform.dense": "cls.predictions.transform.dense",
            "transform.norm": "cls.predictions.transform.LayerNorm",
            "lm_head": "cls.predictions.decoder",
        },
    ),
    "bert_classifier": Peer(
        theirs=hf.BertForSequenceClassification,
        config=lambda: hf.BertConfig(**STANDARD, num_labels=3),
        ours=hf_tx.TxEncoderForSequenceClassification,
        settings=BERT | dict(num_labels=3, add_pooling_layer=True),
        names={**bert_names("bert"), "model.pooler.dense": "bert.pooler.dense", "score": "classifier"},
    ),
    "bert_token_classifier": Peer(
        theirs=hf.BertForTokenClassification,
        config=lambda: hf.BertConfig(**STANDARD, num_labels=3),
        ours=hf_tx.TxEncoderForTokenClassification,
        settings=BERT | dict(num_labels=3),
        names={**bert_names("bert"), "score": "classifier"},
    ),
    "bert_question_answering": Peer(
        theirs=hf.BertForQuestionAnswering,
        config=lambda: hf.BertConfig(**STANDARD),
        ours=hf_tx.TxEncoderForQuestionAnswering,
        settings=BERT,
        names={**bert_names("bert"), "qa_outputs": "qa_outputs"},
    ),
    "roberta_masked_lm": Peer(
        theirs=hf.RobertaForMaskedLM,
        # Their table counts the two rows that the offset skips.
        config=lambda: hf.RobertaConfig(**STANDARD | dict(pad_token_id=1, max_position_embeddings=LENGTH + 2)),
        ours=hf_tx.TxEncoderForMaskedLM,
        settings=BERT | dict(pad_token_id=1, position_offset=2),
        names={
            **bert_names("roberta"),
            "transform.dense": "lm_head.dense",
            "transform.norm": "lm_head.layer_norm",
            "lm_head": "lm_head.decoder",
        },
        positions="own",
    ),
    "roberta_classifier": Peer(
        theirs=hf.RobertaForSequenceClassification,
        config=lambda: hf.RobertaConfig(
            **STANDARD | dict(pad_token_id=1, max_position_embeddings=LENGTH + 2), num_labels=3
        ),
        ours=hf_tx.TxEncoderForSequenceClassification,
        settings=BERT | dict(pad_token_id=1, position_offset=2, num_labels=3, add_pooling_layer=True),
        names={**bert_names("roberta"), "model.pooler.dense": "classifier.dense", "score": "classifier.out_proj"},
        positions="own",
    ),
    "electra_masked_lm": Peer(
        theirs=hf.ElectraForMaskedLM,
        config=lambda: hf.ElectraConfig(**STANDARD, embedding_size=20),
        ours=hf_tx.TxEncoderForMaskedLM,
        settings=BERT | dict(embedding_size=20),
        names={
            **bert_names("electra"),
            "model.embed_proj": "electra.embeddings_project",
            "transform.dense": "generator_predictions.dense",
            "transform.norm": "generator_predictions.LayerNorm",
            "lm_head": "generator_lm_head",
        },
    ),
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
