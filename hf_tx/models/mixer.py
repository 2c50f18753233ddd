# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""What a sequence mixer is: the part of a block that lets positions talk to each other."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch

from .parts import Part, PartRegistry


@dataclass(frozen=True)
class Band:
    """Where the keys that a query sees can lie, for backends that compute nothing else. Whether a key is visible is
    said by the mask, never by the band.

    Attributes:
        left: a query at index `i` sees no key before `i - left`,
        right: and none after `i + right`,
        origin: index of the key at which the document of each query begins, or None when all begin at 0. *Shape:*
            `(batch, queries)`, int64.
        far: the exceptions, or None. `far(length)` returns rectangles of a document of at most that many tokens in
            which a query may see a key outside of these bounds: first and last query, first and last key, counted
            from the first token of the document. *Shape:* `(rectangles, 4)`, int64.
    """

    left: int
    right: int
    origin: torch.Tensor | None = None
    far: Callable[[int], torch.Tensor] | None = None


@dataclass(frozen=True)
class Pattern:
    """Which keys a query sees, beyond what padding, documents and causality hide.

    Attributes:
        rule: `rule(batch, head, query, key)` over indices, with the signature of the library's mask functions.
        band: where the rule can hold, or None when that is no band.
        broadcasts: whether the rule may be called with indices of any shapes that broadcast, and returns for all of
            them what it returns for each. `tiled` and `banded` evaluate it so, for whole tiles; other rules are called
            under `torch.vmap`, which takes several times as long.
    """

    rule: Callable[..., Any]
    band: Band | None
    broadcasts: bool = False


@dataclass(frozen=True)
class Mixer(Part):
    """One entry of the registry of mixers.

    Its `module` is built as `module(config, layer_idx, backend_config, is_causal)`, with its options behind these
    where it has any; called with the hidden states and, by keyword, `position_embeddings`, `attention_mask`,
    `position_bias`, `cache`, `is_causal`; and returns the mixed states and the attention weights or None. Its
    `reference` is `reference(module, hidden_states, **arguments)`: it is given the mixer itself, for its parameters,
    and what the mixer is called with for a whole text without padding, packing or cache; it returns the mixed states.

    Attributes:
        layer_type: the library's name of the cache layer that holds its state. It serves the cache only.
        cost: how time grows with the length.
        is_causal: whether it can be causal.
        is_bidirectional: whether it can see both sides.
        is_attention: whether it weighs values by a softmax over scores: it takes the mask of an attention backend, a
            position scheme that rotates or adds a bias, and the options of the scores. What is no attention gets the
            padding and the borders of documents ([`Segments`]) as its mask.
        pattern: `pattern(options, window, is_causal, origin, past)` returns the [`Pattern`] of an attention, or None
            when nothing but the window hides keys. `origin` is that of [`Band`], with 0 for None, and `past` the index
            of the first query.
        needs: config fields that must be set for this mixer.
        compilable: whether `torch.compile(fullgraph=True)` can trace it.
        takes_start: whether its first state can be made from an encoder (`initial_state`); it is then called with
            `source_start` as well.
    """

    layer_type: str
    cost: Literal["linear", "quadratic"]
    is_causal: bool = True
    is_bidirectional: bool = True
    is_attention: bool = True
    pattern: Callable[..., Pattern] | None = None
    needs: tuple[str, ...] = ()
    compilable: bool = True
    takes_start: bool = False


@dataclass(frozen=True)
class CrossMixer(Part):
    """One entry of the registry of mixers between a decoder and its encoder.

    Its `module` is built like that of a [`Mixer`], and called with the hidden states and, by keyword,
    `attention_mask`, `cache`, `source_states`, `is_causal`. Its `reference` is `reference(module, hidden_states,
    source_states)`.

    Attributes:
        uses_backend: whether it is attention by scores: it takes the mask of an attention backend and the options of
            the scores. Any other gets which tokens of the source are real, *Shape:* `(batch, source_length)`, bool, or
            None.
    """

    uses_backend: bool = False


MIXERS: PartRegistry[Mixer] = PartRegistry("mixer", "mixer_options")
CROSS_MIXERS: PartRegistry[CrossMixer] = PartRegistry("cross_mixer", "cross_mixer_options")


def check_integer(options: Any, name: str, least: int) -> None:
    """Raise ValueError unless an option is an integer of at least `least`."""
    value = getattr(options, name)
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError(f"{name} = {value!r}: must be an integer of at least {least}.")


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
