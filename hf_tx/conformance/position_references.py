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
        rotate: `rotate(config, states, position, length)` returns queries or keys of a text of that length, turned.
            *Shape:* both `(heads, head_dim)`.
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


def frequency(parameters: dict[str, Any], pair: int, size: int, length: int, most: int) -> float:
    """How far a position turns a pair: `theta ** (-2 pair / size)`, scaled by the kind of `rope_type`.

    Args:
        parameters: `rope_parameters` of the config.
        pair: the number of the pair.
        size: features that turn.
        length: of the text.
        most: `max_position_embeddings` of the config.
    """
    kind, theta = parameters["rope_type"], parameters["rope_theta"]
    plain, factor = theta ** (-2 * pair / size), parameters.get("factor", 1.0)
    original = parameters.get("original_max_position_embeddings", most)
    if kind == "linear":  # Chen et al., 2023
        return plain / factor
    if kind == "dynamic":  # bloc97 and emozilla, 2023: theta grows with a text past the end
        stretched = factor * max(length, most) / most - (factor - 1)
        return (theta * stretched ** (size / (size - 2))) ** (-2 * pair / size)
    if kind == "yarn":  # Peng et al., 2023, section 3.2: slow pairs are scaled, fast ones are not, with a ramp between

        def pair_of(turns: float) -> float:
            """The pair that turns so often in the original length."""
            return size * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(theta))

        low = max(math.floor(pair_of(parameters.get("beta_fast", 32))), 0)
        high = min(math.ceil(pair_of(parameters.get("beta_slow", 1))), size - 1)
        scaled = min(max((pair - low) / (high - low or 1e-3), 0.0), 1.0)
        return plain * (1 - scaled) + plain / factor * scaled
    if kind == "longrope":  # Ding et al., 2024: a factor for every pair, others past the original length
        return plain / parameters["long_factor" if length > original else "short_factor"][pair]
    if kind == "llama3":  # Grattafiori et al., 2024: by how often a pair turns in the original length
        turns = original * plain / (2 * math.pi)
        low, high = parameters["low_freq_factor"], parameters["high_freq_factor"]
        share = min(max((turns - low) / (high - low), 0.0), 1.0)
        return plain / factor * (1 - share) + plain * share
    return plain


def loudness(parameters: dict[str, Any], most: int) -> float:
    """By what cosines and sines are multiplied."""
    kind, factor = parameters["rope_type"], parameters.get("factor", 0.0)
    if kind == "yarn":
        return 0.1 * math.log(factor) + 1
    if kind == "longrope":
        original = parameters["original_max_position_embeddings"]
        return math.sqrt(1 + math.log(factor or most / original) / math.log(original))
    return 1.0


def rotate(config: Any, states: Tensor, position: int, length: int) -> Tensor:
    """Su et al., 2021: every pair turns by `position * frequency`; features beyond the rotary ones stay. A pair is two
    neighbours, or one feature of each half. The kind `proportional` leaves pairs at rest instead of features."""
    parameters, most = config.rope_parameters, config.max_position_embeddings
    share, rests = parameters.get("partial_rotary_factor", 1.0), parameters["rope_type"] == "proportional"
    size = states.shape[-1] if rests else int(states.shape[-1] * share)
    turned = list(states.unbind(-1))
    for pair in range(size // 2):
        first, second = (2 * pair, 2 * pair + 1) if config.rope_interleaved else (pair, pair + size // 2)
        at_rest = rests and pair >= int(share * size // 2)
        scaled = parameters.get("factor", 1.0) if rests else 1.0
        angle = 0.0 if at_rest else position * frequency(parameters, pair, size, length, most) / scaled
        cos, sin = (each * loudness(parameters, most) for each in (math.cos(angle), math.sin(angle)))
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

_SHORT = {"original_max_position_embeddings": 32, "rope_theta": 100.0, "factor": 4.0}
#: Every kind of scaling, with a text that is longer than what the kind was trained for.
_SCALED: tuple[dict[str, Any], ...] = (
    {"rope_type": "linear", "rope_theta": 100.0, "factor": 4.0},
    {"rope_type": "dynamic", "rope_theta": 100.0, "factor": 4.0},
    {"rope_type": "yarn", "beta_fast": 4.0, "beta_slow": 0.5} | _SHORT,
    {"rope_type": "longrope", "short_factor": [1.0, 1.1, 1.2, 1.3], "long_factor": [1.5, 2.0, 3.0, 4.0]} | _SHORT,
    {"rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0} | _SHORT,
    {"rope_type": "proportional", "rope_theta": 100.0, "factor": 2.0, "partial_rotary_factor": 0.5},
)

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
        settings=(
            *({}, {"rope_interleaved": True}, {"rope_parameters": _PARTIAL}),
            *({"rope_parameters": scaled, "max_position_embeddings": 128} for scaled in _SCALED),
        ),
    ),
}
