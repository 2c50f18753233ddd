# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""The library's encoder-decoders as settings of hf_tx."""

from typing import Any

import transformers as hf
from peers.tables import HEADS, INNER, LAYERS, LENGTH, SIZES, TOKENS, VOCABULARY, WIDTH, Names, Peer, block
from torch import nn

import hf_tx

T5_STACK = dict(
    **SIZES,
    head_dim=12,
    position_type="relative",
    relative_attention_num_buckets=8,
    relative_attention_max_distance=10,
    attention_scale=1.0,
    norm_type="rmsnorm",
    norm_eps=1e-6,
    type_vocab_size=0,
)
T5_CONFIG = dict(
    vocab_size=VOCABULARY,
    d_model=WIDTH,
    d_kv=12,
    d_ff=INNER,
    num_layers=LAYERS,
    num_heads=HEADS,
    relative_attention_num_buckets=8,
    relative_attention_max_distance=10,
    decoder_start_token_id=0,
    **TOKENS,
)


def t5_names(feed_forward: dict[str, str]) -> Names:
    names: Names = {"model.encoder.embed_tokens": "shared", "lm_head": "lm_head"}
    for stack, mlp in (("encoder", 1), ("decoder", 2)):
        names |= {
            f"model.{stack}.positions.relative.relative_bias": (
                f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias"
            ),
            f"model.{stack}.norm": f"{stack}.final_layer_norm",
            **block(
                f"model.{stack}.layers",
                f"{stack}.block",
                **{f"mixer__{part}_proj": f"layer.0.SelfAttention.{part}" for part in "qkvo"},
                **{f"mlp__{ours}": f"layer.{mlp}.DenseReluDense.{theirs}" for ours, theirs in feed_forward.items()},
                mixer_norm="layer.0.layer_norm",
                mlp_norm=f"layer.{mlp}.layer_norm",
            ),
        }
    return names | block(
        "model.decoder.layers",
        "decoder.block",
        **{f"cross_mixer__{part}_proj": f"layer.1.EncDecAttention.{part}" for part in "qkvo"},
        cross_norm="layer.1.layer_norm",
    )


def _untie(model: Any) -> None:
    """The library ties T5 v1.1 as well, whose checkpoints have a head of their own."""
    model.lm_head.weight = nn.Parameter(model.lm_head.weight.clone())


def t5(config: dict[str, Any], stack: dict[str, Any], feed_forward: dict[str, str], **facts: Any) -> Peer:
    settings = facts.pop("settings", {})
    return Peer(
        theirs=hf.T5ForConditionalGeneration,
        config=lambda: hf.T5Config(**T5_CONFIG, **config),
        ours=hf_tx.TxEncoderDecoderForConditionalGeneration,
        settings=dict(
            encoder=T5_STACK | stack, decoder=T5_STACK | stack, decoder_start_token_id=0, **TOKENS, **settings
        ),
        names=t5_names(feed_forward),
        positions="own",
        **facts,
    )


def bart(theirs: Any, final_norms: bool, scaled: bool, stack: dict[str, Any], **facts: Any) -> Peer:
    """BART, and mBART, which has its norms before and one more after all layers."""
    fields = dict(
        **SIZES,
        position_type="learned",
        position_offset=2,
        embedding_norm=True,
        embedding_scale=WIDTH**0.5 if scaled else None,
        norm_type="layernorm",
        norm_eps=1e-5,
        ffn_type="mlp",
        hidden_act="gelu",
        attention_bias=True,
        mlp_bias=True,
        type_vocab_size=0,
        **stack,
    )
    names: Names = {"model.encoder.embed_tokens": "model.shared", "lm_head": "lm_head"}
    for name in ("encoder", "decoder"):
        here, there = f"model.{name}", f"model.{name}"
        names |= {
            f"{here}.positions.learned.embed_positions": f"{there}.embed_positions",
            f"{here}.embed_norm": f"{there}.layernorm_embedding",
            **({f"{here}.norm": f"{there}.layer_norm"} if final_norms else {}),
            **block(
                f"{here}.layers",
                f"{there}.layers",
                **{f"mixer__{part}_proj": f"self_attn.{part}_proj" for part in "qkv"},
                mixer__o_proj="self_attn.out_proj",
                mixer_norm="self_attn_layer_norm",
                mlp__up_proj="fc1",
                mlp__down_proj="fc2",
                mlp_norm="final_layer_norm",
            ),
        }
    names |= block(
        "model.decoder.layers",
        "model.decoder.layers",
        **{f"cross_mixer__{part}_proj": f"encoder_attn.{part}_proj" for part in "qkv"},
        cross_mixer__o_proj="encoder_attn.out_proj",
        cross_norm="encoder_attn_layer_norm",
    )
    return Peer(
        theirs=theirs,
        config=lambda: theirs.config_class(
            vocab_size=VOCABULARY,
            d_model=WIDTH,
            encoder_layers=LAYERS,
            decoder_layers=LAYERS,
            encoder_attention_heads=HEADS,
            decoder_attention_heads=HEADS,
            encoder_ffn_dim=INNER,
            decoder_ffn_dim=INNER,
            max_position_embeddings=LENGTH,
            scale_embedding=scaled,
            decoder_start_token_id=2,
            forced_eos_token_id=None,
            **TOKENS,
        ),
        ours=hf_tx.TxEncoderDecoderForConditionalGeneration,
        settings=dict(encoder=fields, decoder=fields, decoder_start_token_id=2, **TOKENS),
        names=names,
        positions="rows",
        **facts,
    )


SEQ2SEQ = {
    "t5": t5(
        dict(feed_forward_proj="relu", tie_word_embeddings=True),
        dict(ffn_type="mlp", hidden_act="relu", logit_scale=WIDTH**-0.5),
        dict(up_proj="wi", down_proj="wo"),
    ),
    "t5_v1_1": t5(
        dict(feed_forward_proj="gated-gelu", tie_word_embeddings=False),
        dict(ffn_type="glu", hidden_act="gelu_new"),
        dict(gate_proj="wi_0", up_proj="wi_1", down_proj="wo"),
        settings=dict(tie_word_embeddings=False),
        adapt=_untie,
    ),
    "bart": bart(hf.BartForConditionalGeneration, final_norms=False, scaled=False, stack=dict(norm_position="post")),
    "mbart": bart(hf.MBartForConditionalGeneration, final_norms=True, scaled=True, stack={}, same_shift=False),
}
