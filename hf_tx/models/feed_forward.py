# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""The entry of a feed-forward layer in its registry, and functions that feed-forward layers share."""

from dataclasses import dataclass

import torch
from torch import nn
from transformers.activations import ACT2FN

from .parts import Part, PartRegistry


@dataclass(frozen=True)
class FeedForward(Part):
    """One entry of the registry of feed-forward layers.

    Its `module` is created as `module(config)`, or `module(config, options)` if it has options, and maps every
    position independently, `(..., hidden_size)` to `(..., hidden_size)`. Its `reference` is `reference(module,
    hidden_states)`.
    """


FEED_FORWARDS: PartRegistry[FeedForward] = PartRegistry("ffn_type", "ffn_options")
FEED_FORWARDS.register("none", FeedForward(None))


def drop(hidden_states: torch.Tensor, probability: float, training: bool) -> torch.Tensor:
    """Apply dropout, if there is any."""
    return nn.functional.dropout(hidden_states, probability) if training and probability else hidden_states


def build_activation(name: str) -> nn.Module:
    """Build an activation with its name in transformers. Some have parameters (`prelu`, `xielu`), which get the dtype
    of all
    others: those of `xielu` would be bfloat16, and a model that was trained in another dtype would come back rounded.
    """
    return ACT2FN[name].to(torch.get_default_dtype())
