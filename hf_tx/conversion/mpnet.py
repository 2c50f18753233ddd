# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""MPNet: a RoBERTa whose scores have the distances of T5 as well."""

from typing import Any

from .bert import BLOCKS, NAMES, POOLER
from .family import ENCODER, Family
from .fields import Entry, NotExpressible, always, only
from .roberta import GELU, POSITIONS, heads
from .weights import layers, rule


def _read_padding(config: Any) -> dict[str, Any]:
    if config.pad_token_id != 1:
        raise NotExpressible(
            "pad_token_id", config.pad_token_id, "its code counts positions as if pad_token_id were 1"
        )
    return {"pad_token_id": 1}


MPNET = Family(
    model_type="mpnet",
    kind=ENCODER,
    fields=(
        *NAMES,
        Entry(("pad_token_id",), ("pad_token_id",), _read_padding, lambda settings: {"pad_token_id": 1}),
        POSITIONS,
        GELU,
        only("its code always uses 32 buckets", relative_attention_num_buckets=32),
        always(position_type="learned_relative", type_vocab_size=0, add_pooling_layer=True, **BLOCKS),
    ),
    weights=(
        rule("embeddings.word_embeddings", "embed_tokens"),
        rule("embeddings.position_embeddings", "positions.learned_relative.embed_positions"),
        rule("embeddings.LayerNorm", "embed_norm"),
        *layers(
            "encoder.layer",
            "layers",
            **{f"mixer__{part}_proj": f"attention.attn.{part}" for part in "qkvo"},
            mixer_norm="attention.LayerNorm",
            mlp__up_proj="intermediate.dense",
            mlp__down_proj="output.dense",
            mlp_norm="output.LayerNorm",
        ),
        rule("encoder.relative_attention_bias", "positions.learned_relative.relative_bias"),
        POOLER,
    ),
    heads=heads("MPNet", "mpnet"),
    dropped={r"lm_head\.bias": "a second name of the bias of the decoder, which is what the head adds"},
    by_weights=("add_pooling_layer",),
)

FAMILIES = (MPNET,)
