# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Number of parameters and size of the cache of a model, from its config."""

import copy
from dataclasses import dataclass
from typing import Any

import torch
from transformers.cache_utils import DynamicCache
from transformers.modeling_utils import PreTrainedModel

from ..models.mixers import MIXERS
from ..models.modeling_decoder import TxDecoderForCausalLM
from ..models.modeling_encoder import TxEncoderForMaskedLM
from ..models.modeling_encoder_decoder import TxEncoderDecoderForConditionalGeneration
from ..models.modeling_stack import TxStack

_LANGUAGE_MODELS: dict[str, type[PreTrainedModel]] = {
    cls.config_class.model_type: cls  # type: ignore[union-attr]
    for cls in (TxDecoderForCausalLM, TxEncoderForMaskedLM, TxEncoderDecoderForConditionalGeneration)
}
# Parts of a model by attribute, in the modules that contain parts. All other attributes are of heads.
_PARTS = {"positions": "embeddings", "mixer": "mixers", "cross_mixer": "cross_mixers", "mlp": "feed_forwards"}
_HOLD_PARTS = ("model", "encoder", "decoder", "layers")
_ORDER = (*_PARTS.values(), "norms", "head")


@dataclass(frozen=True)
class ParameterCount:
    """The number of parameters of a model, and the size of its cache per token.

    Attributes:
        total: all parameters; tied parameters count once.
        by_part: the same by part: embeddings, mixers, cross_mixers, feed_forwards, norms, head.
        rule_of_thumb: 12 L d^2 for L layers of d features: 4 d^2 of attention, 8 d^2 of a feed-forward layer of 4 d.
            Layers that attend to an encoder count 16 d^2. Embeddings are left out.
        cache_bytes_per_token: bytes of the keys and values of one more token in all layers whose cache grows with the
            text. 0 for an encoder.
        cache_bytes_limit: maximum size of the cache of the other layers: of a window, and states of constant size.
        cache_bytes_per_source_token: bytes in the cache of an encoder-decoder per token of the source.
    """

    total: int
    by_part: dict[str, int]
    rule_of_thumb: int
    cache_bytes_per_token: int
    cache_bytes_limit: int
    cache_bytes_per_source_token: int

    def __str__(self) -> str:
        width = max(map(len, self.by_part))
        lines = [f"{name:{width}} {count:>15,}" for name, count in (*self.by_part.items(), ("total", self.total))]
        lines.append(f"{'12 L d^2':{width}} {self.rule_of_thumb:>15,}")
        windows = f" + at most {self.cache_bytes_limit:,}" if self.cache_bytes_limit else ""
        source = self.cache_bytes_per_source_token
        lines.append(f"cache: {self.cache_bytes_per_token:,} bytes per token{windows}")
        if source:
            lines.append(f"       {source:,} bytes per token of the source")
        return "\n".join(lines)


def parameter_count(
    config: Any, model_class: type[PreTrainedModel] | None = None, cache_dtype: torch.dtype = torch.float16
) -> ParameterCount:
    """Count the parameters of a model exactly, without building its weights.

    Args:
        config: config of one of the families.
        model_class: the class to count. Default: the language model of the family.
        cache_dtype: dtype of the keys and values in the cache.

    Returns:
        The counts.

    Raises:
        ValueError: if the config is not one of hf_tx.

    Example:

    ```python
    >>> from hf_tx import TxDecoderConfig, parameter_count
    >>> count = parameter_count(TxDecoderConfig(vocab_size=1000, hidden_size=64, num_hidden_layers=2,
    ...                                         num_attention_heads=4, ffn_type="mlp"))
    >>> print(count)
    embeddings             64,000
    mixers                 32,768
    feed_forwards          65,536
    norms                     320
    total                 162,624
    12 L d^2               98,304
    cache: 512 bytes per token

    ```
    """
    if model_class is None:
        model_class = _LANGUAGE_MODELS.get(getattr(config, "model_type", ""))
    if model_class is None:
        known = ", ".join(_LANGUAGE_MODELS)
        raise ValueError(
            f"config is a {type(config).__name__}: parameter_count needs a config of {known}; use "
            "hf_tx.analysis.estimate for "
            "other models."
        )
    with torch.device("meta"):
        model = model_class(copy.deepcopy(config))
    by_part: dict[str, int] = {}
    for name, parameter in model.named_parameters():
        part = _part_of(name)
        by_part[part] = by_part.get(part, 0) + parameter.numel()
    ordered = {part: by_part[part] for part in _ORDER if part in by_part}
    stacks = [(config, False)] if not config.sub_configs else [(config.encoder, False), (config.decoder, True)]
    decoder = config.get_text_config(decoder=True)
    growing, limit = _cache_bytes(decoder, model, cache_dtype)
    return ParameterCount(
        total=sum(by_part.values()),
        by_part=ordered,
        rule_of_thumb=sum((16 if crosses else 12) * s.num_hidden_layers * s.hidden_size**2 for s, crosses in stacks),
        cache_bytes_per_token=growing,
        cache_bytes_limit=limit,
        cache_bytes_per_source_token=sum(_key_value_bytes(decoder, cache_dtype)) if config.sub_configs else 0,
    )


def _part_of(parameter: str) -> str:
    """Return the part of a model that a parameter belongs to, by its place and not by what the part calls it."""
    places = (word for word in parameter.split(".") if word not in _HOLD_PARTS and not word.isdecimal())
    place = next(places)
    if place.startswith("embed_"):
        return "embeddings"
    return _PARTS.get(place, "norms" if place.endswith("norm") else "head")


def match_parameters(config: Any, total: int, tolerance: float = 0.01) -> Any:
    """Choose the width of the feed-forward layers so that a model has a given number of parameters.

    The width is the nearest multiple of 8, because other widths are slower, or the nearest width if no multiple of 8
    is within the tolerance.

    Args:
        config: config of one stack.
        total: the number of parameters of its language model.
        tolerance: maximum difference, as a share of `total`.

    Returns:
        A config that only differs in `intermediate_size`.

    Raises:
        ValueError: if there is no such width.

    Example:

    ```python
    >>> from hf_tx import TxDecoderConfig, parameter_count
    >>> sizes = dict(vocab_size=1000, hidden_size=64, num_hidden_layers=2, num_attention_heads=4)
    >>> full = TxDecoderConfig(**sizes, mixers="full", intermediate_size=176)
    >>> lstm = match_parameters(TxDecoderConfig(**sizes, mixers="lstm"), parameter_count(full).total)
    >>> lstm.intermediate_size, parameter_count(full).total, parameter_count(lstm).total
    (88, 164672, 164672)

    ```
    """

    def of_width(width: int) -> Any:
        return type(config).from_dict(config.to_dict(), intermediate_size=width)

    def missed(width: int) -> float:
        return abs(parameter_count(of_width(width)).total - total) / total

    first, second = (parameter_count(of_width(width)).total for width in (1, 2))
    if first != second:
        exact = 1 + (total - first) / (second - first)
        for multiple in (8, 1):
            width = max(multiple, round(exact / multiple) * multiple)
            if missed(width) <= tolerance:
                return of_width(width)
    elif abs(first - total) <= tolerance * total:
        return config
    least = f"{first:,} parameters with the narrowest feed-forward layers" if first != second else f"always {first:,}"
    raise ValueError(
        f"mixers = {', '.join(dict.fromkeys(config.mixers))}: no intermediate_size results in {total:,} parameters "
        "within "
        f"{tolerance:.1%}: there are {least}. Change the other sizes."
    )


def _key_value_bytes(config: Any, dtype: torch.dtype) -> list[int]:
    """Return the bytes of one key and one value of every layer."""
    layers = [config.layer_config(idx) for idx in range(config.num_hidden_layers)]
    return [2 * layer.num_key_value_heads * layer.head_dim * dtype.itemsize for layer in layers]


def _cache_bytes(config: Any, model: PreTrainedModel, dtype: torch.dtype) -> tuple[int, int]:
    """Return the bytes that one more token adds, and those at which windows are full and states complete."""
    if not config.is_causal_family:
        return 0, 0
    stack = next(module for module in model.modules() if isinstance(module, TxStack) and module.is_causal)
    growing = limit = 0
    for idx, (mixer, size) in enumerate(zip(config.mixers, _key_value_bytes(config, dtype), strict=True)):
        if not MIXERS.get(mixer).is_attention:
            layer: Any = stack.layers[idx]
            limit += _state_bytes(layer.mixer.to(dtype), config, idx, dtype)
        elif MIXERS.get(mixer).layer_type == "sliding_attention":
            limit += size * (config.layer_config(idx).sliding_window - 1)
        else:
            growing += size
    return growing, limit


def _state_bytes(mixer: torch.nn.Module, config: Any, layer_idx: int, dtype: torch.dtype) -> int:
    """Return the bytes of the state that a mixer leaves in the cache, on the meta device."""
    cache = DynamicCache(config=config)
    with torch.no_grad():
        # The first state may be made from an encoder's.
        sizes: dict[str, tuple[int, ...]] = {"hidden_states": (1, 1, config.hidden_size)}
        if MIXERS.get(config.mixers[layer_idx]).takes_start:
            sizes["source_start"] = (1, getattr(config, "cross_attention_hidden_size", None) or config.hidden_size)
        mixer(**{name: torch.empty(size, dtype=dtype, device="meta") for name, size in sizes.items()}, cache=cache)
    return cache.layers[layer_idx].recurrent_states[0].nbytes  # type: ignore[union-attr]
