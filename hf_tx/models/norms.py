# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""The built-in norms. A new one is one new file that registers itself, as `dyt.py` does, and one import line here."""

from typing import Any

import torch
from torch import nn
from transformers import initialization as init

from .dyt import DyT as DyT
from .norm import NORMS, Norm, build_norm, build_qk_norm

__all__ = ["NORMS", "Norm", "RMSNorm", "build_norm", "build_qk_norm"]


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
        self.weight = nn.Parameter(torch.empty(size)) if affine else None
        self.eps = eps
        self.unit_offset = unit_offset
        self.init_parameters()

    def init_parameters(self) -> None:
        """Let the scale start at one."""
        if self.weight is not None:
            init.constant_(self.weight, 0.0 if self.unit_offset else 1.0)

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


def _rmsnorm_of_heads(config: Any, heads: int) -> nn.Module:
    return RMSNorm((heads, config.head_dim), config.norm_eps, config.norm_unit_offset)


def _layernorm(config: Any, size: int) -> nn.Module:
    return nn.LayerNorm(size, eps=config.norm_eps, elementwise_affine=config.norm_affine, bias=config.norm_bias)


def _layernorm_of_heads(config: Any, heads: int) -> nn.Module:
    return LayerNormOfHeads(heads, config.head_dim, config.norm_eps)


def _none(config: Any, size: int) -> nn.Module:
    return nn.Identity()


NORMS.register("layernorm", Norm(_layernorm, reads=("norm_affine", "norm_bias"), of_heads=_layernorm_of_heads))
NORMS.register("rmsnorm", Norm(_rmsnorm, reads=("norm_affine", "norm_unit_offset"), of_heads=_rmsnorm_of_heads))
NORMS.register("none", Norm(_none))
