# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Runs any model of transformers on tensors without data, and counts its operations and its cache.

Tensors have a shape and a dtype but no memory, so that a model of any size and a context of any length can be run.
"""

import copy
import inspect
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves
from transformers import masking_utils
from transformers.modeling_utils import PreTrainedModel

from ..backends import banded, tiled
from ..backends.mask_rule import MaskRule

# Operators of torch without a formula compute no products.
_OF_TORCH = {"aten", "prim", "prims", "profiler"}


class TooManyOperations(Exception):
    """A run was given up: the model loops over positions."""


class ProductCounter(TorchDispatchMode):
    """Counts the floating point operations of matrix products, convolutions and attention kernels by the formulas of
    `torch.utils.flop_counter`, and tells products with weights from products of activations with each other.

    Args:
        model: its parameters and buffers are the weights, and what is computed from them alone is weights too.
        most: number of operations of any kind after which a run is given up.

    Attributes:
        total: floating point operations; a multiplication and an addition are two.
        mixing: those of products of activations: scores, weighted sums of values, states. Meaningful for a forward
            pass only, since the gradient of a weight is a product of activations.
    """

    def __init__(self, model: torch.nn.Module, most: float) -> None:
        from torch.utils.flop_counter import flop_registry

        super().__init__()
        aten = torch.ops.aten
        flash, flash_backward = (
            flop_registry[aten._scaled_dot_product_flash_attention],
            flop_registry[aten._scaled_dot_product_flash_attention_backward],
        )
        # Kernels of CPUs, and products that are added in place, that torch has no formulas for.
        self.formulas = {
            aten._scaled_dot_product_flash_attention_for_cpu: flash,
            aten._scaled_dot_product_flash_attention_for_cpu_backward: flash_backward,
            aten.baddbmm_: flop_registry[aten.baddbmm],
            aten.mkldnn_rnn_layer: _recurrent_flops,
            aten.mkldnn_rnn_layer_backward: lambda *args, **kwargs: 2 * _recurrent_flops(*args),
            **flop_registry,
        }
        self.total = self.mixing = self.operations = 0
        self.most = most
        # By the identity of the storage; the storage is held so that nothing else gets its identity.
        self.weights: dict[int, Any] = {}
        for weight in (*model.parameters(), *model.buffers()):
            self._hold(weight)

    def _hold(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        self.weights[storage._cdata] = storage

    def _are_weights(self, values: Any) -> list[bool]:
        tensors = [leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor) and leaf.is_floating_point()]
        return [tensor.untyped_storage()._cdata in self.weights for tensor in tensors]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        packet = getattr(func, "overloadpacket", func)
        if packet not in self.formulas and func is not torch.ops.prim.device.default:
            with self:
                parts = func.decompose(*args, **kwargs)
            if parts is not NotImplemented:
                return parts
            if getattr(func, "namespace", "aten") not in _OF_TORCH:
                raise NotImplementedError(
                    f"the operator {func} has no formula; register one, 0 where it computes no products, with "
                    "torch.utils.flop_counter.register_flop_formula"
                )
        self.operations += 1
        if self.operations > self.most:
            raise TooManyOperations
        result = func(*args, **kwargs)
        if packet in self.formulas:
            flops = self.formulas[packet](*args, **kwargs, out_val=result)
            self.total += flops
            self.mixing += 0 if any(self._are_weights(args[:3])) else flops
        elif packet is not torch.ops.aten.embedding:  # embeddings that are looked up represent the tokens
            sources = self._are_weights((args, kwargs))
            if sources and all(sources):
                for leaf in tree_leaves(result):
                    if isinstance(leaf, torch.Tensor):
                        self._hold(leaf)
        return result


def _recurrent_flops(
    inputs: torch.Tensor, weight_ih: torch.Tensor, weight_hh: torch.Tensor, *_: Any, **__: Any
) -> int:
    """Count one layer of an LSTM. Shape of the inputs: `(length, batch, features)`."""
    return 2 * inputs.shape[0] * inputs.shape[1] * (weight_ih.numel() + weight_hh.numel())


class DataFreeModel:
    """A model without data.

    Args:
        model_class: class of the model.
        config: its config, which is copied.
        dtype: dtype of the weights.
        attn_implementation: the backend that is counted.

    Attributes:
        parameters: number of parameters, tied ones once.
        parameter_bytes: their bytes.
        position_limit: length of the table of learned positions, past which there is nothing to look up, or None.
    """

    def __init__(
        self, model_class: type[PreTrainedModel], config: Any, dtype: torch.dtype, attn_implementation: str
    ) -> None:
        from torch._subclasses.fake_tensor import FakeTensorMode

        config = copy.deepcopy(config)
        # Of mixtures of experts: those that a token is sent to, as products that torch's formulas know.
        backends = dict(attn_implementation=attn_implementation, experts_implementation="batched_mm")
        with torch.device("meta"):
            model: Any = model_class._from_config(config, dtype=dtype, **backends)
        self.parameters = sum(parameter.numel() for parameter in model.parameters())
        self.parameter_bytes = sum(parameter.nbytes for parameter in model.parameters())
        self.position_limit = _position_limit(model)
        self._forward: dict[tuple[int, int], tuple[int, int]] = {}
        self._mode = FakeTensorMode(allow_non_fake_inputs=True)
        with self._mode:
            self._model = model.to_empty(device="cpu").eval()

    def _run(self, context: int, batch: int, use_cache: bool) -> Any:
        tokens = torch.zeros(batch, context, dtype=torch.long)
        inputs = {"input_ids": tokens, "decoder_input_ids": tokens, "use_cache": use_cache}
        taken = inspect.signature(self._model.forward).parameters
        return self._model(**{name: value for name, value in inputs.items() if name in taken})

    @contextmanager
    def _counting(self, most: float) -> Iterator[ProductCounter]:
        # Without data transformers cannot see that a row is one text, and would take it for packed documents.
        one_text = _replaced(masking_utils, "find_packed_sequence_indices", lambda position_ids: None)
        one_tile = _replaced(tiled._Tiles, "__iter__", _as_one_tile)
        groups = _replaced(banded, "_groups", _for_real(banded._groups))
        with one_text, one_tile, groups, self._mode, ProductCounter(self._model, most) as counter:
            yield counter

    def forward_flops(self, context: int, batch: int, most: float = math.inf) -> tuple[int, int]:
        """Return the floating point operations of a forward pass: all, and those of products of activations."""
        if (context, batch) not in self._forward:
            with torch.no_grad(), self._counting(most) as counter:
                self._run(context, batch, use_cache=False)
            self._forward[context, batch] = counter.total, counter.mixing
        return self._forward[context, batch]

    def training_flops(self, context: int, batch: int, most: float = math.inf) -> int:
        """Return the floating point operations of a forward and a backward pass."""
        with torch.enable_grad(), self._counting(most) as counter:
            outputs = self._run(context, batch, use_cache=False)
            outputs[0].float().sum().backward()
        self._model.zero_grad(set_to_none=True)
        return counter.total

    def cache_layers(self, context: int, batch: int, most: float = math.inf) -> list[tuple[int, int | None]]:
        """Return of every layer of the cache that a forward pass leaves: its bytes, and its window or None."""
        with torch.no_grad(), self._counting(most):
            outputs = self._run(context, batch, use_cache=True)
        names = ("cache", "past_key_values", "cache_params", "state")
        cache = next((outputs[name] for name in names if outputs.get(name) is not None), None)
        return [
            (sum(_float_bytes(layer)), layer.sliding_window if getattr(layer, "is_sliding", False) else None)
            for layer in _layers(cache)
        ]


@contextmanager
def _replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Give an attribute of a module or a class another value for a while."""
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


def _for_real(function: Callable[..., Any]) -> Callable[..., Any]:
    """Find out with real numbers what a mask alone decides."""

    def with_numbers(*args: Any) -> Any:
        with _disable_current_modes():
            return function(*args)

    return with_numbers


def _as_one_tile(tiles: Any) -> Iterator[tuple[int, int, list[tuple[int, int, int, bool]]]]:
    """Yield one tile of as many pairs as all tiles of `tiled` have, whose number would grow with the square of the
    length."""
    mask, (rows, columns) = tiles.plan.mask, (tiles.plan.rows, tiles.plan.columns)
    pairs = tiles.queries * tiles.keys
    if isinstance(mask, MaskRule):
        mask._padding = None  # some models make a mask of ones, which has no data either
        pairs = mask.cached(("pairs", rows, columns), lambda: _for_real(mask.pairs)(rows, columns))
    yield 0, tiles.queries, [(0, 0, max(1, round(pairs / tiles.queries)), True)]


def _layers(cache: Any) -> list[Any]:
    if hasattr(cache, "self_attention_cache"):
        return [*_layers(cache.self_attention_cache), *_layers(cache.cross_attention_cache)]
    return getattr(cache, "layers", [] if cache is None else [cache])


def _float_bytes(value: Any) -> list[int]:
    """Return the bytes of all floating point tensors in an object, a dict or a sequence. Counters are integers."""
    if isinstance(value, torch.Tensor):
        return [value.numel() * value.element_size()] if value.is_floating_point() else []
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [size for part in value for size in _float_bytes(part)]
    return _float_bytes(vars(value)) if type(value).__module__.partition(".")[0] not in ("builtins", "torch") else []


def _position_limit(model: Any) -> int | None:
    """Return the config's limit if the model has a table of positions of that length; some have two rows more."""
    limit = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    if limit is None:
        return None
    tokens = model.get_input_embeddings()
    for module in model.modules():
        if not isinstance(module, torch.nn.Embedding) or module.weight.shape == tokens.weight.shape:
            continue
        if limit <= module.num_embeddings <= limit + 2:
            return limit
    return None
