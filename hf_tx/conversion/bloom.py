# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""BLOOM."""

from typing import Any

from .family import CLASSIFIER_DROPOUT, DECODER, Family, decoder_heads
from .fields import Entry, NotExpressible, always, derived, only, renamed, same
from .gpt2 import LAYER_NORM
from .gpt_neox import FEED_FORWARD_AND_NORMS
from .llama import HEADS
from .weights import layers, rule


def _read_slices(config: Any) -> dict[str, Any]:
    if config.slow_but_exact and config.pretraining_tp != 1:
        reason = (
            f"with pretraining_tp = {config.pretraining_tp}, transformers splits products and leaves out their biases"
        )
        raise NotExpressible("slow_but_exact", True, f"{reason}; set it to False, which computes what was trained")
    return {}


BLOOM = Family(
    model_type="bloom",
    kind=DECODER,
    fields=(
        same("vocab_size", "hidden_size", "attention_dropout", "hidden_dropout"),
        CLASSIFIER_DROPOUT,
        renamed(n_layer="num_hidden_layers", n_head="num_attention_heads", layer_norm_epsilon="norm_eps"),
        derived("intermediate_size", lambda config: 4 * config.hidden_size),
        only("hf_tx takes the residual before the norm", apply_residual_connection_post_layernorm=False),
        Entry(("pretraining_tp", "slow_but_exact"), (), _read_slices, lambda settings: {}),
        always(embedding_dropout=0.0, position_type="alibi", embedding_norm=True, hidden_act="gelu_new", **LAYER_NORM),
    ),
    weights=(
        rule("word_embeddings", "embed_tokens"),
        rule("word_embeddings_layernorm", "embed_norm"),
        rule("h.*.self_attention.query_key_value", *(f"layers.*.mixer.{part}_proj" for part in "qkv"), by_head=True),
        *layers(
            "h",
            "layers",
            mixer__o_proj="self_attention.dense",
            **FEED_FORWARD_AND_NORMS,
        ),
        rule("ln_f", "norm"),
    ),
    heads=decoder_heads("Bloom", *HEADS, prefix="transformer", token_classifier="classifier"),
)

FAMILIES = (BLOOM,)
