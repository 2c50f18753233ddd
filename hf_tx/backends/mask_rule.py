# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""The mask of the backends: the rule by which a query sees a key, evaluated where it is needed and nowhere else."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from transformers import masking_utils
from transformers.masking_utils import causal_mask_function, prepare_padding_mask, sdpa_mask

from ..models.tracing import is_tracing

# Some models change their mask, or choose from it.
_USE_ANOTHER = (
    "It is a rule, not a tensor. A model that works on its mask itself needs attn_implementation='sdpa' or 'eager'."
)


class MaskRule:
    """What transformers hands to a mask function, kept instead of a mask, whose size it does not share.

    Indices of queries and keys count from the first of this call; the offsets make them those of the rule.

    Args:
        arguments: those of transformers' mask functions; see `transformers.masking_utils.sdpa_mask`.

    Attributes:
        queries: number of queries.
        keys: number of keys.
        shift: index of the key that stands where the first query stands, or None when it is known only to the device.
        left: a query at index `i` sees no key before `i + shift - left`; None: there is no such bound.
        right: and none after `i + shift + right`.
    """

    # Transformers looks at a mask that it gets back, and passes one of four dimensions on.
    ndim = 4

    def __init__(self, **arguments: Any) -> None:
        self._arguments = arguments
        self._function: Callable[..., Any] = arguments["mask_function"]
        # Transformers wants it for every function of a caller; those of the stack say whether they broadcast.
        self._use_vmap: bool = arguments.get("use_vmap", False) and not getattr(
            arguments.get("config"), "broadcasts", False
        )
        self._arguments["use_vmap"] = self._use_vmap
        self._batch: int = arguments["batch_size"]
        self._device = torch.device(arguments["device"])
        self._cache: dict[Any, Any] = {}
        self.queries: int = arguments["q_length"]
        self.keys: int = arguments["kv_length"]
        offset, self._key_offset = arguments["q_offset"], arguments["kv_offset"]
        if isinstance(offset, torch.Tensor):
            # The counter of a static cache moves in place. It is read here, once, unless that would break a graph.
            offset = offset.clone() if is_tracing(offset) else int(offset)
        self._query_offset: int | torch.Tensor = offset
        self._arguments["q_offset"] = offset
        self.shift: int | None = None if isinstance(offset, torch.Tensor) else offset - self._key_offset

        self._set_bounds()
        padding = prepare_padding_mask(arguments["attention_mask"], self.keys, self._key_offset)
        if padding is not None and not is_tracing(padding) and bool(padding.all()):
            padding = None
        self._padding = padding

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"a mask of 'tiled' and 'banded' has no attribute {name!r}. {_USE_ANOTHER}")

    def __getitem__(self, index: Any) -> Any:
        raise TypeError(f"a mask of 'tiled' and 'banded' cannot be indexed. {_USE_ANOTHER}")

    @property
    def is_bidirectional(self) -> bool:
        """Whether queries see keys behind them."""
        # Only transformers' functions for bidirectional masks pass this argument.
        return self._arguments["allow_is_bidirectional_skip"] is not None

    def _set_bounds(self) -> None:
        self.left: int | None = None
        self.right: int | None = None
        self._origin: torch.Tensor | None = None
        self._far: Callable[[int], torch.Tensor] | None = None
        band: Any = getattr(self._arguments.get("config"), "band", None)
        if hasattr(band, "far"):  # a `Band`, of whatever copy of the code
            self.left, self.right = band.left, band.right
            self._far, self._origin = band.far, band.origin
        elif self._is_pure or not (is_tracing() or _is_widened(self._function)):  # a graph cannot look into functions
            reach = self._arguments["local_size"]
            if self.is_bidirectional:
                self.left = self.right = reach
            else:
                self.left, self.right = (None if reach is None else reach - 1), 0

    @property
    def has_band(self) -> bool:
        """Whether both bounds exist."""
        return self.left is not None and self.right is not None

    @property
    def has_far(self) -> bool:
        """Whether some pairs outside of the bounds are visible."""
        return self._far is not None

    @property
    def _is_pure(self) -> bool:
        # So transformers says that the rule is nothing but causality and the window.
        name = "allow_is_bidirectional_skip" if self.is_bidirectional else "allow_is_causal_skip"
        return bool(self._arguments[name])

    @property
    def is_plain(self) -> bool:
        """Whether a query sees exactly the keys within the bounds, all of them or those up to itself."""
        return self._is_pure and self._padding is None and self._arguments["local_size"] is None

    def visible(self, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
        """Evaluate the rule for every pair of some queries and some keys.

        Args:
            query: indices of queries; outside of `[0, queries)` they see what the nearest one sees. *Shape:*
                `(rows,)`, or `(blocks, rows)`.
            key: indices of keys; outside of `[0, keys)` they are invisible. *Shape:* `(columns,)`, or `(blocks,
                columns)`.

        Returns:
            True where the query sees the key; without the dimension of the blocks where there are none, and with a
            batch of 1 where the rule is the same for all rows. *Shape:* `(batch or 1, blocks, rows, columns)`, bool.
        """
        query, key = query.to(self._device), key.to(self._device)
        inside = (key >= 0) & (key < self.keys)
        query = query.clamp(0, self.queries - 1) + self._query_offset
        key = key.clamp(0, self.keys - 1) + self._key_offset
        batch = torch.arange(self._batch, device=self._device)
        head = batch.new_zeros(1)
        shape = (*query.shape, key.shape[-1])
        if self._use_vmap:
            # As transformers does it for functions of its callers, which need not be index-based.
            function = masking_utils._vmap_expansion_sdpa(self._function)
            if query.ndim == 2:
                function = torch.vmap(function, in_dims=(None, None, 0, 0), out_dims=2)
            with masking_utils.TransformGetItemToIndex():
                seen = function(batch, head, query, key)[:, 0]
        else:
            ones = (1,) * len(shape)
            seen = self._function(batch.view(-1, *ones), head.view(1, *ones), query[..., None], key[..., None, :])
            seen = seen if seen.ndim > len(shape) else seen[None]
        if self._padding is not None:
            padding = self._padding[:, key]
            seen = seen & padding[..., None, :]
        return (seen & inside[..., None, :]).expand(-1, *shape)

    def dense(self) -> torch.Tensor | None:
        """Return the mask that transformers makes for `sdpa`. *Shape:* `(batch, 1, queries, keys)`, bool, or None."""
        if "dense" not in self._cache:
            skip = bool(self._arguments["allow_is_bidirectional_skip"])
            self._cache["dense"] = sdpa_mask(**(self._arguments | {"allow_is_bidirectional_skip": skip}))
        return self._cache["dense"]

    def cached(self, name: Any, make: Callable[[], Any]) -> Any:
        """Return what `make` returns, computed once for all layers that share the mask."""
        if name not in self._cache:
            self._cache[name] = make()
        return self._cache[name]

    def tiles(self, rows: int, columns: int) -> list[list[tuple[int, bool]]]:
        """Find the tiles of the mask in which a query sees a key.

        Args:
            rows: queries of a tile.
            columns: keys of a tile.

        Returns:
            For every row of tiles, the numbers of the columns, and whether all pairs in the tile are visible.
        """
        return self.cached((rows, columns), lambda: self._find_tiles(rows, columns))

    def _find_tiles(self, rows: int, columns: int) -> list[list[tuple[int, bool]]]:
        if self.shift is None or (is_tracing() and not self.is_plain):
            every = range(-(-self.keys // columns))
            return [[(column, False) for column in every] for _ in range(0, self.queries, rows)]
        found = []
        for first, candidates in zip(range(0, self.queries, rows), self.candidates(rows, columns), strict=True):
            if self.is_plain:
                end = self.keys if self.right is None else first + self.shift + self.right + 1
                found.append([(column, min((column + 1) * columns, self.keys) <= end) for column in candidates])
            else:
                found.append(self._evaluate(first, min(first + rows, self.queries), columns, candidates))
        return found

    def pairs(self, rows: int, columns: int) -> int:
        """Count the pairs of a query and a key in these tiles, at the cost of the queries where the rule is plain."""
        if self.shift is not None and self.is_plain:  # the tiles of a row end at the last, and leave none out
            ends: Any = (
                min((row[-1] + 1) * columns, self.keys) if row else 0 for row in self.candidates(rows, columns)
            )
        else:
            tiles = self.tiles(rows, columns)
            ends = (sum(min(columns, self.keys - at * columns) for at, _ in row) for row in tiles)
        firsts = range(0, self.queries, rows)
        return sum(min(rows, self.queries - first) * end for first, end in zip(firsts, ends, strict=True))

    def candidates(self, rows: int, columns: int) -> Iterator[Sequence[int]]:
        """Find the tiles of the mask in which a query may see a key, by the bounds and the exceptions from them alone.

        Args:
            rows: queries of a tile.
            columns: keys of a tile.

        Yields:
            For every row of tiles, the numbers of the columns, in order.
        """
        assert self.shift is not None
        count = -(-self.keys // columns)
        for first in range(0, self.queries, rows):
            end = min(first + rows, self.queries)
            low, high = 0, count - 1
            if self.left is not None:
                low = max(0, (first + self.shift - self.left) // columns)
            if self.right is not None:
                high = min(count - 1, (end - 1 + self.shift + self.right) // columns)
            near = range(low, high + 1)
            yield near if self._far is None else sorted(self._far_tiles(first, end, columns).union(near))

    def _far_tiles(self, first: int, end: int, columns: int) -> set[int]:
        """Return the tiles in which these queries may see a key outside of the bounds."""
        far, begins, ends = self.cached("far", self._find_far)
        query = torch.arange(first, end) + self._query_offset
        tiles: set[int] = set()
        for begin in begins[:, first:end].unique().tolist():
            of_query = (query - begin)[(begins[:, first:end] == begin).any(0)]
            meets = (far[:, 0] <= of_query[-1]) & (far[:, 1] >= of_query[0])
            keys = (far[meets, 2:] + begin).clamp(max=ends[begin]) - self._key_offset
            for start, last in (keys.clamp(0, self.keys - 1) // columns).unique(dim=0).tolist():
                tiles.update(range(start, last + 1))
        return tiles

    def _find_far(self) -> tuple[torch.Tensor, torch.Tensor, dict[int, int]]:
        """Return the rectangles of the exceptions, the begin of the document of every query, *Shape:* `(batch or 1,
        queries)`, and by the begin of a document the last of its queries."""
        assert self._far is not None
        query = torch.arange(self.queries) + self._query_offset
        begins = torch.zeros_like(query)[None] if self._origin is None else self._origin.cpu()
        known, number = begins.unique(return_inverse=True)
        last = torch.zeros_like(known).scatter_reduce(0, number.flatten(), query.repeat(len(begins)), "amax")
        return self._far(self._key_offset + self.keys), begins, dict(zip(known.tolist(), last.tolist(), strict=True))

    def _evaluate(self, first: int, end: int, columns: int, candidates: Sequence[int]) -> list[tuple[int, bool]]:
        if not candidates:
            return []
        tiles = torch.tensor(candidates)[:, None] * columns + torch.arange(columns)
        # Pairs that a column of keys has, summed over batch and queries; keys past the last one have none.
        pairs = self.visible(torch.arange(first, end), tiles.flatten())
        seen = pairs.sum((0, 1)).view(tiles.shape).sum(-1).tolist()
        size = pairs.shape[0] * pairs.shape[1]
        whole = [size * (min((tile + 1) * columns, self.keys) - tile * columns) for tile in candidates]
        return [(tile, has == of) for tile, has, of in zip(candidates, seen, whole, strict=True) if has]


def _is_widened(function: Callable[..., Any]) -> bool:
    """Whether a function made by transformers' combinators lets a query see what its base rule hides."""
    cells = [cell.cell_contents for cell in getattr(function, "__closure__", None) or ()]
    parts = [part for cell in cells for part in (cell if isinstance(cell, tuple) else (cell,)) if callable(part)]
    return "or_masks" in getattr(function, "__qualname__", "") or any(_is_widened(part) for part in parts)


def mask_rule(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: int | torch.Tensor = 0,
    kv_offset: int = 0,
    mask_function: Callable[..., Any] = causal_mask_function,
    attention_mask: Any = None,
    local_size: int | None = None,
    allow_is_causal_skip: bool = True,
    allow_is_bidirectional_skip: bool | None = None,
    device: torch.device | str = "cpu",
    **kwargs: Any,
) -> MaskRule:
    """Build the mask of `tiled` and `banded`: a mask function for transformers' table.

    Args:
        batch_size: rows of the batch.
        q_length: number of queries.
        kv_length: number of keys.
        q_offset: index of the first query.
        kv_offset: index of the first key.
        mask_function: the rule.
        attention_mask: padding, *Shape:* `(batch, keys)`, bool, or None; or what this function returned before, which
            `generate()` hands back.
        local_size: the window of the rule, or None.
        allow_is_causal_skip: whether the rule is nothing but causality, the window and padding.
        allow_is_bidirectional_skip: the same for bidirectional rules; None for causal ones.
        device: where the mask is evaluated.
        **kwargs: `use_vmap` and `config`, whose `band`, if any, bounds the rule.
    """
    if isinstance(attention_mask, MaskRule):
        return attention_mask
    return MaskRule(
        batch_size=batch_size,
        q_length=q_length,
        kv_length=kv_length,
        q_offset=q_offset,
        kv_offset=kv_offset,
        mask_function=mask_function,
        attention_mask=attention_mask,
        local_size=local_size,
        allow_is_causal_skip=allow_is_causal_skip,
        allow_is_bidirectional_skip=allow_is_bidirectional_skip,
        device=device,
        **kwargs,
    )
