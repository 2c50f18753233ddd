# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Norms and feed-forward layers that are wrong on purpose, by the check that must catch them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from conformance.mixer_mutants import one_unless_large
from torch import nn
from transformers import initialization as init

from hf_tx.conformance import Check, check_feed_forward, check_norm
from hf_tx.conformance.references import FEED_FORWARD_REFERENCES, NORM_REFERENCES
from hf_tx.models.feed_forwards import MLP, FeedForward, drop
from hf_tx.models.norms import Norm, RMSNorm

Alter = Callable[[Any, torch.Tensor, torch.Tensor], torch.Tensor]
Made = Callable[..., list[Check]]


class _Norm(RMSNorm):
    def __init__(self, config: Any, size: int, *options: Any) -> None:
        super().__init__(size, config.norm_eps)


class _FeedForward(MLP):
    def __init__(self, config: Any, *options: Any) -> None:
        super().__init__(config)


def _norm(module: type, factor: Any = lambda module: 1.0, settings: Any = None, **fields: Any) -> list[Check]:
    """The checks of a norm whose reference is that of RMSNorm times `factor(module)`."""
    plain = NORM_REFERENCES["rmsnorm"].function
    return check_norm(
        Norm(module, **fields), reference=lambda module, x: plain(module, x) * factor(module), settings=settings
    )


def _feed_forward(module: type, factor: Any = lambda module: 1.0, settings: Any = None, **fields: Any) -> list[Check]:
    plain = FEED_FORWARD_REFERENCES["mlp"].function
    return check_feed_forward(
        FeedForward(module, **fields), reference=lambda module, x: plain(module, x) * factor(module), settings=settings
    )


@dataclass(frozen=True)
class _TableOptions:
    """An option that JSON changes: a tuple becomes a list."""

    table: tuple[int, ...] = ()


@dataclass(frozen=True)
class _AnyOptions:
    """Takes an option that the part knows nothing of."""

    nonsense: int = 0


def mutants(base: type, made: Made) -> dict[str, Callable[[], list[Check]]]:
    """Return what is wrong in the same way for both kinds.

    Args:
        base: the right one.
        made: `made(module, factor, settings, **fields)` returns the checks.
    """

    def altered(alter: Alter) -> list[Check]:
        class Mutant(base):
            def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
                return alter(self, super().forward(hidden_states), hidden_states)

        return made(Mutant)

    class Gained(base):
        """Right, and with gains of its own."""

        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            self.gain = nn.Parameter(torch.ones(1))
            self.other = nn.Parameter(torch.ones(1))

        def set_gains(self) -> None:
            init.ones_(self.gain)

        def init_parameters(self) -> None:
            getattr(super(), "init_parameters", lambda: None)()
            if "other" in self._parameters:  # else it is called by the constructor of the base
                init.ones_(self.other)
                self.set_gains()

        def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
            return super().forward(hidden_states) * self.gain * self.other

    class Memory(Gained):
        """Its initialiser reads what it ought to set."""

        def set_gains(self) -> None:
            self.gain.clamp_(min=1.0)

    class Overwrites(Gained):
        """Its initialiser does not mind what a checkpoint has filled."""

        def set_gains(self) -> None:
            self.gain.fill_(1.0)

    class Drawn(base):
        """A number that is not saved, and drawn by every model anew."""

        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            self.register_buffer("factor", torch.ones(1), persistent=False)

        def init_parameters(self) -> None:
            getattr(super(), "init_parameters", lambda: None)()
            if "factor" in self._buffers:
                init.uniform_(self.factor, 0.5, 1.5)

        def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
            return super().forward(hidden_states) * self.factor

    class Spare(Gained):
        def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
            return base.forward(self, hidden_states) * self.gain

    return {
        "equals_reference": lambda: altered(lambda m, y, x: y * (1.01 if x.ndim == 1 else 1.0)),
        "gradients_equal_reference": lambda: altered(lambda m, y, x: y + 0.0005 * (y - y.detach())),
        "all_parameters_learn": lambda: made(Spare, lambda module: module.gain),
        "position_wise": lambda: altered(lambda m, y, x: y + 0.1 * x.mean() if len(x) == 3 and x.ndim == 3 else y),
        "dtype_kept": lambda: altered(lambda m, y, x: y.float()),
        "low_precision": lambda: altered(lambda m, y, x: y * (1.1 if x.dtype == torch.bfloat16 else 1.0)),
        "large_inputs": lambda: altered(lambda m, y, x: y * one_unless_large(x.float() / 20).to(y.dtype)),
        "options_come_back": lambda: made(base, settings=({"options": {"table": (1, 2)}},), options=_TableOptions),
        "unknown_option_refused": lambda: made(base, options=_AnyOptions),
        "initial_values": lambda: made(Memory, lambda module: module.gain * module.other),
        "partial_checkpoint": lambda: made(Overwrites, lambda module: module.gain * module.other),
        "save_and_load": lambda: made(Drawn, lambda module: module.factor),
        "one_graph": lambda: altered(lambda m, y, x: y if float(y.detach().sum()) > 0 else y * 1.0),
    }


class _OfThePosition(_Norm):
    """Normalises by the first features, as many as a position has."""

    def __init__(self, config: Any, size: int) -> None:
        super().__init__(config, size)
        self.width = config.hidden_size

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        same = hidden_states.shape[-1] == self.width
        return super().forward(hidden_states) * (1.0 if same else 1.01)


class _Squares(_Norm):
    """Computes squares in the dtype of the input."""

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        mean = (hidden_states * hidden_states).mean(-1, keepdim=True)
        return self.weight * (hidden_states * torch.rsqrt(mean + self.eps))


class _AlwaysDrops(_FeedForward):
    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        return drop(super().forward(hidden_states), 0.1, self.training)


NORM_MUTANTS: dict[str, Callable[[], list[Check]]] = {
    **mutants(_Norm, _norm),
    "other_sizes": lambda: _norm(_OfThePosition),
    "large_in_float16": lambda: _norm(_Squares),
}
FEED_FORWARD_MUTANTS: dict[str, Callable[[], list[Check]]] = {
    **mutants(_FeedForward, _feed_forward),
    "drops_as_asked": lambda: _feed_forward(_AlwaysDrops),
}
