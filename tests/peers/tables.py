# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""What a family of the library is here: settings of hf_tx and a table of names.

A table maps our modules to theirs; `*` is the number of a layer. Where one of their modules holds several of ours, the
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
    """A model of the library and the same model as settings of hf_tx.

    Attributes:
        theirs: their class.
        config: their config.
        ours: our class.
        settings: our config.
        names: our modules and theirs.
        positions: how their positions count with padding: `real` tokens, as position_ids say; `rows`, pads included,
            as ours do only when told so; `own`, they need no word on it.
        backends: what both compute.
        adapt: changes their model where ours cannot be set to be like it, or theirs cannot be set to be what it was.
        same_shift: their decoder reads the labels shifted right, as ours does.
    """

    theirs: type[Any]
    config: Callable[[], Any]
    ours: type[Any]
    settings: dict[str, Any]
    names: Names
    positions: str = "real"
    backends: tuple[str, ...] = ("eager", "sdpa")
    adapt: Callable[[Any], None] = field(default=lambda model: None)
    same_shift: bool = True


def third(index: int, weight: torch.Tensor) -> torch.Tensor:
    """Take queries, keys or values, which stand one after the other."""
    return weight.chunk(3, dim=0)[index]


def third_of_head(index: int, weight: torch.Tensor) -> torch.Tensor:
    """Take queries, keys or values, which stand one after the other for every head."""
    return weight.unflatten(0, (HEADS, 3, -1))[:, index].flatten(0, 1)


def conv(weight: torch.Tensor) -> torch.Tensor:
    """Turn a weight of GPT-2's Conv1D, which is the transpose of a linear layer's; biases are what they are."""
    return weight.t()


def half(index: int, weight: torch.Tensor) -> torch.Tensor:
    return weight.chunk(2, dim=0)[index]


def qkv(ours: str, theirs: str, take: Callable[[int, torch.Tensor], torch.Tensor]) -> Names:
    return {f"{ours}.{name}_proj": (theirs, partial(take, index)) for index, name in enumerate("qkv")}


def block(ours: str, theirs: str, **modules: str) -> Names:
    """Name the modules of a layer; a double underscore is a dot."""
    return {f"{ours}.*.{name.replace('__', '.')}": f"{theirs}.*.{module}" for name, module in modules.items()}
