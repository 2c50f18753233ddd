# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Serving engines: vLLM, and continuous batching (`generate_batch`).

An engine puts the tokens of many requests into one row, stores their keys and values in its own pages (Kwon et al.,
2023, https://huggingface.co/papers/2309.06180), and masks them itself. No mask is made for it, positions that restart
are another request and not a packed document, and it only stores keys and values. `backend_rules` defines which
backends are those of an engine.
"""

from typing import Any

import torch
from transformers.cache_utils import Cache
from transformers.generation.continuous_batching import PagedAttentionCache

from .mixers import MIXERS

#: What an engine reads once from the config, for all layers.
_READ_ONCE = ("sliding_window", "attn_logit_softcapping", "num_attention_heads", "num_key_value_heads", "head_dim")
#: Kinds of rope whose angles depend on the longest text of a call.
_ROPE_OF_A_CALL = ("dynamic", "longrope")


def is_paged(cache: Any) -> bool:
    """Whether a cache is that of continuous batching."""
    return isinstance(cache, PagedAttentionCache)


def past_length(cache: Cache | None) -> int | torch.Tensor:
    """Return how many tokens a cache holds: 0 without one, and for that of an engine, which counts by request."""
    return 0 if cache is None or is_paged(cache) else cache.get_seq_length()


def unserved(config: Any, layer_idx: int) -> str | None:
    """Say why no serving engine computes a layer, or return None. What an engine lacks in its scores is said by its
    [`Backend`].

    Args:
        config: the config of a stack.
        layer_idx: index of the layer.
    """
    mixer = MIXERS.get(config.mixers[layer_idx])
    if not mixer.is_attention:
        return "it only stores keys and values, but this mixer has another state"
    if getattr(config, "cross_attention_hidden_size", None) is not None:
        return "it does not support cross-attention"
    if config.is_heterogeneous:
        for name in _READ_ONCE:
            if name in config.per_layer_attributes:
                return f"it uses one {name} for all layers, but per_layer_config changes it"
    if "sliding_window" in mixer.needs:
        if not config.is_causal_family:
            return "its windows are causal, but those of an encoder are not"
        if config.layer_config(layer_idx).sliding_window == 1:
            return "it does not support a window of one key"
    if config.layer_positions[layer_idx] == "rope":
        for view in config.rope_views().values():
            kind = view.rope_parameters.get("rope_type")
            if kind in _ROPE_OF_A_CALL:
                return (
                    f"the angles of rope_type {kind!r} depend on the longest text of a call, but requests share a call"
                )
    return None


def masks_of_engine(groups: list[Any], attention_mask: Any, cache: Cache | None) -> dict[str, Any]:
    """Return the masks of an engine by the key of the group.

    Args:
        groups: the layers by their masks.
        attention_mask: the engine's: by the names in transformers of the types of layers, one for all layers, or None
            when its attention functions mask. *Shape:* `(1, 1, tokens, keys)`, floating point, added to the scores.
        cache: that of continuous batching; other engines give none.

    Raises:
        ValueError: a mask or a cache that is not the engine's.
    """
    if not is_paged(cache) and (attention_mask is not None or cache is not None):
        raise ValueError(
            "the attention function of a serving engine masks requests and stores their keys itself: leave out "
            "attention_mask and cache, and pass use_cache=False."
        )
    if not isinstance(attention_mask, dict):
        return {group.key: attention_mask for group in groups}
    return {group.key: attention_mask[MIXERS.get(group.mixer).layer_type] for group in groups}
