# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Position schemes that are wrong on purpose, by the check that must catch them."""

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from transformers import initialization as init
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from hf_tx.conformance import Check, check_position
from hf_tx.conformance.position_references import POSITION_REFERENCES
from hf_tx.models.positions import AlibiPositions, PositionScheme, RopePositions, SinusoidalPositions


class _Steeper(AlibiPositions):
    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.slopes = [slope * 1.01 for slope in self.slopes]


class _Constant(PositionScheme):
    has_embedding = True

    def embed(self, inputs_embeds: torch.Tensor, position_ids: torch.Tensor) -> torch.Tensor:
        return inputs_embeds + 0.5


def sinusoids_of(change: Callable[[torch.Tensor], torch.Tensor]) -> list[Check]:
    """Sinusoids of other positions."""

    class Mutant(SinusoidalPositions):
        def embed(self, inputs_embeds: torch.Tensor, position_ids: torch.Tensor) -> torch.Tensor:
            return super().embed(inputs_embeds, change(position_ids))

    return check_position(Mutant)


class _OneHead(PositionScheme):
    """A bias for one head, which backends that do not broadcast it cannot read."""

    has_bias = True

    def bias(self, distance: torch.Tensor, is_causal: bool, dtype: torch.dtype) -> torch.Tensor:
        return (-0.1 * distance.abs().to(dtype))[None, None]


class _Rounded(PositionScheme):
    """Rotates by frequencies that a model in bfloat16 rounds."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.size = config.head_dim
        self.register_buffer("inv_freq", torch.empty(self.size // 2))
        self.init_parameters()

    def init_parameters(self) -> None:
        init.copy_(self.inv_freq, 100.0 ** -(torch.arange(0, self.size, 2).float() / self.size))

    def rotate(self, hidden_states: torch.Tensor, position_ids: torch.Tensor, layer_type: str) -> Any:
        angles = position_ids[..., None].float() * self.inv_freq.float()
        sin = angles.sin().to(hidden_states.dtype)
        cos = angles.cos().to(hidden_states.dtype)
        return torch.cat((cos, cos), dim=-1)[:, None], torch.cat((-sin, sin), dim=-1)[:, None]


class _Table(PositionScheme):
    has_embedding = True
    spare = False

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.table = nn.Embedding(config.max_position_embeddings, config.hidden_size)

    def embed(self, inputs_embeds: torch.Tensor, position_ids: torch.Tensor) -> torch.Tensor:
        return inputs_embeds + self.table(position_ids)


class _Unused(SinusoidalPositions):
    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.table = nn.Embedding(4, 4)


class _Buffer(SinusoidalPositions):
    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.register_buffer("factor", torch.ones(1), persistent=False)

    def init_parameters(self) -> None:
        init.copy_(self.factor, torch.randint(32, 256, (1,)) / 64)  # exact in bfloat16

    def embed(self, inputs_embeds: torch.Tensor, position_ids: torch.Tensor) -> torch.Tensor:
        return super().embed(inputs_embeds, position_ids) * self.factor.to(inputs_embeds.dtype)


def unscaled_rope(kind: str) -> Callable[[], list[Check]]:
    """Rotations of a config that asks for one kind of scaling, without it."""

    class Mutant(RopePositions):
        def __init__(self, config: Any) -> None:
            plain = copy.copy(config)
            if config.rope_parameters["rope_type"] == kind:
                kept = {name: config.rope_parameters[name] for name in ("rope_theta",)}
                plain.rope_parameters = {"rope_type": "default", **kept}
            super().__init__(plain)

    return lambda: check_position(Mutant, reference=POSITION_REFERENCES["rope"])


class _LaterHead(AlibiPositions):
    """A bias that backends cannot tell from the right one in short texts."""

    def bias(self, distance: torch.Tensor, is_causal: bool, dtype: torch.dtype) -> torch.Tensor:
        return super().bias(distance, is_causal, dtype) * (1 + 0.1 * (distance.abs() > 100))


POSITION_MUTANTS: dict[str, Callable[[], list[Check]]] = {
    "position_reference": lambda: check_position(_Steeper, reference=POSITION_REFERENCES["alibi"]),
    "order_matters": lambda: check_position(_Constant),
    # Counts from the first token of the row, pads included.
    "position_padding": lambda: sinusoids_of(lambda ids: torch.where(ids == 0, 0, ids + (ids == 0).sum(-1)[:, None])),
    "position_packing": lambda: sinusoids_of(lambda ids: ids.cummax(-1).values),
    "position_cache": lambda: sinusoids_of(lambda ids: ids - ids[:, :1]),
    "position_backends": lambda: check_position(_OneHead),
    "position_precision": lambda: check_position(_Rounded),
    "past_the_end": lambda: check_position(_Table),
    "position_gradients": lambda: check_position(_Unused),
    "position_buffers": lambda: check_position(_Buffer),
    **{f"position_reference: no {kind} scaling": unscaled_rope(kind) for kind in ROPE_INIT_FUNCTIONS},
    "position_reference: far apart": lambda: check_position(_LaterHead, reference=POSITION_REFERENCES["alibi"]),
}
