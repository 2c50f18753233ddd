# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""T5, T5 v1.1, mT5 and UMT5."""

from typing import Any

from .family import ENCODER, ENCODER_DECODER, Family, Head
from .fields import Entry, always, computed, in_stacks, only, renamed, same, several, unread
from .weights import Rule, layers, rule

STACK = (
    same("vocab_size", "relative_attention_num_buckets", "relative_attention_max_distance"),
    renamed(
        d_model="hidden_size",
        d_kv="head_dim",
        d_ff="intermediate_size",
        num_heads="num_attention_heads",
        layer_norm_epsilon="norm_eps",
    ),
    several("dropout_rate", "hidden_dropout", "attention_dropout", "ffn_dropout"),
    Entry(
        ("feed_forward_proj", "dense_act_fn", "is_gated_act"),
        ("ffn_type", "hidden_act"),
        lambda config: {"ffn_type": "glu" if config.is_gated_act else "mlp", "hidden_act": config.dense_act_fn},
        lambda settings: {
            "feed_forward_proj": ("gated-" if settings["ffn_type"] == "glu" else "") + settings["hidden_act"],
            "dense_act_fn": settings["hidden_act"],
            "is_gated_act": settings["ffn_type"] == "glu",
        },
    ),
    always(position_type="relative", attention_scale=1.0, norm_type="rmsnorm", type_vocab_size=0),
)

FIELDS = (
    *in_stacks(*STACK),
    renamed(
        num_layers="encoder.num_hidden_layers",
        num_decoder_layers="decoder.num_hidden_layers",
        decoder_start_token_id="decoder_start_token_id",
    ),
    only("it has an encoder and a decoder, and cannot be a decoder alone", is_decoder=False),
    renamed(classifier_dropout="decoder.classifier_dropout"),
    always(classifier_transform=True),
    unread("initializer_factor", "initializer_range"),
)

# The original T5 scales the states before its head; mT5 and v1.1 do not, and for UMT5 the config decides.
SCALE = computed(
    "scale_decoder_outputs",
    "decoder.logit_scale",
    lambda config: config.d_model**-0.5 if config.scale_decoder_outputs else 1.0,
    lambda settings: settings["decoder.logit_scale"] != 1.0,
)


ENCODER_FIELDS = (
    *STACK,
    renamed(num_layers="num_hidden_layers"),
    only("an encoder is bidirectional", is_decoder=False),
    same("classifier_dropout"),
    unread("initializer_factor", "use_cache"),
    unread("num_decoder_layers", "decoder_start_token_id", "scale_decoder_outputs"),  # there is no decoder
)


def stack_weights(stack: str, ours: str, config: Any) -> tuple[Rule, ...]:
    """Return the weight table of the encoder or the decoder, whose modules have names that begin with `ours`. It
    depends on the kind of feed-forward layer, and on whether all layers have the biases of the first."""
    last = 1 if stack == "encoder" else 2
    inner = dict(gate_proj="wi_0", up_proj="wi_1") if config.ffn_type == "glu" else dict(up_proj="wi")
    modules = {f"mixer__{part}_proj": f"layer.0.SelfAttention.{part}" for part in "qkvo"}
    modules |= {
        f"mlp__{name}": f"layer.{last}.DenseReluDense.{theirs}"
        for name, theirs in (inner | dict(down_proj="wo")).items()
    }
    modules |= dict(mixer_norm="layer.0.layer_norm", mlp_norm=f"layer.{last}.layer_norm")
    if stack == "decoder":
        modules |= {f"cross_mixer__{part}_proj": f"layer.1.EncDecAttention.{part}" for part in "qkvo"}
        modules |= dict(cross_norm="layer.1.layer_norm")
    block, scheme = ("*", "relative_*") if config.relative_attention_per_layer else ("0", "relative")
    bias = f"{stack}.block.{block}.layer.0.SelfAttention.relative_attention_bias"
    return (
        rule(bias, f"{ours}positions.{scheme}.relative_bias"),
        *layers(f"{stack}.block", f"{ours}layers", **modules),
        rule(f"{stack}.final_layer_norm", f"{ours}norm"),
    )


def weights(config: Any) -> tuple[Rule, ...]:
    """Return the weight table of both stacks."""
    return (
        rule("shared", "encoder.embed_tokens"),  # the decoder's are tied to them
        *stack_weights("encoder", "encoder.", config.encoder),
        *stack_weights("decoder", "decoder.", config.decoder),
    )


def encoder_weights(config: Any) -> tuple[Rule, ...]:
    """Return the weight table of an encoder alone."""
    return (rule("shared", "embed_tokens"), *stack_weights("encoder", "", config))


def family(model_type: str, name: str, *fields: Entry, per_layer: bool = False) -> Family:
    """Return a family of this build.

    Args:
        model_type: its name in transformers.
        name: what the names of its classes begin with.
        *fields: what its config says besides.
        per_layer: whether every layer has position biases of its own.
    """
    biases = always(relative_attention_per_layer=per_layer)
    classifier = (rule("classification_head.dense", "transform"), rule("classification_head.out_proj", "score"))
    return Family(
        model_type=model_type,
        kind=ENCODER_DECODER,
        fields=(*FIELDS, *in_stacks(biases), *fields),
        weights=weights,
        heads=(
            Head(f"{name}Model", "TxEncoderDecoderModel"),
            Head(
                f"{name}ForConditionalGeneration",
                "TxEncoderDecoderForConditionalGeneration",
                rules=(rule("lm_head", "lm_head"),),
            ),
            Head(
                f"{name}ForSequenceClassification",
                "TxEncoderDecoderForSequenceClassification",
                "transformer",
                classifier,
            ),
            Head(
                f"{name}ForQuestionAnswering",
                "TxEncoderDecoderForQuestionAnswering",
                rules=(rule("qa_outputs", "qa_outputs"),),
            ),
        ),
        by_weights=("tie_word_embeddings",),
        encoder=Family(
            model_type=model_type,
            kind=ENCODER,
            fields=(*ENCODER_FIELDS, biases),
            weights=encoder_weights,
            heads=(
                Head(f"{name}EncoderModel", "TxEncoderModel"),
                Head(
                    f"{name}ForTokenClassification",
                    "TxEncoderForTokenClassification",
                    "transformer",
                    (rule("classifier", "score"),),
                ),
            ),
        ),
    )


FAMILIES = (family("t5", "T5", SCALE), family("mt5", "MT5"), family("umt5", "UMT5", SCALE, per_layer=True))
