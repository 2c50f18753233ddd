# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""The cache layer of mixers whose state has a constant size.

The layer of transformers for such states does not count tokens, so a cache with only such layers has no length. It
does not record that it was filled, and cannot be copied for beams. This layer works in the caches of transformers.
"""

from typing import Any

import torch
from transformers.cache_utils import (
    STATIC_LAYER_TYPE_MAPPING,
    Cache,
    CacheLayerMixin,
    LinearAttentionCacheLayerMixin,
    LinearAttentionLayer,
)
from transformers.utils import is_torchdynamo_compiling

from .version import __version__

#: Name of the layer in the tables of transformers. They are global, and their last entry wins: the version keeps two
#: copies of this code in one process apart.
RECURRENT_LAYER_TYPE = f"hf_tx_recurrent_{__version__}"


def unversioned(layer_type: str) -> str:
    """Return the name of a layer type without the version, for comparisons with what a file says."""
    return "hf_tx_recurrent" if layer_type.startswith("hf_tx_recurrent") else layer_type


class RecurrentCacheLayer(LinearAttentionLayer, CacheLayerMixin):
    """Holds one state tensor and the number of tokens that went into it.

    A dynamic layer keeps the tensor that it is given, so that gradients can flow through it; a static one copies it
    into the same memory at every step.

    Args:
        max_cache_len: length of the other layers of a static cache, or None in a dynamic one.
        **kwargs: of other layer types.
    """

    _layer_type = RECURRENT_LAYER_TYPE
    is_compileable = True
    is_croppable = False
    is_sliding = False
    supports_early_init = False

    def __init__(self, max_cache_len: int | None = None, **kwargs: Any) -> None:
        CacheLayerMixin.__init__(self)
        LinearAttentionLayer.__init__(self)
        self.max_cache_len = max_cache_len
        self.cumulative_length: Any = 0 if max_cache_len is None else torch.tensor(0, dtype=torch.int64)

    def lazy_initialization(self, *args: Any, **kwargs: Any) -> None:
        """Allocate the state of a static cache."""
        states = kwargs["recurrent_states"] if "recurrent_states" in kwargs else args[0]
        self.dtype, self.device = states.dtype, states.device
        self.batch_size = states.shape[0]
        if self.max_cache_len is not None:
            self.cumulative_length = self.cumulative_length.to(states.device)
            self.recurrent_states[0] = torch.zeros_like(states)
            if not is_torchdynamo_compiling():
                torch._dynamo.mark_static_address(self.recurrent_states[0])
                torch._dynamo.mark_static_address(self.cumulative_length)
        self.is_initialized = True
        self.is_recurrent_states_initialized[0] = True

    def update_recurrent_state(
        self, recurrent_states: torch.Tensor, state_idx: int = 0, tokens: int = 0, **kwargs: Any
    ) -> torch.Tensor:
        """Take a new state.

        Args:
            recurrent_states: *Shape:* `(batch, ...)`.
            state_idx: always 0.
            tokens: how many tokens went into it since the last one.
            **kwargs: of other layer types.
        """
        if not self.is_initialized:
            self.lazy_initialization(recurrent_states=recurrent_states)
        self.has_previous_state[0] = True
        if self.max_cache_len is None:
            self.recurrent_states[0] = recurrent_states
            self.cumulative_length += tokens
            self.batch_size = recurrent_states.shape[0]
        else:
            self.recurrent_states[0].copy_(recurrent_states)  # type: ignore[union-attr]
            self.cumulative_length.add_(tokens)
        return self.recurrent_states[0]  # type: ignore[return-value]

    def update(self, *args: Any, **kwargs: Any) -> Any:
        """Raise an error, because this layer does not store keys and values."""
        raise ValueError("a layer with a state of constant size does not store keys and values.")

    def get_seq_length(self) -> Any:
        """Return the number of tokens seen."""
        return self.cumulative_length if self.is_initialized else 0

    def get_mask_sizes(self, query_length: int) -> tuple[Any, int]:
        """Return the number of keys that an attention layer at this place would have, and the index of the first."""
        return self.max_cache_len or (self.get_seq_length() + query_length), 0

    def get_max_length(self) -> int:
        """Return the length of a static cache, -1 otherwise."""
        return -1 if self.max_cache_len is None else self.max_cache_len

    def reset(self) -> None:
        """Forget everything."""
        LinearAttentionLayer.reset(self)
        if self.max_cache_len is None:
            self.cumulative_length = 0
            self.recurrent_states[0] = None
            self.is_initialized = self.is_recurrent_states_initialized[0] = False
        else:
            self.cumulative_length.zero_()

    def crop(self, tokens_to_remove: int) -> None:
        """Raise an error, because tokens cannot be removed from a state."""
        if tokens_to_remove != 0:
            raise RuntimeError(
                "a cache with recurrent or linear layers cannot be cropped, because tokens cannot be removed from a "
                "state. Assisted decoding needs mixers that are attention."
            )

    def activate_past_recording(self) -> None:
        """Do nothing: there is no past to record."""

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Repeat the rows of the batch, as for beams."""
        if self.is_initialized:
            self._replace(self.recurrent_states[0].repeat_interleave(repeats, dim=0))  # type: ignore[union-attr]

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        """Keep some rows of the batch."""
        if self.is_initialized:
            self._replace(self.recurrent_states[0][indices, ...])  # type: ignore[index]

    def reorder_cache(self, beam_idx: torch.LongTensor) -> None:
        """Reorder the rows of the batch for beam search."""
        if self.is_initialized:
            self._replace(self.recurrent_states[0].index_select(0, beam_idx.to(self.device)))  # type: ignore

    def _replace(self, states: torch.Tensor) -> None:
        self.recurrent_states[0] = states
        self.batch_size = states.shape[0]


STATIC_LAYER_TYPE_MAPPING[RECURRENT_LAYER_TYPE] = RecurrentCacheLayer


def read_state(cache: Cache | None, layer_idx: int) -> torch.Tensor | None:
    """Return the state that a layer left in the cache, or None when there is none.

    Raises:
        ValueError: the cache holds keys and values where the layer has a state.
    """
    if cache is None:
        return None
    layers = getattr(cache, "self_attention_cache", cache).layers
    if layer_idx >= len(layers) or not isinstance(layers[layer_idx], LinearAttentionCacheLayerMixin):
        raise ValueError(
            f"layer {layer_idx} needs a state of constant size, but the cache has keys and values for it, or "
            "nothing: create it with DynamicCache(config=model.config). Prefix tuning needs a model whose mixers are "
            "all attention."
        )
    return cache.get_recurrent_state(layer_idx)


def write_state(cache: Cache | None, layer_idx: int, state: torch.Tensor, tokens: int) -> None:
    """Leave a state in the cache, if there is one, for the call after this one.

    Args:
        cache: the cache of the stack, or None.
        layer_idx: the layer that it belongs to.
        state: *Shape:* `(batch, ...)`.
        tokens: length of this call.
    """
    if cache is not None:
        cache.update_recurrent_state(state, layer_idx, tokens=tokens)
