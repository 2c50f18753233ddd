# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Normalisation layers."""

from typing import Any

import torch
from torch import nn

from .registry import Registry


class RMSNorm(nn.Module):
    """Root mean square layer normalisation (Zhang and Sennrich, 2019, https://huggingface.co/papers/1910.07467).

    The statistics are computed in float32 whatever the dtype of the input.

    Args:
        size: features of the last dimension.
        eps: added to the mean square.
        unit_offset: scale by `1 + weight`, with a weight that starts at zero (Gemma), not by `weight`.
    """

    def __init__(self, size: int, eps: float = 1e-6, unit_offset: bool = False) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(size) if unit_offset else torch.ones(size))
        self.eps = eps
        self.unit_offset = unit_offset

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """Normalise the last dimension.

        Args:
            hidden_states: *Shape:* `(..., size)`, floating point.

        Returns:
            *Shape:* `(..., size)`, in the dtype of the input.
        """
        x = hidden_states.float()
        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)
        if self.unit_offset:
            return (x * (1.0 + self.weight.float())).to(hidden_states.dtype)
        return self.weight * x.to(hidden_states.dtype)

    def extra_repr(self) -> str:
        return f"{tuple(self.weight.shape)}, eps={self.eps}, unit_offset={self.unit_offset}"


def _rmsnorm(config: Any, size: int) -> nn.Module:
    return RMSNorm(size, eps=config.norm_eps, unit_offset=config.norm_unit_offset)


def _layernorm(config: Any, size: int) -> nn.Module:
    return nn.LayerNorm(size, eps=config.norm_eps, bias=config.norm_bias)


def _none(config: Any, size: int) -> nn.Module:
    return nn.Identity()


NORMS: Registry[Any] = Registry("norm_type")
NORMS.register("layernorm", _layernorm)
NORMS.register("rmsnorm", _rmsnorm)
NORMS.register("none", _none)


def build_norm(config: Any, size: int | None = None) -> nn.Module:
    """Build the norm that the config names, over `size` features (default: `config.hidden_size`)."""
    return NORMS.get(config.norm_type)(config, config.hidden_size if size is None else size)
