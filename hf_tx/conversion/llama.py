# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Llama, and the decoders whose modules have its names: Mistral, Qwen2, Qwen3."""

import copy
from typing import Any

from transformers.modeling_rope_utils import RopeParameters

from .family import CLASSIFIER_DROPOUT, DECODER, Family, decoder_heads
from .fields import Entry, NotExpressible, Settings, always, computed, renamed, same, unread
from .weights import Rule, layers, rule

HEADS = ("ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering")

GATED = dict(mlp__gate_proj="mlp.gate_proj", mlp__up_proj="mlp.up_proj", mlp__down_proj="mlp.down_proj")
ATTENTION = {f"mixer__{part}_proj": f"self_attn.{part}_proj" for part in "qkvo"}
LAYER = dict(**ATTENTION, **GATED, mixer_norm="input_layernorm", mlp_norm="post_attention_layernorm")
QK_NORMS = dict(mixer__q_norm="self_attn.q_norm", mixer__k_norm="self_attn.k_norm")


def weights(layer: dict[str, str]) -> tuple[Rule, ...]:
    """Return the weight table of a base model with Llama's names outside the layers."""
    return (rule("embed_tokens", "embed_tokens"), *layers("layers", "layers", **layer), rule("norm", "norm"))


SIZES = (
    same("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads"),
    same("num_key_value_heads", "max_position_embeddings"),
)

HEAD_DIM = computed(
    "head_dim",
    "head_dim",
    lambda config: getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads,
    lambda settings: settings["head_dim"],
)


def _read_rotated_size(config: Any) -> dict[str, Any]:
    size = config.hidden_size // config.num_attention_heads
    given = getattr(config, "head_dim", None) or size
    if given != size:
        raise NotExpressible(
            "head_dim", given, f"its rotary positions use this value, but its heads have {size} features"
        )
    return {"head_dim": size}


#: Of models whose heads have the size that follows from the others.
DERIVED_HEAD_DIM = Entry(("head_dim",), ("head_dim",), _read_rotated_size, lambda settings: {})


def _known(parameters: dict[str, Any]) -> dict[str, Any]:
    """Return the rope parameters that some code reads."""
    return {name: copy.copy(value) for name, value in parameters.items() if name in RopeParameters.__annotations__}


def rope(partial: bool = False) -> Entry:
    """Return the entry of the rope parameters; only some models let them say that a part of a head is rotated."""

    def read(config: Any) -> Any:
        parameters = _known(config.rope_parameters)
        kinds = set(getattr(config, "layer_types", None) or ())
        nested = {name: _known(own) for name, own in config.rope_parameters.items() if isinstance(own, dict)}
        for own in nested.values():  # yarn also uses this field
            own.pop("truncate", None)
            own |= {"truncate": parameters["truncate"]} if "truncate" in parameters else {}
        for own in nested.values() or [parameters]:
            share = own.get("partial_rotary_factor", 1.0)
            if not partial and share != 1.0 and own.get("rope_type") != "proportional":
                reason = f"a {config.model_type} does not use partial_rotary_factor"
                raise NotExpressible("rope_parameters", config.rope_parameters, reason)
        return {name: own for name, own in nested.items() if name in kinds} or parameters

    def write(settings: Settings) -> Any:
        parameters = settings["rope_parameters"]
        if not partial or parameters is None or any(isinstance(own, dict) for own in parameters.values()):
            return parameters
        return {"partial_rotary_factor": 1.0, **parameters}  # where none is said, their config has its own default

    return computed("rope_parameters", "rope_parameters", read, write)


ATTENTION_BIAS = Entry(
    ("attention_bias",),
    ("attention_bias", "attention_out_bias"),
    lambda config: {"attention_bias": config.attention_bias, "attention_out_bias": config.attention_bias},
    lambda settings: {"attention_bias": settings["attention_bias"]},
)


def norms_of_heads(theirs: str) -> Entry:
    """Return the entry of the field by which every head of queries and keys has a norm of its own, or none."""
    return Entry(
        (theirs,),
        ("qk_norm", "qk_norm_scope"),
        lambda config: {
            "qk_norm": getattr(config, theirs),
            "qk_norm_scope": "heads" if getattr(config, theirs) else "head",
        },
        lambda settings: {theirs: settings["qk_norm"]},
    )


def _one_window(config: Any) -> dict[str, Any]:
    window = config.sliding_window
    return {"mixers": ["full" if window is None else "sliding"] * config.num_hidden_layers, "sliding_window": window}


#: All layers have one window, or none has.
ONE_WINDOW = Entry(
    ("sliding_window",),
    ("mixers", "sliding_window"),
    _one_window,
    lambda settings: {"sliding_window": settings["sliding_window"]},
)

_MIXERS = {"full_attention": "full", "sliding_attention": "sliding"}


def _read_layer_types(config: Any) -> dict[str, Any]:
    unknown = [kind for kind in config.layer_types if kind not in _MIXERS]
    if unknown:
        raise NotExpressible("layer_types", config.layer_types, f"known values are {', '.join(_MIXERS)}")
    mixers = [_MIXERS[kind] for kind in config.layer_types]
    return {"mixers": mixers, "sliding_window": config.sliding_window if "sliding" in mixers else None}


def _write_layer_types(settings: Settings) -> dict[str, Any]:
    kinds = {mixer: kind for kind, mixer in _MIXERS.items()}
    for mixer in settings["mixers"]:
        if mixer not in kinds:
            raise NotExpressible("mixers", settings["mixers"], f"known values are {', '.join(kinds)}")
    window = settings["sliding_window"]
    written = {"layer_types": [kinds[mixer] for mixer in settings["mixers"]]}
    return written | ({"sliding_window": window, "use_sliding_window": True} if window is not None else {})


def layer_types(*switches: str) -> Entry:
    """Every layer has a window or has none.

    Args:
        *switches: fields of theirs of which `layer_types` is derived.
    """
    names = ("layer_types", "sliding_window", *switches)
    return Entry(names, ("mixers", "sliding_window"), _read_layer_types, _write_layer_types)


LLAMA_FIELDS = (
    *SIZES,
    HEAD_DIM,
    CLASSIFIER_DROPOUT,
    same("hidden_act", "attention_dropout"),
    renamed(rms_norm_eps="norm_eps"),
)

LLAMA = Family(
    model_type="llama",
    kind=DECODER,
    fields=(
        *LLAMA_FIELDS,
        rope(),
        ATTENTION_BIAS,
        same("mlp_bias"),
        unread("pretraining_tp"),  # splits products, which changes no result
    ),
    weights=weights(LAYER),
    heads=decoder_heads("Llama", *HEADS, qa_prefix="transformer"),
)

MISTRAL = Family(
    model_type="mistral",
    kind=DECODER,
    fields=(*LLAMA_FIELDS, rope(), ONE_WINDOW),
    weights=weights(LAYER),
    heads=decoder_heads("Mistral", *HEADS),
)

_QWEN = (*LLAMA_FIELDS, rope(), layer_types("use_sliding_window", "max_window_layers"))

QWEN2 = Family(
    model_type="qwen2",
    kind=DECODER,
    fields=(*_QWEN, always(attention_bias=True, attention_out_bias=False)),
    weights=weights(LAYER),
    heads=decoder_heads("Qwen2", *HEADS, qa_prefix="transformer"),
)

QWEN3 = Family(
    model_type="qwen3",
    kind=DECODER,
    fields=(*_QWEN, ATTENTION_BIAS, always(qk_norm=True)),
    weights=weights(LAYER | QK_NORMS),
    heads=decoder_heads("Qwen3", *HEADS, qa_prefix="transformer"),
)

FAMILIES = (LLAMA, MISTRAL, QWEN2, QWEN3)
