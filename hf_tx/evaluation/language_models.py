# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Scoring texts with a model. Each token is scored exactly once; means are over tokens, never over batches."""

import inspect
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any

import torch
from torch import nn
from tqdm.auto import tqdm  # type: ignore[import-untyped]
from transformers import PreTrainedModel

from ..models.losses import IGNORE
from .scores import Score


@contextmanager
def evaluating(model: PreTrainedModel) -> Iterator[None]:
    """Put a model into evaluation mode, without gradients, and leave it as it was."""
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        model.train(was_training)


def score_rows(
    model: PreTrainedModel, inputs: Mapping[str, Any], targets: torch.Tensor, unknown: int | None = None
) -> list[Score]:
    """Score the targets of a batch, row by row, with a model that is in evaluation mode.

    Args:
        model: a model whose outputs have `logits`.
        inputs: the inputs of the model.
        targets: what each of its logits should have predicted. *Shape:* `(batch, length)`, int64, -100 for none.
        unknown: the token of what the tokenizer does not know: to predict it says nothing of the text, and is not
            correct.

    Returns:
        The score of each row.

    Raises:
        ValueError: the model gives NaN.
    """
    inputs = {name: value.to(model.device) for name, value in inputs.items()}
    if "use_cache" in inspect.signature(model.forward).parameters:
        # Nothing is decoded: a cache would hold keys and values of all layers for nothing.
        inputs["use_cache"] = False
    scores = []
    for logits, wanted in zip(model(**inputs).logits, targets.to(model.device), strict=True):
        # In full precision row by row: logits of a whole batch are large.
        logits, wanted = logits[wanted != IGNORE].float(), wanted[wanted != IGNORE]
        # Summed in double precision, which not all devices have: a text has many tokens.
        nats = nn.functional.cross_entropy(logits, wanted, reduction="none").cpu().double().sum().item()
        if math.isnan(nats):
            raise ValueError(
                f"{type(model).__name__} returns NaN: its weights are broken, or too large for their dtype; load it "
                "with dtype='float32'"
            )
        correct = logits.argmax(-1) == wanted
        correct = correct if unknown is None else correct & (wanted != unknown)
        scores.append(Score(nats, wanted.numel(), int(correct.sum())))
    return scores


def score_targets(
    model: PreTrainedModel,
    batches: Iterable[tuple[Mapping[str, Any], torch.Tensor]],
    *,
    description: str | None = None,
) -> Score:
    """Score the targets that a model predicts. The model is put into evaluation mode for it.

    Args:
        model: a model whose outputs have `logits`.
        batches: the inputs of the model, and the target of each of its logits. Targets: *Shape:* `(batch, length)`,
            int64, -100 for none. They are aligned with the logits: for a causal model they are already shifted.
        description: the label of a progress bar; None for no bar.

    Returns:
        The score of all targets.

    Raises:
        ValueError: if the model returns NaN.
    """
    with evaluating(model):
        bar = tqdm(batches, description, disable=description is None, leave=False)
        return Score.total(score for inputs, targets in bar for score in score_rows(model, inputs, targets))


def causal_windows(
    token_ids: Sequence[int], *, context_length: int, stride: int, bos_token_id: int
) -> Iterator[tuple[list[int], list[int]]]:
    """Cut a text into windows for a causal model, so that each token is a target exactly once.

    A window starts `stride` tokens after the one before it. Tokens that were already scored are its context. The last
    window is not shorter, but has more context. Every window begins with `bos_token_id`, which is never a target, so
    the first token of the text is predicted from it alone.

    Args:
        token_ids: the text, without special tokens.
        context_length: tokens of a window, bos included.
        stride: number of tokens between two windows. With `context_length - 1` they do not overlap, which is the
            fastest, but the first tokens of a window have little context.
        bos_token_id: the first token of every window.

    Yields:
        The inputs of the model, and the target of each of them, -100 for none.

    Raises:
        ValueError: if the stride is below 1, or so large that tokens would be skipped.
    """
    free = context_length - 1
    if not 1 <= stride <= free:
        raise ValueError(
            f"stride = {stride}: must be at least 1 and at most context_length - 1 = {free}, or tokens would be "
            "skipped."
        )
    scored = 0
    while scored < len(token_ids):
        last = min(len(token_ids), scored + (stride if scored else free))
        first = max(0, last - free)
        window = list(token_ids[first:last])
        yield [bos_token_id, *window[:-1]], [IGNORE] * (scored - first) + window[scored - first :]
        scored = last


def continuation_windows(
    token_ids: Iterable[int], *, source_length: int, target_length: int, eos_token_id: int
) -> Iterator[tuple[list[int], list[int]]]:
    """Cut a text into continuations, each with the tokens before it, so that each token is a target exactly once.

    Args:
        token_ids: the text, without special tokens.
        source_length: the most tokens of a source, `eos_token_id` included.
        target_length: the most tokens of a target.
        eos_token_id: ends every source.

    Yields:
        The source, which is `eos_token_id` alone for the first target, and the target.
    """
    tokens = iter(token_ids)
    source: list[int] = []
    while target := list(islice(tokens, target_length)):
        yield [*source, eos_token_id], target
        source = [*source, *target][1 - source_length :]


def masked_windows(
    token_ids: Sequence[int],
    *,
    context_length: int,
    mask_token_id: int,
    begin: Sequence[int] = (),
    end: Sequence[int] = (),
) -> Iterator[tuple[list[int], list[int]]]:
    """Mask each token of a text alone, for pseudo-perplexity (Salazar et al., 2020,
    https://huggingface.co/papers/1910.14659).

    In a text that is longer than the context, the masked token is in the middle of its window, so that it has as much
    context as possible on both sides.

    Args:
        token_ids: the text, without special tokens.
        context_length: tokens of a window, special ones included.
        mask_token_id: replaces the token that is predicted.
        begin: special tokens before every window.
        end: special tokens after every window.

    Yields:
        The inputs of the model, and the target of each of them, -100 for none. There are as many as tokens.

    Raises:
        ValueError: if no token fits into a window.
    """
    free = context_length - len(begin) - len(end)
    if free < 1:
        raise ValueError(
            f"context_length = {context_length}: must be at least {len(begin) + len(end) + 1}, for "
            f"{len(begin) + len(end)} special tokens and one token of the text."
        )
    for position, token in enumerate(token_ids):
        first = max(0, min(position - free // 2, len(token_ids) - free))
        window = [*begin, *token_ids[first : first + free], *end]
        targets = [IGNORE] * len(window)
        at = len(begin) + position - first
        window[at], targets[at] = mask_token_id, token
        yield window, targets


def score_causal_lm(
    model: PreTrainedModel,
    token_ids: Sequence[int],
    *,
    context_length: int,
    bos_token_id: int,
    stride: int | None = None,
    batch_size: int = 8,
    description: str | None = None,
) -> Score:
    """Score a text with a causal model; see `causal_windows` for what each token is predicted from.

    Args:
        model: the model.
        token_ids: the text, without special tokens.
        context_length: tokens of a window, bos included.
        bos_token_id: the first token of every window, never scored.
        stride: number of tokens between two windows. Default: half a window.
        batch_size: number of windows per batch.
        description: the label of a progress bar; None for no bar.

    Returns:
        The score of all tokens.

    Raises:
        ValueError: if the stride is so large that tokens would be skipped.
    """
    stride = context_length // 2 if stride is None else stride
    windows = causal_windows(token_ids, context_length=context_length, stride=stride, bos_token_id=bos_token_id)

    def batches() -> Iterator[tuple[dict[str, torch.Tensor], torch.Tensor]]:
        while batch := list(islice(windows, batch_size)):
            inputs, targets = zip(*batch, strict=True)
            yield {"input_ids": torch.tensor(inputs)}, torch.tensor(targets)

    return score_targets(model, batches(), description=description)
