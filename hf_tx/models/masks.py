# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Attention masks, which are created once for every kind of mixer in the stack, and packed documents.

Two-dimensional masks have 0 for padding and 1 for other tokens. A four-dimensional mask of the caller,
`(batch or 1, heads or 1, queries, keys)`, replaces the causal, window and padding masks of all layers: bool, where
True means that the query sees the key, or floating point, added to the scores. Other shapes and dtypes raise an
error.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from transformers.cache_utils import Cache
from transformers.masking_utils import (
    and_masks,
    create_bidirectional_mask,
    create_bidirectional_sliding_window_mask,
    create_causal_mask,
    create_sliding_window_causal_mask,
)
from transformers.utils.generic import is_flash_attention_requested

from .backend_rules import BACKENDS, takes_dense_masks
from .configuration_base import TxStackConfig
from .documents import Documents, origins, segments
from .mixer import Band, Pattern
from .mixers import MIXERS
from .tracing import is_tracing
from .values import refuse_where

# Backends that add the four-dimensional mask of a caller to the scores.
_FLOAT_MASKS = ("eager", "flex_attention")


@dataclass(frozen=True)
class MaskGroup:
    """Layers that share a mask: the same mixer with the same window.

    Attributes:
        key: names the group in the dict of masks.
        mixer: name of the mixer.
        layer_idx: the first such layer; its cache gives the lengths.
        window: the window of its layers, or None.
        options: the options of the mixer, or None.
    """

    key: str
    mixer: str
    layer_idx: int
    window: int | None
    options: Any = None


def mask_groups(config: TxStackConfig) -> list[MaskGroup]:
    """Return the group of every layer."""
    groups: dict[tuple[str, int | None], MaskGroup] = {}
    layers = []
    for idx, mixer in enumerate(config.mixers):
        window = config.layer_config(idx).sliding_window if "sliding_window" in MIXERS.get(mixer).needs else None
        if (mixer, window) not in groups:
            key = mixer if window is None else f"{mixer}:{window}"
            groups[mixer, window] = MaskGroup(key, mixer, idx, window, MIXERS.options(config, mixer))
        layers.append(groups[mixer, window])
    return layers


@dataclass
class _MaskConfig:
    """What the mask functions read from a config, for one group; `band` is for backends that compute nothing else, and
    `broadcasts` says that the rules may be evaluated without `torch.vmap`, which transformers uses for them all."""

    _attn_implementation: str
    sliding_window: int | None
    is_causal: bool = True
    band: Band | None = None
    broadcasts: bool = False


#: By whether layers are causal, and whether they have a window.
_CREATE = {
    (True, False): create_causal_mask,
    (True, True): create_sliding_window_causal_mask,
    (False, False): create_bidirectional_mask,
    (False, True): create_bidirectional_sliding_window_mask,
}


class _CacheNow:
    """A cache whose length stays what it is now: flex evaluates a mask after the layer has moved the counter of a
    static cache in place."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cache, name)

    def get_query_offset(self, layer_idx: int = 0) -> int | torch.Tensor:
        offset = self._cache.get_query_offset(layer_idx)
        return offset.clone() if isinstance(offset, torch.Tensor) else offset


def create_mask(
    group: MaskGroup,
    backend: str,
    is_causal: bool,
    inputs_embeds: torch.Tensor,
    attention_mask: torch.Tensor | None,
    cache: Cache | None,
    documents: Documents | None,
    ranks: torch.Tensor | None,
    looks: bool,
) -> Any:
    """Build the mask of one group with transformers' functions.

    Args:
        group: the layers that it is for.
        backend: name of the attention implementation; its mask function makes the mask.
        is_causal: whether the layers are causal.
        inputs_embeds: gives batch size, length, dtype and device. *Shape:* `(batch, length, any)`.
        attention_mask: padding. *Shape:* `(batch, keys)`, or None.
        cache: earlier keys, or None.
        documents: the documents packed in the rows, or None.
        ranks: see `inner_ranks`.
        looks: whether values may be read, so that a mask which hides nothing is left out.

    Returns:
        Whatever the backend's mask function returns; [`Segments`] for mixers that are no attention.

    Raises:
        ValueError: see `_check_kept`.
    """
    mixer = MIXERS.get(group.mixer)
    if not mixer.is_attention:
        return segments(inputs_embeds, attention_mask, documents, looks)
    rules = [] if documents is None else [documents.rule(is_causal)]
    config = _MaskConfig(backend, group.window, is_causal, broadcasts=True)
    windowed = group.window is not None and mixer.pattern is None
    if windowed:
        config.band = _window(group.window, is_causal).band  # type: ignore[arg-type]
    if mixer.pattern is not None or (windowed and ranks is not None):
        past = cache.get_query_offset(group.layer_idx) if cache is not None else 0
        if isinstance(past, torch.Tensor):
            past = past.clone()  # the counter of a static cache moves in place
        origin = origins(inputs_embeds, attention_mask, documents)
        # By ranks, a rule counts from the first token of a document.
        of_rule = (origin, past) if ranks is None else (None, 0)
        if windowed:
            pattern = _window(group.window, is_causal)  # type: ignore[arg-type]
        else:
            pattern = mixer.pattern(group.options, group.window, is_causal, *of_rule)  # type: ignore[misc]
        if ranks is not None:
            if windowed:
                _check_kept(group, ranks, inputs_embeds.shape[1], cache, documents)
            rule = _by_rank(pattern.rule, ranks, past, documents)
            band = _widened(pattern.band, ranks, origin) if looks else None
            pattern, windowed = Pattern(rule, band, pattern.broadcasts), False
        rules.append(pattern.rule)
        config.band, config.broadcasts = pattern.band, pattern.broadcasts
    if cache is not None and backend == "flex_attention":
        cache = _CacheNow(cache)  # type: ignore[assignment]
    create: Any = _CREATE[is_causal, windowed]
    # To leave a mask out, transformers reads its padding and the counter of a static cache, but not in a graph.
    reads = attention_mask is not None or getattr(cache, "is_compileable", False)
    may_skip = looks or not reads or is_tracing(inputs_embeds)
    return create(
        config,
        inputs_embeds=inputs_embeds,
        attention_mask=attention_mask,
        cache=cache,
        and_mask_function=and_masks(*rules) if rules else None,
        **(dict(layer_idx=group.layer_idx) if is_causal else {}),
        **({} if may_skip else {f"allow_is_{'causal' if is_causal else 'bidirectional'}_skip": False}),
    )


def _window(window: int, is_causal: bool) -> Pattern:
    """Return the pattern of a window."""
    left, right = (window - 1, 0) if is_causal else (window, window)
    return Pattern(lambda b, h, q, kv: (q - kv <= left) & (kv - q <= right), Band(left, right), broadcasts=True)


def _by_rank(
    rule: Callable[..., Any], ranks: torch.Tensor, past: int | torch.Tensor, documents: Documents | None
) -> Callable[..., Any]:
    """Return a rule over ranks, counted from the first token of the query's document, as a rule over indices."""
    last = ranks.shape[1] - 1  # after it are empty slots of a static cache

    def rule_over_indices(b: Any, h: Any, q: Any, kv: Any) -> Any:
        query, key = ranks[b, q.clamp(max=last)], ranks[b, kv.clamp(max=last)]
        if documents is not None:
            start = documents.start[b, q - past]
            query, key = query - start, key - start
        return rule(b, h, query, key)

    return rule_over_indices


def _widened(band: Band | None, ranks: torch.Tensor, origin: torch.Tensor | None) -> Band | None:
    """Return where the keys lie by index, given where they lie by rank: farther by the padding of the row."""
    if band is None:
        return None
    pads = ranks.shape[1] - 1 - int(ranks[:, -1].min())
    rectangles = band.far

    def far(length: int) -> torch.Tensor:
        return rectangles(length) + torch.tensor([0, pads, 0, pads])  # type: ignore[misc]

    return Band(band.left + pads, band.right + pads, origin, None if rectangles is None else far)


def _check_kept(
    group: MaskGroup, ranks: torch.Tensor, length: int, cache: Cache | None, documents: Documents | None
) -> None:
    """Check that a cache which keeps the last keys by index has all that are within the window by rank.

    Raises:
        ValueError: it has not.
    """
    _, first = (0, 0) if cache is None else cache.get_mask_sizes(length, group.layer_idx)
    if not isinstance(first, int) or first == 0:
        return
    window = group.window
    assert window is not None
    before = ranks[:, -length - 1]  # rank of the last real token before this call
    is_real = ranks[:, -length:] > torch.cat((before[:, None], ranks[:, -length:-1]), dim=1)
    oldest = before + 2 - window  # rank of the oldest key that the first of the queries sees
    if documents is not None:
        start = documents.start.masked_fill(~is_real, torch.iinfo(torch.long).max).amin(-1)
        oldest = torch.maximum(oldest, start)
    is_lost = (ranks[:, first - 1] >= oldest.clamp(min=0)) & is_real.any(-1)
    refuse_where(
        is_lost,
        lambda: (
            f"layer {group.layer_idx} ({group.mixer!r}, sliding_window = {window}): rows "
            f"{is_lost.nonzero().flatten().tolist()} have padding between their tokens, but the cache only keeps the "
            f"last {window - 1} tokens of a row, including padding, so tokens within the window are lost. Pass "
            "cache=DynamicCache() in the first call, also to generate(), which keeps all tokens (for an "
            "encoder-decoder: EncoderDecoderCache(DynamicCache(), DynamicCache())), or only pad rows before their "
            "first or after their last token."
        ),
    )


def create_cross_mask(
    backend: str,
    inputs_embeds: torch.Tensor,
    source: torch.Tensor,
    attention_mask: torch.Tensor | None,
    looks: bool,
) -> Any:
    """Build the mask of the attention to an encoder, which hides padding only.

    Args:
        backend: name of the attention implementation.
        inputs_embeds: *Shape:* `(batch, queries, any)`.
        source: states of the encoder. *Shape:* `(batch, keys, any)`.
        attention_mask: padding of the source. *Shape:* `(batch, keys)`, or None.
        looks: whether values may be read, so that a mask which hides nothing is left out.

    Raises:
        ValueError: the flash functions, which take the padding of the keys for that of the queries too.
    """
    flash = is_flash_attention_requested(requested_attention_implementation=backend)
    if flash and attention_mask is not None and inputs_embeds.shape[1] > 1:
        refuse_where(
            attention_mask == 0,
            f"{backend} does not support padding in the source; use attn_implementation='sdpa', 'flex_attention' or "
            "'eager' "
            "for the decoder.",
        )
    return create_bidirectional_mask(
        _MaskConfig(backend, None),
        inputs_embeds=inputs_embeds,
        attention_mask=attention_mask,
        encoder_hidden_states=source,
        allow_is_bidirectional_skip=looks or attention_mask is None or is_tracing(attention_mask),
    )


def check_packing(
    backend: str, inputs_embeds: torch.Tensor, attention_mask: torch.Tensor | None, cached: bool, documents: Documents
) -> None:
    """Check that the backend isolates packed documents.

    Raises:
        ValueError: the flash functions isolate documents only by the positions of one row without a mask or a cache.
    """
    flash = is_flash_attention_requested(requested_attention_implementation=backend)
    if flash and (inputs_embeds.shape[0] > 1 or attention_mask is not None or cached):
        message = (
            f"{backend} only isolates packed documents in a batch of one row, without attention_mask and without a "
            "filled cache; use attn_implementation='sdpa', 'flex_attention' or 'eager'."
        )
        if is_tracing(documents.start):
            raise ValueError(message)
        refuse_where(documents.start > 0, message)


def custom_mask(
    mask: torch.Tensor, backend: str, inputs_embeds: torch.Tensor, kv_length: int, heads: int
) -> torch.Tensor:
    """Check a four-dimensional mask of the caller and put it into the form that the backend takes.

    Args:
        mask: *Shape:* `(batch or 1, heads or 1, queries, keys)`, bool or floating point.
        backend: name of the attention implementation.
        inputs_embeds: *Shape:* `(batch, queries, any)`.
        kv_length: number of keys.
        heads: number of query heads.

    Returns:
        *Shape:* as given; floating point for backends that add it to the scores.

    Raises:
        ValueError: wrong shape, an integer dtype, or a backend that takes no such mask.
    """
    batch, queries = inputs_embeds.shape[:2]
    if not takes_dense_masks(backend):
        able = ", ".join(repr(name) for name in BACKENDS if takes_dense_masks(name))
        raise ValueError(f"attn_implementation={backend!r} does not support a 4-D attention_mask; use one of {able}.")
    if mask.dtype != torch.bool and not mask.is_floating_point():
        raise ValueError(
            f"a 4-D attention_mask must be bool (True: the query sees the key) or floating point (added to the "
            f"scores), not {mask.dtype}."
        )
    if backend == "flex_attention":
        heads = 1  # its score function reads one head
    wanted = ((batch, 1), (heads, 1), (queries,), (kv_length,))
    if mask.ndim != 4 or any(size not in allowed for size, allowed in zip(mask.shape, wanted, strict=True)):
        raise ValueError(
            f"attention_mask has the shape {tuple(mask.shape)}; it must be (batch, tokens), or (batch or 1, heads or "
            "1, "
            f"queries, keys) = ({batch} or 1, {heads} or 1, {queries}, {kv_length})."
        )
    if backend in _FLOAT_MASKS and mask.dtype == torch.bool:
        lowest = torch.finfo(inputs_embeds.dtype).min
        mask = torch.zeros_like(mask, dtype=inputs_embeds.dtype).masked_fill(~mask, lowest)
    if mask.is_floating_point():
        mask = mask.to(inputs_embeds.dtype)
    # flex indexes the batch instead of broadcasting it
    return mask.expand(batch, -1, -1, -1) if backend == "flex_attention" else mask
