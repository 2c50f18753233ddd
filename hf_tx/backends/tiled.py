# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Exact attention by tiles: the algorithm of FlashAttention (Dao et al., 2022, https://huggingface.co/papers/2205.14135;
the backward pass as in FlashAttention-2, Dao, 2023, https://huggingface.co/papers/2307.08691) in plain torch.

A tile of scores is made, used and forgotten, so that memory grows with the length and not with its square. The forward
pass keeps for every query the largest score so far, the sum of the exponentials and the mixed values, and rescales
them when a larger score turns up; the backward pass makes every tile again from the logarithm of that sum. Tiles in
which no query sees a key are skipped.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.autograd.function import once_differentiable
from transformers.masking_utils import bidirectional_mask_function, causal_mask_function

from .mask_rule import MaskRule, mask_rule

# Scores of one tile over batch and heads: a megabyte, which a cache holds.
_TILE_SCORES = 1 << 18
_TILE_ROWS = 256
_LEAST_COLUMNS = 128


@dataclass
class _Plan:
    """What a call is made of besides tensors that carry gradients.

    Attributes:
        mask: the rule, or scores that are added or a bool mask, *Shape:* `(batch or 1, heads or 1, queries, keys)`.
        scaling: factor of the dot products.
        softcap: bound of the scores, or None.
        dropout: probability that a weight is dropped.
        seed: of the dropout, which the backward pass draws again.
        rows: queries of a tile.
        columns: keys of a tile.
    """

    mask: MaskRule | torch.Tensor
    scaling: float
    softcap: float | None
    dropout: float
    seed: int
    rows: int
    columns: int


def tiled_attention(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: Any,
    scaling: float | None = None,
    dropout: float = 0.0,
    softcap: float | None = None,
    position_bias: torch.Tensor | None = None,
    s_aux: torch.Tensor | None = None,
    is_causal: bool | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Compute attention by tiles: an attention function for transformers' table.

    Queries that see no key give zeros.

    Args:
        module: the attention layer; its `is_causal` counts where neither a mask nor `is_causal` is given.
        query: *Shape:* `(batch, heads, queries, head_dim)`, floating point.
        key: *Shape:* `(batch, kv_heads, keys, head_dim)`; `kv_heads` divides `heads`.
        value: *Shape:* `(batch, kv_heads, keys, value_dim)`.
        attention_mask: what `mask_rule` returned; or a mask, bool or added to the scores, *Shape:* `(batch or 1, heads
            or 1, queries, keys)`; or None.
        scaling: factor of the dot products. Default: `head_dim**-0.5`.
        dropout: probability that a weight is dropped.
        softcap: bounds the scores smoothly: `softcap * tanh(score / softcap)`.
        position_bias: added to the scores. *Shape:* `(1, heads, queries, keys)`; or by distance, *Shape:* `(heads,
            queries + keys - 1)`, with that of distance `key - query` at `key - query + queries - 1`.
        s_aux: logits of the sinks, which take part in the softmax and have no value. *Shape:* `(heads,)`.
        is_causal: whether queries see only keys at or before them, where there is no mask.
        **kwargs: what other backends need.

    Returns:
        The mixed values, *Shape:* `(batch, queries, heads, value_dim)`, and None for the weights.
    """
    queries, keys = query.shape[2], key.shape[2]
    if attention_mask is None:
        is_causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
        attention_mask = _unmasked(query, key, bool(is_causal) and queries > 1)
    elif isinstance(attention_mask, torch.Tensor) and attention_mask.is_floating_point():
        position_bias = attention_mask if position_bias is None else _by_pair(position_bias, keys) + attention_mask
        attention_mask = _unmasked(query, key, False)
    device = query.device.type
    if torch.is_autocast_enabled(device):
        dtype = torch.get_autocast_dtype(device)
        query, key, value = query.to(dtype), key.to(dtype), value.to(dtype)
    scaling = query.shape[-1] ** -0.5 if scaling is None else scaling
    seed = int(torch.randint(1 << 48, ())) if dropout else 0
    rows, columns = _tile_size(query, keys, attention_mask)
    plan = _Plan(attention_mask, scaling, softcap, dropout, seed, rows, columns)
    with torch.autocast(device, enabled=False):
        return _Tiled.apply(query, key, value, position_bias, s_aux, plan)[0], None


def _tile_size(query: torch.Tensor, keys: int, mask: Any) -> tuple[int, int]:
    """Return how many queries and keys a tile has."""
    batch, heads, queries, _ = query.shape
    rows = min(queries, _TILE_ROWS)
    columns = max(_LEAST_COLUMNS, _TILE_SCORES // (batch * heads * rows) // _LEAST_COLUMNS * _LEAST_COLUMNS)
    if queries > 1 and isinstance(mask, MaskRule) and mask.has_band:
        columns = min(columns, 2 * _LEAST_COLUMNS)  # little of a tile lies outside of the band
    return rows, min(columns, keys)


def _unmasked(query: torch.Tensor, key: torch.Tensor, is_causal: bool) -> MaskRule:
    return mask_rule(
        query.shape[0],
        query.shape[2],
        key.shape[2],
        mask_function=causal_mask_function if is_causal else bidirectional_mask_function,
        allow_is_bidirectional_skip=None if is_causal else True,
        device=query.device,
    )


def _by_pair(bias: torch.Tensor, keys: int) -> torch.Tensor:
    """Spread a bias by distance over all pairs. *Shape:* `(1, heads, queries, keys)`."""
    return bias if bias.ndim == 4 else bias.unfold(-1, keys, 1).flip(-2)[None]


class _Tiles:
    """One call, tile by tile: what both passes share.

    Batch and key heads are one dimension here, and the queries of all heads that share a key head stand below each
    other, so that a tile of scores is one matrix product: `(batch * kv_heads, groups * rows, columns)`. With `bends`,
    the derivative of the softcap is computed too.
    """

    def __init__(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        bias: torch.Tensor | None,
        plan: _Plan,
        bends: bool,
    ) -> None:
        self.batch, self.heads, self.queries, _ = query.shape
        self.keys, self.plan = key.shape[2], plan
        self.groups = self.heads // key.shape[1]
        self.query = query.unflatten(1, (key.shape[1], self.groups)).flatten(0, 1)
        self.key, self.value = key.flatten(0, 1), value.flatten(0, 1)
        self.bias, self.bends = bias, bends
        self.is_exact = query.dtype in (torch.float32, torch.float64)

    def __iter__(self) -> Any:
        """Yield the first and last query of every row of tiles, and for each of its tiles the number, the first and
        last key, and whether all pairs are visible."""
        rows, columns = self.plan.rows, self.plan.columns
        numbers = range(-(-self.keys // columns))
        if isinstance(self.plan.mask, MaskRule):
            tiles = self.plan.mask.tiles(rows, columns)
        else:
            tiles = [[(column, False) for column in numbers] for _ in range(0, self.queries, rows)]
        for row, found in enumerate(tiles):
            first, end = row * rows, min((row + 1) * rows, self.queries)
            yield (
                first,
                end,
                [
                    (row * len(numbers) + column, column * columns, min((column + 1) * columns, self.keys), whole)
                    for column, whole in found
                ],
            )

    def rows(self, states: torch.Tensor, first: int, end: int) -> torch.Tensor:
        """Return the queries of a row of tiles. *Shape:* `(batch * kv_heads, groups * rows, head_dim)`."""
        return states[:, :, first:end].flatten(1, 2)

    def by_head(self, tile: torch.Tensor) -> torch.Tensor:
        """View a tile as `(batch, heads, rows, columns)`."""
        return tile.view(self.batch, self.heads, -1, tile.shape[-1])

    def scores(self, query: torch.Tensor, first: int, end: int, start: int, stop: int, whole: bool) -> Any:
        """Return the scores of a tile, -inf where the query does not see the key, and the derivative of the softcap.

        Args:
            query: the scaled queries of the tile.
            first: the first query.
            end: the query behind the last.
            start: the first key.
            stop: the key behind the last.
            whole: whether all pairs are visible.
        """
        scores = torch.bmm(query, self.key[:, start:stop].mT)
        if not self.is_exact:
            scores = scores.float()
        slope = None
        if self.plan.softcap is not None:
            bounded = scores.div_(self.plan.softcap).tanh_()
            slope = 1 - bounded.square() if self.bends else None
            scores = bounded * self.plan.softcap
        heads = self.by_head(scores)
        if self.bias is not None:
            heads += self._bias_tile(first, end, start, stop)
        if not whole:
            heads.masked_fill_(~self._visible(first, end, start, stop), float("-inf"))
        return scores, slope

    def _visible(self, first: int, end: int, start: int, stop: int) -> torch.Tensor:
        mask = self.plan.mask
        if isinstance(mask, torch.Tensor):
            return mask[:, :, first:end, start:stop]
        device = self.query.device
        seen = mask.visible(torch.arange(first, end, device=device), torch.arange(start, stop, device=device))
        return seen[:, None].to(device)

    def _bias_tile(self, first: int, end: int, start: int, stop: int) -> torch.Tensor:
        assert self.bias is not None
        if self.bias.ndim == 4:
            return self.bias[:, :, first:end, start:stop]
        low, high = self.distances(first, end, start, stop)
        return self.bias[:, low:high].unfold(-1, stop - start, 1).flip(-2)

    def distances(self, first: int, end: int, start: int, stop: int) -> tuple[int, int]:
        """Return where the distances of a tile stand in a bias by distance."""
        return start - end + self.queries, stop - 1 - first + self.queries

    def kept(self, number: int, like: torch.Tensor) -> torch.Tensor | None:
        """Return the factors of the weights of a tile that dropout leaves, the same in every call, or None."""
        dropout = self.plan.dropout
        if not dropout:
            return None
        generator = torch.Generator(like.device).manual_seed(self.plan.seed + number)
        random = torch.rand(like.shape, generator=generator, device=like.device)
        return (random >= dropout).to(like.dtype).div_(1 - dropout)


class _Tiled(torch.autograd.Function):
    @staticmethod
    def forward(
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        bias: torch.Tensor | None,
        sinks: torch.Tensor | None,
        plan: _Plan,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        tiles = _Tiles(query, key, value, bias, plan, bends=False)
        batch, heads, queries, size = tiles.batch, tiles.heads, tiles.queries, value.shape[-1]
        mixed = value.new_empty(batch, queries, heads, size)
        exact = torch.float32 if not tiles.is_exact else query.dtype
        log_sum = query.new_empty(batch, heads, queries, dtype=exact)
        lowest = torch.finfo(exact).min
        for first, end, row in tiles:
            of_query = tiles.rows(tiles.query, first, end) * plan.scaling
            shape = (of_query.shape[0], of_query.shape[1], 1)
            if sinks is None:
                highest = query.new_full(shape, lowest, dtype=exact)
                total = torch.zeros_like(highest)
            else:
                of_heads = sinks.to(exact).view(1, heads, 1, 1).expand(batch, -1, end - first, -1)
                highest = of_heads.reshape(shape)
                total = torch.ones_like(highest)
            sums = query.new_zeros(*shape[:2], size, dtype=exact)
            for number, start, stop, whole in row:
                scores, _ = tiles.scores(of_query, first, end, start, stop, whole)
                higher = torch.maximum(highest, scores.amax(-1, keepdim=True))
                weights = scores.sub_(higher).exp_()
                shrunk = (highest - higher).exp_()
                total = total.mul_(shrunk).add_(weights.sum(-1, keepdim=True))
                kept = tiles.kept(number, weights)
                weights = weights if kept is None else weights.mul_(kept)
                sums.mul_(shrunk)
                if tiles.is_exact:
                    sums.baddbmm_(weights, tiles.value[:, start:stop])
                else:
                    sums += torch.bmm(weights.to(value.dtype), tiles.value[:, start:stop])
                highest = higher
            seen = total > 0
            sums /= torch.where(seen, total, 1)
            mixed[:, first:end] = tiles.by_head(sums).transpose(1, 2)
            # With +inf the backward pass finds zero weights where a query sees nothing.
            log_sum[:, :, first:end] = tiles.by_head(torch.where(seen, highest + total.log(), float("inf")))[..., 0]
        return mixed, log_sum

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, torch.Tensor]) -> None:
        *tensors, ctx.plan = inputs
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(*tensors, *output)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: torch.Tensor, _: torch.Tensor) -> tuple[Any, ...]:  # type: ignore[override]
        with torch.autocast(grad.device.type, enabled=False):
            return _backward(ctx, grad)


def _backward(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
    query, key, value, bias, sinks, mixed, log_sum = ctx.saved_tensors
    plan, dtype = ctx.plan, log_sum.dtype
    tiles = _Tiles(query, key, value, bias, plan, bends=True)
    of_bias = ctx.needs_input_grad[3]
    grad_query = torch.empty_like(query, memory_format=torch.contiguous_format)
    grad_key = torch.zeros_like(tiles.key, dtype=dtype, memory_format=torch.contiguous_format)
    grad_value = torch.zeros_like(tiles.value, dtype=dtype, memory_format=torch.contiguous_format)
    grad_bias = torch.zeros_like(bias, dtype=dtype) if of_bias else None
    # What the softmax subtracts: the mean gradient of the weights of a query.
    mean = (grad.to(dtype) * mixed).sum(-1).transpose(1, 2)
    for first, end, row in tiles:
        of_query = tiles.rows(tiles.query, first, end) * plan.scaling
        shape = (of_query.shape[0], of_query.shape[1], 1)
        grad_mixed = grad[:, first:end].transpose(1, 2).reshape(*shape[:2], -1)
        of_log_sum, of_mean = (part[:, :, first:end].reshape(shape) for part in (log_sum, mean))
        sums = torch.zeros_like(of_query, dtype=dtype)
        for number, start, stop, whole in row:
            scores, slope = tiles.scores(of_query, first, end, start, stop, whole)
            weights = scores.sub_(of_log_sum).exp_()
            kept = tiles.kept(number, weights)
            used = (weights if kept is None else weights * kept).to(value.dtype)
            of_value = grad_value[:, start:stop]
            of_key = grad_key[:, start:stop]
            change = torch.bmm(grad_mixed, tiles.value[:, start:stop].mT).to(dtype)
            if kept is not None:
                change *= kept
            if tiles.is_exact:
                of_value.baddbmm_(used.mT, grad_mixed)
            else:
                of_value += torch.bmm(used.mT, grad_mixed)
            change = change.sub_(of_mean).mul_(weights)
            if grad_bias is not None:
                _add_bias_gradient(grad_bias, tiles, tiles.by_head(change), first, end, start, stop)
            if slope is not None:
                change *= slope
            change = change.to(query.dtype)
            if tiles.is_exact:
                sums.baddbmm_(change, tiles.key[:, start:stop])
                of_key.baddbmm_(change.mT, of_query)
            else:
                sums += torch.bmm(change, tiles.key[:, start:stop])
                of_key += torch.bmm(change.mT, of_query)
        grad_query[:, :, first:end] = tiles.by_head(sums.mul_(plan.scaling))
    grad_sinks = None
    if sinks is not None:
        weight = (sinks.to(dtype).view(1, -1, 1) - log_sum).exp()
        grad_sinks = -(weight * mean).sum((0, 2)).to(sinks.dtype)
    if grad_bias is not None:
        grad_bias = grad_bias.to(bias.dtype)
    return (
        grad_query,
        grad_key.to(key.dtype).view_as(key),
        grad_value.to(value.dtype).view_as(value),
        grad_bias,
        grad_sinks,
        None,
    )


def _add_bias_gradient(
    total: torch.Tensor, tiles: _Tiles, change: torch.Tensor, first: int, end: int, start: int, stop: int
) -> None:
    """Add the gradient of a tile of scores, *Shape:* `(batch, heads, rows, columns)`, to that of the bias."""
    if total.ndim == 4:
        part = change.sum_to_size(total.shape[0], total.shape[1], *change.shape[2:])
        total[:, :, first:end, start:stop] += part
        return
    # Sum along the diagonals: a row longer by one than the matrix shifts every row by one more than the row before.
    change = change.sum(0).flip(-2)
    rows, columns = change.shape[-2:]
    shifted = nn.functional.pad(change, (0, rows)).flatten(-2)[:, : rows * (rows + columns - 1)]
    low, high = tiles.distances(first, end, start, stop)
    total[:, low:high] += shifted.view(-1, rows, rows + columns - 1).sum(-2)
