# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Checks that a cache belongs to the inputs of a call. A decoding step only compares shapes."""

from typing import Any

import torch
import torch.distributed as dist
from transformers.cache_utils import Cache, EncoderDecoderCache, LinearAttentionCacheLayerMixin

from .tracing import is_tracing
from .values import may_look_at

#: States of a source that is encoded once more differ by rounding, and those of another one by their own size.
_SAME_SOURCE = 1e-2


def tokens_held(past: int | torch.Tensor, needed: bool = False) -> int | None:
    """Return how many tokens a cache holds, or None where only the device knows and asking it would hold up a step.

    Args:
        past: the count; a tensor of a static cache.
        needed: whether the device is asked all the same.
    """
    if isinstance(past, int):
        return past
    return int(past) if may_look_at(past) or (needed and not is_tracing(past)) else None


def check_cache(cache: Cache, windows: list[int | None], heads: list[tuple[int, int]], rows: int) -> None:
    """Check that a cache was made for this model and holds as many rows as the input has.

    Args:
        cache: that of the decoder's own layers.
        windows: the window of every layer, or None.
        heads: the number of key heads of every layer, and their size.
        rows: of the input.

    Raises:
        ValueError: it was not.
    """
    layers: list[Any] = cache.layers
    memory: Any = cache
    # A step of decoding looks at one layer of a cache that has been looked at as a whole.
    checked = getattr(cache, "_hf_tx_checked", None)
    known = checked is not None and checked[0] is windows and checked[1:] == (len(layers), rows)
    if known and _rows_held(layers[0], rows) == rows:
        return
    grows = getattr(cache, "layer_class_to_replicate", None) is not None
    if len(layers) > len(windows) or (len(layers) < len(windows) and not grows):
        raise ValueError(
            f"the cache has {len(layers)} layers, but the model has {len(windows)}: it belongs to another model."
        )
    for idx, (layer, window, (key_heads, head_dim)) in enumerate(zip(layers, windows, heads, strict=False)):
        # Static layers keep their window under the name of their length, which may be the shorter of the two.
        kept = getattr(layer, "sliding_window", None)
        if getattr(layer, "is_sliding", False) and (window is None or (kept is not None and kept < window)):
            raise ValueError(
                f"layer {idx} sees {'all tokens' if window is None else f'the last {window} tokens'}, but its cache "
                f"keeps a window{'' if kept is None else f' of {kept}'}: it belongs to another model. Build it as "
                "DynamicCache(config=model.config)."
            )
        keys = getattr(layer, "keys", None) if layer.is_initialized else None
        if keys is not None and keys.ndim == 4 and keys.shape[3] != head_dim:
            raise ValueError(
                f"layer {idx}: the cache has heads of {keys.shape[3]} features, but the model of {head_dim}: it "
                "belongs to another model."
            )
        if keys is not None and keys.ndim == 4 and not _is_share(keys.shape[1], key_heads):
            raise ValueError(
                f"layer {idx}: the cache has {keys.shape[1]} key heads, but the model has {key_heads}: it belongs to "
                "another model."
            )
        held = _rows_held(layer, rows)
        if held != rows:
            raise ValueError(
                f"the cache has {held} rows, but the input has {rows}: begin with a new cache, or repeat or select "
                "its rows (batch_repeat_interleave, batch_select_indices)."
            )
    if layers and all(layer.is_initialized for layer in layers) and not is_tracing():
        memory._hf_tx_checked = (windows, len(layers), rows)


def _is_share(held: int, heads: int) -> bool:
    """Return whether a cache may hold so many key heads: all of them, or those of one process of several."""
    return held == heads or (held > 0 and heads % held == 0 and dist.is_available() and dist.is_initialized())


def _rows_held(layer: Any, rows: int) -> int:
    """Return how many rows a layer of a cache holds; those of the input where it does not say."""
    if not layer.is_initialized:
        return rows
    if isinstance(layer, LinearAttentionCacheLayerMixin):
        return getattr(layer, "batch_size", rows)
    keys = getattr(layer, "keys", None)
    return rows if keys is None or keys.ndim != 4 else keys.shape[0]


def check_room(cache: Cache, windows: list[int | None], held: int, length: int) -> None:
    """Check that the tokens of a call fit into a static cache.

    Args:
        cache: that of the decoder's own layers.
        windows: the window of every layer, or None.
        held: tokens in the cache.
        length: tokens of the input.

    Raises:
        ValueError: they do not.
    """
    layers: list[Any] = cache.layers
    for layer, window in zip(layers, windows, strict=False):
        size = getattr(layer, "max_cache_len", None)
        if size is None or isinstance(layer, LinearAttentionCacheLayerMixin):
            continue
        # A layer with a window drops older tokens, and does not need more space.
        if size < held + length and not (layer.is_sliding and window is not None and size >= window):
            raise ValueError(
                f"the static cache has space for {size} tokens, of which {held} are used, but the input has "
                f"{length}: build it "
                f"with max_cache_len >= {held + length}."
            )


def check_source(cache: EncoderDecoderCache, mixer: Any, source: torch.Tensor, training: bool) -> None:
    """Check that the keys of an encoder in a cache are those of the source that comes with it, and remember the source
    of a new cache. The tensor of the call before is known by itself; of another one the keys are made and compared,
    since rows may have been selected, repeated or reordered, or encoded once more.

    A cache that is reordered alone, while the tensor of the source stays the same, is not noticed. Beam search does so
    at every step, among rows of one source; telling it from an error would cost a projection each time.

    Args:
        cache: of an encoder-decoder.
        mixer: the first layer's attention to the encoder. It is not looked at if it has no `project_source`.
        source: states of the encoder. *Shape:* `(batch, source_length, source_size)`.
        training: dropout makes other states of the same source, so values say nothing.

    Raises:
        ValueError: it was filled from another source.
    """
    memory: Any = cache  # the cache is the only thing that lives as long as its keys
    if not cache.is_updated.get(0):
        memory._hf_tx_source = source
        return
    if getattr(cache, "_hf_tx_source", None) is source or is_tracing(source) or not hasattr(mixer, "project_source"):
        return
    with torch.no_grad():
        keys = mixer.project_source(source)[0]
    layer: Any = cache.cross_attention_cache.layers[0]
    held = layer.keys
    if getattr(layer, "is_compileable", False):  # with space for a longer source
        held = held[:, :, : keys.shape[2]]
    same = held.shape == keys.shape
    if same and not training and may_look_at(keys):
        same = bool((held.to(keys) - keys).abs().amax() <= _SAME_SOURCE * keys.abs().amax())
    if not same:
        raise ValueError(
            f"the cache was filled with other encoder_hidden_states (its keys have the shape {tuple(held.shape)}, "
            f"those of this call {tuple(keys.shape)}). Begin with a new cache for another source."
        )
    memory._hf_tx_source = source
