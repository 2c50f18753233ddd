# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Losses that transformers does not have. All of them sum over the targets and divide by `num_items_in_batch` if the
caller passes it, so that gradient accumulation equals one large batch."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from .values import may_look_at

IGNORE = -100
# Elements of logits that the chunked loss holds at a time.
_CHUNK_ELEMENTS = 2**25


def _reduce(total: torch.Tensor, count: Any, num_items_in_batch: torch.Tensor | int | None) -> torch.Tensor:
    items = count if num_items_in_batch is None else num_items_in_batch
    return total / (items.to(total.device) if torch.is_tensor(items) else items)


def chunked_cross_entropy(
    hidden_states: torch.Tensor,
    labels: torch.Tensor,
    head: Callable[[torch.Tensor], torch.Tensor],
    vocab_size: int,
    num_items_in_batch: torch.Tensor | int | None = None,
) -> torch.Tensor:
    """Cross-entropy of a language-model head that never holds the logits of all positions.

    Positions go through the head in chunks, whose logits are computed again in the backward pass; positions without a
    label never do. Loss and gradients equal those of the plain computation.

    Args:
        hidden_states: input of the head. *Shape:* `(..., hidden_size)`, floating point.
        labels: the target of each position, shifted already. *Shape:* `(...)`, int64, -100 for none.
        head: maps hidden states to logits.
        vocab_size: features of the logits; sets the size of a chunk.
        num_items_in_batch: divides the sum; default: the number of labels.

    Returns:
        The loss. *Shape:* `()`, float32.
    """
    hidden_states = hidden_states.reshape(-1, hidden_states.shape[-1])
    labels = labels.flatten().to(hidden_states.device)
    if may_look_at(labels):
        labelled = labels != IGNORE
        hidden_states, labels = hidden_states[labelled], labels[labelled]

    def chunk_loss(states: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(head(states).float(), targets, ignore_index=IGNORE, reduction="sum")

    size = max(1, _CHUNK_ELEMENTS // vocab_size)
    total = hidden_states.new_zeros((), dtype=torch.float32)
    for states, targets in zip(hidden_states.split(size), labels.split(size), strict=True):
        total = total + checkpoint(chunk_loss, states, targets, use_reentrant=False)
    return _reduce(total, (labels != IGNORE).sum(), num_items_in_batch)


def masked_cross_entropy(
    hidden_states: torch.Tensor,
    labels: torch.Tensor,
    head: Callable[[torch.Tensor], torch.Tensor],
    num_items_in_batch: torch.Tensor | int | None = None,
) -> torch.Tensor:
    """Cross-entropy that computes the head at the labelled positions only. Not for use under a compiler: the number of
    labels is a fact of the data.

    Args:
        hidden_states: input of the head. *Shape:* `(batch, length, hidden_size)`, floating point.
        labels: *Shape:* `(batch, length)`, int64, -100 for none.
        head: maps hidden states to logits.
        num_items_in_batch: divides the sum; default: the number of labels.

    Returns:
        The loss. *Shape:* `()`, float32.
    """
    labelled = labels.to(hidden_states.device) != IGNORE
    logits = head(hidden_states[labelled]).float()
    total = nn.functional.cross_entropy(logits, labels.to(logits.device)[labelled], reduction="sum")
    return _reduce(total, labelled.sum(), num_items_in_batch)


def classification_loss(
    logits: torch.Tensor,
    labels: torch.Tensor,
    problem_type: str | None,
    num_items_in_batch: torch.Tensor | int | None = None,
) -> torch.Tensor:
    """Loss of a sequence classifier.

    Args:
        logits: *Shape:* `(batch, num_labels)`, floating point.
        labels: class numbers, *Shape:* `(batch,)`, int64; or, for regression and several labels, *Shape:* `(batch,)`
            or `(batch, num_labels)`, floating point.
        problem_type: `regression` (mean squared error), `single_label_classification` (cross-entropy) or
            `multi_label_classification` (binary cross-entropy). None infers it: one output is a regression, integer
            labels are classes, others are several labels.
        num_items_in_batch: divides the sum; default: the number of labels.

    Returns:
        The loss. *Shape:* `()`, float32.

    Raises:
        ValueError: the labels do not have the shape that the problem asks for.
    """
    labels = labels.to(logits.device)
    if problem_type is None:
        integers = not labels.is_floating_point() and labels.dtype != torch.bool
        several = "single_label_classification" if integers else "multi_label_classification"
        problem_type = "regression" if logits.shape[-1] == 1 else several
    if problem_type == "single_label_classification":
        total = nn.functional.cross_entropy(logits.float(), labels.flatten(), ignore_index=IGNORE, reduction="sum")
        return _reduce(total, (labels != IGNORE).sum(), num_items_in_batch)
    if labels.shape != logits.shape and not (logits.shape[-1] == 1 and labels.shape == logits.shape[:-1]):
        raise ValueError(
            f"{problem_type} with num_labels = {logits.shape[-1]} needs labels of shape {tuple(logits.shape)}, not "
            f"{tuple(labels.shape)}."
        )
    measure = (
        nn.functional.mse_loss if problem_type == "regression" else nn.functional.binary_cross_entropy_with_logits
    )
    total = measure(logits.float(), labels.view_as(logits).float(), reduction="sum")
    return _reduce(total, labels.numel(), num_items_in_batch)
