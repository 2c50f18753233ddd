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
        size: features of the last dimension; or the shape of the weight, of which the last dimension is normalised.
        eps: added to the mean square.
        unit_offset: scale by `1 + weight`, with a weight that starts at zero (Gemma), not by `weight`.
        affine: whether there is a weight.
    """

    def __init__(
        self, size: int | tuple[int, ...], eps: float = 1e-6, unit_offset: bool = False, affine: bool = True
    ) -> None:
        super().__init__()
        weight = torch.zeros(size) if unit_offset else torch.ones(size)
        self.weight = nn.Parameter(weight) if affine else None
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
        if self.weight is None:
            return x.to(hidden_states.dtype)
        if self.unit_offset:
            return (x * (1.0 + self.weight.float())).to(hidden_states.dtype)
        return self.weight * x.to(hidden_states.dtype)

    def extra_repr(self) -> str:
        shape = None if self.weight is None else tuple(self.weight.shape)
        return f"{shape}, eps={self.eps}, unit_offset={self.unit_offset}"


class LayerNormOfHeads(nn.LayerNorm):
    """Layer normalisation of every head, which has a weight of its own, and no bias.

    Args:
        heads: number of heads.
        size: features of a head.
        eps: added to the variance.
    """

    def __init__(self, heads: int, size: int, eps: float) -> None:
        super().__init__(size, eps=eps, bias=False)
        self.weight = nn.Parameter(torch.ones(heads, size))

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """Normalise the last dimension. *Shape:* `(..., heads, size)` to `(..., heads, size)`."""
        normed = nn.functional.layer_norm(hidden_states.float(), self.normalized_shape, eps=self.eps)
        return (normed * self.weight.float()).to(hidden_states.dtype)


def _rmsnorm(config: Any, size: int) -> nn.Module:
    return RMSNorm(size, config.norm_eps, config.norm_unit_offset, config.norm_affine)


def _layernorm(config: Any, size: int) -> nn.Module:
    return nn.LayerNorm(size, eps=config.norm_eps, elementwise_affine=config.norm_affine, bias=config.norm_bias)


def _none(config: Any, size: int) -> nn.Module:
    return nn.Identity()


NORMS: Registry[Any] = Registry("norm_type")
NORMS.register("layernorm", _layernorm)
NORMS.register("rmsnorm", _rmsnorm)
NORMS.register("none", _none)


def build_norm(config: Any, size: int | None = None) -> nn.Module:
    """Build the norm that the config names, over `size` features (default: `config.hidden_size`)."""
    return NORMS.get(config.norm_type)(config, config.hidden_size if size is None else size)


def build_qk_norm(config: Any, heads: int) -> nn.Module | None:
    """Build the norm of the projected queries or keys, of which there are so many `heads`, or return None.

    With `qk_norm_scope`

    - `head`: every head is normalised, and all share one weight (Henry et al., 2020,
      https://huggingface.co/papers/2010.04245; Qwen 3),
    - `heads`: every head is normalised, and has its own weight and no bias (Cohere, StableLM),
    - `all`: all heads are normalised together (OLMo et al., 2024, https://huggingface.co/papers/2501.00656).
    """
    size = config.head_dim
    if not config.qk_norm:
        return None
    if config.qk_norm_scope != "heads":
        return build_norm(config, heads * size if config.qk_norm_scope == "all" else size)
    if config.norm_type == "layernorm":
        return LayerNormOfHeads(heads, size, config.norm_eps)
    return RMSNorm((heads, size), config.norm_eps, config.norm_unit_offset)
