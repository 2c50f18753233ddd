# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""The built-in position schemes. A new one is one new file that registers itself, and one import line here.

Nothing here is a plain tensor attribute or a buffer that a load from the meta device could leave unset, except the
rotary frequencies, which the weight initialization of transformers computes again.
"""

import math
from typing import Any

import torch
from torch import nn
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS, dynamic_rope_update
from transformers.utils import logging

from .position import POSITIONS, Position, PositionScheme
from .tracing import is_tracing

logger = logging.get_logger(__name__)

__all__ = ["POSITIONS", "Position", "PositionScheme"]

SINUSOIDS = ("interleaved", "concatenated", "tensor2tensor")


class SinusoidalPositions(PositionScheme):
    """Fixed sines and cosines of geometric wavelengths, added to the embeddings. They are computed for any position.
    With `sinusoidal_type`

    - `interleaved`: sines at even features, cosines at odd ones, of wavelengths from 2 pi to 10000 * 2 pi, the end not
      included (Vaswani et al., 2017, section 3.5, https://huggingface.co/papers/1706.03762),
    - `concatenated`: the same in another order, all sines before all cosines (Marian),
    - `tensor2tensor`: likewise, and the last wavelength is 10000 * 2 pi, as in the code of that paper
      (https://github.com/tensorflow/tensor2tensor/blob/master/tensor2tensor/layers/common_attention.py; fairseq).
    """

    has_embedding = True

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.kind = config.sinusoidal_type
        self.offset = config.position_offset

    def embed(self, inputs_embeds: torch.Tensor, position_ids: torch.Tensor) -> torch.Tensor:
        size = inputs_embeds.shape[-1]
        # Of an odd number of features, the last has a sine, or stays as it is.
        pairs, last = (size // 2, size // 2 - 1) if self.kind == "tensor2tensor" else ((size + 1) // 2, size / 2)
        # The precision shows at late positions, and that code, and models that were trained with it, have float32.
        simple = self.kind == "tensor2tensor" or inputs_embeds.device.type == "mps"
        pair = torch.arange(pairs, device=inputs_embeds.device, dtype=torch.float32 if simple else torch.float64)
        frequencies = torch.exp(pair * (-math.log(10_000.0) / last))
        angles = (position_ids + self.offset)[..., None].to(pair.dtype) * frequencies
        if self.kind == "interleaved":
            table = torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(-2)
        else:
            table = torch.cat((angles.sin(), angles.cos()), dim=-1)
        table = nn.functional.pad(table, (0, size - table.shape[-1]))  # a negative number crops
        return inputs_embeds + table.to(inputs_embeds.dtype)


class LearnedPositions(PositionScheme):
    """One learned vector per position, added to the embeddings (Gehring et al., 2017,
    https://huggingface.co/papers/1705.03122). Positions end at `max_position_embeddings`."""

    has_embedding = True

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.offset = config.position_offset
        self.embed_positions = nn.Embedding(config.max_position_embeddings + self.offset, config.sum_size)

    def embed(self, inputs_embeds: torch.Tensor, position_ids: torch.Tensor) -> torch.Tensor:
        return inputs_embeds + self.embed_positions(position_ids + self.offset)


class AlibiPositions(PositionScheme):
    """A penalty that grows linearly with the distance, with one slope per head (Press et al., 2022,
    https://huggingface.co/papers/2108.12409). In bidirectional layers both sides have the same penalty."""

    has_bias = True

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.slopes = alibi_slopes(config.num_attention_heads)

    def bias(self, distance: torch.Tensor, is_causal: bool, dtype: torch.dtype) -> torch.Tensor:
        # Not waited for: what is copied is staged by then.
        slopes = torch.tensor(self.slopes, dtype=torch.float32).to(distance.device, non_blocking=True)
        return (-slopes[:, None, None] * distance.abs().float())[None].to(dtype)


def alibi_slopes(heads: int) -> list[float]:
    """Return the slope of every head: a geometric series that ends at 2^-8; for a head count that is no power of two,
    the series of the power below it, filled up with every other slope of the series of the power above it."""
    power = 2 ** math.floor(math.log2(heads))
    slopes = [2.0 ** (-8.0 * (i + 1) / power) for i in range(power)]
    return slopes + [2.0 ** (-4.0 * (2 * i + 1) / power) for i in range(heads - power)]


class RelativePositions(PositionScheme):
    """A learned bias for every head and every bucket of distances, shared by all layers (Raffel et al., 2020, section
    2.1, https://huggingface.co/papers/1910.10683), or, with `relative_attention_per_layer`, of every layer (Chung et
    al., 2023, https://huggingface.co/papers/2304.09151). Half of the buckets hold one distance each, the other half
    grow logarithmically up to `relative_attention_max_distance`; bidirectional layers split them between both
    sides."""

    has_bias = True

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.num_buckets = config.relative_attention_num_buckets
        self.max_distance = config.relative_attention_max_distance
        self.relative_bias = nn.Embedding(self.num_buckets, config.num_attention_heads)

    def bias(self, distance: torch.Tensor, is_causal: bool, dtype: torch.dtype) -> torch.Tensor:
        buckets = relative_position_buckets(distance, is_causal, self.num_buckets, self.max_distance)
        return self.relative_bias(buckets).permute(2, 0, 1)[None].to(dtype)


class LearnedRelativePositions(LearnedPositions, RelativePositions):
    """Both: a learned vector per position, added to the embeddings, and a learned bias of distances, added to the
    scores (Song et al., 2020, https://huggingface.co/papers/2004.09297)."""


def relative_position_buckets(
    distance: torch.Tensor, is_causal: bool, num_buckets: int, max_distance: int
) -> torch.Tensor:
    """Assign distances to buckets.

    Args:
        distance: key index minus query index. *Shape:* any, int64.
        is_causal: all buckets serve keys at or before the query; otherwise the upper half serves keys after it.
        num_buckets: number of buckets.
        max_distance: this distance and all larger ones share the last bucket of their side.

    Returns:
        Bucket numbers in `[0, num_buckets)`. *Shape:* that of `distance`, int64.
    """
    if is_causal:
        first = torch.zeros_like(distance)
        distance = (-distance).clamp(min=0)
    else:
        num_buckets //= 2
        first = (distance > 0).long() * num_buckets
        distance = distance.abs()
    exact = num_buckets // 2
    scale = (num_buckets - exact) / math.log(max_distance / exact)
    far = exact + (torch.log(distance.clamp(min=1).float() / exact) * scale).long()
    return first + torch.where(distance < exact, distance, far.clamp(max=num_buckets - 1))


class RopePositions(PositionScheme):
    """Rotary position embedding (Su et al., 2021, https://huggingface.co/papers/2104.09864), with every scaling kind
    of transformers. Layer types may have parameters of their own."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.rotary_emb = nn.ModuleDict(
            {key or "all": RotaryEmbedding(view) for key, view in config.rope_views().items()}
        )

        #: By the scaling kinds whose frequencies depend on the length of the text: the length at which they change.
        self.changes: dict[str, int] = {
            rotary.rope_type: rotary.changes_at for rotary in self.rotary_emb.values() if rotary.changes_at is not None
        }

    def warn_of_changes(self, past: int | torch.Tensor, length: int, size: int | None) -> None:
        """Warn once if a cache has keys that were rotated with other frequencies than those of a longer text.

        Args:
            past: tokens in the cache.
            length: of the input.
            size: size of a static cache. The number of tokens in it is only known on the device, so the first call
                warns for the whole size.
        """
        if is_tracing() or not isinstance(past, int):
            return
        last = past + length if past else size or 0
        for kind, limit in self.changes.items():
            # The long frequencies of `longrope` are one set; those of `dynamic` change with every token.
            if last > limit and (kind == "dynamic" or (past or length) <= limit):
                logger.warning_once(
                    f"rope_type = {kind!r} uses other frequencies for texts of more than {limit} tokens, but the "
                    "keys in a cache are already rotated: beyond this length, decoding with a cache gives other "
                    "results than a pass over the whole text. For the same results pass use_cache=False, or stay "
                    f"within {limit} tokens. Other rope types do not depend on the length."
                )

    def rotate(
        self, hidden_states: torch.Tensor, position_ids: torch.Tensor, layer_type: str
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return what `apply_rotary` takes. *Shape:* twice `(batch or 1, 1, length, rotary_dim)`."""
        rotary = self.rotary_emb[layer_type] if layer_type in self.rotary_emb else self.rotary_emb["all"]
        return rotary(hidden_states, position_ids[:, None])


class RotaryEmbedding(nn.Module):
    """The frequencies of one set of rope parameters. They are float32 for any dtype of the model, because
    distant positions would coincide with rounded frequencies.

    Args:
        config: a config, or a view of it, whose `rope_parameters` are one flat set.
    """

    inv_freq: torch.Tensor
    original_inv_freq: torch.Tensor

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.config = config
        self.interleaved = config.rope_interleaved
        self.rope_type = config.rope_parameters["rope_type"]
        self.max_seq_len_cached = self.original_max_seq_len = config.max_position_embeddings
        limits = {
            "dynamic": config.max_position_embeddings,
            "longrope": config.rope_parameters.get("original_max_position_embeddings"),
        }
        self.changes_at: int | None = limits.get(self.rope_type)
        inv_freq, self.attention_scaling = self._frequencies()
        self.register_buffer("inv_freq", inv_freq, persistent=False)
        self.register_buffer("original_inv_freq", inv_freq.clone(), persistent=False)

    def _frequencies(self, device: torch.device | None = None) -> tuple[torch.Tensor, float]:
        make = ROPE_INIT_FUNCTIONS.get(self.rope_type, self.compute_default_rope_parameters)
        return make(self.config, device=device)

    # Also called by transformers' _init_weights, which looks for this name.
    @staticmethod
    def compute_default_rope_parameters(
        config: Any, device: torch.device | None = None, **_: Any
    ) -> tuple[torch.Tensor, float]:
        """Return the inverse frequencies (*Shape:* `(rotary_dim / 2,)`, float32) and the factor of cos and sin, 1."""
        size = config.rotary_dim
        exponent = torch.arange(0, size, 2, dtype=torch.int64, device=device).float() / size
        return 1.0 / config.rope_parameters["rope_theta"] ** exponent, 1.0

    def _apply(self, fn: Any, recurse: bool = True) -> "RotaryEmbedding":
        super()._apply(fn, recurse)
        if self.inv_freq.dtype != torch.float32 and not self.inv_freq.is_meta:
            inv_freq, _ = self._frequencies(self.inv_freq.device)
            self.inv_freq, self.original_inv_freq = inv_freq, inv_freq.clone()
            self.max_seq_len_cached = self.original_max_seq_len
        return self

    @torch.no_grad()
    @dynamic_rope_update
    def forward(self, hidden_states: torch.Tensor, position_ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return cosines, and sines with the sign of the rotation, in the dtype of the states. *Shape:* twice `(...,
        rotary_dim)` for positions of the shape `(...)`."""
        # The sign of the rotation is that of the angle, here and once, and not of the queries and keys of every layer.
        pair = (-self.inv_freq, self.inv_freq)
        inv_freq = torch.stack(pair, dim=-1).flatten() if self.interleaved else torch.cat(pair)
        angles = position_ids[..., None].float() * inv_freq
        cos, sin = angles.cos(), angles.sin()
        if self.attention_scaling != 1.0:
            cos, sin = cos * self.attention_scaling, sin * self.attention_scaling
        return cos.to(hidden_states.dtype), sin.to(hidden_states.dtype)


def apply_rotary(
    states: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, interleaved: bool = False
) -> torch.Tensor:
    """Rotate pairs of features by the angle of their position: `(a, b)` becomes `(a cos - b sin, b cos + a sin)`.

    Args:
        states: queries or keys. *Shape:* `(batch, heads, length, head_dim)`, floating point.
        cos: cosines. *Shape:* `(batch or 1, 1, length, rotary_dim)` with `rotary_dim <= head_dim`; the other
            features do not change (partial rotary).
        sin: sines, negative for the first of a pair. *Shape:* like `cos`.
        interleaved: a pair is two neighboring features (GPT-J), not one feature of each half (GPT-NeoX, Llama).

    Returns:
        *Shape:* `(batch, heads, length, head_dim)`.
    """
    size = cos.shape[-1]
    turned, passed = (states[..., :size], states[..., size:]) if size < states.shape[-1] else (states, None)
    if interleaved:
        partner = torch.stack((turned[..., 1::2], turned[..., ::2]), dim=-1).flatten(-2)
    else:
        partner = torch.cat((turned[..., size // 2 :], turned[..., : size // 2]), dim=-1)
    turned = turned * cos + partner * sin
    return turned if passed is None else torch.cat((turned, passed), dim=-1)


_OFFSET = ("position_offset",)
_BUCKETS = ("relative_attention_num_buckets", "relative_attention_max_distance")
POSITIONS.register("sinusoidal", Position(SinusoidalPositions, reads=(*_OFFSET, "sinusoidal_type")))
POSITIONS.register("learned", Position(LearnedPositions, reads=_OFFSET))
POSITIONS.register("relative", Position(RelativePositions, reads=(*_BUCKETS, "relative_attention_per_layer")))
POSITIONS.register("learned_relative", Position(LearnedRelativePositions, reads=(*_OFFSET, *_BUCKETS)))
POSITIONS.register("alibi", Position(AlibiPositions))
POSITIONS.register("rope", Position(RopePositions, reads=("rope_parameters", "rope_interleaved")))
