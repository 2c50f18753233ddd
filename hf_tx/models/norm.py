# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""The entry of a norm in its registry, and the functions that create the norms of a model."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn

from .parts import Part, PartRegistry


@dataclass(frozen=True)
class Norm(Part):
    """One entry of the registry of norms.

    Its `module` is created as `module(config, size)`, or `module(config, size, options)` if it has options. It maps
    the last dimension, of `size` features, of a tensor of any shape and any floating point dtype, which does not
    change. Its `reference` is `reference(module, hidden_states)`.

    Attributes:
        of_heads: `of_heads(config, heads)` creates a norm of `(..., heads, head_dim)` with one weight per head, for
            `qk_norm_scope="heads"`. None if there is no such norm.
    """

    of_heads: Callable[[Any, int], nn.Module] | None = None


NORMS: PartRegistry[Norm] = PartRegistry("norm_type", "norm_options")


def build_norm(config: Any, size: int | None = None) -> nn.Module:
    """Build the norm that the config names, over `size` features (default: `config.hidden_size`)."""
    return NORMS.build(config, config.norm_type, config.hidden_size if size is None else size)


def build_qk_norm(config: Any, heads: int) -> nn.Module | None:
    """Create the norm of the projected queries or keys with this number of `heads`, or return None.

    With `qk_norm_scope`

    - `head`: every head is normalised, and all share one weight (Henry et al., 2020,
      https://huggingface.co/papers/2010.04245; Qwen 3),
    - `heads`: every head is normalised, and has its own weight and no bias (Cohere, StableLM),
    - `all`: all heads are normalised together (OLMo et al., 2024, https://huggingface.co/papers/2501.00656).
    """
    of_heads = NORMS.get(config.norm_type).of_heads
    if not config.qk_norm:
        return None
    if config.qk_norm_scope == "heads" and of_heads is not None:
        return of_heads(config, heads)
    return build_norm(config, heads * config.head_dim if config.qk_norm_scope == "all" else config.head_dim)
