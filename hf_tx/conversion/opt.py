# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""OPT."""

from typing import Any

from .family import DECODER, Family, decoder_heads
from .fields import Entry, Settings, always, renamed, same, several
from .weights import layers, rule


def _read_widths(config: Any) -> dict[str, Any]:
    if config.word_embed_proj_dim == config.hidden_size:
        return {"hidden_size": config.hidden_size}
    return {
        "hidden_size": config.hidden_size,
        "embedding_size": config.word_embed_proj_dim,
        "embedding_projection": "tokens",
        "output_projection": True,
    }


def _write_widths(settings: Settings) -> dict[str, Any]:
    size = settings["hidden_size"]
    return {"hidden_size": size, "word_embed_proj_dim": settings["embedding_size"] or size}


def _read_norms(config: Any) -> dict[str, Any]:
    before = config.do_layer_norm_before
    return {
        "norm_position": "pre" if before else "post",
        "final_norm": before and not config._remove_final_layer_norm,
    }


OPT = Family(
    model_type="opt",
    kind=DECODER,
    fields=(
        same("vocab_size", "num_hidden_layers", "num_attention_heads", "max_position_embeddings"),
        same("attention_dropout", "layerdrop"),
        renamed(
            ffn_dim="intermediate_size",
            activation_function="hidden_act",
            dropout="hidden_dropout",
            init_std="initializer_range",
        ),
        Entry(
            ("hidden_size", "word_embed_proj_dim"),
            ("hidden_size", "embedding_size", "embedding_projection", "output_projection"),
            _read_widths,
            _write_widths,
        ),
        Entry(
            ("do_layer_norm_before", "_remove_final_layer_norm"),
            ("norm_position", "final_norm"),
            _read_norms,
            lambda settings: {
                "do_layer_norm_before": settings["norm_position"] == "pre",
                "_remove_final_layer_norm": not settings["final_norm"] and settings["norm_position"] == "pre",
            },
        ),
        several("enable_bias", "attention_bias", "attention_out_bias", "mlp_bias"),
        several("layer_norm_elementwise_affine", "norm_affine", "norm_bias"),
        always(
            embedding_dropout=0.0,
            position_type="learned",
            position_offset=2,
            norm_type="layernorm",
            norm_eps=1e-5,
            ffn_type="mlp",
        ),
    ),
    weights=(
        rule("decoder.embed_tokens", "embed_tokens"),
        rule("decoder.embed_positions", "positions.learned.embed_positions"),
        *layers(
            "decoder.layers",
            "layers",
            **{f"mixer__{part}_proj": f"self_attn.{part}_proj" for part in "qkv"},
            mixer__o_proj="self_attn.out_proj",
            mlp__up_proj="fc1",
            mlp__down_proj="fc2",
            mixer_norm="self_attn_layer_norm",
            mlp_norm="final_layer_norm",
        ),
        rule("decoder.final_layer_norm", "norm"),
        rule("decoder.project_in", "embed_proj"),
        rule("decoder.project_out", "output_proj"),
    ),
    heads=decoder_heads("OPT", "ForSequenceClassification", "ForQuestionAnswering"),
)

FAMILIES = (OPT,)
