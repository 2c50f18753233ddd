# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Sequence mixers, the part of a layer that mixes positions: their entry in the registry, and patterns of mixers."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch

from .parts import Part, PartRegistry


@dataclass(frozen=True)
class Band:
    """The range of the keys that a query can see, for backends that only compute these. The mask defines which of them
    are visible.

    Attributes:
        left: a query at index `i` sees no key before `i - left`,
        right: and none after `i + right`,
        origin: index of the key at which the document of each query begins, or None when all begin at 0. *Shape:*
            `(batch, queries)`, int64.
        far: the exceptions, or None. `far(length)` returns rectangles of a document of at most this number of tokens
            in which a query can see a key outside of these bounds: first and last query, first and last key, counted
            from the first token of the document. *Shape:* `(rectangles, 4)`, int64.
    """

    left: int
    right: int
    origin: torch.Tensor | None = None
    far: Callable[[int], torch.Tensor] | None = None


@dataclass(frozen=True)
class Pattern:
    """The keys that a query sees, in addition to the masks of padding, documents and causality.

    Attributes:
        rule: `rule(batch, head, query, key)` over indices, with the signature of transformers' mask functions.
        band: the band in which the rule can hold, or None.
        broadcasts: whether the rule can be called with indices of any shapes that broadcast, and returns for all of
            them what it returns for each. `tiled` and `banded` then evaluate it for whole tiles at once. They call
            other rules under `torch.vmap`, which takes several times as long.
    """

    rule: Callable[..., Any]
    band: Band | None
    broadcasts: bool = False


@dataclass(frozen=True)
class Mixer(Part):
    """One entry of the registry of mixers.

    Its `module` is created as `module(config, layer_idx, backend_config, is_causal)`, followed by its options if it
    has any. It is called with the hidden states and, by keyword, `position_embeddings`, `attention_mask`,
    `position_bias`, `cache`, `is_causal`, and returns the mixed states and the attention weights or None. Its
    `reference` is `reference(module, hidden_states, **arguments)`: it gets the mixer, for its parameters, and the
    arguments of the mixer for a whole text without padding, packing or cache, and returns the mixed states.

    Attributes:
        layer_type: the name in transformers of the cache layer for its state. It is only used for the cache.
        cost: growth of the time with the length.
        is_causal: whether it can be causal.
        is_bidirectional: whether it can see both sides.
        is_attention: whether it computes a softmax over scores. It then gets the mask of an attention backend, a
            position scheme that rotates or adds a bias, and the options of the scores. Other mixers get padding and
            document boundaries ([`Segments`]) as their mask.
        pattern: `pattern(options, window, is_causal, origin, past)` returns the [`Pattern`] of an attention, or None
            if only the window hides keys. `origin` is that of [`Band`], with 0 for None, and `past` the index
            of the first query.
        needs: config fields that must be set for this mixer.
        compilable: whether `torch.compile(fullgraph=True)` supports it.
        takes_start: whether its initial state can be made from an encoder (`initial_state`); it is then also called
            with `source_start`.
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

    Its `module` is created like that of a [`Mixer`], and called with the hidden states and, by keyword,
    `attention_mask`, `cache`, `source_states`, `is_causal`. Its `reference` is `reference(module, hidden_states,
    source_states)`.

    Attributes:
        uses_backend: whether it is attention with scores, and gets the mask of an attention backend and the options of
            the scores. Others get the mask of the source, True for tokens that are not padding. *Shape:* `(batch,
            source_length)`, bool, or None.
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
    """Expand a pattern of mixers to one name per layer.

    Args:
        pattern: comma-separated `name` or `name*count`, repeated over the depth and cut at `num_layers`; or a list
            with one name per layer, which is returned unchanged.
        num_layers: number of layers.

    Returns:
        The name of every layer's mixer.

    Raises:
        ValueError: if the pattern is invalid, or a list has another length.

    Example:

    ```python
    >>> expand_pattern("sliding*2,full", 5)
    ['sliding', 'sliding', 'full', 'sliding', 'sliding']

    ```
    """
    if not isinstance(pattern, str):
        if len(pattern) != num_layers:
            raise ValueError(
                f"mixers has {len(pattern)} entries, but num_hidden_layers = {num_layers}: a list must have one "
                "mixer per layer. Use a pattern such as 'sliding*5,full' to repeat mixers."
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
