# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Exact attention inside a band, in time and memory linear in the length: sliding, chunked, dilated, global and local.

Queries go in blocks; a block sees its own keys and those within reach. The keys of all blocks are one strided view,
nothing is copied for a block, and `scaled_dot_product_attention` computes the blocks as if they were heads. Where keys
outside of the band are visible too (global positions, random blocks), the keys of a block are gathered, the form of
BigBird (Zaheer et al., 2020, https://huggingface.co/papers/2007.14062). What `scaled_dot_product_attention` does not
compute - softcaps, sinks, position biases - is computed by tiles, and only where keys are visible.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.nn.functional import pad, scaled_dot_product_attention
from transformers.integrations.sdpa_attention import repeat_kv, sdpa_attention_forward
from transformers.utils import logging

from ..models.tracing import is_tracing
from .mask_rule import MaskRule
from .tiled import tiled_attention

logger = logging.get_logger(__name__)

# Fewer queries than this make no block.
_LEAST_ROWS = 16
_MOST_ROWS = 256
# And at most this many where a block gathers keys from outside of the band.
_MOST_FAR_ROWS = 64


def banded_attention(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: Any,
    scaling: float | None = None,
    dropout: float = 0.0,
    softcap: float | None = None,
    position_bias: torch.Tensor | None = None,
    s_aux: torch.Tensor | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Compute attention inside the band of the mask: an attention function for transformers' table.

    A layer without a band is computed in full, with a warning: by `sdpa`, or by `tiled` where it has a softcap, sinks
    or a position bias. What queries get that see no key is not defined, but finite.

    Args:
        module: the attention layer.
        query: *Shape:* `(batch, heads, queries, head_dim)`, floating point.
        key: *Shape:* `(batch, kv_heads, keys, head_dim)`; `kv_heads` divides `heads`.
        value: *Shape:* `(batch, kv_heads, keys, value_dim)`.
        attention_mask: what `mask_rule` returned; or a mask as `tiled_attention` takes it, or None.
        scaling: factor of the dot products. Default: `head_dim**-0.5`.
        dropout: probability that a weight is dropped.
        softcap: see `tiled_attention`.
        position_bias: see `tiled_attention`.
        s_aux: see `tiled_attention`.
        **kwargs: what other backends need.

    Returns:
        The mixed values, *Shape:* `(batch, queries, heads, value_dim)`, and None for the weights.
    """
    extras: dict[str, Any] = dict(softcap=softcap, position_bias=position_bias, s_aux=s_aux)
    needs_tiles = any(extra is not None for extra in extras.values())
    has_band = isinstance(attention_mask, MaskRule) and attention_mask.has_band
    if not has_band:
        _say_in_full(type(module).__name__, "tiled" if needs_tiles else "sdpa")
    if needs_tiles or (has_band and attention_mask.has_far and is_tracing()):
        return tiled_attention(module, query, key, value, attention_mask, scaling, dropout, **extras, **kwargs)
    if not has_band:
        if isinstance(attention_mask, MaskRule):
            kwargs["is_causal"] = not attention_mask.is_bidirectional
            attention_mask = attention_mask.dense()
        return sdpa_attention_forward(module, query, key, value, attention_mask, dropout, scaling, **kwargs)
    if query.device.type != "cpu":  # only there the kernel with a mask shares key heads itself
        groups = query.shape[1] // key.shape[1]
        key, value = repeat_kv(key, groups), repeat_kv(value, groups)
    return _attend(query, key, value, attention_mask, scaling, dropout), None


@torch.compiler.assume_constant_result  # said while a graph is built; a logger would break it
def _say_in_full(layer: str, backend: str) -> bool:
    logger.warning_once(
        f"attn_implementation='banded': {layer} has layers without a band, which are computed in full by {backend!r}."
    )
    return True


def _attend(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, rule: MaskRule, scaling: float | None, dropout: float
) -> torch.Tensor:
    """Attend inside a band. *Shape:* `(batch, queries, heads, value_dim)`."""
    queries, keys = query.shape[2], key.shape[2]
    assert rule.left is not None
    assert rule.right is not None
    reach = rule.left + rule.right
    rows = min(max(_LEAST_ROWS, (reach + 1) // 2), _MOST_ROWS)
    kwargs: dict[str, Any] = dict(dropout_p=dropout, scale=scaling, enable_gqa=query.shape[1] != key.shape[1])
    low, high = 0, keys
    if rule.shift is not None and not rule.has_far:
        low, high = max(0, rule.shift - rule.left), min(keys, queries + rule.shift + rule.right)
    if rule.shift is None or queries <= rows or high - low <= rows + reach:
        name = (low, high, query.dtype, query.device)
        mask = rule.cached(name, lambda: _scores(_one_block(rule, low, high), query))
        mixed = scaled_dot_product_attention(query, key[:, :, low:high], value[:, :, low:high], mask, **kwargs)
        return mixed.transpose(1, 2).contiguous()
    if rule.has_far:
        return _attend_far(query, key, value, rule, min(rows, _MOST_FAR_ROWS), kwargs)
    blocks = -(-queries // rows)
    # Keys before the first and behind the last are zeros that no query sees.
    first, end = rule.shift - rule.left, blocks * rows + rule.shift + rule.right
    mask = rule.cached((rows, query.dtype, query.device), lambda: _scores(_blocks(rule, rows, blocks), query))
    outputs = []
    # The blocks stand where the batch does, in views of a row, so that the output has the order of its layout.
    for idx, row in enumerate(zip(query.unbind(), key.unbind(), value.unbind(), strict=True)):
        of_query = _padded(row[0], 0, blocks * rows - queries).unflatten(1, (blocks, rows)).transpose(0, 1)
        of_key, of_value = (
            _padded(states, -first, end - keys).unfold(1, rows + reach, rows).permute(1, 0, 3, 2) for states in row[1:]
        )
        of_row = scaled_dot_product_attention(of_query, of_key, of_value, mask[idx % len(mask)][:, None], **kwargs)
        outputs.append(of_row.transpose(1, 2).flatten(0, 1)[:queries])
    return torch.stack(outputs) if len(outputs) > 1 else outputs[0][None]


def _attend_far(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, rule: MaskRule, rows: int, kwargs: dict[str, Any]
) -> torch.Tensor:
    """Attend inside a band and to what is visible outside of it. *Shape:* `(batch, queries, heads, value_dim)`."""
    batch = len(query)
    groups, order = rule.cached((rows, query.dtype, query.device), lambda: _groups(rule, rows, query))
    mixed = []
    for of_query, of_key, mask in groups:
        # The blocks stand where the batch does.
        q, k, v = (
            states[:, :, indices].transpose(1, 2).flatten(0, 1)
            for states, indices in ((query, of_query), (key, of_key), (value, of_key))
        )
        mask = mask.expand(batch, -1, -1, -1).flatten(0, 1)[:, None]
        of_group = scaled_dot_product_attention(q, k, v, mask, **kwargs)
        mixed.append(of_group.transpose(1, 2).reshape(batch, -1, *of_group.shape[1::2]))
    return torch.cat(mixed, 1)[:, order]


def _groups(rule: MaskRule, rows: int, query: torch.Tensor) -> tuple[list[tuple[torch.Tensor, ...]], torch.Tensor]:
    """Group the blocks of queries that see about as many keys, within a factor of two.

    Returns:
        For every group the indices of its queries, *Shape:* `(blocks, rows)`, and of its keys, *Shape:* `(blocks,
        columns)`, and what is added to the scores, *Shape:* `(batch or 1, blocks, rows, columns)`; and where each
        query stands in the groups, *Shape:* `(queries,)`.
    """
    by_size: dict[int, list[tuple[int, Sequence[int]]]] = {}
    for block, tiles in enumerate(rule.candidates(rows, rows)):
        by_size.setdefault(len(tiles).bit_length(), []).append((block, tiles))
    groups, places = [], []
    for members in by_size.values():
        most, none = max(len(tiles) for _, tiles in members), -(-rule.keys // rows)
        blocks = torch.tensor([[block] for block, _ in members])
        tiles_of = torch.tensor([[*tiles, *[none] * (most - len(tiles))] for _, tiles in members])
        of_query = blocks * rows + torch.arange(rows)
        of_key = (tiles_of[..., None] * rows + torch.arange(rows)).flatten(1)
        mask = _scores(rule.visible(of_query, of_key), query)
        places.append(of_query.flatten())
        # What lies past the last one is not used, or hidden.
        inside = (of_query.clamp(max=rule.queries - 1), of_key.clamp(max=rule.keys - 1))
        groups.append((*(indices.to(query.device) for indices in inside), mask))
    return groups, torch.cat(places).argsort()[: rule.queries].to(query.device)


def _padded(states: torch.Tensor, before: int, behind: int) -> torch.Tensor:
    """Add zeros in the dimension of the length, or cut where a number is negative."""
    return pad(states, (0, 0, before, behind)) if before or behind else states


def _one_block(rule: MaskRule, low: int, high: int) -> torch.Tensor:
    seen = rule.visible(torch.arange(rule.queries), torch.arange(low, high))
    return seen[:, None]


def _blocks(rule: MaskRule, rows: int, blocks: int) -> torch.Tensor:
    assert rule.shift is not None
    assert rule.left is not None
    assert rule.right is not None
    starts = torch.arange(blocks)[:, None] * rows
    columns = torch.arange(rows + rule.left + rule.right) + rule.shift - rule.left
    return rule.visible(starts + torch.arange(rows), starts + columns)


def _scores(seen: torch.Tensor, query: torch.Tensor) -> torch.Tensor:
    """Turn a bool mask into what is added to the scores. The hidden ones get a large number instead of infinity, so
    that queries which see nothing stay finite, and half of the lowest, so that adding a score does not overflow."""
    hidden = torch.finfo(query.dtype).min / 2
    return torch.zeros_like(seen, dtype=query.dtype, device=query.device).masked_fill(~seen.to(query.device), hidden)
