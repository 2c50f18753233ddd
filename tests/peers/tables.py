# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""What is compared: models of the library, and the same as models of hf_tx.

What a family is here stands in `hf_tx.conversion`. One that is not convertible yet has settings and a table of names,
which maps our modules to theirs; `*` is the number of a layer. Where one of their modules holds several of ours, the
name stands beside a function that takes our part out of a weight or a bias, and out of its gradient likewise.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

VOCABULARY, WIDTH, LAYERS, HEADS, INNER, LENGTH = 59, 32, 3, 4, 40, 64
TOKENS = dict(pad_token_id=0, bos_token_id=1, eos_token_id=2)
SIZES = dict(
    vocab_size=VOCABULARY,
    hidden_size=WIDTH,
    num_hidden_layers=LAYERS,
    num_attention_heads=HEADS,
    intermediate_size=INNER,
    max_position_embeddings=LENGTH,
)
STANDARD = dict(**SIZES, **TOKENS)

Names = dict[str, str | tuple[str, Callable[[torch.Tensor], torch.Tensor]]]


@dataclass(frozen=True)
class Peer:
    """A model of the library, and how it is compared with what `hf_tx.from_hf` makes of it.

    Attributes:
        theirs: their class.
        config: their config.
        ours: our class, if `from_hf` does not know the family.
        settings: our config, likewise.
        names: our modules and theirs, likewise.
        positions: how their positions count with padding: `real` tokens, as position_ids say; `rows`, pads included,
            as ours do only when told so; `own`, they need no word on it.
        backends: what both compute.
        adapt: changes their model where ours cannot be set to be like it, or theirs cannot be set to be what it was.
        same_shift: their decoder reads the labels shifted right, as ours does.
        sides: of the padding. The library pools the first position of a row, pads included; ours the first real one.
    """

    theirs: type[Any]
    config: Callable[[], Any]
    ours: type[Any] | None = None
    settings: dict[str, Any] | None = None
    names: Names | None = None
    positions: str = "real"
    backends: tuple[str, ...] = ("eager", "sdpa")
    adapt: Callable[[Any], None] = field(default=lambda model: None)
    same_shift: bool = True
    sides: tuple[str, ...] = ("right", "left")


def converted(theirs: Any, *defaults: dict[str, Any], **facts: Any) -> Callable[..., Peer]:
    """Return a function that makes peers of a class from the fields of their config."""

    def make(**config: Any) -> Peer:
        fields = {name: value for part in (*defaults, config) for name, value in part.items()}
        return Peer(theirs, lambda: theirs.config_class(**fields), **facts)

    return make


def third(index: int, weight: torch.Tensor) -> torch.Tensor:
    """Take queries, keys or values, which stand one after the other."""
    return weight.chunk(3, dim=0)[index]


def half(index: int, weight: torch.Tensor) -> torch.Tensor:
    return weight.chunk(2, dim=0)[index]


def qkv(ours: str, theirs: str, take: Callable[[int, torch.Tensor], torch.Tensor]) -> Names:
    return {f"{ours}.{name}_proj": (theirs, partial(take, index)) for index, name in enumerate("qkv")}


def block(ours: str, theirs: str, **modules: str) -> Names:
    """Name the modules of a layer; a double underscore is a dot."""
    return {f"{ours}.*.{name.replace('__', '.')}": f"{theirs}.*.{module}" for name, module in modules.items()}
