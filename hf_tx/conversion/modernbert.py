# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""ModernBERT."""

from typing import Any

from .family import ENCODER, Family, Head
from .fields import Entry, NotExpressible, Settings, always, derived, one_of, only, renamed, same, several, unread
from .llama import DERIVED_HEAD_DIM, layer_types, rope
from .weights import layers, rule

_POOLINGS = {"cls": "first", "mean": "mean"}
_LAYER_TYPES = layer_types()


def _write_window(settings: Settings) -> dict[str, Any]:
    written = _LAYER_TYPES.write(settings)
    window = written.pop("sliding_window", None)
    return written | ({} if window is None else {"local_attention": 2 * window})


def _read_activation(config: Any) -> dict[str, Any]:
    if config.classifier_activation != config.hidden_activation:
        reason = f"the heads use the activation of the layers, hidden_activation = {config.hidden_activation!r}"
        raise NotExpressible("classifier_activation", config.classifier_activation, reason)
    return {"hidden_act": config.hidden_activation}


_TRANSFORM = (rule("head.dense", "transform.dense"), rule("head.norm", "transform.norm"))

MODERNBERT = Family(
    model_type="modernbert",
    kind=ENCODER,
    fields=(
        same("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"),
        same(
            "max_position_embeddings", "attention_dropout", "classifier_dropout", "norm_eps", "norm_bias", "mlp_bias"
        ),
        renamed(mlp_dropout="ffn_dropout", decoder_bias="lm_head_bias", classifier_bias="transform_bias"),
        several("attention_bias", "attention_bias", "attention_out_bias"),
        Entry(
            ("hidden_activation", "classifier_activation"),
            ("hidden_act",),
            _read_activation,
            lambda settings: dict.fromkeys(("hidden_activation", "classifier_activation"), settings["hidden_act"]),
        ),
        Entry(("layer_types", "local_attention"), _LAYER_TYPES.ours, _LAYER_TYPES.read, _write_window),
        DERIVED_HEAD_DIM,
        rope(),
        one_of("classifier_pooling", "classifier_pooling", _POOLINGS),
        same("embedding_dropout"),
        only("tokens without a label must have -100", sparse_pred_ignore_index=-100),
        unread("sparse_prediction"),  # whether logits without a label are left out
        unread("initializer_cutoff_factor", "deterministic_flash_attn", "cls_token_id", "sep_token_id"),
        derived("per_layer_config", lambda config: {"0": {"mixer_norm": False}}),
        always(embedding_norm=True, type_vocab_size=0, classifier_transform=True),
    ),
    weights=(
        rule("embeddings.tok_embeddings", "embed_tokens"),
        rule("embeddings.norm", "embed_norm"),
        rule("layers.*.attn.Wqkv", *(f"layers.*.mixer.{part}_proj" for part in "qkv")),
        rule("layers.*.mlp.Wi", "layers.*.mlp.gate_proj", "layers.*.mlp.up_proj"),
        *layers(
            "layers",
            "layers",
            mixer__o_proj="attn.Wo",
            mlp__down_proj="mlp.Wo",
            mixer_norm="attn_norm",
            mlp_norm="mlp_norm",
        ),
        rule("final_norm", "norm"),
    ),
    heads=(
        Head("ModernBertModel", "TxEncoderModel"),
        *(
            Head(f"ModernBert{kind}", f"TxEncoder{kind}", "model", (*_TRANSFORM, rule(theirs, ours)))
            for kind, theirs, ours in (
                ("ForMaskedLM", "decoder", "lm_head"),
                ("ForSequenceClassification", "classifier", "score"),
                ("ForTokenClassification", "classifier", "score"),
                ("ForMultipleChoice", "classifier", "score"),
                ("ForQuestionAnswering", "classifier", "qa_outputs"),
            )
        ),
    ),
)

FAMILIES = (MODERNBERT,)
