# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Dynamic tanh: a norm without statistics."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from transformers import initialization as init

from .norm import NORMS, Norm


@dataclass(frozen=True)
class DyTOptions:
    """Options of `dyt`.

    Args:
        alpha: initial value of the factor of the inputs. The paper uses 0.5, and for language models smaller values
            for larger widths, which are larger for the norms before attention.
    """

    alpha: float = 0.5

    def __post_init__(self) -> None:
        alpha = self.alpha
        if isinstance(alpha, bool) or not isinstance(alpha, int | float) or not 0 < alpha < math.inf:
            raise ValueError(f"alpha = {alpha!r}: must be a finite number above 0.")


class DyT(nn.Module):
    """Dynamic tanh (Zhu et al., 2025, https://huggingface.co/papers/2503.10622), in the place of a norm:

        y = weight * tanh(alpha * x) + bias

    where `alpha` is one learned number, and weight and bias have one value per feature.

    Args:
        config: config of the model.
        size: features of the last dimension.
        options: its options.
    """

    def __init__(self, config: Any, size: int, options: DyTOptions) -> None:
        super().__init__()
        self.start = options.alpha
        self.alpha = nn.Parameter(torch.empty(1))
        self.weight = nn.Parameter(torch.empty(size)) if config.norm_affine else None
        self.bias = nn.Parameter(torch.empty(size)) if config.norm_affine and config.norm_bias else None
        self.init_parameters()

    def init_parameters(self) -> None:
        """Set the parameters to their start values, but for those that a checkpoint has filled."""
        init.constant_(self.alpha, self.start)
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """Bound the last dimension.

        Args:
            hidden_states: *Shape:* `(..., size)`, floating point.

        Returns:
            *Shape:* `(..., size)`, in the dtype of the input.
        """
        bounded = torch.tanh(self.alpha * hidden_states)
        if self.weight is not None:
            bounded = self.weight * bounded
        return bounded if self.bias is None else bounded + self.bias


NORMS.register("dyt", Norm(DyT, options=DyTOptions, reads=("norm_affine", "norm_bias")))
