# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""What a sequence mixer is: the part of a block that lets positions talk to each other."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from torch import nn

from .registry import Registry


@dataclass(frozen=True)
class Mixer:
    """One entry of the registry of mixers.

    Attributes:
        module: built as `module(config, layer_idx, backend_config, is_causal)`; called with the hidden states and,
            by keyword, `position_embeddings`, `attention_mask`, `position_bias`, `cache`; returns the mixed states
            and the attention weights or None.
        layer_type: the library's name of the cache layer that holds its state. It serves the cache only.
        causal_mask: builds the mask of a causal layer, with the signature of the library's `create_causal_mask`;
            None when the mixer cannot be causal.
        bidirectional_mask: likewise for a bidirectional layer, with that of `create_bidirectional_mask`.
        cost: how time grows with the length.
        options: the dataclass that checks `mixer_options[name]`, or None when the mixer has no options of its own.
        needs: config fields that must be set for this mixer.
        compilable: whether `torch.compile(fullgraph=True)` can trace it.
    """

    module: Callable[..., nn.Module]
    layer_type: str
    causal_mask: Callable[..., Any] | None
    bidirectional_mask: Callable[..., Any] | None
    cost: Literal["linear", "quadratic"]
    options: type | None = None
    needs: tuple[str, ...] = ()
    compilable: bool = True


MIXERS: Registry[Mixer] = Registry("mixer")
#: Mixers between a decoder and its encoder.
CROSS_MIXERS: Registry[Callable[..., nn.Module]] = Registry("cross_mixer")


def expand_pattern(pattern: str | list[str], num_layers: int) -> list[str]:
    """Write a pattern of mixers out, one name a layer.

    Args:
        pattern: comma-separated `name` or `name*count`, repeated over the depth and cut at `num_layers`; or a list
            with one name a layer, which is returned as it is.
        num_layers: how many layers there are.

    Returns:
        The name of every layer's mixer.

    Raises:
        ValueError: the pattern does not follow the grammar, or a list has another length.

    Example:

    ```python
    >>> expand_pattern("sliding*2,full", 5)
    ['sliding', 'sliding', 'full', 'sliding', 'sliding']

    ```
    """
    if not isinstance(pattern, str):
        if len(pattern) != num_layers:
            raise ValueError(
                f"mixers has {len(pattern)} entries, num_hidden_layers = {num_layers}: a list names one mixer a "
                "layer. Write a pattern such as 'sliding*5,full' to repeat one."
            )
        return list(pattern)
    period: list[str] = []
    for part in pattern.split(","):
        name, star, count = (piece.strip() for piece in part.partition("*"))
        if not name or (star and not (count.isdecimal() and int(count) > 0)):
            raise ValueError(
                f"mixers = {pattern!r}: {part!r} is not 'name' or 'name*count' with a count above 0, "
                "as in 'sliding*5,full'."
            )
        period += [name] * (int(count) if star else 1)
    return [period[i % len(period)] for i in range(num_layers)]
