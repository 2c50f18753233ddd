# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""The models once more, written to be read: one row of tokens, loops over heads and queries, no mask, no cache, no
batch, and nothing of hf_tx but the names of the weights and the positions as the conformance kit writes them down. A
query simply looks at the keys it may see."""

import math
from typing import Any

import torch
from torch import Tensor

from hf_tx.conformance.position_references import alibi_slopes, bucket, rotate, sinusoid

Weights = dict[str, Tensor]


def under(weights: Weights, prefix: str) -> Weights:
    """Return the weights below a prefix, without it."""
    return {name.removeprefix(prefix): weight for name, weight in weights.items() if name.startswith(prefix)}


def linear(x: Tensor, weights: Weights, name: str) -> Tensor:
    y = x @ weights[f"{name}.weight"].T
    return y + weights[f"{name}.bias"] if f"{name}.bias" in weights else y


def norm(x: Tensor, config: Any, weights: Weights, name: str) -> Tensor:
    weight = weights[f"{name}.weight"] if config.norm_affine else torch.ones(())
    if config.norm_type == "layernorm":
        centred = x - x.mean(-1, keepdim=True)
        y = centred / torch.sqrt((centred**2).mean(-1, keepdim=True) + config.norm_eps) * weight
        return y + weights[f"{name}.bias"] if f"{name}.bias" in weights else y
    if config.norm_type == "rmsnorm":
        scale = 1 + weight if config.norm_unit_offset else weight
        return x / torch.sqrt((x**2).mean(-1, keepdim=True) + config.norm_eps) * scale
    if config.norm_type == "dyt":
        return torch.tanh(weights[f"{name}.alpha"] * x) * weight + weights[f"{name}.bias"]
    raise NotImplementedError(f"write the reference of norm_type {config.norm_type!r}")


def activation(x: Tensor, name: str) -> Tensor:
    if name == "relu":
        return x.clamp(min=0)
    if name == "silu":
        return x / (1 + torch.exp(-x))
    if name == "gelu":
        return x * (1 + torch.erf(x / math.sqrt(2))) / 2
    if name == "gelu_new":
        return x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2
    raise NotImplementedError(f"write the reference of hidden_act {name!r}")


def feed_forward(x: Tensor, config: Any, weights: Weights) -> Tensor:
    if config.ffn_type == "mlp":
        return linear(activation(linear(x, weights, "up_proj"), config.hidden_act), weights, "down_proj")
    if config.ffn_type == "glu":
        gate = activation(linear(x, weights, "gate_proj"), config.hidden_act)
        return linear(gate * linear(x, weights, "up_proj"), weights, "down_proj")
    raise NotImplementedError(f"write the reference of ffn_type {config.ffn_type!r}")


def visible(query: int, length: int, causal: bool, window: int | None) -> list[int]:
    """The keys that a query sees."""
    first = 0
    last = query if causal else length - 1
    if window is not None:
        first = query - window + 1 if causal else query - window
        last = min(last, query + window)
    return list(range(max(first, 0), last + 1))


def position_bias(config: Any, weights: Weights, head: int, query: int, keys: list[int], causal: bool) -> Tensor:
    """What the positions add to the scores of one query."""
    if config.position_type == "alibi":
        slope = alibi_slopes(config.num_attention_heads)[head]
        return torch.tensor([-slope * abs(query - key) for key in keys])
    if config.position_type in ("relative", "learned_relative"):
        size = config.relative_attention_num_buckets, config.relative_attention_max_distance
        numbers = [bucket(key - query, causal, *size) for key in keys]
        return weights["relative_bias.weight"][numbers, head]
    return torch.zeros(len(keys))


def attention(
    x: Tensor, source: Tensor | None, config: Any, weights: Weights, positions: Weights, causal: bool, window: Any
) -> Tensor:
    """Attention of a row to itself, or, with a source, to that: then without positions, and every query sees all."""
    size, groups = config.head_dim, config.num_attention_heads // config.num_key_value_heads
    crosses = source is not None
    source = x if source is None else source
    queries, keys = linear(x, weights, "q_proj"), linear(source, weights, "k_proj")
    values = linear(source, weights, "v_proj").unflatten(-1, (-1, size))
    if config.qk_norm and config.qk_norm_scope == "all":
        queries, keys = norm(queries, config, weights, "q_norm"), norm(keys, config, weights, "k_norm")
    queries, keys = queries.unflatten(-1, (-1, size)), keys.unflatten(-1, (-1, size))
    if config.qk_norm and config.qk_norm_scope != "all":
        queries, keys = norm(queries, config, weights, "q_norm"), norm(keys, config, weights, "k_norm")
    if config.position_type == "rope" and not crosses:
        queries = torch.stack([rotate(config, query, i, len(queries)) for i, query in enumerate(queries)])
        keys = torch.stack([rotate(config, key, i, len(keys)) for i, key in enumerate(keys)])
    scale = size**-0.5 if config.attention_scale is None else config.attention_scale
    rows = []
    for i in range(len(x)):
        seen = list(range(len(source))) if crosses else visible(i, len(x), causal, window)
        heads = []
        for head in range(config.num_attention_heads):
            scores = keys[seen, head // groups] @ queries[i, head] * scale
            if config.attn_logit_softcapping is not None:
                scores = config.attn_logit_softcapping * torch.tanh(scores / config.attn_logit_softcapping)
            if not crosses:
                scores = scores + position_bias(config, positions, head, i, seen, causal)
            heads.append(torch.softmax(scores, dim=0) @ values[seen, head // groups])
        rows.append(torch.cat(heads))
    return linear(torch.stack(rows), weights, "o_proj")


def layer(x: Tensor, source: Tensor | None, idx: int, config: Any, stack_weights: Weights, causal: bool) -> Tensor:
    weights = under(stack_weights, f"layers.{idx}.")
    place, factor = config.norm_position, config.residual_multiplier
    window = {"full": None, "sliding": config.sliding_window}[config.mixers[idx]]
    own = f"_{idx}" if config.relative_attention_per_layer else ""
    positions = under(stack_weights, f"positions.{config.position_type}{own}.")

    def mix(y: Tensor) -> Tensor:
        return attention(y, None, config, under(weights, "mixer."), positions, causal, window)

    def cross(y: Tensor) -> Tensor:
        return attention(y, source, config, under(weights, "cross_mixer."), positions, False, None)

    def feed(y: Tensor) -> Tensor:
        return feed_forward(y, config, under(weights, "mlp."))

    def enter(y: Tensor, name: str) -> Tensor:
        if name == "mixer_norm" and not config.layer_config(idx).mixer_norm:
            return y
        return norm(y, config, weights, name)

    if config.parallel_residual:
        added = mix(enter(x, "mixer_norm"))
        if config.ffn_type != "none":
            own = "mixer_norm" if config.parallel_shared_norm else "mlp_norm"
            added = added + feed(norm(x, config, weights, own))
        return x + factor * added

    steps = [("mixer", mix)]
    if source is not None:
        steps.append(("cross", cross))
    if config.ffn_type != "none":
        steps.append(("mlp", feed))
    for name, step in steps:
        if place == "pre":
            x = x + factor * step(enter(x, f"{name}_norm"))
        elif place == "post":
            x = norm(x + factor * step(x), config, weights, f"{name}_norm")
        elif place == "residual_post":
            x = x + factor * norm(step(x), config, weights, f"{name}_post_norm")
        elif place == "sandwich":
            inner = step(norm(x, config, weights, f"{name}_norm"))
            x = x + factor * norm(inner, config, weights, f"{name}_post_norm")
        else:
            raise NotImplementedError(f"write the reference of norm_position {place!r}")
    return x


def stack(
    config: Any,
    weights: Weights,
    tokens: Tensor,
    causal: bool,
    source: Tensor | None = None,
    token_types: Tensor | None = None,
) -> Tensor:
    """Compute the states of one row.

    Args:
        config: config of the stack.
        weights: its weights by name.
        tokens: *Shape:* `(length,)`.
        causal: whether a query sees the keys before it only.
        source: states that the layers attend to as well. *Shape:* `(source_length, size)`.
        token_types: *Shape:* `(length,)`.

    Returns:
        *Shape:* `(length, output_size)`.
    """
    x = weights["embed_tokens.weight"][tokens]
    if config.embedding_scale is not None:
        x = x * config.embedding_scale
    if config.embedding_projection == "tokens":
        x = linear(x, weights, "embed_proj")
    if config.type_vocab_size:
        x = x + weights["embed_types.weight"][torch.zeros_like(tokens) if token_types is None else token_types]
    if config.position_type == "sinusoidal":
        first, kind = config.position_offset, config.sinusoidal_type
        x = x + torch.stack([sinusoid(first + i, x.shape[-1], kind) for i in range(len(x))])
    elif config.position_type in ("learned", "learned_relative"):
        x = x + weights[f"positions.{config.position_type}.embed_positions.weight"][config.position_offset :][: len(x)]
    elif config.position_type not in ("none", "relative", "alibi", "rope"):
        raise NotImplementedError(f"write the reference of position_type {config.position_type!r}")
    if config.embedding_norm:
        x = norm(x, config, weights, "embed_norm")
    if config.embedding_size not in (None, config.hidden_size) and config.embedding_projection == "sum":
        x = linear(x, weights, "embed_proj")
    for idx in range(config.num_hidden_layers):
        x = layer(x, source, idx, config, weights, causal)
    x = norm(x, config, weights, "norm") if config.final_norm else x
    return linear(x, weights, "output_proj") if config.output_projection else x


def logits(x: Tensor, config: Any, weights: Weights) -> Tensor:
    """The head of a language model that has no transform. `weights` are those of the whole model."""
    y = linear(x, weights, "lm_head")
    if config.logit_scale is not None:
        y = y * config.logit_scale
    if config.final_logit_softcapping is not None:
        y = config.final_logit_softcapping * torch.tanh(y / config.final_logit_softcapping)
    return y


def model(config: Any, weights: Weights, row: Tensor, source_row: Tensor | None = None, **inputs: Any) -> Tensor:
    """Compute the last states of a base model of any family for one row (of an encoder-decoder: the decoder's)."""
    if not config.is_encoder_decoder:
        return stack(config, weights, row, config.is_causal_family, **inputs)
    source = stack(config.encoder, under(weights, "encoder."), source_row, causal=False)
    return stack(config.decoder, under(weights, "decoder."), row, causal=True, source=source)
