# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Cross-attention of recurrent translation models: one head, and a combination of context and state."""

from typing import Any

import torch
from torch import nn
from transformers.cache_utils import Cache

from .attention import crossed_states
from .mixer import CROSS_MIXERS, CrossMixer


class AdditiveCrossAttention(nn.Module):
    """Additive attention (Bahdanau et al., 2014, https://huggingface.co/papers/1409.0473):

        score(s, h) = v . tanh(W s + U h)

    The context, the average of the source states by the softmax of the scores, is combined with the state of the
    decoder as in Luong et al., 2015, equation 5: `tanh(C [context; s])`.

    Args:
        config: config of this layer.
        layer_idx: index of the layer, under which the cache keeps the source.
        backend_config: the model's config.
        is_causal: not used: the whole source is visible.
    """

    #: Whether scores are of the sum of query and key, not of their product.
    additive = True

    def __init__(self, config: Any, layer_idx: int, backend_config: Any, is_causal: bool) -> None:
        super().__init__()
        self.layer_idx = layer_idx
        sources, size = config.cross_attention_hidden_size or config.hidden_size, config.hidden_size
        self.q_proj = nn.Linear(size, size, bias=False) if self.additive else None
        self.k_proj = nn.Linear(sources, size, bias=False)
        self.score_proj = nn.Linear(size, 1, bias=False) if self.additive else None
        self.o_proj = nn.Linear(sources + size, size, bias=False)
        self.attention_dropout = config.attention_dropout

    def _scores(self, states: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        """Return the scores. *Shape:* `(batch, queries, keys)`."""
        if self.q_proj is None or self.score_proj is None:
            return states @ keys.transpose(1, 2)
        summed = self.q_proj(states)[:, :, None] + keys[:, None]
        return self.score_proj(torch.tanh(summed)).squeeze(-1)

    def project_source(self, states: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return keys and values of the states of an encoder. *Shape:* `(batch, 1, source_length, size)`."""
        return self.k_proj(states)[:, None], states[:, None]

    def forward(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        cache: Cache | None = None,
        source_states: torch.Tensor | None = None,
        **kwargs: Any,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Combine the states with what they attend to.

        Args:
            hidden_states: *Shape:* `(batch, length, hidden_size)`, floating point.
            attention_mask: whether a token of the source is real. *Shape:* `(batch, source_length)`, bool; or None.
            cache: holds the source after the first call.
            source_states: *Shape:* `(batch, source_length, source_size)`.
            **kwargs: what other attention takes.

        Returns:
            *Shape:* `(batch, length, hidden_size)`, and the weights. *Shape:* `(batch, 1, length, source_length)`.
        """
        keys, sources = crossed_states(cache, self.layer_idx, source_states, self.project_source)
        keys, sources = keys[:, 0], sources[:, 0]
        scores = self._scores(hidden_states, keys)
        if attention_mask is not None:
            scores = scores.masked_fill(~attention_mask[:, None], torch.finfo(scores.dtype).min)
        weights = scores.softmax(-1, dtype=torch.promote_types(scores.dtype, torch.float32)).to(hidden_states.dtype)
        dropped = nn.functional.dropout(weights, self.attention_dropout, self.training)
        combined = torch.cat((dropped @ sources, hidden_states), dim=-1)
        return torch.tanh(self.o_proj(combined)), weights[:, None]


class MultiplicativeCrossAttention(AdditiveCrossAttention):
    """Multiplicative attention, the score `general` of Luong et al., 2015 (https://huggingface.co/papers/1508.04025):
    `score(s, h) = s . W h`; the output is their equation 5."""

    additive = False


_TARGETS = ("q_proj", "k_proj", "o_proj")
CROSS_MIXERS.register("additive", CrossMixer(AdditiveCrossAttention, adapter_targets=_TARGETS))
CROSS_MIXERS.register("multiplicative", CrossMixer(MultiplicativeCrossAttention, adapter_targets=_TARGETS[1:]))
