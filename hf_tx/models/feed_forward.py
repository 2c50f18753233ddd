# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Position-wise feed-forward layers."""

from typing import Any

import torch
from torch import nn
from transformers.activations import ACT2FN

from .registry import Registry


def drop(hidden_states: torch.Tensor, probability: float, training: bool) -> torch.Tensor:
    """Apply dropout, without the cost of a call where there is none."""
    return nn.functional.dropout(hidden_states, probability) if training and probability else hidden_states


def build_activation(name: str) -> nn.Module:
    """Build an activation by the library's name. Some have parameters (`prelu`, `xielu`), which get the dtype of all
    others: those of `xielu` would be bfloat16, and a model that was trained in another dtype would come back rounded.
    """
    return ACT2FN[name].to(torch.get_default_dtype())


class MLP(nn.Module):
    """Two projections with an activation between them (Vaswani et al., 2017, https://huggingface.co/papers/1706.03762)."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=config.mlp_bias)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=config.mlp_bias)
        self.act_fn = build_activation(config.hidden_act)
        self.dropout = config.ffn_dropout

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """Map every position on its own. *Shape:* `(..., hidden_size)` to `(..., hidden_size)`."""
        return self.down_proj(drop(self.act_fn(self.up_proj(hidden_states)), self.dropout, self.training))


class GLU(nn.Module):
    """Gated linear unit: the activated gate multiplies a second projection (Shazeer, 2020,
    https://huggingface.co/papers/2002.05202). With `hidden_act="silu"` it is SwiGLU, with `"gelu"` GEGLU."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=config.mlp_bias)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=config.mlp_bias)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=config.mlp_bias)
        self.act_fn = build_activation(config.hidden_act)
        self.dropout = config.ffn_dropout

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """Map every position on its own. *Shape:* `(..., hidden_size)` to `(..., hidden_size)`."""
        gated = self.act_fn(self.gate_proj(hidden_states)) * self.up_proj(hidden_states)
        return self.down_proj(drop(gated, self.dropout, self.training))


FEED_FORWARDS: Registry[type[nn.Module] | None] = Registry("ffn_type")
FEED_FORWARDS.register("mlp", MLP)
FEED_FORWARDS.register("glu", GLU)
FEED_FORWARDS.register("none", None)
