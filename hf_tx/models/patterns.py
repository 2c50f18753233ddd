# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Sparse attention: mixers that only differ from `full` in the keys that a query sees.

Indices count from the first token of the query's document, so that padding before or after a text and packing have
no effect. With padding inside of a text, the rules get ranks among its other tokens instead (`create_mask`).
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from .attention import OF_ATTENTION, Attention
from .mixer import MIXERS, Band, Mixer, Pattern, check_integer


def _starts(origin: torch.Tensor | None, past: int | torch.Tensor) -> Callable[[Any, Any], Any]:
    """Return a function of batch and query that gives the index at which the document of the query begins."""
    return (lambda b, q: 0) if origin is None else (lambda b, q: origin[b, q - past])


@dataclass(frozen=True)
class ChunkedOptions:
    """Options of `chunked`.

    Args:
        chunk_size: tokens of a chunk.
    """

    chunk_size: int = 256

    def __post_init__(self) -> None:
        check_integer(self, "chunk_size", 1)


def chunked(
    options: ChunkedOptions, window: int | None, is_causal: bool, origin: torch.Tensor | None, past: Any
) -> Pattern:
    """A query sees the keys of its own chunk; chunks do not overlap, and are counted from the first token of a
    document (local attention; Parmar et al., 2018, https://huggingface.co/papers/1802.05751)."""
    size, start = options.chunk_size, _starts(origin, past)

    def rule(b: Any, h: Any, q: Any, kv: Any) -> Any:
        first = start(b, q)
        return (q - first) // size == (kv - first) // size

    return Pattern(rule, Band(size - 1, 0 if is_causal else size - 1, origin=origin), broadcasts=True)


@dataclass(frozen=True)
class DilatedOptions:
    """Options of `dilated`.

    Args:
        dilation: distance between two visible keys.
    """

    dilation: int = 2

    def __post_init__(self) -> None:
        check_integer(self, "dilation", 1)


def dilated(options: DilatedOptions, window: int, is_causal: bool, origin: torch.Tensor | None, past: Any) -> Pattern:
    """A window with gaps (Beltagy et al., 2020, section 3.1, https://huggingface.co/papers/2004.05150): with
    `sliding_window = w` a causal query sees `w` keys, itself and every `dilation`-th before it; a bidirectional one
    sees `w` on each side besides itself."""
    step = options.dilation
    reach = (window - 1 if is_causal else window) * step

    def rule(b: Any, h: Any, q: Any, kv: Any) -> Any:
        distance = q - kv
        return (distance <= reach) & (distance >= -reach) & (distance % step == 0)

    return Pattern(rule, Band(reach, 0 if is_causal else reach, origin=origin), broadcasts=True)


@dataclass(frozen=True)
class GlobalLocalOptions:
    """Options of `global_local`.

    Args:
        global_positions: positions of a document, counted from 0, that all its queries see, and whose queries see all
            of the document; of a causal layer, all that is before them.
        random_blocks: how many earlier blocks a block of queries sees besides; in a bidirectional layer two blocks see
            each other when either has drawn the other.
        block_size: tokens of such a block.
        seed: decides which blocks are drawn. They depend on nothing else, so a text keeps its blocks as it grows.
    """

    global_positions: Sequence[int] = (0,)
    random_blocks: int = 0
    block_size: int = 64
    seed: int = 0

    def __post_init__(self) -> None:
        positions = self.global_positions
        if not isinstance(positions, list | tuple) or any(
            not isinstance(item, int) or isinstance(item, bool) or item < 0 for item in positions
        ):
            raise ValueError(f"global_positions = {positions!r}: must be a list of positions from 0 on.")
        object.__setattr__(self, "global_positions", tuple(sorted(set(positions))))  # hashable, as a key of masks
        check_integer(self, "random_blocks", 0)
        check_integer(self, "block_size", 1)
        check_integer(self, "seed", 0)


def _draw(options: GlobalLocalOptions, block: Any, draw: int) -> Any:
    """Return the earlier block that `block` draws: by a hash, so that it depends on nothing else. Block 0 gets 0."""
    # Multiplicative hashing by large odd numbers, in 31 bits.
    mixed = (block * 2654435761 + (draw + 1) * 2246822519 + options.seed * 3266489917) & 0x7FFFFFFF
    mixed = ((mixed ^ (mixed >> 15)) * 668265263) & 0x7FFFFFFF
    mixed = mixed ^ (mixed >> 13)
    return mixed % (block | (block <= 0))  # `x | (x == 0)` is x, and 1 where there is no earlier block


def _drawn(options: GlobalLocalOptions, block: Any, other: Any) -> Any:
    """Whether `block` has drawn the earlier block `other`."""
    found = other < 0  # False where it matters
    for draw in range(options.random_blocks):
        found = found | (_draw(options, block, draw) == other)
    return found & (other >= 0) & (other < block)


def _far(options: GlobalLocalOptions, is_causal: bool, length: int) -> torch.Tensor:
    """Return the global positions and the random blocks as the rectangles of [`Band`]."""
    position = torch.tensor([item for item in options.global_positions if item < length], dtype=torch.long)
    first, last = torch.zeros_like(position), torch.full_like(position, length - 1)
    found = [(position, position, first, last), (first, last, position, position)]
    size = options.block_size
    block = torch.arange(1, -(-length // size))
    for draw in range(options.random_blocks):
        start, of_other = block * size, _draw(options, block, draw) * size
        found.append((start, start + size - 1, of_other, of_other + size - 1))
        if not is_causal:
            found.append((of_other, of_other + size - 1, start, start + size - 1))
    return torch.cat([torch.stack(ends, -1) for ends in found])


def global_local(
    options: GlobalLocalOptions, window: int, is_causal: bool, origin: torch.Tensor | None, past: Any
) -> Pattern:
    """A window, some global positions and optionally random blocks (Longformer, Beltagy et al., 2020,
    https://huggingface.co/papers/2004.05150; BigBird, Zaheer et al., 2020, https://huggingface.co/papers/2007.14062).
    The window is that of `sliding`."""
    reach, start = window - 1 if is_causal else window, _starts(origin, past)
    positions = tuple(options.global_positions)
    size = options.block_size

    def is_global(position: Any) -> Any:
        found = position < 0
        for item in positions:
            found = found | (position == item)
        return found & (position >= 0)

    def rule(b: Any, h: Any, q: Any, kv: Any) -> Any:
        first = start(b, q)
        query, key = q - first, kv - first
        seen = ((query - key <= reach) & (key - query <= reach)) | is_global(key) | is_global(query)
        if options.random_blocks:
            query, key = query.long() // size, key.long() // size
            seen = seen | _drawn(options, query, key)
            if not is_causal:
                seen = seen | _drawn(options, key, query)
        return seen

    far = functools.partial(_far, options, is_causal) if positions or options.random_blocks else None
    return Pattern(rule, Band(reach, 0 if is_causal else reach, origin, far), broadcasts=True)


def _register(name: str, pattern: Callable[..., Pattern], options: type, needs: tuple[str, ...] = ()) -> None:
    mixer = Mixer(Attention, "full_attention", "linear", pattern=pattern, options=options, needs=needs, **OF_ATTENTION)
    MIXERS.register(name, mixer)


_register("chunked", chunked, ChunkedOptions)
_register("dilated", dilated, DilatedOptions, needs=("sliding_window",))
_register("global_local", global_local, GlobalLocalOptions, needs=("sliding_window",))
