# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Causal language modelling: predict every token from those before it."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from transformers import AutoModelForCausalLM

from ..models.losses import IGNORE
from .objective import TokenObjective
from .packing import close_documents, cut_documents, iter_packed_for_causal_lm


@dataclass(eq=False, kw_only=True)
class CausalLM(TokenObjective):
    """Predict every token from those before it. See [`TokenObjective`].

    `labels` are the tokens themselves, not shifted (the model shifts them), with -100 for padding and for the first
    token of a text, which nothing comes before. The end of a document is learnt: `<eos>` stands after its last token,
    and is a label even where it is the padding token too.

    Args:
        packed: rows of `max_length` tokens hold several documents, isolated by `position_ids` that begin again at 0;
            see `pack_for_causal_lm`. Otherwise a row is one piece of a document, and batches are padded.
    """

    packed: bool = True

    name = "causal-lm"
    predicts = "the next token"
    families = ("decoder",)
    auto_class = AutoModelForCausalLM
    pipeline_tag = "text-generation"
    token_ids = ("pad_token_id", "bos_token_id", "eos_token_id")
    text_task = "causal-lm"
    needs = ("pad_token", "eos_token")

    def features(self) -> dict[str, Any]:
        """Return the columns of the rows and their types."""
        features = super().features()
        of_tokens = features["input_ids"]
        return {**features, "position_ids": of_tokens, "labels": of_tokens} if self.packed else features

    def rows(self, documents: Iterable[Iterable[int]]) -> Iterator[dict[str, list[int]]]:
        """Return packed rows with labels, or a row a piece."""
        bos, eos = self.tokenizer.bos_token_id, self.tokenizer.eos_token_id
        if self.packed:
            return iter_packed_for_causal_lm(
                documents,
                self.max_length,
                bos_token_id=bos,
                eos_token_id=eos,
                pad_token_id=self.tokenizer.pad_token_id,
            )
        return open_rows(documents, self.max_length, bos, eos)

    def example(self, row: dict[str, list[int]], rng: np.random.Generator) -> dict[str, list[int]]:
        """Return the row with its tokens as labels."""
        positions = row.get("position_ids", range(len(row["input_ids"])))
        places = zip(row["input_ids"], positions, strict=True)
        return {**row, "labels": [token if position else IGNORE for token, position in places]}


def open_rows(
    documents: Iterable[Iterable[int]], max_length: int, bos: int | None, eos: int
) -> Iterator[dict[str, list[int]]]:
    """Return a row for each piece of the documents: `<bos>` before every piece, `<eos>` after the last. A piece of one
    token, which nothing can be learnt from, is left out."""
    pieces = cut_documents(close_documents(documents, eos), max_length, begin=[] if bos is None else [bos])
    return ({"input_ids": piece} for piece in pieces if len(piece) > 1)
