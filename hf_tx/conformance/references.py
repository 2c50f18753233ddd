# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Mechanisms written down as they are defined, one token after the other: what every other form must equal.

The reference of a mixer is `reference(module, hidden_states, is_causal=...) -> mixed`, for rows of one document each,
without padding and without a cache. It reads the weights of the module, so that gradients flow to them, and computes
with none of its code. *Shape:* both `(batch, length, hidden_size)`. For a mixer that is attention it is also called
with `position_embeddings`, the cosines and sines of `apply_rotary` or None, and `position_bias`, which is added to the
scores. *Shape:* `(1, heads, length, length)`, or None.

The reference of a cross mixer is `reference(module, hidden_states, source_states) -> mixed`; that of a norm or a
feed-forward layer `reference(module, hidden_states)`, for states of any shape.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from ..models.mixer import MIXERS
from ..models.positions import apply_rotary


def naive_recurrence(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    log_decay: torch.Tensor | None = None,
    beta: torch.Tensor | None = None,
    document: torch.Tensor | None = None,
    state: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The definition of `recurrence`, one token after the other. For shapes see there."""
    batch, heads, length, key_size = query.shape
    if state is None:
        state = query.new_zeros(batch, heads, key_size, value.shape[-1])
    outputs = []
    for t in range(length):
        if document is not None:
            before = document[:, t - 1] if t else torch.zeros_like(document[:, 0])
            state = state * (document[:, t] == before)[:, None, None, None]
        if log_decay is not None:
            state = state * log_decay[:, :, t, :, None].exp()
        update = value[:, :, t]
        if beta is not None:
            update = beta[:, :, t] * (update - torch.einsum("bhkv,bhk->bhv", state, key[:, :, t]))
        state = state + key[:, :, t, :, None] * update[:, :, None]
        outputs.append(torch.einsum("bhkv,bhk->bhv", state, query[:, :, t]))
    return torch.stack(outputs, dim=2), state


# ----------------------------------------------------------------------------------------------------------- attention
def _linear(states: Tensor, projection: Any) -> Tensor:
    return functional.linear(states, projection.weight, projection.bias)


def _softmax_attention(
    module: Any,
    hidden_states: Tensor,
    source_states: Tensor,
    visible: Callable[[int, int], bool],
    position_embeddings: tuple[Tensor, Tensor] | None = None,
    position_bias: Tensor | None = None,
) -> Tensor:
    """Attention in which the query at `i` sees the key at `j` where `visible(i, j)`; one head after the other."""
    size, groups = module.head_dim, module.num_key_value_groups
    query, key = _linear(hidden_states, module.q_proj), _linear(source_states, module.k_proj)
    if module.q_norm is not None and module.norms_heads_together:
        query, key = module.q_norm(query), module.k_norm(key)
    query, key = query.unflatten(-1, (-1, size)), key.unflatten(-1, (-1, size))
    value = _linear(source_states, module.v_proj).unflatten(-1, (-1, size))
    if module.q_norm is not None and not module.norms_heads_together:
        query, key = module.q_norm(query), module.k_norm(key)
    if position_embeddings is not None:
        rotated = (
            apply_rotary(states.transpose(1, 2), *position_embeddings, module.rope_interleaved)
            for states in (query, key)
        )
        query, key = (states.transpose(1, 2) for states in rotated)
    seen = torch.tensor([[visible(i, j) for j in range(key.shape[1])] for i in range(query.shape[1])])
    heads = []
    for head in range(query.shape[2]):
        scores = query[:, :, head] @ key[:, :, head // groups].transpose(1, 2) * module.scaling
        if module.softcap is not None:
            scores = module.softcap * torch.tanh(scores / module.softcap)
        if position_bias is not None:
            scores = scores + position_bias[:, head]
        scores = scores.masked_fill(~seen, float("-inf"))
        highest = scores.detach().amax(-1, keepdim=True)
        weights = torch.exp(scores - highest)
        total = weights.sum(-1, keepdim=True)
        if module.has_sinks:
            total = total + torch.exp(module.sinks[head] - highest)
        heads.append(weights / total @ value[:, :, head // groups])
    return _linear(torch.cat(heads, dim=-1), module.o_proj)


def _attention(visible: Callable[[Any, Any, bool], Callable[[int, int], bool]]) -> Callable[..., Tensor]:
    """Return the reference of a mixer whose rule is `visible(config of the layer, options, is_causal)`."""

    def reference(module: Any, hidden_states: Tensor, is_causal: bool, **positions: Any) -> Tensor:
        config = module.config.layer_config(module.layer_idx)
        rule = visible(config, MIXERS.options(config, config.mixers[module.layer_idx]), is_causal)

        def sees(i: int, j: int) -> bool:
            return rule(i, j) and not (is_causal and j > i)

        return _softmax_attention(module, hidden_states, hidden_states, sees, **positions)

    return reference


def _full(config: Any, options: Any, is_causal: bool) -> Callable[[int, int], bool]:
    return lambda i, j: True


def _sliding(config: Any, options: Any, is_causal: bool) -> Callable[[int, int], bool]:
    window = config.sliding_window
    return lambda i, j: j > i - window if is_causal else abs(i - j) <= window


def _chunked(config: Any, options: Any, is_causal: bool) -> Callable[[int, int], bool]:
    return lambda i, j: i // options.chunk_size == j // options.chunk_size


def _dilated(config: Any, options: Any, is_causal: bool) -> Callable[[int, int], bool]:
    reach = config.sliding_window - (1 if is_causal else 0)
    return lambda i, j: abs(i - j) in [options.dilation * n for n in range(reach + 1)]


def _global_local(config: Any, options: Any, is_causal: bool) -> Callable[[int, int], bool]:
    near = _sliding(config, options, is_causal)

    def draws(block: int) -> set[int]:
        """The earlier blocks that a block has drawn, by the hash of the mixer."""
        drawn = set()
        for draw in range(1, options.random_blocks + 1 if block else 1):
            mixed = (block * 2654435761 + draw * 2246822519 + options.seed * 3266489917) % 2**31
            mixed = ((mixed ^ mixed // 2**15) * 668265263) % 2**31
            drawn.add((mixed ^ mixed // 2**13) % block)
        return drawn

    def rule(i: int, j: int) -> bool:
        block, other = i // options.block_size, j // options.block_size
        drawn = other in draws(block) or (not is_causal and block in draws(other))
        return near(i, j) or drawn or i in options.global_positions or j in options.global_positions

    return rule


# ------------------------------------------------------------------------------------------------------------- linear
def _by_heads(module: Any, hidden_states: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, and the keys and values that they share. *Shape:* each `(batch, heads, length, head_dim)`."""
    query, key, value = (
        _linear(hidden_states, projection).unflatten(-1, (-1, module.head_dim)).transpose(1, 2)
        for projection in (module.q_proj, module.k_proj, module.v_proj)
    )
    groups = query.shape[1] // key.shape[1]
    return query, *(torch.stack([states] * groups, dim=2).flatten(1, 2) for states in (key, value))  # type: ignore


def _join_heads(module: Any, outputs: Tensor) -> Tensor:
    return _linear(outputs.transpose(1, 2).flatten(2), module.o_proj)


def _rms(module: Any, outputs: Tensor) -> Tensor:
    norm = module.out_norm
    return outputs / torch.sqrt((outputs**2).mean(-1, keepdim=True) + norm.eps) * norm.weight


def _output_gate(module: Any, hidden_states: Tensor) -> Tensor:
    gate = hidden_states @ module.g_proj.weight.T
    return (gate * torch.sigmoid(gate)).unflatten(-1, (-1, module.head_dim)).transpose(1, 2)


def linear(module: Any, hidden_states: Tensor, is_causal: bool) -> Tensor:
    """`o_i = sum_j phi(q_i) . phi(k_j) v_j / sum_j phi(q_i) . phi(k_j)`, phi(x) = elu(x) + 1."""
    query, key, value = _by_heads(module, hidden_states)
    query, key = (torch.where(states > 0, states + 1, states.clamp(max=0).exp()) for states in (query, key))
    weights = query @ key.transpose(2, 3)
    if is_causal:
        weights = weights.tril()
    return _join_heads(module, weights @ value / (weights.sum(-1, keepdim=True) + 1e-6))


def retention(module: Any, hidden_states: Tensor, is_causal: bool) -> Tensor:
    """`o_i = sum_j g^|i - j| q_i . k_j v_j`, `g = 1 - 2^(-5 - h)`, then the norm of every head and the gate."""
    query, key, value = _by_heads(module, hidden_states)
    place = torch.arange(hidden_states.shape[1])
    factor = 1 - 2.0 ** (-5 - torch.arange(query.shape[1]).double())
    fades = (factor[:, None, None] ** (place[:, None] - place).abs()).to(query.dtype)
    weights = query @ key.transpose(2, 3) / module.head_dim**0.5 * fades
    outputs = (weights.tril() if is_causal else weights) @ value
    return _join_heads(module, _rms(module, outputs) * _output_gate(module, hidden_states))


def _both_ways(inputs: tuple[Tensor, ...], is_causal: bool, counts_itself: bool) -> Tensor:
    """The recurrence forwards, and for bidirectional layers backwards as well; a sum counts each position once."""
    outputs, _ = naive_recurrence(*inputs)
    if is_causal:
        return outputs
    backwards, _ = naive_recurrence(*(None if part is None else part.flip(2) for part in inputs))  # type: ignore
    query, key, value = inputs[:3]
    itself = (query * key).sum(-1, keepdim=True) * value if counts_itself else 0.0
    return outputs + backwards.flip(2) - itself


def gated_linear(module: Any, hidden_states: Tensor, is_causal: bool) -> Tensor:
    """`S_t = diag(a_t) S_{t-1} + k_t v_t^T`, `a_t = sigmoid(W_2 W_1 x_t + b) ^ (1 / gate_divisor)`."""
    query, key, value = _by_heads(module, hidden_states)
    low = hidden_states @ module.decay_down_proj.weight.T
    decay = _linear(low, module.decay_up_proj).unflatten(-1, (-1, module.head_dim)).transpose(1, 2)
    log_decay = -torch.log1p(torch.exp(-decay)) / module.options.gate_divisor
    inputs = (query / module.head_dim**0.5, key, value, log_decay)
    outputs = _both_ways(inputs, is_causal, counts_itself=True)
    return _join_heads(module, _rms(module, outputs) * _output_gate(module, hidden_states))


def _delta_inputs(module: Any, hidden_states: Tensor) -> tuple[Tensor, ...]:
    query, key, value = _by_heads(module, hidden_states)
    query, key = (states * torch.sigmoid(states) for states in (query, key))
    query, key = (states / (states**2).sum(-1, keepdim=True).sqrt().clamp(min=1e-6) for states in (query, key))
    beta = torch.sigmoid(hidden_states @ module.beta_proj.weight.T).transpose(1, 2)[..., None]
    return query / module.head_dim**0.5, key, value, beta


def delta(module: Any, hidden_states: Tensor, is_causal: bool) -> Tensor:
    """`S_t = S_{t-1} + k_t (beta_t (v_t - S_{t-1}^T k_t))^T`, then the norm of every head."""
    query, key, value, beta = _delta_inputs(module, hidden_states)
    inputs: Any = (query, key, value, None, beta)
    return _join_heads(module, _rms(module, _both_ways(inputs, is_causal, counts_itself=False)))


def gated_delta(module: Any, hidden_states: Tensor, is_causal: bool) -> Tensor:
    """The delta rule on a state that decays by `exp(-rate softplus(w x_t + step))`, then norm and gate."""
    query, key, value, beta = _delta_inputs(module, hidden_states)
    step = (hidden_states @ module.decay_proj.weight.T + module.step_bias).transpose(1, 2)[..., None]
    log_decay = -torch.exp(module.rate_bias)[:, None, None] * torch.log1p(torch.exp(step))
    outputs = _both_ways((query, key, value, log_decay, beta), is_causal, counts_itself=False)
    return _join_heads(module, _rms(module, outputs) * _output_gate(module, hidden_states))


# ---------------------------------------------------------------------------------------------------------- recurrent
def _recurrent(
    step: Callable[[Any, Tensor, Tensor, tuple[Tensor, Tensor]], tuple[Tensor, Tensor]],
) -> Callable[..., Tensor]:
    """Return the reference of a network whose state after a token is `step(module, W x + b, U h + c, state)`."""

    def run(module: Any, hidden_states: Tensor, suffix: str) -> Tensor:
        weights = [getattr(module, f"{name}_l0{suffix}") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
        hidden = memory = hidden_states.new_zeros(len(hidden_states), weights[1].shape[1])
        outputs = []
        for inputs in hidden_states.unbind(1):
            mixed, recurrent = inputs @ weights[0].T + weights[2], hidden @ weights[1].T + weights[3]
            hidden, memory = step(module, mixed, recurrent, (hidden, memory))
            outputs.append(hidden)
        return torch.stack(outputs, dim=1)

    def reference(module: Any, hidden_states: Tensor, is_causal: bool) -> Tensor:
        forwards = run(module, hidden_states, "")
        if is_causal:
            return forwards
        return torch.cat((forwards, run(module, hidden_states.flip(1), "_reverse").flip(1)), dim=-1)

    return reference


def _rnn_step(module: Any, mixed: Tensor, recurrent: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    act = {"tanh": torch.tanh, "relu": torch.relu}[module.options.nonlinearity]
    return act(mixed + recurrent), state[1]


def _lstm_step(module: Any, mixed: Tensor, recurrent: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    enter, forget, new, leave = (mixed + recurrent).chunk(4, dim=-1)
    memory = torch.sigmoid(forget) * state[1] + torch.sigmoid(enter) * torch.tanh(new)
    return torch.sigmoid(leave) * torch.tanh(memory), memory


def _gru_step(module: Any, mixed: Tensor, recurrent: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    size = state[0].shape[-1]
    reset = torch.sigmoid(mixed[:, :size] + recurrent[:, :size])
    update = torch.sigmoid(mixed[:, size : 2 * size] + recurrent[:, size : 2 * size])
    new = torch.tanh(mixed[:, 2 * size :] + reset * recurrent[:, 2 * size :])
    return (1 - update) * new + update * state[0], state[1]


# -------------------------------------------------------------------------------------------------------------- cross
def cross_full(module: Any, hidden_states: Tensor, source_states: Tensor) -> Tensor:
    """Attention in which every query sees all of the source."""
    return _softmax_attention(module, hidden_states, source_states, lambda i, j: True)


def _cross(score: Callable[[Any, Tensor, Tensor], Tensor]) -> Callable[..., Tensor]:
    """Return the reference for one score of state `s` and source `h`: `tanh(C [sum_j softmax(score)_j h_j; s])`."""

    def reference(module: Any, hidden_states: Tensor, source_states: Tensor) -> Tensor:
        outputs = []
        for state in hidden_states.unbind(1):
            scores = torch.stack([score(module, state, source) for source in source_states.unbind(1)], dim=-1)
            context = (torch.softmax(scores, dim=-1)[..., None] * source_states).sum(1)
            outputs.append(torch.tanh(torch.cat((context, state), dim=-1) @ module.o_proj.weight.T))
        return torch.stack(outputs, dim=1)

    return reference


def _additive(module: Any, state: Tensor, source: Tensor) -> Tensor:
    summed = state @ module.q_proj.weight.T + source @ module.k_proj.weight.T
    return torch.tanh(summed) @ module.score_proj.weight[0]


def _multiplicative(module: Any, state: Tensor, source: Tensor) -> Tensor:
    return (state * (source @ module.k_proj.weight.T)).sum(-1)


# ------------------------------------------------------------------------------------- norms and feed-forward layers
def _scaled(module: Any, normed: Tensor) -> Tensor:
    normed = normed if module.weight is None else normed * module.weight
    return normed if module.bias is None else normed + module.bias


def layernorm(module: Any, hidden_states: Tensor) -> Tensor:
    """`(x - mean) / sqrt(variance + eps) * weight + bias`."""
    centred = hidden_states - hidden_states.mean(-1, keepdim=True)
    return _scaled(module, centred / torch.sqrt((centred**2).mean(-1, keepdim=True) + module.eps))


def rmsnorm(module: Any, hidden_states: Tensor) -> Tensor:
    """`x / sqrt(mean of the squares + eps) * weight`, or `* (1 + weight)`."""
    normed = hidden_states / torch.sqrt((hidden_states**2).mean(-1, keepdim=True) + module.eps)
    if module.weight is None:
        return normed
    return normed * (1 + module.weight if module.unit_offset else module.weight)


def dyt(module: Any, hidden_states: Tensor) -> Tensor:
    """`weight * tanh(alpha * x) + bias`."""
    grown = torch.exp(-2 * (module.alpha * hidden_states).abs())
    return _scaled(module, torch.sign(module.alpha * hidden_states) * (1 - grown) / (1 + grown))


def mlp(module: Any, hidden_states: Tensor) -> Tensor:
    """`W_2 act(W_1 x + b_1) + b_2`."""
    return _linear(module.act_fn(_linear(hidden_states, module.up_proj)), module.down_proj)


def glu(module: Any, hidden_states: Tensor) -> Tensor:
    """`W_3 (act(W_1 x) * W_2 x)`."""
    gate = module.act_fn(_linear(hidden_states, module.gate_proj))
    return _linear(gate * _linear(hidden_states, module.up_proj), module.down_proj)


# ------------------------------------------------------------------------------------------------------------- tables
@dataclass(frozen=True)
class Reference:
    """The reference of a part, and with which settings the part is checked.

    Attributes:
        function: the reference.
        settings: each a dict of config fields, in which `options` are the options of the part. All checks use the
            first, those that compare with the reference use all.
    """

    function: Callable[..., Tensor]
    settings: tuple[dict[str, Any], ...] = ({},)


_OF_SCORES = dict(attention_sinks=True, attn_logit_softcapping=4.0, attention_bias=True, qk_norm=True)
_BLOCKS = dict(global_positions=[1, 4], random_blocks=2, block_size=2, seed=3)

MIXER_REFERENCES: dict[str, Reference] = {
    "full": Reference(
        _attention(_full),
        ({}, _OF_SCORES, dict(rope_interleaved=True, attention_scale=0.7, qk_norm=True, qk_norm_scope="all")),
    ),
    "sliding": Reference(_attention(_sliding), (dict(sliding_window=4), dict(sliding_window=1, **_OF_SCORES))),
    "chunked": Reference(
        _attention(_chunked), (dict(options=dict(chunk_size=4)), dict(options=dict(chunk_size=3), **_OF_SCORES))
    ),
    "dilated": Reference(
        _attention(_dilated),
        (dict(sliding_window=3, options=dict(dilation=2)), dict(sliding_window=2, options=dict(dilation=3))),
    ),
    "global_local": Reference(
        _attention(_global_local),
        (dict(sliding_window=3, options=dict(global_positions=[0, 2])), dict(sliding_window=2, options=_BLOCKS)),
    ),
    "linear": Reference(linear),
    "retention": Reference(retention),
    "gated_linear": Reference(gated_linear, ({}, dict(options=dict(gate_rank=3, gate_divisor=2.0)))),
    "delta": Reference(delta),
    "gated_delta": Reference(gated_delta),
    "rnn": Reference(_recurrent(_rnn_step), ({}, dict(options=dict(nonlinearity="relu")))),
    "lstm": Reference(_recurrent(_lstm_step)),
    "gru": Reference(_recurrent(_gru_step)),
}

CROSS_REFERENCES: dict[str, Callable[..., Tensor]] = {
    "full": cross_full,
    "additive": _cross(_additive),
    "multiplicative": _cross(_multiplicative),
}

_PLAIN = dict(norm_affine=False, norm_bias=False)
NORM_REFERENCES: dict[str, Reference] = {
    "layernorm": Reference(layernorm, ({}, dict(norm_bias=False), _PLAIN)),
    "rmsnorm": Reference(rmsnorm, ({}, dict(norm_unit_offset=True), _PLAIN)),
    "dyt": Reference(dyt, ({}, dict(norm_bias=False, options=dict(alpha=1.5)), _PLAIN)),
    "none": Reference(lambda module, hidden_states: hidden_states),
}

FEED_FORWARD_REFERENCES: dict[str, Reference] = {
    "mlp": Reference(mlp, ({}, dict(mlp_bias=True, hidden_act="relu"))),
    "glu": Reference(glu, ({}, dict(mlp_bias=True, hidden_act="silu"))),
    "none": Reference(lambda module, hidden_states: hidden_states),
}
