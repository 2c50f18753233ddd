# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""The language in which a family says which of its weights are which of ours, in both directions.

A rule names one module (or tensor) of theirs and those of ours that it holds; `*` is the number of a layer. The same
rule takes their tensor apart and puts it together again.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import torch


@dataclass(frozen=True)
class Rule:
    """One of their modules and what it is here.

    Attributes:
        theirs: its name.
        ours: the names of ours, in the order in which their weights stand in it.
        transposed: it is a Conv1D, whose weight is the transpose of a linear layer's.
        by_head: the parts stand one after the other for every head, not once.
        row: its tensor has a first dimension of 1 that ours lacks.
    """

    theirs: str
    ours: tuple[str, ...]
    transposed: bool = False
    by_head: bool = False
    row: bool = False

    def with_prefix(self, theirs: str, ours: str) -> "Rule":
        """Return the rule for a model that holds the base model under these names."""
        return replace(
            self,
            theirs=".".join(filter(None, (theirs, self.theirs))),
            ours=tuple(".".join(filter(None, (ours, name))) for name in self.ours),
        )

    @property
    def keeps(self) -> bool:
        """Whether their tensor is ours."""
        return len(self.ours) == 1 and not (self.transposed or self.row)

    @property
    def reorders(self) -> bool:
        """Whether the elements of ours stand in another order in memory than theirs."""
        return self.transposed or self.by_head

    def take_apart(self, tensor: torch.Tensor, shapes: list[torch.Size], heads: int) -> list[torch.Tensor]:
        """Return our tensors, views of theirs where that is possible.

        Args:
            tensor: their tensor.
            shapes: shapes of ours.
            heads: number of query heads.
        """
        if self.row:
            tensor = tensor[0]
        if self.transposed and tensor.ndim > 1:
            tensor = tensor.t()
        if len(self.ours) == 1:
            return [tensor]
        if self.by_head:
            return [part.flatten(0, 1) for part in tensor.unflatten(0, (heads, len(self.ours), -1)).unbind(1)]
        return list(tensor.split([shape[0] for shape in shapes]))

    def put_together(self, tensors: list[torch.Tensor], heads: int) -> torch.Tensor:
        """Return their tensor, made of ours."""
        if self.by_head:
            parts = [tensor.unflatten(0, (heads, -1)) for tensor in tensors]
            tensor = torch.stack(parts, dim=1).flatten(0, 2)
        else:
            tensor = torch.cat(tensors) if len(tensors) > 1 else tensors[0]
        if self.transposed and tensor.ndim > 1:
            tensor = tensor.t()
        return tensor[None] if self.row else tensor


def rule(theirs: str, *ours: str, transposed: bool = False, by_head: bool = False, row: bool = False) -> Rule:
    """Name one of their modules and those of ours that it holds."""
    return Rule(theirs, ours, transposed, by_head, row)


def layers(theirs: str, ours: str, **modules: str) -> tuple[Rule, ...]:
    """Name the modules of a layer: `ours=theirs`, where a double underscore of ours is a dot."""
    return tuple(
        rule(f"{theirs}.*.{module}", f"{ours}.*.{name.replace('__', '.')}") for name, module in modules.items()
    )


class Plan:
    """Which tensor of theirs holds which of ours, for one model.

    Args:
        rules: the rules of the family and its head.
        shapes: our tensors.
        heads: number of query heads.

    Attributes:
        entries: the rule and our names, by their name.
        unnamed: tensors of ours that no rule names.
    """

    def __init__(self, rules: Iterable[Rule], shapes: Mapping[str, torch.Size], heads: int) -> None:
        self.shapes, self.heads = shapes, heads
        self.entries: dict[str, tuple[Rule, list[str]]] = {}
        self.unnamed: list[str] = []
        patterns = [(re.compile(_regex(name)), each, index) for each in rules for index, name in enumerate(each.ours)]
        for key in shapes:
            found = next(((match, each, i) for regex, each, i in patterns if (match := regex.fullmatch(key))), None)
            if found is None:
                self.unnamed.append(key)
                continue
            match, each, index = found
            theirs = each.theirs.replace("*", match["layer"] or "*") if "layer" in match.groupdict() else each.theirs
            theirs += match["kind"] or ""
            self.entries.setdefault(theirs, (each, [""] * len(each.ours)))[1][index] = key
        for theirs, (_, ours) in self.entries.items():
            if "" in ours:
                raise ValueError(f"{theirs} holds several tensors, of which the model has only {ours}.")

    def take_apart(self, name: str, tensor: torch.Tensor) -> list[torch.Tensor]:
        """Return our tensors that one of theirs holds; see [`Rule.take_apart`].

        Raises:
            ValueError: shapes that do not fit.
        """
        each, ours = self.entries[name]
        shapes = [self.shapes[key] for key in ours]
        parts = each.take_apart(tensor, shapes, self.heads)
        for key, shape, part in zip(ours, shapes, parts, strict=True):
            if part.shape != shape:
                raise ValueError(f"{name} gives {key} the shape {tuple(part.shape)}, not {tuple(shape)}.")
        return parts

    def to_ours(self, theirs: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Translate those of their tensors that have a rule."""
        made: dict[str, torch.Tensor] = {}
        for name, (_, ours) in self.entries.items():
            if name in theirs:
                made.update(zip(ours, self.take_apart(name, theirs[name]), strict=True))
        return made

    def to_theirs(self, ours: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Translate our tensors."""
        return {
            name: each.put_together([ours[key] for key in keys], self.heads)
            for name, (each, keys) in self.entries.items()
        }


def _regex(pattern: str) -> str:
    return re.escape(pattern).replace(r"\*", r"(?P<layer>\d+)") + r"(?P<kind>\.weight|\.bias)?"
