# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""The entry that all parts of a model have in common (mixers, cross mixers, positions, norms, feed-forward layers),
and the registries in which a config finds them by name."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, TypeVar

from .registry import Registry, require, require_known


@dataclass(frozen=True)
class Part:
    """One entry of a registry.

    Parameters and buffers of a module itself, outside of PyTorch layers, are set by its method `init_parameters()`
    with the functions of `transformers.initialization`, which do not overwrite values that were loaded from a
    checkpoint. Creating a model with one that is not initialized raises an error (`initialisation.py`).

    Attributes:
        module: the class or function that creates it; the entries of each kind document its arguments. None if there
            is nothing to create.
        options: the dataclass of its options, which checks them. The module gets an object of it as its last argument.
        reference: the plain implementation that it must equal, or its import path `module:function`. The references of
            built-in parts are in `hf_tx.conformance`.
        reads: the config fields that it uses and others of its kind do not, such as `norm_unit_offset`.
        tp_plan: its tensor parallel plan: styles of transformers by the names of its projections, or a function of the
            config that returns them. Without a plan, every device computes the whole part.
        adapter_targets: the projections that PEFT adapts by default.
    """

    module: Callable[..., Any] | None
    _: KW_ONLY
    options: type | None = None
    reference: Any = None
    reads: tuple[str, ...] = ()
    tp_plan: Mapping[str, str] | Callable[[Any], Mapping[str, str]] | None = None
    adapter_targets: tuple[str, ...] = ()


P = TypeVar("P", bound=Part)


class PartRegistry(Registry[P]):
    """The parts of one kind, by name.

    Args:
        kind: the config field that names one.
        options_field: the config field with their options.
    """

    def __init__(self, kind: str, options_field: str) -> None:
        super().__init__(kind)
        self.options_field = options_field

    def register(self, name: str, value: P, origin: str = "hf_tx") -> None:
        """Add a part; see the base class.

        Raises:
            ValueError: the name is taken, or the part breaks a rule.
        """
        what, options = f"{self.kind} {name!r}", value.options
        if value.module is not None and not callable(value.module):
            raise ValueError(f"{what}: module = {value.module!r}: must be callable.")
        if options is not None and not (isinstance(options, type) and dataclasses.is_dataclass(options)):
            raise ValueError(f"{what}: options = {options!r}: must be a dataclass.")
        super().register(name, value, origin)

    def options(self, config: Any, name: str) -> Any:
        """Return the checked options of a part, or None when it has none."""
        kind = self.get(name).options
        return None if kind is None else kind(**(getattr(config, self.options_field) or {}).get(name, {}))

    def build(self, config: Any, name: str, *arguments: Any) -> Any:
        """Build a part: `module(config, *arguments)`, followed by its options if it has any.

        Returns:
            The module, or None for a part that is nothing.
        """
        part = self.get(name)
        if part.module is None:
            return None
        own = () if part.options is None else (self.options(config, name),)
        return part.module(config, *arguments, *own)

    def check_options(self, config: Any, used: Iterable[str]) -> None:
        """Check the options in a config.

        Args:
            config: the config.
            used: names of the parts that the model has.

        Raises:
            ValueError: options for a part that the model does not have, that it does not know, or that break a rule.
        """
        field, used = self.options_field, list(dict.fromkeys(used))
        for name, given in (getattr(config, field) or {}).items():
            require(name in used, field, name, f"is used by no layer; the layers have {', '.join(map(repr, used))}")
            kind = self.get(name).options
            require(kind is not None, field, name, "has no options")
            for key in given:
                require_known(f"{field}[{name!r}]", key, [each.name for each in dataclasses.fields(kind)])  # type: ignore
        for name in used:
            self.options(config, name)

    def readers(self, field: str) -> list[str]:
        """Return the names of the parts that read a config field."""
        return [name for name in self if field in self.get(name).reads]


def shared_plan(parts: Iterable[Part], config: Any) -> dict[str, str]:
    """Return the tensor parallel plan of the parts at one place in the layers of a model. transformers distinguishes
    modules only by their names, so nothing is sharded if a part has no plan, or two plans differ."""
    plans = []
    for part in parts:
        plan = part.tp_plan(config) if callable(part.tp_plan) else part.tp_plan
        if part.module is not None:
            plans.append(dict(plan or {}))
    merged = {name: style for plan in plans for name, style in plan.items()}
    agreed = all(plan and plan.items() <= merged.items() for plan in plans)
    return merged if agreed else {}
