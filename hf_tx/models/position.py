# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Position schemes: their base class, and their entry in the registry.

A scheme can work at three places, each with a method that does nothing by default: it adds something to the
embeddings (`embed`), rotates queries and keys (`rotate`), or adds a bias to the attention scores (`bias`).
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from .parts import Part, PartRegistry


class PositionScheme(nn.Module):
    """Base of all schemes, and the scheme `none`."""

    #: Whether `bias` returns a tensor: backends without an additive bias do not support such a layer.
    has_bias = False
    #: Whether `embed` changes the embeddings: such a scheme belongs to the model, not to a layer.
    has_embedding = False

    def __init__(self, config: Any) -> None:
        super().__init__()

    def embed(self, inputs_embeds: torch.Tensor, position_ids: torch.Tensor) -> torch.Tensor:
        """Add positions to embeddings.

        Args:
            inputs_embeds: *Shape:* `(batch, length, features)`, floating point.
            position_ids: *Shape:* `(batch or 1, length)`, int64, zero-based.

        Returns:
            *Shape:* `(batch, length, features)`.
        """
        return inputs_embeds

    def rotate(
        self, hidden_states: torch.Tensor, position_ids: torch.Tensor, layer_type: str
    ) -> tuple[torch.Tensor, torch.Tensor] | None:
        """Return the cosines and sines that rotate queries and keys of a layer of `layer_type`, or None.

        Args:
            hidden_states: gives dtype and device.
            position_ids: *Shape:* `(batch or 1, length)`, int64.
            layer_type: the name in transformers for the kind of layer (`full_attention`, `sliding_attention`).

        Returns:
            What `apply_rotary` takes, or None when the scheme does not rotate.
        """
        return None

    def bias(self, distance: torch.Tensor, is_causal: bool, dtype: torch.dtype) -> torch.Tensor | None:
        """Return what is added to the attention scores before the softmax, or None.

        Args:
            distance: key index minus query index, counted in real tokens. *Shape:* `(queries, keys)`, int64.
            is_causal: whether the stack is causal, so that keys after the query are visible only in calls that ask
                for it.
            dtype: dtype of the scores.

        Returns:
            *Shape:* `(1, heads, queries, keys)`, or None when the scheme has no bias.
        """
        return None


@dataclass(frozen=True)
class Position(Part):
    """One entry of the registry of position schemes.

    Its `module` is a subclass of [`PositionScheme`], created as `module(config)`, or `module(config, options)` if it
    has options. Its `reference` is a dict with functions, or import paths, for the places at which it works:

    - `embed(config, scheme, position, size)` returns what is added to an embedding. *Shape:* `(size,)`.
    - `rotate(config, states, position, length)` returns rotated queries or keys of a text of this length. *Shape:*
      both `(heads, head_dim)`.
    - `bias(config, scheme, head, distance, is_causal)` returns what is added to a score; the distance is key minus
      query.
    """

    module: type[PositionScheme]

    @property
    def has_bias(self) -> bool:
        """Whether it adds a bias to the scores."""
        return self.module.has_bias

    @property
    def has_embedding(self) -> bool:
        """Whether it adds something to the embeddings."""
        return self.module.has_embedding


class _Positions(PartRegistry[Position]):
    def register(self, name: str, value: Position, origin: str = "hf_tx") -> None:
        module: Any = value.module
        if not (isinstance(module, type) and issubclass(module, PositionScheme)):
            raise ValueError(f"{self.kind} {name!r}: module = {module!r}: must be a subclass of PositionScheme.")
        super().register(name, value, origin)


POSITIONS: PartRegistry[Position] = _Positions("position_type", "position_options")
POSITIONS.register("none", Position(PositionScheme))
