# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""What is compared: models of transformers, and the same as models of hf_tx. What a family is stands in
`hf_tx.conversion`."""

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

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


@dataclass(frozen=True)
class Peer:
    """A model of transformers, and how it is compared with what `hf_tx.from_hf` makes of it.

    Attributes:
        theirs: their class.
        config: their config.
        positions: how their positions count with padding: `real` tokens, as position_ids say; `rows`, pads included,
            as ours do only when told so; `own`, they need no word on it.
        backends: what both compute.
        adapt: changes their model where theirs cannot be set to be what it was.
        same_shift: their decoder reads the labels shifted right, as ours does.
        sides: of the padding. transformers pools the first position of a row, pads included; ours the first real one.
    """

    theirs: type[Any]
    config: Callable[[], Any]
    positions: str = "real"
    backends: tuple[str, ...] = ("eager", "sdpa")
    adapt: Callable[[Any], None] = field(default=lambda model: None)
    same_shift: bool = True
    sides: tuple[str, ...] = ("right", "left")


def converted(theirs: Any, *defaults: dict[str, Any], **facts: Any) -> Callable[..., Peer]:
    """Return a function that makes peers of a class from the fields of their config."""

    def make(**config: Any) -> Peer:
        fields = {name: value for part in (*defaults, config) for name, value in part.items()}
        # Configs of transformers keep the dicts they are given, and change them.
        return Peer(theirs, lambda: theirs.config_class(**copy.deepcopy(fields)), **facts)

    return make
