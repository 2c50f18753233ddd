# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""The built-in feed-forward layers. A new one is one new file that registers itself, and one import line here."""

from typing import Any

import torch
from torch import nn

from .feed_forward import FEED_FORWARDS, FeedForward, build_activation, drop

__all__ = ["FEED_FORWARDS", "GLU", "MLP", "FeedForward", "build_activation", "drop"]


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


_MLP = {"up_proj": "colwise", "down_proj": "rowwise"}
FEED_FORWARDS.register("mlp", FeedForward(MLP, tp_plan=_MLP, adapter_targets=tuple(_MLP)))
_GLU = {"gate_proj": "colwise", **_MLP}
FEED_FORWARDS.register("glu", FeedForward(GLU, tp_plan=_GLU, adapter_targets=tuple(_GLU)))
