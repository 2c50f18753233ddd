# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""T5Gemma: two stacks of Gemma 2, of which the second attends to the first as well."""

from typing import Any

from .family import ENCODER_DECODER, Family, Head
from .fields import NotExpressible, always, derived, nested, only, same, several, unread
from .gemma import GEMMA2_STACK
from .llama import ATTENTION, GATED
from .weights import Rule, layers, rule

STACK = (
    *GEMMA2_STACK,
    same("initializer_range"),
    always(norm_type="rmsnorm", type_vocab_size=0),
    unread("attention_dropout", "is_decoder"),  # as the config says that holds them
)


def _start(config: Any) -> int | None:
    pad = config.decoder.pad_token_id
    if pad != config.pad_token_id:
        raise NotExpressible("decoder.pad_token_id", pad, f"there is one, pad_token_id = {config.pad_token_id}")
    return config.decoder.bos_token_id


FIELDS = (
    nested("encoder", *STACK),
    nested("decoder", *STACK),
    several(
        "dropout_rate", *(f"{stack}.{part}_dropout" for part in ("hidden", "ffn") for stack in ("encoder", "decoder"))
    ),
    several("attention_dropout", "encoder.attention_dropout", "decoder.attention_dropout"),
    derived("decoder_start_token_id", _start),
    always(share_embeddings=False),
    only("its encoder alone is not converted", is_encoder_decoder=True),
    unread("vocab_size", "initializer_range"),  # as the stacks say
    unread("classifier_dropout_rate"),  # of classes that are refused: what they pool depends on the padding
)


def stack_weights(stack: str) -> tuple[Rule, ...]:
    """Return the weight table of the encoder or the decoder."""
    modules = ATTENTION | GATED
    kinds = {"mixer": "self_attn", "mlp": "feedforward"}
    if stack == "decoder":
        modules |= {f"cross_mixer__{part}_proj": f"cross_attn.{part}_proj" for part in "qkvo"}
        kinds |= {"cross": "cross_attn"}
    for ours, theirs in kinds.items():
        modules |= {f"{ours}_norm": f"pre_{theirs}_layernorm", f"{ours}_post_norm": f"post_{theirs}_layernorm"}
    return (
        rule(f"{stack}.embed_tokens", f"{stack}.embed_tokens"),
        *layers(f"{stack}.layers", f"{stack}.layers", **modules),
        rule(f"{stack}.norm", f"{stack}.norm"),
    )


FAMILIES = (
    Family(
        model_type="t5gemma",
        kind=ENCODER_DECODER,
        fields=FIELDS,
        weights=(*stack_weights("encoder"), *stack_weights("decoder")),
        heads=(
            Head("T5GemmaModel", "TxEncoderDecoderModel"),
            Head(
                "T5GemmaForConditionalGeneration",
                "TxEncoderDecoderForConditionalGeneration",
                "model",
                (rule("lm_head.out_proj", "lm_head"),),
            ),
        ),
    ),
)
