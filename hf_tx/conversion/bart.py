# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""BART, mBART and PLBART, and what other encoder-decoders with the same names have in common with them."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch

from ..models.positions import SinusoidalPositions
from .family import ENCODER_DECODER, Family, Head
from .fields import always, computed, in_stacks, only, renamed, same, several, unread
from .weights import Rule, layers, rule

STACK = (
    same("max_position_embeddings", "attention_dropout"),
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
        norm_type="layernorm",
        norm_eps=1e-5,
        ffn_type="mlp",
        attention_bias=True,
        attention_out_bias=True,
        mlp_bias=True,
        type_vocab_size=0,
    ),
)

#: What does not say how many vocabularies there are.
SIZES = (
    *in_stacks(*STACK),
    *(
        renamed(
            **{
                f"{stack}_layers": f"{stack}.num_hidden_layers",
                f"{stack}_attention_heads": f"{stack}.num_attention_heads",
                f"{stack}_ffn_dim": f"{stack}.intermediate_size",
                f"{stack}_layerdrop": f"{stack}.layerdrop",
            }
        )
        for stack in ("encoder", "decoder")
    ),
    same("decoder_start_token_id"),
    only("it has an encoder and a decoder, and cannot be a decoder alone", is_decoder=False),
    unread("forced_eos_token_id"),  # of the generation config
    unread("initializer_range"),  # another name of init_std, or of nothing
)

FIELDS = (
    *SIZES,
    *in_stacks(same("vocab_size")),
    # transformers ties the embeddings and the head together, or nothing.
    several("tie_word_embeddings", "tie_word_embeddings", "share_embeddings"),
)

#: The logits have a bias, in theirs a buffer.
LOGITS_BIAS = always(**{"decoder.lm_head_bias": True})


def stacks(**settings: Any) -> tuple[Any, ...]:
    """Return what both stacks always have."""
    return in_stacks(always(**settings))


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


#: Without sharing, this is there all the same.
UNREAD_EMBEDDINGS = {r"(model\.)?shared\.weight": "without sharing, no stack reads it"}
_TABLES = r"(model\.)?(en|de)coder\.embed_positions\.weight"
#: Sinusoids, which transformers stores as weights.
SINUSOIDS = {_TABLES: "sinusoids are computed"}


def _sinusoids(table: torch.Tensor) -> torch.Tensor:
    config = SimpleNamespace(sinusoidal_type="concatenated", position_offset=0)
    positions = torch.arange(len(table), device=table.device)
    return SinusoidalPositions(config).embed(torch.zeros_like(table, dtype=torch.float32)[None], positions[None])[0]


CONSTANTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {_TABLES: _sinusoids}


def heads(name: str, bias: bool = True, writer: str = "ForConditionalGeneration") -> tuple[Head, ...]:
    """Return the base model and the one that writes.

    Args:
        name: what their classes begin with.
        bias: whether the logits have a bias.
        writer: what the name of the class that writes ends with.
    """
    output = [rule("lm_head.weight", "lm_head.weight")]
    if bias:
        output.append(rule("final_logits_bias", "lm_head.bias", row=True))
    return (
        Head(f"{name}Model", "TxEncoderDecoderModel"),
        Head(f"{name}{writer}", "TxEncoderDecoderForConditionalGeneration", "model", tuple(output)),
    )


_CLASSIFIERS = (renamed(classifier_dropout="decoder.classifier_dropout"), always(classifier_transform=True))
_LEARNED = dict(position_type="learned", position_offset=2, embedding_norm=True)

BART = Family(
    model_type="bart",
    kind=ENCODER_DECODER,
    fields=(*FIELDS, *_CLASSIFIERS, LOGITS_BIAS, *stacks(**_LEARNED, norm_position="post")),
    weights=weights,
    heads=(
        *heads("Bart"),
        Head(
            "BartForSequenceClassification",
            "TxEncoderDecoderForSequenceClassification",
            "model",
            (rule("classification_head.dense", "transform"), rule("classification_head.out_proj", "score")),
        ),
        Head(
            "BartForQuestionAnswering",
            "TxEncoderDecoderForQuestionAnswering",
            "model",
            (rule("qa_outputs", "qa_outputs"),),
        ),
    ),
    dropped=UNREAD_EMBEDDINGS,
)

_BEGINS = "its decoder starts with the last token of the source, the language, and not with one token for all texts"

MBART = Family(
    model_type="mbart",
    kind=ENCODER_DECODER,
    fields=(*FIELDS, *_CLASSIFIERS, LOGITS_BIAS, *stacks(**_LEARNED, norm_position="pre")),
    weights=weights,
    heads=heads("MBart"),
    dropped=UNREAD_EMBEDDINGS,
    refused=dict.fromkeys(("MBartForSequenceClassification", "MBartForQuestionAnswering"), _BEGINS),
)

PLBART = Family(
    model_type="plbart",
    kind=ENCODER_DECODER,
    fields=(
        *FIELDS,
        *_CLASSIFIERS,
        LOGITS_BIAS,
        *stacks(**_LEARNED, norm_position="post"),
    ),
    weights=weights,
    heads=heads("PLBart"),
    dropped=UNREAD_EMBEDDINGS,
    refused={"PLBartForSequenceClassification": _BEGINS},
)

FAMILIES = (BART, MBART, PLBART)
