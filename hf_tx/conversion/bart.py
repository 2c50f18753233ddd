# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""BART and mBART."""

from typing import Any

from .family import ENCODER_DECODER, Family, Head
from .fields import always, computed, in_stacks, only, renamed, same, several, unread
from .weights import Rule, layers, rule

STACK = (
    same("vocab_size", "max_position_embeddings", "attention_dropout"),
    renamed(
        d_model="hidden_size",
        activation_function="hidden_act",
        dropout="hidden_dropout",
        activation_dropout="ffn_dropout",
        init_std="initializer_range",
    ),
    computed(
        "scale_embedding",
        "embedding_scale",
        lambda config: config.d_model**0.5 if config.scale_embedding else None,
        lambda settings: settings["embedding_scale"] is not None,
    ),
    always(
        position_type="learned",
        position_offset=2,
        embedding_norm=True,
        norm_type="layernorm",
        norm_eps=1e-5,
        ffn_type="mlp",
        attention_bias=True,
        attention_out_bias=True,
        mlp_bias=True,
        type_vocab_size=0,
    ),
)

FIELDS = (
    *in_stacks(*STACK),
    *(
        renamed(
            **{
                f"{stack}_layers": f"{stack}.num_hidden_layers",
                f"{stack}_attention_heads": f"{stack}.num_attention_heads",
                f"{stack}_ffn_dim": f"{stack}.intermediate_size",
            }
        )
        for stack in ("encoder", "decoder")
    ),
    same("decoder_start_token_id"),
    # The library ties the embeddings and the head together, or nothing.
    several("tie_word_embeddings", "tie_word_embeddings", "share_embeddings"),
    only("no layer is left out in training", encoder_layerdrop=0.0, decoder_layerdrop=0.0),
    only("it is not one stack, but two", is_decoder=False),
    unread("classifier_dropout"),  # of classes that are refused
    unread("forced_eos_token_id"),  # of the generation config
    always(**{"decoder.lm_head_bias": True}),
)


def weights(config: Any) -> tuple[Rule, ...]:
    """Return the weight table of the base model, which depends on whether the embeddings are shared."""
    if config.share_embeddings:
        rules = [rule("shared", "encoder.embed_tokens")]
    else:
        rules = [rule(f"{stack}.embed_tokens", f"{stack}.embed_tokens") for stack in ("encoder", "decoder")]
    for stack in ("encoder", "decoder"):
        modules = dict(
            **{f"mixer__{part}_proj": f"self_attn.{part}_proj" for part in "qkv"},
            mixer__o_proj="self_attn.out_proj",
            mixer_norm="self_attn_layer_norm",
            mlp__up_proj="fc1",
            mlp__down_proj="fc2",
            mlp_norm="final_layer_norm",
        )
        if stack == "decoder":
            modules |= {f"cross_mixer__{part}_proj": f"encoder_attn.{part}_proj" for part in "qkv"}
            modules |= dict(cross_mixer__o_proj="encoder_attn.out_proj", cross_norm="encoder_attn_layer_norm")
        rules += [
            rule(f"{stack}.embed_positions", f"{stack}.positions.learned.embed_positions"),
            rule(f"{stack}.layernorm_embedding", f"{stack}.embed_norm"),
            *layers(f"{stack}.layers", f"{stack}.layers", **modules),
            rule(f"{stack}.layer_norm", f"{stack}.norm"),
        ]
    return tuple(rules)


FAMILIES = tuple(
    Family(
        model_type=model_type,
        kind=ENCODER_DECODER,
        fields=(*FIELDS, *in_stacks(always(norm_position=norms))),
        weights=weights,
        heads=(
            Head(f"{name}Model", "TxEncoderDecoderModel"),
            Head(
                f"{name}ForConditionalGeneration",
                "TxEncoderDecoderForConditionalGeneration",
                "model",
                (rule("lm_head.weight", "lm_head.weight"), rule("final_logits_bias", "lm_head.bias", row=True)),
            ),
        ),
        dropped={r"(model\.)?shared\.weight": "without sharing, no stack reads it"},
    )
    for model_type, name, norms in (("bart", "Bart", "post"), ("mbart", "MBart", "pre"))
)
