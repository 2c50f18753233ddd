# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""T5Gemma: two stacks of Gemma 2, of which the second attends to the first as well."""

from typing import Any

from .family import ENCODER_DECODER, Family, Head
from .fields import Entry, NotExpressible, Settings, always, nested, only, same, several, unread
from .gemma import GEMMA2_STACK
from .llama import ATTENTION, GATED
from .weights import Rule, layers, rule

STACK = (
    *GEMMA2_STACK,
    same("initializer_range"),
    always(norm_type="rmsnorm", type_vocab_size=0),
    unread("attention_dropout", "is_decoder"),  # as the config says that holds them
)


def _read_tokens(config: Any) -> dict[str, Any]:
    pad = config.decoder.pad_token_id
    if pad != config.pad_token_id:
        raise NotExpressible(
            "decoder.pad_token_id", pad, f"both stacks must have the same one, pad_token_id = {config.pad_token_id}"
        )
    return {"pad_token_id": pad, "decoder_start_token_id": config.decoder.bos_token_id}


def _write_tokens(settings: Settings) -> dict[str, Any]:
    tokens = {"pad_token_id": settings["pad_token_id"], "bos_token_id": settings["decoder_start_token_id"]}
    return {"decoder": tokens}


FIELDS = (
    nested("encoder", *STACK),
    nested("decoder", *STACK),
    several(
        "dropout_rate", *(f"{stack}.{part}_dropout" for part in ("hidden", "ffn") for stack in ("encoder", "decoder"))
    ),
    several("attention_dropout", "encoder.attention_dropout", "decoder.attention_dropout"),
    Entry(("decoder",), ("pad_token_id", "decoder_start_token_id"), _read_tokens, _write_tokens),
    always(share_embeddings=False),
    only("an encoder without its decoder is not converted", is_encoder_decoder=True),
    unread("vocab_size", "initializer_range"),  # as the stacks say
    unread("classifier_dropout_rate"),  # of classes that are not converted
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
        refused={
            "T5GemmaForSequenceClassification": "how much of a text its decoder reads depends on the longest text in "
            "the batch",
            "T5GemmaForTokenClassification": "it classifies the tokens that the decoder reads",
        },
    ),
)
