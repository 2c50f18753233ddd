# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Configs of new models: what each family takes, and what follows from the width and the context."""

from dataclasses import dataclass
from typing import Any

from transformers import PreTrainedConfig

from ..models.configuration_base import TxStackConfig
from ..models.configuration_decoder import TxDecoderConfig
from ..models.configuration_encoder import TxEncoderConfig
from ..models.configuration_encoder_decoder import TxEncoderDecoderConfig
from ..models.mixer import Mixer
from ..models.mixers import MIXERS, expand_pattern

# Windows and chunks of a context.
_PARTS = 4


@dataclass(frozen=True)
class NewModel:
    """What a family of new models is made of.

    Attributes:
        config_class: of the whole model.
        stacks: the names of its stacks, where it has several; each takes mixers of its own, as in `encoder_mixers`.
    """

    config_class: type[Any]
    stacks: tuple[str, ...] = ()

    @property
    def mixer_fields(self) -> tuple[str, ...]:
        """The fields of `new_config` that name the mixers of one stack alone."""
        return tuple(f"{stack}_mixers" for stack in self.stacks)


#: The families of new models by name.
NEW_MODELS: dict[str, NewModel] = {
    "decoder": NewModel(TxDecoderConfig),
    "encoder": NewModel(TxEncoderConfig),
    "encoder-decoder": NewModel(TxEncoderDecoderConfig, ("encoder", "decoder")),
}


def new_config(family: str, **fields: Any) -> PreTrainedConfig:
    """Return the config of a new model.

    Where mixers have a window or chunks, and no size is given, it is a quarter of the context.

    Args:
        family: the name in `NEW_MODELS`.
        **fields: of the config. In a model of several stacks, all of them get the fields that have no prefix;
            `encoder_mixers` and `decoder_mixers` go before `mixers`, and a window is given to the stacks that have a
            mixer with one.
    """
    new = NEW_MODELS[family]
    if not new.stacks:
        return new.config_class(**_with_sizes(fields))
    ids = {name: fields.pop(name) for name in list(fields) if name.endswith("_token_id")}
    own = {stack: fields.pop(name, None) for stack, name in zip(new.stacks, new.mixer_fields, strict=True)}
    shared = fields.pop("mixers", "full")
    stacks: dict[str, Any] = {stack: {**fields, "mixers": mixers or shared} for stack, mixers in own.items()}
    windowed = [stack for stack in stacks.values() if _has_window(stack)]
    for stack in stacks.values():
        # Without any, all keep the window, and the config raises.
        if windowed and stack not in windowed:
            stack.pop("sliding_window", None)
    return new.config_class(**{name: _with_sizes(stack) for name, stack in stacks.items()}, **ids)


def width_fields(hidden_size: int) -> dict[str, Any]:
    """Return the fields of the config of a new model that follow from its width.

    The three matrices of a gated layer have as many weights as the usual two of `4 * hidden_size`. Initial weights are
    such that a layer's outputs are about as large as its inputs (LeCun et al., 1998, Efficient BackProp), and so are
    embeddings, whose matrix is the head's too (Vaswani et al., 2017, https://huggingface.co/papers/1706.03762, section
    3.4). The usual standard deviation of 0.02 is that of 2,500 features; with it, models of 256 learn much slower.

    Args:
        hidden_size: features of a position.

    Raises:
        ValueError: there are none.
    """
    if hidden_size < 1:
        raise ValueError(f"hidden_size = {hidden_size}: must be above 0.")
    return {
        "intermediate_size": max(16, round(hidden_size / 6) * 16),
        "initializer_range": hidden_size**-0.5,
        "embedding_scale": hidden_size**0.5,
    }


def _mixers(fields: dict[str, Any]) -> dict[str, Mixer]:
    names = expand_pattern(
        fields.get("mixers", "full"), fields.get("num_hidden_layers", TxStackConfig.num_hidden_layers)
    )
    return {name: MIXERS.get(name) for name in names}


def _has_window(fields: dict[str, Any]) -> bool:
    return any("sliding_window" in mixer.needs for mixer in _mixers(fields).values())


def _with_sizes(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a stack in which attention that is to see a part of the context does: with sizes that are
    not given for the context, a window would be missing, and one chunk could hold all."""
    size = max(1, fields.get("max_position_embeddings", TxStackConfig.max_position_embeddings) // _PARTS)
    sized = dict(fields)
    if sized.get("sliding_window") is None and not sized.get("per_layer_config") and _has_window(sized):
        sized["sliding_window"] = size
    for name, mixer in _mixers(sized).items():
        if mixer.is_attention and hasattr(mixer.options, "chunk_size"):
            options = sized.get("mixer_options") or {}
            sized["mixer_options"] = {**options, name: {"chunk_size": size, **options.get(name, {})}}
    return sized
