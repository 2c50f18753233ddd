# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Parameters, operations and cache size of a model, from a run without data."""

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import transformers
from transformers import AutoConfig
from transformers.modeling_utils import PreTrainedModel

from ..common.loading import loading
from ..common.messages import message_of
from .counting import DataFreeModel, TooManyOperations

_DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32", "fp64": "float64"}
# A model that loops over positions is counted at the first of these lengths that takes no more operations than this.
_LENGTHS = (1024, 256, 64, 16)
_MOST_OPERATIONS = 15_000
# Maximum length at which attention is compared with the rest.
_FARTHEST = 2**24


@dataclass(frozen=True)
class Estimate:
    """The cost of a model for one context length and one batch size.

    Operations are those of matrix products, convolutions and attention kernels; a multiplication and an addition are
    two. *Attention* is the products of activations with each other (scores, weighted sums of values, states), *the
    rest* is the products with weights, including the projections of attention. Products that a backend computes and
    masks are
    counted: with `eager` and `sdpa`, every query is multiplied with every key of its row, also in causal and sliding
    layers; with `tiled` and `banded`, only in blocks with a visible pair.

    Attributes:
        model_class: class that was counted.
        context: tokens per row; for an encoder-decoder, tokens of the source and of the target.
        batch: number of rows.
        dtype: dtype of the weights and the cache.
        attn_implementation: the attention backend.
        parameters: number of parameters; tied parameters count once.
        parameter_bytes: their bytes.
        forward_flops: operations of a forward pass.
        backward_flops: operations of a backward pass, to all parameters.
        attention_flops: the part of attention in `forward_flops`.
        attention_overtakes: the context length from which a forward pass needs more operations for attention than for
            the rest, also if the model has fewer positions; None if it is not below 16 million tokens.
        cache_bytes: bytes of the keys, values and states in the cache after a forward pass. 0 without a cache.
        measured_context: equal to `context`, or the shorter context from which the operations were extrapolated (by
            the parabola through it, its half and its quarter), because the model loops over positions.
    """

    model_class: str
    context: int
    batch: int
    dtype: str
    attn_implementation: str
    parameters: int
    parameter_bytes: int
    forward_flops: int
    backward_flops: int
    attention_flops: int
    attention_overtakes: int | None
    cache_bytes: int
    measured_context: int

    @property
    def attention_share(self) -> float:
        """Share of attention in the forward pass, from 0 to 1."""
        return self.attention_flops / self.forward_flops if self.forward_flops else 0.0

    def __str__(self) -> str:
        overtakes = "never" if self.attention_overtakes is None else f"{self.attention_overtakes:,} tokens"
        rows = {
            "parameters": f"{self.parameters:,} ({_scaled(self.parameter_bytes, 1024, 'B', _BINARY)})",
            "forward": _scaled(self.forward_flops, 1000, "FLOPs", _DECIMAL),
            "backward": _scaled(self.backward_flops, 1000, "FLOPs", _DECIMAL),
            "attention": f"{self.attention_share:.1%} of forward",
            "attention > rest": overtakes if self.attention_overtakes is None else f"at {overtakes}",
            "cache": _scaled(self.cache_bytes, 1024, "B", _BINARY) if self.cache_bytes else "none",
        }
        width = max(map(len, rows))
        lines = [f"{self.model_class}: context {self.context:,}, batch {self.batch:,}, {self.dtype}"]
        lines += [f"{name:{width}}  {value}" for name, value in rows.items()]
        lines.append(f"Attention is counted as {self.attn_implementation!r} computes it, masked pairs included.")
        if self.measured_context != self.context:
            lines.append(
                f"Operations are extrapolated from {self.measured_context:,} tokens, because the model loops over "
                "positions."
            )
        return "\n".join(lines)


def estimate(
    config_or_model: Any,
    context: int,
    batch: int = 1,
    dtype: str | torch.dtype | None = None,
    attn_implementation: str = "eager",
) -> Estimate:
    """Compute the cost of a model from its config, without its weights.

    The model runs on tensors that have a shape but no memory; see `Estimate` for what is counted. It works for any
    model of transformers that takes `input_ids`, with the class that the config names in `architectures`, or as a
    language model. For a decoder that also takes images or audio, a pass over text is counted.

    Args:
        config_or_model: a config, a model (it is not changed), a folder, a config.json or a name on the Hub.
        context: tokens per row; for an encoder-decoder, tokens of the source and of the target.
        batch: number of rows.
        dtype: dtype of weights and cache, such as `torch.bfloat16`, "bfloat16" or "bf16". Default: that of the config,
            or float32.
        attn_implementation: the attention backend. `eager` and `sdpa` only differ in the backward pass, in which the
            kernels of sdpa compute the scores again. `tiled` and `banded` skip blocks without visible pairs.
            `flex_attention` raises an error: only its compiled kernels know what they skip.

    Returns:
        The costs.

    Raises:
        ValueError: if it is not a config, or not of a model that takes text; for `flex_attention`; if a size or a
            dtype is invalid; if the context is longer than the table of learned positions; if the model cannot run
            without data.
        OSError: if there is no such folder, file or name.

    Example:

    ```python
    >>> from hf_tx import TxDecoderConfig
    >>> from hf_tx.analysis import estimate
    >>> config = TxDecoderConfig(vocab_size=1000, hidden_size=64, num_hidden_layers=2, num_attention_heads=4)
    >>> print(estimate(config, context=128, dtype="bf16"))
    TxDecoderForCausalLM: context 128, batch 1, bfloat16
    parameters          ...
    forward             ... MFLOPs
    ...

    ```
    """
    for name, value in (("context", context), ("batch", batch)):
        if not isinstance(value, int) or value < 1:
            raise ValueError(f"{name} = {value!r}: must be an integer of at least 1.")
    if attn_implementation == "flex_attention":
        raise ValueError(
            "attn_implementation='flex_attention' cannot be counted, because only its compiled kernels know which "
            "blocks "
            "they skip: use 'tiled', which skips blocks without visible pairs, or 'eager'."
        )
    model_class, config = _resolve(config_or_model)
    dtype = _dtype(dtype if dtype is not None else getattr(config, "dtype", None) or torch.float32)
    try:
        model = DataFreeModel(model_class, config, dtype, attn_implementation)
        if model.position_limit is not None and context > model.position_limit:
            raise _Refusal(
                f"context = {context}: {model_class.__name__} has only {model.position_limit} positions; use a "
                "shorter "
                "context, or increase max_position_embeddings in the config."
            )
        costs = _measure(model, context, batch)
    except _Refusal:
        raise
    except Exception as error:  # any error inside a model of transformers
        raise ValueError(
            f"{model_class.__name__} cannot be counted at context = {context}: running it without data failed with "
            f"{type(error).__name__}: {message_of(error)[:300]}"
            + ("" if attn_implementation == "eager" else "; try attn_implementation='eager'")
        ) from error
    return Estimate(
        model_class=model_class.__name__,
        context=context,
        batch=batch,
        dtype=str(dtype).removeprefix("torch."),
        attn_implementation=attn_implementation,
        parameters=model.parameters,
        parameter_bytes=model.parameter_bytes,
        **costs,
    )


class _Refusal(ValueError):
    """An error raised by this module."""


def _dtype(value: str | torch.dtype) -> torch.dtype:
    found = getattr(torch, _DTYPES.get(value, value), None) if isinstance(value, str) else value
    if not isinstance(found, torch.dtype) or not found.is_floating_point:
        raise ValueError(f"dtype = {value!r}: must be a floating point dtype of torch, such as 'bf16' or 'float32'.")
    return found


# ---------------------------------------------------------------------------------------------------- what to count
def _resolve(config_or_model: Any) -> tuple[type[PreTrainedModel], Any]:
    """Return the class and the config of what is to be counted."""
    if isinstance(config_or_model, PreTrainedModel):
        return _readable(type(config_or_model), config_or_model.config), config_or_model.config
    if isinstance(config_or_model, (str, os.PathLike)):
        _check_path(config_or_model)
        with loading("model", config_or_model):
            config_or_model = AutoConfig.from_pretrained(config_or_model)
    if not isinstance(config_or_model, transformers.PreTrainedConfig):
        raise ValueError(
            f"config_or_model is a {type(config_or_model).__name__}: it must be a config or a model of transformers, "
            "or the "
            "folder or name of one."
        )
    return _readable(_class_of(config_or_model), config_or_model), config_or_model


def _check_path(name: str | os.PathLike) -> None:
    """Raise an error for a path that does not exist; transformers would look for it on the Hub."""
    text = os.fspath(name)
    is_path = isinstance(name, os.PathLike) or text.count("/") > 1 or text.startswith((".", "/", "~"))
    if (is_path or text.endswith(".json")) and not os.path.exists(text):
        raise OSError(f"{text}: there is no such file or folder.")


def _class_of(config: Any) -> type[PreTrainedModel]:
    def auto_class(name: str) -> Any:
        found = getattr(transformers, name)._model_mapping.get(type(config), None)
        return found[0] if isinstance(found, tuple) else found

    named = (config.architectures or [None])[0]
    others = [name for name in dir(transformers) if name.startswith("AutoModelFor")]
    if named is not None:
        found = next((cls for name in others if getattr(cls := auto_class(name), "__name__", "") == named), None)
        found = found or getattr(transformers, named, None)
        if isinstance(found, type) and issubclass(found, PreTrainedModel):
            return found
    language = ["AutoModelForCausalLM", "AutoModelForMaskedLM"]
    if config.is_encoder_decoder:  # in the other classes it would be its decoder alone
        language = ["AutoModelForSeq2SeqLM"]
    elif not getattr(config, "is_decoder", False):
        language.reverse()  # an encoder that has a causal class too, such as BERT
    for name in (*language, "AutoModel"):
        if (found := auto_class(name)) is not None:
            return found
    raise ValueError(f"transformers has no model class for a {type(config).__name__}.")


def _readable(model_class: type[PreTrainedModel], config: Any) -> type[PreTrainedModel]:
    if model_class.main_input_name != "input_ids":
        raise ValueError(
            f"{model_class.__name__} takes {model_class.main_input_name!r}; only models that take 'input_ids' are "
            "supported."
        )
    modalities = model_class.input_modalities
    others = [name for name in ([modalities] if isinstance(modalities, str) else modalities) if name != "text"]
    if config.is_encoder_decoder and others:
        raise ValueError(
            f"{model_class.__name__} also encodes {' and '.join(others)}; only encoder-decoders for text are "
            "supported."
        )
    return model_class


# --------------------------------------------------------------------------------------------------------- measuring
def _measure(model: DataFreeModel, context: int, batch: int) -> dict[str, Any]:
    length = _countable(model, context, batch)
    lengths = [context] if length == context else [length, length // 2, length // 4]
    passes = [(*model.forward_flops(n, batch), model.training_flops(n, batch)) for n in lengths]
    forward, attention, training = (round(_at(context, lengths, counts)) for counts in zip(*passes, strict=True))
    layers = [model.cache_layers(n, batch) for n in lengths[:2]]
    cache_bytes = 0
    for sizes in zip(*layers, strict=True):
        window = sizes[0][1]  # a layer with a window keeps what one more token can see
        reach = context if window is None else min(context, max(window - 1, 1))
        cache_bytes += round(_at(reach, lengths[:2], [size for size, _ in sizes])) if len(sizes) > 1 else sizes[0][0]
    return dict(
        forward_flops=forward,
        backward_flops=training - forward,
        attention_flops=attention,
        attention_overtakes=_crossing(model, length) if attention else None,
        cache_bytes=cache_bytes,
        measured_context=length,
    )


def _countable(model: DataFreeModel, context: int, batch: int) -> int:
    """Return the longest length at which the operations of a forward pass are not too many to go through."""
    shorter = [length for length in _LENGTHS if length < context]
    for length in (context, *shorter[:-1]):
        try:
            model.forward_flops(length, batch, _MOST_OPERATIONS)
            return length
        except TooManyOperations:
            continue
    return shorter[-1] if shorter else context


def _at(point: float, points: Sequence[int], values: Sequence[float]) -> float:
    """Evaluate the polynomial through some points (Lagrange)."""
    total = 0.0
    for i, value in enumerate(values):
        for j, other in enumerate(points):
            if j != i:
                value *= (point - other) / (points[i] - other)
        total += value
    return total


def _crossing(model: DataFreeModel, length: int) -> int | None:
    """Return the length at which attention takes as many operations as the rest, or None.

    From a length and its half follow the linear and quadratic terms of attention, the constant and the linear term of
    the rest, and with them a crossing. Where a window or a block ends in between, the terms change: so it is
    counted again at the crossing found, until that stays where it is.
    """
    longest = model.position_limit or _FARTHEST
    at = min(max(length, _LENGTHS[1]), longest)
    crossing = None
    for _ in range(8):
        at = max(at - at % 2, 2)
        try:
            most = _MOST_OPERATIONS if at > max(length, 2) else math.inf
            near, far = (model.forward_flops(n, 1, most) for n in (at // 2, at))
        except TooManyOperations:
            if crossing is not None:
                return math.ceil(crossing)
            at = length
            continue
        crossing = _root(at, near, far)
        if crossing is None or crossing > _FARTHEST:
            return None
        if abs(crossing - at) <= max(0.005 * at, 2) or crossing > longest:
            return math.ceil(crossing)
        at = math.ceil(crossing)
    return None


def _root(at: int, near: tuple[int, int], far: tuple[int, int]) -> float | None:
    """Solve quadratic * n^2 + linear * n = constant, see `_crossing`."""
    half = at / 2
    quadratic = (far[1] / at - near[1] / half) / (at - half)
    linear = far[1] / at - quadratic * at
    rest_near, rest_far = near[0] - near[1], far[0] - far[1]
    rest_linear = (rest_far - rest_near) / (at - half)
    constant = rest_far - rest_linear * at
    linear -= rest_linear
    if quadratic * at <= 1e-9 * rest_linear:  # attention grows as the rest does
        return constant / linear if linear > 0 else None
    return (-linear + math.sqrt(linear**2 + 4 * quadratic * max(constant, 0.0))) / (2 * quadratic)


# ---------------------------------------------------------------------------------------------------------- printing
_DECIMAL = ("", "k", "M", "G", "T", "P", "E", "Z")
_BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")


def _scaled(value: float, step: int, unit: str, prefixes: Sequence[str]) -> str:
    power = 0
    while value >= step and power < len(prefixes) - 1:
        value, power = value / step, power + 1
    return f"{value:.4g} {prefixes[power]}{unit}"
