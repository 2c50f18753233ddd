# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""The table in which a family defines how its weights are converted, in both directions.

"Theirs" is transformers, "ours" is hf_tx. A rule names one module (or tensor) of theirs and those of ours that it
contains; `*` is the number of a layer. If they have a tensor for each row of ours, `#` is the number of the row.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch

_NUMBER = re.compile(r"(?<=[._])\d+(?=\.)")  # of a layer


@dataclass(frozen=True)
class Rule:
    """One of their modules and what it is here.

    Attributes:
        theirs: its name.
        ours: the names of ours, in the order of their weights in it.
        transposed: it is a Conv1D, whose weight is the transpose of a linear layer's.
        by_head: the parts are stored one after the other for every head.
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
        return len(self.ours) == 1 and not (self.transposed or self.row or self.of_rows)

    @property
    def of_rows(self) -> bool:
        """Whether theirs are the rows of ours."""
        return "#" in self.theirs

    @property
    def reorders(self) -> bool:
        """Whether our elements have another order in memory than theirs."""
        return self.transposed or self.by_head

    def to_ours(self, theirs: list[torch.Tensor], shapes: list[torch.Size], heads: int) -> list[torch.Tensor]:
        """Return our tensors, views of theirs where that is possible.

        Args:
            theirs: one tensor, or all rows.
            shapes: shapes of ours.
            heads: number of query heads.
        """
        tensor = torch.stack(theirs) if self.of_rows else theirs[0]
        if self.row:
            tensor = tensor[0]
        if self.transposed and tensor.ndim > 1:
            tensor = tensor.t()
        if len(self.ours) == 1:
            return [tensor]
        if self.by_head:
            return [part.flatten(0, 1) for part in tensor.unflatten(0, (heads, len(self.ours), -1)).unbind(1)]
        return list(tensor.split([shape[0] for shape in shapes]))

    def to_theirs(self, ours: list[torch.Tensor], heads: int) -> list[torch.Tensor]:
        """Return their tensors: one, or all rows."""
        if self.by_head:
            parts = [tensor.unflatten(0, (heads, -1)) for tensor in ours]
            tensor = torch.stack(parts, dim=1).flatten(0, 2)
        else:
            tensor = torch.cat(ours) if len(ours) > 1 else ours[0]
        if self.transposed and tensor.ndim > 1:
            tensor = tensor.t()
        if self.of_rows:
            return list(tensor)
        return [tensor[None] if self.row else tensor]


def rule(theirs: str, *ours: str, transposed: bool = False, by_head: bool = False, row: bool = False) -> Rule:
    """Name one of their modules and those of ours that it holds."""
    return Rule(theirs, ours, transposed, by_head, row)


def layers(theirs: str, ours: str, **modules: str) -> tuple[Rule, ...]:
    """Name the modules of a layer: `ours=theirs`, where a double underscore of ours is a dot."""
    return tuple(
        rule(f"{theirs}.*.{module}", f"{ours}.*.{name.replace('__', '.')}") for name, module in modules.items()
    )


@dataclass(frozen=True)
class Match:
    """Tensors of one model that a rule speaks of.

    Attributes:
        rule: the rule.
        theirs: names of theirs: one, or those of all rows.
        ours: names of ours.
    """

    rule: Rule
    theirs: list[str]
    ours: list[str]


class Plan:
    """Which tensor of theirs holds which of ours, for one model.

    Args:
        rules: the rules of the family and its head, of which the first with a name counts.
        shapes: our tensors.
        heads: number of query heads.

    Attributes:
        matches: the rules, with names.
        unnamed: tensors of ours that no rule names.
    """

    def __init__(self, rules: Sequence[Rule], shapes: Mapping[str, torch.Size], heads: int) -> None:
        self.shapes, self.heads = shapes, heads
        self.unnamed: list[str] = []
        made: dict[str, Match] = {}
        named = {name: (each, index) for each in reversed(rules) for index, name in enumerate(each.ours)}
        for key, shape in shapes.items():
            pattern = _NUMBER.sub("*", key, count=1)
            module = pattern if pattern in named else re.sub(r"\.(weight|bias)$", "", pattern)
            if module not in named:
                self.unnamed.append(key)
                continue
            each, index = named[module]
            name = each.theirs + pattern[len(module) :]
            if (layer := _NUMBER.search(key)) is not None:
                name = name.replace("*", layer[0])
            theirs = [name.replace("#", str(row)) for row in range(shape[0])] if each.of_rows else [name]
            made.setdefault(name, Match(each, theirs, [""] * len(each.ours))).ours[index] = key
        for name, match in made.items():
            if "" in match.ours:
                raise ValueError(f"{name} contains several tensors, of which the model only has {match.ours}.")
        self.matches = list(made.values())

    def take(self, match: Match, theirs: list[torch.Tensor]) -> list[torch.Tensor]:
        """Return our tensors of a match; see [`Rule.to_ours`].

        Raises:
            ValueError: shapes that do not fit.
        """
        shapes = [self.shapes[key] for key in match.ours]
        made = match.rule.to_ours(theirs, shapes, self.heads)
        for key, shape, tensor in zip(match.ours, shapes, made, strict=True):
            if tensor.shape != shape:
                raise ValueError(
                    f"{match.theirs[0]} has the shape {tuple(tensor.shape)} for {key}, which needs {tuple(shape)}."
                )
        return made

    def to_ours(self, theirs: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Translate those of their tensors that have a rule."""
        made: dict[str, torch.Tensor] = {}
        for match in self.matches:
            if all(name in theirs for name in match.theirs):
                tensors = [theirs[name] for name in match.theirs]
                made.update(zip(match.ours, self.take(match, tensors), strict=True))
        return made

    def to_theirs(self, ours: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Translate our tensors."""
        made: dict[str, torch.Tensor] = {}
        for match in self.matches:
            tensors = match.rule.to_theirs([ours[key] for key in match.ours], self.heads)
            made.update(zip(match.theirs, tensors, strict=True))
        return made
