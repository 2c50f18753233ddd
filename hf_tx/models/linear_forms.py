# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Recurrences whose state is a matrix, computed in chunks for training and step by step for decoding.

All of them are

    S_t = diag(a_t) S_{t-1} + k_t u_t^T,        o_t = S_t^T q_t,

with `u_t = v_t`, or, with the delta rule, `u_t = beta_t (v_t - (diag(a_t) S_{t-1})^T k_t)`. The decay `a_t` is given
by its logarithm, at most 0: none, one number per head, or one per feature of the key. A chunk is computed with
matrix products; the state is passed from chunk to chunk. Sums are taken in float32 whatever the dtype of the model.

Tokens with the same document number belong together: document 0 continues with the given state, every other begins
with an empty state. A padding token must have a key of 0 and a decay of 1 (logarithm 0), and does not change the
state.
"""

import itertools
from collections.abc import Iterable
from typing import Any

import torch


def recurrence(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    log_decay: torch.Tensor | None = None,
    beta: torch.Tensor | None = None,
    document: torch.Tensor | None = None,
    state: torch.Tensor | None = None,
    chunk_size: int = 64,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute the outputs of all positions, and the state after the last.

    Args:
        query: *Shape:* `(batch, heads, length, key_size)`, float32.
        key: *Shape:* `(batch, heads, length, key_size)`.
        value: *Shape:* `(batch, heads, length, value_size)`.
        log_decay: *Shape:* `(batch or 1, heads, length, 1 or key_size)`, at most 0; or None for no decay.
        beta: strength of the delta rule. *Shape:* `(batch, heads, length, 1)`; or None for plain sums.
        document: *Shape:* `(batch, length)`, int64; or None if all continue with the state.
        state: *Shape:* `(batch, heads, key_size, value_size)`; or None for an empty one.
        chunk_size: tokens of a chunk.

    Returns:
        *Shape:* `(batch, heads, length, value_size)` and `(batch, heads, key_size, value_size)`.

    Raises:
        ValueError: an export for any length; a decay a feature for the delta rule.
    """
    batch, heads, length, key_size = query.shape
    if torch.compiler.is_exporting() and not isinstance(length, int):
        raise ValueError(
            "the loop over chunks of a linear mixer can only be exported for one length: export with static shapes "
            "(dynamic=False), or a model whose mixers are attention."
        )
    if state is None:
        state = query.new_zeros(batch, heads, key_size, value.shape[-1])
    if length == 1:
        return _step(query, key, value, log_decay, beta, document, state)
    if log_decay is not None:
        # Below this nothing is left of a key after one token, and larger sums would cost digits.
        log_decay = log_decay.clamp(min=-50.0)
    by_feature = log_decay is not None and log_decay.shape[-1] > 1
    if by_feature and beta is not None:
        raise ValueError("the delta rule needs one decay per head, not one per feature.")
    size = min(16, chunk_size) if by_feature else chunk_size
    outputs = []
    carried = 0 if document is None else document.new_zeros(batch)

    # Split once: the backward pass of a slice would fill a tensor of the whole length for every chunk.
    def chunks(tensor: torch.Tensor | None) -> Iterable[Any]:
        return itertools.repeat(None) if tensor is None else tensor.split(size, dim=2)

    numbered = None if document is None else document[:, None]
    parts = zip(*map(chunks, (query, key, value, log_decay, beta, numbered)), strict=False)
    for q, k, v, decay, b, numbers in parts:
        steps = q.shape[2]
        decay = None if decay is None else decay.cumsum(2)
        seen = torch.ones(steps, steps, dtype=torch.bool, device=q.device).tril()
        enters = leaves = stays = None  # factors of the state: read by each token, left by each token, kept
        if numbers is not None:
            numbers = numbers[:, 0]
            seen = (seen & (numbers[:, :, None] == numbers[:, None, :]))[:, None]
            enters = (numbers == carried[:, None])[:, None, :, None].to(q.dtype)  # type: ignore[index]
            leaves = (numbers == numbers[:, -1:])[:, None, :, None].to(q.dtype)
            stays = (numbers[:, -1] == carried)[:, None, None, None].to(q.dtype)
            carried = numbers[:, -1]
        q_in, k_out = q, k
        if decay is not None:
            q_in, k_out = q * decay.exp(), k * (decay[:, :, -1:] - decay).exp()
        if enters is not None:
            q_in, k_out = q_in * enters, k_out * leaves

        scores = _scores(q, k, decay, seen)
        if b is not None:
            # The updates of a chunk depend on each other through a triangular system.
            k_in = k if decay is None else k * decay.exp()
            if enters is not None:
                k_in = k_in * enters
            strict = torch.ones(steps, steps, dtype=torch.bool, device=q.device).tril(-1)
            system = b * _scores(k, k, decay, seen & strict)
            v = torch.linalg.solve_triangular(system, b * (v - k_in @ state), upper=False, unitriangular=True)
        outputs.append(q_in @ state + scores @ v)
        if decay is not None:
            state = state * decay[:, :, -1, :, None].exp()
        if stays is not None:
            state = state * stays
        state = state + k_out.transpose(2, 3) @ v
    return torch.cat(outputs, dim=2), state


def _scores(query: torch.Tensor, key: torch.Tensor, decay: torch.Tensor | None, seen: torch.Tensor) -> torch.Tensor:
    """Return `q_i . (k_j * exp(decay_i - decay_j))` for the pairs that see each other, 0 for others. The difference is
    taken before the exponential, so that nothing overflows."""
    if decay is None:
        return (query @ key.transpose(2, 3)).masked_fill(~seen, 0.0)
    if decay.shape[-1] == 1:
        fades = (decay - decay.transpose(2, 3)).masked_fill(~seen, float("-inf")).exp()
        return (query @ key.transpose(2, 3)) * fades
    return _ScoresByFeature.apply(query, key, decay, seen)


class _ScoresByFeature(torch.autograd.Function):
    """`_scores` for one decay a feature. There is a number for every pair and feature, which the backward pass
    computes again rather than keep; checkpointing would do the same, but not inside of `torch.func.grad`."""

    generate_vmap_rule = True

    @staticmethod
    def forward(query: torch.Tensor, key: torch.Tensor, decay: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
        return (query[:, :, :, None] * _fades(decay, seen) * key[:, :, None]).sum(-1)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:  # type: ignore[override]
        query, key, decay, seen = ctx.saved_tensors
        weights = grad[..., None] * _fades(decay, seen)
        grad_query, grad_key = (weights * key[:, :, None]).sum(3), (weights * query[:, :, :, None]).sum(2)
        # A pair fades by exp(decay_i - decay_j), so a decay moves the scores as the logarithm of its factor does.
        return grad_query, grad_key, (query * grad_query - key * grad_key).sum_to_size(decay.shape), None


def _fades(decay: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
    fades = decay[:, :, :, None] - decay[:, :, None]
    return fades.masked_fill(~seen[..., None], float("-inf")).exp()


def _step(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    log_decay: torch.Tensor | None,
    beta: torch.Tensor | None,
    document: torch.Tensor | None,
    state: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    if document is not None:
        state = state * (document == 0)[:, None, :, None].to(state.dtype)
    if log_decay is not None:
        state = state * log_decay.transpose(2, 3).exp()
    if beta is not None:
        value = beta * (value - key @ state)
    state = state + key.transpose(2, 3) * value
    return query @ state, state
