# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Position schemes written down as they are defined, one position and one pair after the other."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class PositionReference:
    """What a scheme does at each of the three places where one can work, and with which settings it is checked.

    Attributes:
        embed: `embed(config, scheme, position, size)` returns what is added to an embedding. *Shape:* `(size,)`.
        rotate: `rotate(config, states, position)` returns queries or keys, turned. *Shape:* both `(heads, head_dim)`.
        bias: `bias(config, scheme, head, distance, is_causal)` returns what is added to a score; the distance is key
            minus query.
        settings: config fields; all checks use the first, those that compare with the reference use all.
    """

    embed: Callable[..., Tensor] | None = None
    rotate: Callable[..., Tensor] | None = None
    bias: Callable[..., Tensor | float] | None = None
    settings: tuple[dict[str, Any], ...] = ({},)


def sinusoid(position: int, size: int, kind: str = "interleaved") -> Tensor:
    """Vaswani et al., 2017, section 3.5: sines at even features, cosines at odd ones, of geometric wavelengths; or all
    sines before all cosines. In their code, tensor2tensor, the last of `size // 2` wavelengths is 10000 * 2 pi."""
    if kind == "tensor2tensor":
        angles = [position / 10_000 ** (i / (size // 2 - 1)) for i in range(size // 2)]
        return torch.tensor([*map(math.sin, angles), *map(math.cos, angles), *[0.0] * (size % 2)])
    angles = [position / 10_000 ** ((i - i % 2) / size) for i in range(size)]
    values = [math.cos(angle) if i % 2 else math.sin(angle) for i, angle in enumerate(angles)]
    return torch.tensor(values if kind == "interleaved" else values[::2] + values[1::2])


def learned(config: Any, scheme: Any, position: int, size: int) -> Tensor:
    """A row of the table."""
    return scheme.embed_positions.weight[position + config.position_offset]


def rotate(config: Any, states: Tensor, position: int) -> Tensor:
    """Su et al., 2021: every pair turns by `position * theta ** (-2 pair / size)`; features beyond the rotary ones
    stay. A pair is two neighbours, or one feature of each half."""
    size = int(states.shape[-1] * config.rope_parameters.get("partial_rotary_factor", 1.0))
    turned = list(states.unbind(-1))
    for pair in range(size // 2):
        first, second = (2 * pair, 2 * pair + 1) if config.rope_interleaved else (pair, pair + size // 2)
        angle = position * config.rope_parameters["rope_theta"] ** (-2 * pair / size)
        cos, sin = math.cos(angle), math.sin(angle)
        turned[first] = states[:, first] * cos - states[:, second] * sin
        turned[second] = states[:, second] * cos + states[:, first] * sin
    return torch.stack(turned, dim=-1)


def alibi_slopes(heads: int) -> list[float]:
    """The recursion that Press et al., 2022, published."""
    if math.log2(heads).is_integer():
        start = 2 ** (-(2 ** -(math.log2(heads) - 3)))
        return [start * start**i for i in range(heads)]
    closest = 2 ** math.floor(math.log2(heads))
    return alibi_slopes(closest) + alibi_slopes(2 * closest)[0::2][: heads - closest]


def alibi(config: Any, scheme: Any, head: int, distance: int, is_causal: bool) -> float:
    """Press et al., 2022: a penalty that grows with the distance, with a slope of every head."""
    return -alibi_slopes(config.num_attention_heads)[head] * abs(distance)


def bucket(distance: int, is_causal: bool, buckets: int, far: int) -> int:
    """Raffel et al., 2020, section 2.1; the distance is key minus query."""
    first = 0
    if is_causal:
        distance = max(-distance, 0)
    else:
        buckets //= 2
        first = buckets if distance > 0 else 0
        distance = abs(distance)
    exact = buckets // 2
    if distance < exact:
        return first + distance
    share = math.log(distance / exact) / math.log(far / exact)
    return first + min(exact + int(share * (buckets - exact)), buckets - 1)


def relative(config: Any, scheme: Any, head: int, distance: int, is_causal: bool) -> Tensor:
    """A weight of every head and bucket of distances."""
    sizes = config.relative_attention_num_buckets, config.relative_attention_max_distance
    return scheme.relative_bias.weight[bucket(distance, is_causal, *sizes), head]


# An odd number of features has a sine more than cosines.
_ODD = {"hidden_size": 30, "embedding_size": 25, "tie_word_embeddings": False}
_TENSOR2TENSOR = {"sinusoidal_type": "tensor2tensor", "position_offset": 2}
_PARTIAL = {"rope_type": "default", "rope_theta": 100.0, "partial_rotary_factor": 0.5}

POSITION_REFERENCES: dict[str, PositionReference] = {
    "none": PositionReference(),
    "sinusoidal": PositionReference(
        embed=lambda config, scheme, position, size: sinusoid(
            position + config.position_offset, size, config.sinusoidal_type
        ),
        settings=({}, _ODD, {"sinusoidal_type": "concatenated"} | _ODD, _TENSOR2TENSOR, _TENSOR2TENSOR | _ODD),
    ),
    "learned": PositionReference(embed=learned, settings=({}, {"position_offset": 2})),
    "relative": PositionReference(bias=relative, settings=({"relative_attention_num_buckets": 8},)),
    "learned_relative": PositionReference(embed=learned, bias=relative, settings=({}, {"position_offset": 2})),
    "alibi": PositionReference(bias=alibi, settings=({}, {"num_attention_heads": 8})),
    "rope": PositionReference(
        rotate=rotate,
        settings=({}, {"rope_interleaved": True}, {"rope_parameters": _PARTIAL}),
    ),
}
