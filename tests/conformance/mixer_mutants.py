# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Mixers that are wrong on purpose, by the check that must catch them.

A check that must catch several is named once for each: `packing` and `packing: at the border of a chunk`.
"""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from transformers import initialization as init

from hf_tx.conformance import Check, check_cross_mixer, check_mixer
from hf_tx.conformance.references import CROSS_REFERENCES, MIXER_REFERENCES
from hf_tx.conformance.tools import registered
from hf_tx.models.attention import Attention, CrossAttention, SlidingAttention
from hf_tx.models.cross_attention import AdditiveCrossAttention
from hf_tx.models.documents import Segments
from hf_tx.models.linear_attention import LinearMixer
from hf_tx.models.mixers import CROSS_MIXERS, MIXERS, CrossMixer, Mixer


def louder_gradient(states: torch.Tensor) -> torch.Tensor:
    """The same states with a tenth more gradient."""
    return states + 0.1 * (states - states.detach())


def one_unless_large(states: torch.Tensor) -> torch.Tensor:
    """One, as long as its exponential does not overflow."""
    largest = states.abs().amax()
    return largest.exp() / largest.exp()


def _spec(module: type, base: str = "linear", **changes: Any) -> Mixer:
    known = MIXERS.get(base)
    fields = dict(layer_type=known.layer_type, cost=known.cost, is_attention=known.is_attention)
    return Mixer(module=module, **{**fields, **changes})


def linear(alter: Callable[..., torch.Tensor], **changes: Any) -> list[Check]:
    """Linear attention whose output is altered: `alter(module, mixed, hidden_states, segments, cache)`."""

    class Mutant(LinearMixer):
        def forward(self, hidden_states: torch.Tensor, **inputs: Any) -> tuple[torch.Tensor, None]:
            mixed, weights = super().forward(hidden_states, **inputs)
            segments = inputs.get("attention_mask") or Segments()
            return alter(self, mixed, hidden_states, segments, inputs.get("cache")), weights

    return check_mixer(_spec(Mutant, **changes), reference=MIXER_REFERENCES["linear"].function)


def masked(change: Callable[[Segments], Segments]) -> list[Check]:
    """Linear attention that is told something else about padding and documents."""

    class Mutant(LinearMixer):
        def forward(self, hidden_states: torch.Tensor, **inputs: Any) -> tuple[torch.Tensor, None]:
            inputs["attention_mask"] = change(inputs.get("attention_mask") or Segments())
            return super().forward(hidden_states, **inputs)

    return check_mixer(_spec(Mutant), reference=MIXER_REFERENCES["linear"].function)


def blind_to(where: Callable[[torch.Tensor], torch.Tensor]) -> list[Check]:
    """Linear attention that takes pads for tokens where `where(real)` says so of a batch."""

    def change(segments: Segments) -> Segments:
        if segments.real is None or not bool(where(segments.real).any()):
            return segments
        return Segments(None, segments.document)

    return masked(change)


def built(change: Callable[[Any], None], **changes: Any) -> list[Check]:
    """Linear attention with something changed after it is built."""

    class Mutant(LinearMixer):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            change(self)

    return check_mixer(_spec(Mutant, **changes), reference=MIXER_REFERENCES["linear"].function)


def _future(hidden_states: torch.Tensor) -> torch.Tensor:
    return 0.1 * hidden_states.flip(1)


class _Leaks(LinearMixer):
    """Sees the future; and so does its reference."""

    def forward(self, hidden_states: torch.Tensor, **inputs: Any) -> tuple[torch.Tensor, None]:
        mixed, _ = super().forward(hidden_states, **inputs)
        return mixed + _future(hidden_states), None


class _ByBackend(Attention):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        if self.config._attn_implementation != "eager":
            self.scaling *= 1.1


class _Memory(LinearMixer):
    """Keeps its state in itself, where no cache can reorder it."""

    memory: Any = None

    def forward(self, hidden_states: torch.Tensor, cache: Any = None, **inputs: Any) -> tuple[torch.Tensor, None]:
        layer = None if cache is None else cache.layers[self.layer_idx]
        if layer is not None and layer.is_initialized and int(layer.get_seq_length()):
            rows = (len(hidden_states), *self.memory.shape[1:])
            layer.recurrent_states[0] = self.memory.repeat(-(-rows[0] // len(self.memory)), 1, 1, 1)[: rows[0]]
        mixed, _ = super().forward(hidden_states, cache=cache, **inputs)
        if layer is not None:
            self.memory = layer.recurrent_states[0].clone()
        return mixed, None


class _Forgets(LinearMixer):
    """Does not go on with a state over more than one step."""

    def forward(self, hidden_states: torch.Tensor, cache: Any = None, **inputs: Any) -> tuple[torch.Tensor, None]:
        layer = None if cache is None else cache.layers[self.layer_idx]
        if layer is not None and layer.is_initialized and hidden_states.shape[1] > 1:
            layer.recurrent_states[0] = torch.zeros_like(layer.recurrent_states[0])
        return super().forward(hidden_states, cache=cache, **inputs)


class _ForgetsLater(LinearMixer):
    """Forgets its state where the third chunk begins."""

    def forward(self, hidden_states: torch.Tensor, **inputs: Any) -> tuple[torch.Tensor, None]:
        length = hidden_states.shape[1]
        if length > 128 and inputs.get("cache") is None:
            segments = inputs.get("attention_mask") or Segments()
            if segments.document is None:
                document = (torch.arange(length) >= 128).long().expand(len(hidden_states), -1)
                inputs["attention_mask"] = Segments(segments.real, document)
        return super().forward(hidden_states, **inputs)


def _joined(segments: Segments) -> Segments:
    """Lets the document that begins where the second chunk of a long text does go on with the one before it."""
    document = segments.document
    if document is None or document.shape[1] <= 128 or bool((document[:, 63] == document[:, 64]).all()):
        return segments
    return Segments(segments.real, torch.where(document == document[:, 64:65], document[:, 63:64], document))


def _pads_later(segments: Segments) -> Segments:
    """Takes the pads behind the first chunk for tokens."""
    if segments.real is None or segments.real.shape[1] <= 64:
        return segments
    return Segments(segments.real | (torch.arange(segments.real.shape[1]) >= 64), segments.document)


class _ShortWindow(SlidingAttention):
    """Loses the oldest key of a window when more than 30 tokens have gone through the cache."""

    def _keys_and_values(self, hidden_states: torch.Tensor, *inputs: Any) -> tuple[torch.Tensor, torch.Tensor]:
        cache = inputs[1]
        seen = 0 if cache is None else int(cache.get_seq_length(self.layer_idx))
        key, value = super()._keys_and_values(hidden_states, *inputs)
        if seen > 30 and hidden_states.shape[1] == 1:
            value = torch.cat((0 * value[:, :, :1], value[:, :, 1:]), dim=2)
        return key, value


class _OldBeams(LinearMixer):
    """Keeps the states of the beams that have been left, unless a cache is reordered by hand."""

    def forward(self, hidden_states: torch.Tensor, cache: Any = None, **inputs: Any) -> tuple[torch.Tensor, None]:
        layer: Any = None if cache is None else cache.layers[self.layer_idx]
        if layer is not None and layer.is_initialized and len(hidden_states) == 6 and hidden_states.shape[1] == 1:
            layer.recurrent_states[0] = self.kept.clone()
        mixed, _ = super().forward(hidden_states, cache=cache, **inputs)
        if layer is not None:
            self.kept = layer.recurrent_states[0].clone()
        return mixed, None


class _OtherWeights(Attention):
    """Returns the weights of another head."""

    def forward(self, hidden_states: torch.Tensor, **inputs: Any) -> tuple[torch.Tensor, Any]:
        mixed, weights = super().forward(hidden_states, **inputs)
        return mixed, None if weights is None else weights.flip(1)


class _Filled(LinearMixer):
    """Leaves something in the state when there are only pads."""

    def forward(self, hidden_states: torch.Tensor, cache: Any = None, **inputs: Any) -> tuple[torch.Tensor, None]:
        mixed, _ = super().forward(hidden_states, cache=cache, **inputs)
        real = (inputs.get("attention_mask") or Segments()).real
        if cache is not None and real is not None:
            empty = ~real.any(1)
            cache.layers[self.layer_idx].recurrent_states[0][empty] += 1.0
        return mixed, None


class _DynamicOnly(LinearMixer):
    """Leaves nothing in a static cache."""

    def forward(self, hidden_states: torch.Tensor, cache: Any = None, **inputs: Any) -> tuple[torch.Tensor, None]:
        mixed, _ = super().forward(hidden_states, cache=cache, **inputs)
        if cache is not None and cache.layers[self.layer_idx].max_cache_len is not None:
            cache.layers[self.layer_idx].recurrent_states[0].zero_()
        return mixed, None


class _Gain(LinearMixer):
    """Has a parameter whose initialiser reads what it ought to set."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.gain = nn.Parameter(torch.ones(1))

    def init_parameters(self) -> None:
        self.gain.mul_(1.0)

    def forward(self, hidden_states: torch.Tensor, **inputs: Any) -> tuple[torch.Tensor, None]:
        mixed, _ = super().forward(hidden_states, **inputs)
        return mixed * self.gain, None


@dataclass(frozen=True)
class _TableOptions:
    """An option that JSON changes: a tuple becomes a list."""

    table: tuple[int, ...] = ()


@dataclass(frozen=True)
class _AnyOptions:
    """Takes an option that the mixer knows nothing of."""

    nonsense: int = 0


def _count(module: Any) -> int:
    module.calls = getattr(module, "calls", 0) + 1
    return module.calls


def _real_share(segments: Segments, mixed: torch.Tensor) -> torch.Tensor:
    """One for every row that has a token."""
    if segments.real is None:
        return mixed.new_ones(1, 1, 1)
    count = segments.real.sum(1).view(-1, 1, 1)
    return (count / count).to(mixed.dtype)


def _graph_break(module: Any, mixed: torch.Tensor, *_: Any) -> torch.Tensor:
    return mixed if float(mixed.detach().sum()) > 0 else mixed * 1.0


def _with_reference(module: type, reference: Callable[..., torch.Tensor], **changes: Any) -> list[Check]:
    return check_mixer(_spec(module, **changes), reference=reference)


def _reference(module: Any, hidden_states: torch.Tensor, is_causal: bool) -> torch.Tensor:
    return MIXER_REFERENCES["linear"].function(module, hidden_states, is_causal=is_causal)


@contextlib.contextmanager
def _unknown_elsewhere() -> Iterator[list[Check]]:
    """A mixer that is registered in this process only."""
    with registered(MIXERS, "mutant/linear", _spec(LinearMixer)):
        yield check_mixer("mutant/linear", reference=_reference)


def _on_cpu(module: Any) -> None:
    module.q_proj = nn.Linear(module.q_proj.in_features, module.q_proj.out_features, bias=False, device="cpu")


def _step_of_many(mixed: torch.Tensor) -> float:
    return 1.01 if mixed.shape[1] == 1 and len(mixed) > 4 else 1.0


def _sliding_mutant() -> list[Check]:
    spec = _spec(_ShortWindow, "sliding", needs=("sliding_window",))
    return check_mixer(spec, reference=MIXER_REFERENCES["sliding"].function, settings=(dict(sliding_window=4),))


def _left_padding_is_long(segments: Segments) -> Segments:
    """Takes the pads for tokens where there are more than a chunk of them on the left."""
    if segments.real is None or not bool((~segments.real[:, :64]).all(1).any()):
        return segments
    return Segments(None, segments.document)


def _late_call(module: Any, hidden_states: torch.Tensor, cache: Any) -> float:
    """Goes wrong in calls of a cache that are longer than a chunk and not the first."""
    if cache is None:
        return 1.0
    first = module.__dict__.get("last_cache") is not cache
    module.__dict__["last_cache"] = cache
    return 1.01 if not first and hidden_states.shape[1] > 64 else 1.0


MIXER_MUTANTS: dict[str, Callable[[], Any]] = {
    "reference_forward": lambda: linear(lambda m, mixed, *_: mixed * (1.01 if mixed.shape[1] > 64 else 1.0)),
    "reference_gradient": lambda: linear(lambda m, mixed, *_: louder_gradient(mixed)),
    "backends_agree": lambda: check_mixer(_spec(_ByBackend, "full"), reference=MIXER_REFERENCES["full"].function),
    "causality": lambda: _with_reference(
        _Leaks, lambda module, x, is_causal: _reference(module, x, is_causal) + _future(x)
    ),
    "padding_left": lambda: blind_to(lambda real: ~real[:, 0]),
    "padding_right": lambda: blind_to(lambda real: ~real[:, -1] & real[:, 0] & ~(~real[:, :-1] & real[:, 1:]).any(1)),
    "padding_interior": lambda: blind_to(lambda real: real[:, 0] & (~real[:, :-1] & real[:, 1:]).any(1)),
    "batch_equals_single": lambda: linear(
        lambda m, mixed, *_: mixed + 0.1 * (mixed.mean(0) - mixed.mean(0) / len(mixed))
    ),
    "packing": lambda: masked(lambda segments: Segments(segments.real, None)),
    "fully_masked_row": lambda: linear(lambda m, mixed, x, segments, cache: mixed * _real_share(segments, mixed)),
    "cache_split": lambda: _with_reference(_Forgets, _reference),
    "chunked_prefill": lambda: _with_reference(_Filled, _reference),
    "static_cache": lambda: _with_reference(_DynamicOnly, _reference),
    "cache_reorder": lambda: _with_reference(_Memory, _reference),
    "generation": lambda: linear(lambda m, mixed, *_: mixed * _step_of_many(mixed)),
    "parameters_get_gradients": lambda: built(lambda module: setattr(module, "spare", nn.Linear(2, 2))),
    "large_norms": lambda: linear(lambda m, mixed, x, *_: mixed * one_unless_large(x)),
    "low_precision": lambda: linear(lambda m, mixed, *_: mixed * (1.1 if mixed.dtype == torch.bfloat16 else 1.0)),
    "gradient_checkpointing": lambda: linear(
        lambda m, mixed, *_: mixed * (1.1 if m.training and _count(m) % 2 == 0 else 1.0)
    ),
    "compilation": lambda: linear(_graph_break),
    "options_round_trip": lambda: check_mixer(
        _spec(LinearMixer, options=_TableOptions), reference=_reference, settings=({"options": {"table": (1, 2)}},)
    ),
    "unknown_options_refused": lambda: _with_reference(LinearMixer, _reference, options=_AnyOptions),
    "meta_construction": lambda: built(_on_cpu),
    "buffers_after_reload": lambda: linear_with_buffer(),
    "initialisation": lambda: _with_reference(
        _Gain, lambda module, x, is_causal: _reference(module, x, is_causal) * module.gain
    ),
    "recorded_outputs": lambda: check_mixer(_spec(_OtherWeights, "full"), reference=MIXER_REFERENCES["full"].function),
    "clean_process_load": _unknown_elsewhere,
    # Right in short texts, in float32, and for the best beam.
    "reference_forward: forgets at the third chunk": lambda: _with_reference(_ForgetsLater, _reference),
    "reference_gradient: of later chunks": lambda: linear(
        lambda m, mixed, *_: torch.cat((mixed[:, :64], louder_gradient(mixed[:, 64:])), dim=1)
    ),
    "padding_left: of later chunks": lambda: masked(_left_padding_is_long),
    "padding_right: of later chunks": lambda: masked(_pads_later),
    "packing: at the border of a chunk": lambda: masked(_joined),
    "packing: gradient": lambda: linear(
        lambda m, mixed, x, segments, cache: mixed if segments.document is None else louder_gradient(mixed)
    ),
    "cache_split: at later chunks": lambda: linear(
        lambda m, mixed, x, segments, cache: mixed * _late_call(m, x, cache)
    ),
    "chunked_prefill: a window past 30 tokens": _sliding_mutant,
    "static_cache: a window past 30 tokens": _sliding_mutant,
    "generation: beams keep their old cache": lambda: _with_reference(_OldBeams, _reference),
    "fully_masked_row: in float16": lambda: linear(
        lambda m, mixed, x, segments, cache: (
            mixed * _real_share(segments, mixed) if mixed.dtype == torch.float16 else mixed
        )
    ),
    "low_precision: NaN in float16": lambda: linear(
        lambda m, mixed, *_: mixed * (float("nan") if mixed.dtype == torch.float16 else 1.0)
    ),
    "low_precision: in float16": lambda: linear(
        lambda m, mixed, *_: mixed.to(torch.bfloat16).to(mixed.dtype) if mixed.dtype == torch.float16 else mixed
    ),
}


def linear_with_buffer() -> list[Check]:
    """Linear attention with a number in a buffer that is not saved, and drawn by every model anew."""

    class Mutant(LinearMixer):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            self.register_buffer("factor", torch.ones(1), persistent=False)

        def init_parameters(self) -> None:
            init.uniform_(self.factor, 0.5, 1.5)

        def forward(self, hidden_states: torch.Tensor, **inputs: Any) -> tuple[torch.Tensor, None]:
            mixed, _ = super().forward(hidden_states, **inputs)
            return mixed * self.factor, None

    return _with_reference(Mutant, lambda module, x, is_causal: _reference(module, x, is_causal) * module.factor)


# ------------------------------------------------------------------------------------------------------------- crossed
def crossed(alter: Callable[..., torch.Tensor], base: str = "additive") -> list[Check]:
    """A cross mixer whose output is altered: `alter(mixed, inputs)`, with the keyword `states` among the inputs."""
    parent: Any = {"additive": AdditiveCrossAttention, "full": CrossAttention}[base]

    class Mutant(parent):
        def forward(self, hidden_states: torch.Tensor, **inputs: Any) -> tuple[torch.Tensor, Any]:
            filled = inputs["cache"] is not None and inputs["cache"].is_updated.get(self.layer_idx)
            mixed, weights = super().forward(hidden_states, **inputs)
            return alter(mixed, {**inputs, "states": hidden_states, "filled": filled, "module": self}), weights

    return _cross_checks(Mutant, base)


def _cross_checks(module: type, base: str) -> list[Check]:
    spec = CrossMixer(module, uses_backend=CROSS_MIXERS.get(base).uses_backend)
    return check_cross_mixer(spec, reference=CROSS_REFERENCES[base])


class _NoMask(AdditiveCrossAttention):
    def forward(self, hidden_states: torch.Tensor, **inputs: Any) -> tuple[torch.Tensor, Any]:
        return super().forward(hidden_states, **{**inputs, "attention_mask": None})


class _CrossByBackend(CrossAttention):
    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        if self.config._attn_implementation != "eager":
            self.scaling *= 1.1


def _cross_share(inputs: dict[str, Any]) -> Any:
    mask = inputs["attention_mask"]
    return 1.0 if mask is None else (mask.sum(1) / mask.sum(1)).view(-1, 1, 1).to(inputs["states"].dtype)


CROSS_MUTANTS: dict[str, Callable[[], list[Check]]] = {
    "cross_reference_forward": lambda: crossed(
        lambda mixed, inputs: mixed * (1.01 if inputs["source_states"].shape[1] == 17 else 1.0)
    ),
    "cross_reference_gradient": lambda: crossed(lambda mixed, inputs: louder_gradient(mixed)),
    "source_padding": lambda: _cross_checks(_NoMask, "additive"),
    "source_from_cache": lambda: crossed(lambda mixed, inputs: mixed * (1.01 if inputs["filled"] else 1.0)),
    "cross_backends_agree": lambda: _cross_checks(_CrossByBackend, "full"),
    "fully_masked_source": lambda: crossed(lambda mixed, inputs: mixed * _cross_share(inputs)),
    "cross_reference_forward: a long source": lambda: crossed(
        lambda mixed, inputs: mixed * (1.01 if inputs["source_states"].shape[1] > 256 else 1.0)
    ),
    "cross_reference_gradient: of a long source": lambda: crossed(
        lambda mixed, inputs: louder_gradient(mixed) if inputs["source_states"].shape[1] > 256 else mixed
    ),
    "fully_masked_source: in float16": lambda: crossed(
        lambda mixed, inputs: mixed * _cross_share(inputs) if mixed.dtype == torch.float16 else mixed
    ),
    "large_source": lambda: crossed(lambda mixed, inputs: mixed * one_unless_large(inputs["states"])),
}
