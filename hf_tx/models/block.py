# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""One layer of a stack: a sequence mixer, cross-attention in encoder-decoders, and a feed-forward layer."""

from typing import Any

import torch
from torch import nn
from transformers.cache_utils import Cache
from transformers.modeling_layers import GradientCheckpointingLayer

from .auxiliary import AuxiliaryLosses, call_part, declared_losses
from .configuration_base import TxStackConfig
from .feed_forwards import FEED_FORWARDS, drop
from .mixers import CROSS_MIXERS, MIXERS
from .norms import build_norm


class TxBlock(GradientCheckpointingLayer):
    """A residual layer whose norms are placed as the config defines.

    With `norm_position`

    - `pre`: `x + f(norm(x))` (Xiong et al., 2020, https://huggingface.co/papers/2002.04745),
    - `post`: `norm(x + f(x))` (Vaswani et al., 2017, https://huggingface.co/papers/1706.03762),
    - `residual_post`: `x + norm(f(x))` (Liu et al., 2021, https://huggingface.co/papers/2111.09883; OLMo 2),
    - `sandwich`: `x + norm(f(norm(x)))` (Ding et al., 2021, https://huggingface.co/papers/2105.13290).

    With `residual=False` the result is `f` alone, without the input.
    With `parallel_residual` mixer and feed-forward layer have the same input and are added together (GPT-J, PaLM).

    Args:
        config: config of this layer.
        layer_idx: index of the layer.
        backend_config: the model's config, whose `_attn_implementation` names the backend.
        is_causal: whether the mixer is causal.
        crosses: whether the layer has cross-attention.

    Attributes:
        auxiliary_losses: names of the terms that its parts add to the loss.
    """

    def __init__(
        self, config: TxStackConfig, layer_idx: int, backend_config: TxStackConfig, is_causal: bool, crosses: bool
    ) -> None:
        super().__init__()
        place = config.norm_position
        has_norm, has_post_norm = place != "residual_post", place in ("residual_post", "sandwich")
        self.norms_after = place == "post"
        self.parallel = config.parallel_residual
        self.residual = config.residual
        self.residual_multiplier = config.residual_multiplier
        self.dropout = config.hidden_dropout

        name = config.mixers[layer_idx]
        self.mixer = MIXERS.build(config, name, layer_idx, backend_config, is_causal)
        self.takes_start = MIXERS.get(name).takes_start
        self.mixer_norm = build_norm(config) if has_norm and config.mixer_norm else None
        self.mixer_post_norm = build_norm(config) if has_post_norm else None

        self.cross_mixer = None
        if crosses:
            self.cross_mixer = CROSS_MIXERS.build(config, config.cross_mixer, layer_idx, backend_config, False)
            self.cross_norm = build_norm(config) if has_norm else None
            self.cross_post_norm = build_norm(config) if has_post_norm else None

        self.mlp = FEED_FORWARDS.build(config, config.ffn_type)
        if self.mlp is not None:
            self.mlp_norm = build_norm(config) if has_norm and not config.parallel_shared_norm else None
            self.mlp_post_norm = build_norm(config) if has_post_norm else None

        self.auxiliary_losses = declared_losses(self.children())

    def _enter(
        self, hidden_states: torch.Tensor, norm: nn.Module | None, losses: AuxiliaryLosses | None
    ) -> torch.Tensor:
        return hidden_states if self.norms_after or norm is None else call_part(norm, losses, hidden_states)

    def _leave(
        self,
        hidden_states: torch.Tensor,
        update: torch.Tensor,
        norm: Any,
        post_norm: nn.Module | None,
        losses: AuxiliaryLosses | None,
    ) -> torch.Tensor:
        if post_norm is not None:
            update = call_part(post_norm, losses, update)
        hidden_states = self._add(hidden_states, update)
        return call_part(norm, losses, hidden_states) if self.norms_after else hidden_states

    def _add(self, hidden_states: torch.Tensor, update: torch.Tensor) -> torch.Tensor:
        update = drop(update, self.dropout, self.training)
        if not self.residual:
            return update
        return hidden_states + (update if self.residual_multiplier == 1.0 else update * self.residual_multiplier)

    def forward(
        self,
        hidden_states: torch.Tensor,
        encoder_hidden_states: torch.Tensor | None = None,
        position_bias: torch.Tensor | None = None,
        source_start: torch.Tensor | None = None,
        attention_mask: Any = None,
        position_embeddings: tuple[torch.Tensor, torch.Tensor] | None = None,
        cache: Cache | None = None,
        encoder_attention_mask: Any = None,
        is_causal: bool | None = None,
        **kwargs: Any,
    ) -> torch.Tensor | tuple[torch.Tensor, ...]:
        """Apply the layer. What carries gradients is positional: re-entrant checkpointing sees nothing else.

        Args:
            hidden_states: *Shape:* `(batch, length, hidden_size)`, floating point.
            encoder_hidden_states: *Shape:* `(batch, source_length, encoder_hidden_size)`, or None.
            position_bias: bias of the positions. *Shape:* `(1, heads, length, keys)`, or None.
            source_start: what a mixer that `takes_start` makes its first state from. *Shape:* `(batch,
                encoder_hidden_size)`, or None.
            attention_mask: the mask of this layer's mixer.
            position_embeddings: cosines and sines of the positions, or None.
            cache: states of earlier positions; updated in place.
            encoder_attention_mask: the mask of the attention to the encoder.
            is_causal: whether the mixer is causal in this call.
            **kwargs: passed on to the attention backend.

        Returns:
            *Shape:* `(batch, length, hidden_size)`. A layer whose parts add to the loss returns a tuple of that and
            the terms, in the order of `auxiliary_losses`.
        """
        losses = AuxiliaryLosses(self.auxiliary_losses) if self.auxiliary_losses else None
        own = getattr(cache, "self_attention_cache", cache)
        entered = self._enter(hidden_states, self.mixer_norm, losses)
        start = {"source_start": source_start} if self.takes_start else {}
        mixed, _ = call_part(
            self.mixer,
            losses,
            entered,
            position_embeddings=position_embeddings,
            attention_mask=attention_mask,
            position_bias=position_bias,
            cache=own,
            is_causal=is_causal,
            **start,
            **kwargs,
        )
        if self.parallel:
            if self.mlp is not None:
                read = entered if self.mlp_norm is None else call_part(self.mlp_norm, losses, hidden_states)
                mixed = mixed + call_part(self.mlp, losses, read)
            hidden_states = self._add(hidden_states, mixed)
            return hidden_states if losses is None else (hidden_states, *losses.values(hidden_states))
        hidden_states = self._leave(hidden_states, mixed, self.mixer_norm, self.mixer_post_norm, losses)

        if self.cross_mixer is not None:
            crossed, _ = call_part(
                self.cross_mixer,
                losses,
                self._enter(hidden_states, self.cross_norm, losses),
                attention_mask=encoder_attention_mask,
                cache=cache,
                source_states=encoder_hidden_states,
                is_causal=False,
                **kwargs,
            )
            hidden_states = self._leave(hidden_states, crossed, self.cross_norm, self.cross_post_norm, losses)

        if self.mlp is not None:
            update = call_part(self.mlp, losses, self._enter(hidden_states, self.mlp_norm, losses))
            hidden_states = self._leave(hidden_states, update, self.mlp_norm, self.mlp_post_norm, losses)
        return hidden_states if losses is None else (hidden_states, *losses.values(hidden_states))
