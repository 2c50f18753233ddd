# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""GPT-2."""

from typing import Any

from .family import CLASSIFIER_DROPOUT, DECODER, Family, decoder_heads
from .fields import Entry, always, computed, only, renamed, same, unread
from .weights import rule

N_INNER = computed(
    "n_inner",
    "intermediate_size",
    lambda config: config.n_inner or 4 * config.n_embd,
    lambda settings: settings["intermediate_size"],
)
NAMES = renamed(
    n_positions="max_position_embeddings",
    n_embd="hidden_size",
    n_layer="num_hidden_layers",
    n_head="num_attention_heads",
    activation_function="hidden_act",
    embd_pdrop="embedding_dropout",
    attn_pdrop="attention_dropout",
    resid_pdrop="hidden_dropout",
    layer_norm_epsilon="norm_eps",
)
LAYER_NORM = dict(norm_type="layernorm", ffn_type="mlp", attention_bias=True, attention_out_bias=True, mlp_bias=True)


def _read_scale(config: Any) -> dict[str, Any]:
    found: dict[str, Any] = {"attention_scale": None if config.scale_attn_weights else 1.0}
    if config.scale_attn_by_inverse_layer_idx:
        first = (config.n_embd // config.n_head) ** -0.5 if config.scale_attn_weights else 1.0
        deeper = range(1, config.n_layer)
        found["per_layer_config"] = {str(idx): {"attention_scale": first / (idx + 1)} for idx in deeper}
    return found


GPT2 = Family(
    model_type="gpt2",
    kind=DECODER,
    fields=(
        same("vocab_size"),
        NAMES,
        N_INNER,
        CLASSIFIER_DROPOUT,
        Entry(
            ("scale_attn_weights", "scale_attn_by_inverse_layer_idx"),
            ("attention_scale", "per_layer_config"),
            _read_scale,
            lambda settings: {
                "scale_attn_weights": settings["attention_scale"] is None,
                "scale_attn_by_inverse_layer_idx": bool(settings["per_layer_config"]),
            },
        ),
        only("the layers of a decoder have no cross-attention", add_cross_attention=False),
        unread("reorder_and_upcast_attn"),  # the precision of the scores in half precision
        unread("summary_type", "summary_use_proj", "summary_activation"),  # of a class that is not converted
        unread("summary_proj_to_labels", "summary_first_dropout"),
        always(position_type="learned", **LAYER_NORM),
    ),
    weights=(
        rule("wte", "embed_tokens"),
        rule("wpe", "positions.learned.embed_positions"),
        rule("h.*.ln_1", "layers.*.mixer_norm"),
        rule("h.*.attn.c_attn", *(f"layers.*.mixer.{part}_proj" for part in "qkv"), transposed=True),
        rule("h.*.attn.c_proj", "layers.*.mixer.o_proj", transposed=True),
        rule("h.*.ln_2", "layers.*.mlp_norm"),
        rule("h.*.mlp.c_fc", "layers.*.mlp.up_proj", transposed=True),
        rule("h.*.mlp.c_proj", "layers.*.mlp.down_proj", transposed=True),
        rule("ln_f", "norm"),
    ),
    heads=decoder_heads(
        "GPT2",
        "ForSequenceClassification",
        "ForTokenClassification",
        "ForQuestionAnswering",
        prefix="transformer",
        token_classifier="classifier",
        causal="GPT2LMHeadModel",
    ),
    other_heads=("multiple_choice_head",),
)

FAMILIES = (GPT2,)
