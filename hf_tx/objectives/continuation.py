# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Prefix to continuation: an encoder-decoder reads a piece of a text and writes what comes next."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from ..evaluation.language_models import continuation_windows
from .objective import SourceObjective
from .packing import close_documents
from .texts import start_of


@dataclass(eq=False, kw_only=True)
class Continuation(SourceObjective):
    """Read a piece of a text, and write the next, each half of `max_length`: prefix language modelling with an
    encoder. See [`SourceObjective`] and `continuation_pairs`.

    `labels` are the next tokens, with `<eos>` after the end of a document. Nothing is drawn at random.

    Args:
        closes: whether the end of a document is learnt.
    """

    closes: bool = True

    name = "continuation"
    predicts = "the continuation of a prefix"
    text_task = "continuation"

    def features(self) -> dict[str, Any]:
        """Return the columns of the rows and their types."""
        return dict.fromkeys(("input_ids", "labels"), super().features()["input_ids"])

    def rows(self, documents: Iterable[Iterable[int]]) -> Iterator[dict[str, list[int]]]:
        """Return pairs of source and target."""
        half = self.max_length // 2
        special = self.tokenizer.eos_token_id
        _check_lengths(half, half)
        return (
            pair for document in documents for pair in _iter_pairs(document, half, half, special, closes=self.closes)
        )

    def prompts(self, texts: Iterable[str]) -> list[str]:
        """Return a prefix as long as those in training."""
        return [start_of(self.tokenizer, text, self.max_length // 2 - 1) for text in islice(texts, 1)]

    def example(self, row: dict[str, list[int]], rng: np.random.Generator) -> dict[str, list[int]]:
        """Refuse the row: what comes next is not in it."""
        raise ValueError(f"{self.name} needs rows with labels: make them of texts with prepare().")


def continuation_pairs(
    token_ids: Sequence[int], *, source_length: int, target_length: int, eos_token_id: int, closes: bool = True
) -> list[dict[str, list[int]]]:
    """Cut a document into continuations, each with the tokens before it.

    Every token stands in exactly one target. The first target has an empty prefix.

    Args:
        token_ids: the document, without special tokens.
        source_length: the most tokens of a source, `eos_token_id` included.
        target_length: the most tokens of a target.
        eos_token_id: ends every source.
        closes: whether the end of the document is learnt, by `eos_token_id` after its last token.

    Returns:
        Pairs of `input_ids` (the source) and `labels` (the target).

    Raises:
        ValueError: a length has no room for a token.
    """
    _check_lengths(source_length, target_length)
    return list(_iter_pairs(token_ids, source_length, target_length, eos_token_id, closes))


def _check_lengths(source_length: int, target_length: int) -> None:
    if source_length < 2 or target_length < 1:
        raise ValueError(
            f"source_length = {source_length}, target_length = {target_length}: they must be at least 2 and 1."
        )


def _iter_pairs(
    token_ids: Iterable[int], source_length: int, target_length: int, eos_token_id: int, closes: bool
) -> Iterator[dict[str, list[int]]]:
    lengths = {"source_length": source_length, "target_length": target_length}
    for tokens in close_documents([token_ids], eos_token_id) if closes else [token_ids]:
        for source, target in continuation_windows(tokens, **lengths, eos_token_id=eos_token_id):
            yield {"input_ids": source, "labels": target}
