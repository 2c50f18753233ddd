# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Softmax attention: the mixers `full` and `sliding`, and cross-attention."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from transformers import initialization as init
from transformers.cache_utils import Cache, EncoderDecoderCache
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from .mixer import CROSS_MIXERS, MIXERS, CrossMixer, Mixer
from .norm import build_qk_norm
from .position import POSITIONS
from .positions import apply_rotary


def repeat_kv(states: torch.Tensor, groups: int) -> torch.Tensor:
    """Repeat every key or value head for the query heads that share it.

    Args:
        states: *Shape:* `(batch, kv_heads, length, head_dim)`.
        groups: query heads a key head.

    Returns:
        *Shape:* `(batch, kv_heads * groups, length, head_dim)`.
    """
    return states if groups == 1 else states.repeat_interleave(groups, dim=1)


def eager_attention_forward(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float,
    dropout: float = 0.0,
    softcap: float | None = None,
    position_bias: torch.Tensor | None = None,
    s_aux: torch.Tensor | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Scaled dot-product attention written out (Vaswani et al., 2017, section 3.2.1,
    https://huggingface.co/papers/1706.03762). It computes every mechanism and is what the other backends must equal.

    Args:
        module: the attention layer; gives `num_key_value_groups` and `training`.
        query: *Shape:* `(batch, heads, queries, head_dim)`, floating point.
        key: *Shape:* `(batch, kv_heads, keys, head_dim)`.
        value: *Shape:* `(batch, kv_heads, keys, head_dim)`.
        attention_mask: added to the scores. *Shape:* `(batch or 1, heads or 1, queries, keys)`, floating point.
        scaling: factor of the dot products.
        dropout: probability that a weight is dropped.
        softcap: bounds the scores smoothly: `softcap * tanh(score / softcap)` (Gemma 2).
        position_bias: added to the scores. *Shape:* `(1, heads, queries, keys)`.
        s_aux: logits of the sinks, which take part in the softmax and have no value (Xiao et al., 2023,
            https://huggingface.co/papers/2309.17453; learned: GPT-OSS). *Shape:* `(heads,)`.
        **kwargs: what other backends need.

    Returns:
        The mixed values, *Shape:* `(batch, queries, heads, head_dim)`, and the weights, *Shape:*
        `(batch, heads, queries, keys)`.
    """
    key = repeat_kv(key, module.num_key_value_groups)
    value = repeat_kv(value, module.num_key_value_groups)
    scores = torch.matmul(query, key.transpose(2, 3)) * scaling
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    if position_bias is not None:
        scores = scores + position_bias
    if attention_mask is not None:
        scores = scores + attention_mask
        if scores.dtype == torch.float16:  # the lowest number and a low score add up to -inf
            scores = scores.clamp(min=torch.finfo(torch.float16).min)
    if s_aux is not None:
        scores = torch.cat((scores, s_aux.view(1, -1, 1, 1).to(scores.dtype).expand(*scores.shape[:3], 1)), dim=-1)
    # In float32 the lowest number of float64 would be -inf, and a row that sees nothing would have no weights.
    weights = nn.functional.softmax(scores, dim=-1, dtype=torch.promote_types(scores.dtype, torch.float32))
    weights = weights.to(query.dtype)
    if s_aux is not None:
        weights = weights[..., :-1]
    weights = nn.functional.dropout(weights, p=dropout, training=module.training)
    return torch.matmul(weights, value).transpose(1, 2).contiguous(), weights


class Attention(nn.Module):
    """Multi-head attention of a sequence to itself, with shared key and value heads (MQA: Shazeer, 2019,
    https://huggingface.co/papers/1911.02150; GQA: Ainslie et al., 2023, https://huggingface.co/papers/2305.13245).

    Which keys a query sees is decided by the mask that the stack builds for the layer's mixer; `sliding_window` is
    passed on for backends that take the window as a number.

    Args:
        config: config of this layer.
        layer_idx: index of the layer, under which the cache keeps its keys and values.
        backend_config: the model's config, whose `_attn_implementation` names the backend.
        is_causal: whether queries see only keys at or before them.
    """

    has_window = False

    def __init__(self, config: Any, layer_idx: int, backend_config: Any, is_causal: bool, options: Any = None) -> None:
        super().__init__()
        self.config = backend_config
        self.layer_idx = layer_idx
        self.is_causal = is_causal
        self.head_dim = config.head_dim
        self.num_key_value_groups = config.num_attention_heads // config.num_key_value_heads
        self.scaling = config.attention_scale if config.attention_scale is not None else self.head_dim**-0.5
        self.softcap = config.attn_logit_softcapping
        self.attention_dropout = config.attention_dropout
        self.rope_interleaved = config.rope_interleaved
        self.sliding_window = config.sliding_window if self.has_window else None

        queries = config.num_attention_heads * self.head_dim
        keys = config.num_key_value_heads * self.head_dim
        sources = self._source_size(config)
        self.q_proj = nn.Linear(config.hidden_size, queries, bias=config.attention_bias)
        self.k_proj = nn.Linear(sources, keys, bias=config.attention_bias)
        self.v_proj = nn.Linear(sources, keys, bias=config.attention_bias)
        self.o_proj = nn.Linear(queries, config.hidden_size, bias=config.attention_out_bias)
        self.q_norm = build_qk_norm(config, config.num_attention_heads)
        self.k_norm = build_qk_norm(config, config.num_key_value_heads)
        self.norms_heads_together = config.qk_norm_scope == "all"
        self.has_sinks = config.attention_sinks
        if (
            self.has_sinks
        ):  # attention functions of transformers take a layer that has the attribute for one with sinks
            self.sinks = nn.Parameter(torch.empty(config.num_attention_heads))

    def init_parameters(self) -> None:
        """Draw the sinks as transformers draws those of GPT-OSS."""
        if self.has_sinks:
            init.normal_(self.sinks, mean=0.0, std=self.config.initializer_range)

    def _source_size(self, config: Any) -> int:
        return config.hidden_size

    def _heads(self, projected: torch.Tensor, norm: nn.Module | None = None) -> torch.Tensor:
        """Normalise, and split into heads. *Shape:* `(batch, length, heads * head_dim)` to `(batch, heads, length,
        head_dim)`."""
        if norm is not None and self.norms_heads_together:
            projected = norm(projected)
        heads = projected.view(*projected.shape[:-1], -1, self.head_dim)
        if norm is not None and not self.norms_heads_together:
            heads = norm(heads)
        return heads.transpose(1, 2)

    def _keys_and_values(
        self,
        hidden_states: torch.Tensor,
        position_embeddings: tuple[torch.Tensor, torch.Tensor] | None,
        cache: Cache | None,
        source_states: torch.Tensor | None,
        kwargs: dict[str, Any],
    ) -> tuple[torch.Tensor, torch.Tensor]:
        key = self._heads(self.k_proj(hidden_states), self.k_norm)
        value = self._heads(self.v_proj(hidden_states))
        if position_embeddings is not None:
            key = apply_rotary(key, *position_embeddings, interleaved=self.rope_interleaved)
        if cache is not None:
            key, value = cache.update(key, value, self.layer_idx, kwargs=kwargs)  # pages are read from it
        return key, value

    def forward(
        self,
        hidden_states: torch.Tensor,
        position_embeddings: tuple[torch.Tensor, torch.Tensor] | None = None,
        attention_mask: torch.Tensor | None = None,
        position_bias: torch.Tensor | None = None,
        cache: Cache | None = None,
        source_states: torch.Tensor | None = None,
        is_causal: bool | None = None,
        attn_implementation: str | None = None,
        **kwargs: Any,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Mix the values of the visible positions.

        Args:
            hidden_states: *Shape:* `(batch, length, hidden_size)`, floating point.
            position_embeddings: cosines and sines of the positions, or None.
            attention_mask: what the backend's mask function returned for this layer's mixer.
            position_bias: *Shape:* `(1, heads, length, keys)`, or None.
            cache: keys and values of earlier positions; updated in place.
            source_states: used by cross-attention only.
            is_causal: whether queries see only keys at or before them in this call. Default: as the layer was built.
            attn_implementation: the backend of this call, which made the mask. Default: the config's.
            **kwargs: passed on to the backend.

        Returns:
            *Shape:* `(batch, length, hidden_size)`, and the weights if the backend gives them. *Shape:* `(batch,
            heads, length, keys)`.
        """
        query = self._heads(self.q_proj(hidden_states), self.q_norm)
        if position_embeddings is not None:
            query = apply_rotary(query, *position_embeddings, interleaved=self.rope_interleaved)
        key, value = self._keys_and_values(hidden_states, position_embeddings, cache, source_states, kwargs)

        # Keywords that a backend need not know are passed only where the layer has the feature.
        if self.softcap is not None:
            kwargs["softcap"] = self.softcap
        is_causal = self.is_causal if is_causal is None else is_causal
        if self.sliding_window is not None:
            # The number that transformers' flash functions take is exclusive: they look back `sliding_window - 1`.
            kwargs["sliding_window"] = self.sliding_window if is_causal else self.sliding_window + 1
        if position_bias is not None:
            kwargs["position_bias"] = position_bias
        if self.has_sinks:
            kwargs["s_aux"] = self.sinks
        attention_interface = ALL_ATTENTION_FUNCTIONS.get_interface(
            attn_implementation or self.config._attn_implementation, eager_attention_forward
        )
        mixed, weights = attention_interface(
            self,
            query,
            key,
            value,
            attention_mask,
            dropout=self.attention_dropout if self.training else 0.0,
            scaling=self.scaling,
            is_causal=is_causal,
            **kwargs,
        )
        return self.o_proj(mixed.reshape(*hidden_states.shape[:-1], -1).contiguous()), weights


class SlidingAttention(Attention):
    """Attention within a window (Beltagy et al., 2020, https://huggingface.co/papers/2004.05150). With
    `sliding_window = w`, a causal query at position `i` sees the `w` keys `i - w + 1 ... i`; a bidirectional one sees
    the keys `j` with `|i - j| <= w`. Distances count real tokens."""

    has_window = True

    def _keys_and_values(
        self,
        hidden_states: torch.Tensor,
        position_embeddings: tuple[torch.Tensor, torch.Tensor] | None,
        cache: Cache | None,
        source_states: torch.Tensor | None,
        kwargs: dict[str, Any],
    ) -> tuple[torch.Tensor, torch.Tensor]:
        key, value = super()._keys_and_values(hidden_states, position_embeddings, cache, source_states, kwargs)
        if self.sliding_window == 1 and cache is not None:
            # transformers' cache keeps the last `window - 1` keys as `keys[-window + 1 :]`, which is all of them here.
            length = hidden_states.shape[1]
            key, value = key[:, :, -length:], value[:, :, -length:]
        return key, value


class CrossAttention(Attention):
    """Attention of a decoder to the states of an encoder. The keys and values are computed once a sequence when there
    is a cache."""

    def _source_size(self, config: Any) -> int:
        return config.cross_attention_hidden_size or config.hidden_size

    def _keys_and_values(
        self,
        hidden_states: torch.Tensor,
        position_embeddings: tuple[torch.Tensor, torch.Tensor] | None,
        cache: Cache | None,
        source_states: torch.Tensor | None,
        kwargs: dict[str, Any],
    ) -> tuple[torch.Tensor, torch.Tensor]:
        return crossed_states(cache, self.layer_idx, source_states, self.project_source)

    def project_source(self, states: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return keys and values of an encoder's states. *Shape:* `(batch, kv_heads, source_length, head_dim)`."""
        return super()._keys_and_values(states, None, None, None, {})


def crossed_states(
    cache: Cache | None,
    layer_idx: int,
    source_states: torch.Tensor | None,
    project: Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]],
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return keys and values of an encoder's states: from the cache, or projected and left there.

    Args:
        cache: of an encoder-decoder, or None.
        layer_idx: index of the layer.
        source_states: *Shape:* `(batch, source_length, source_size)`; not needed when the cache holds them.
        project: makes keys and values of them. *Shape:* `(batch, heads, source_length, size)`.

    Raises:
        ValueError: neither the states nor a cache that holds them.
    """
    if not isinstance(cache, EncoderDecoderCache):
        if source_states is None:
            raise ValueError(
                "cross-attention needs encoder_hidden_states, or a cache that contains its keys and values."
            )
        return project(source_states)
    if cache.is_updated.get(layer_idx):
        layer: Any = cache.cross_attention_cache.layers[layer_idx]
        return layer.keys, layer.values
    if source_states is None:
        raise ValueError("cross-attention needs encoder_hidden_states, or a cache that contains its keys and values.")
    cache.is_updated[layer_idx] = True
    return cache.cross_attention_cache.update(*project(source_states), layer_idx)


def attention_plan(config: Any) -> dict[str, str]:
    """Return how tensor parallelism shards attention: by heads, where all of them are treated alike. Every device has
    all heads where a norm, a position bias or sinks treat each differently."""
    biased = any(POSITIONS.get(name).has_bias for name in config.layer_positions)
    whole = config.qk_norm_scope != "head" or biased or config.attention_sinks
    plan = dict.fromkeys(("q_proj", "k_proj", "v_proj"), "colwise_gather_output" if whole else "colwise")
    plan["o_proj"] = "rowwise_split_input" if whole else "rowwise"
    if config.qk_norm and not whole:
        plan |= dict.fromkeys(("q_norm", "k_norm"), "replicated_with_grad_allreduce")
    return plan


_PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj")
#: What every mixer that is built on [`Attention`] has in common.
OF_ATTENTION: dict[str, Any] = dict(tp_plan=attention_plan, adapter_targets=_PROJECTIONS)
MIXERS.register("full", Mixer(Attention, "full_attention", "quadratic", **OF_ATTENTION))
MIXERS.register(
    "sliding", Mixer(SlidingAttention, "sliding_attention", "linear", needs=("sliding_window",), **OF_ATTENTION)
)
CROSS_MIXERS.register("full", CrossMixer(CrossAttention, uses_backend=True, adapter_targets=_PROJECTIONS))
