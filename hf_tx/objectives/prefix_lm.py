# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Prefix language modelling: the beginning of a text is read from both sides, and the rest predicted from the left."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from transformers import AutoModelForCausalLM

from ..models.losses import IGNORE
from .batches import Batch, pad_rows
from .causal_lm import open_rows
from .objective import TokenObjective


@dataclass(eq=False, kw_only=True)
class PrefixLM(TokenObjective):
    """Read a prefix from both sides, and predict the rest (Raffel et al., 2020,
    https://huggingface.co/papers/1910.10683, section 3.2.1). See [`TokenObjective`].

    `labels` are the tokens after the prefix, not shifted, and -100 for the prefix and for padding. The prefix of a row
    is as long as its labels begin with -100; in rows without labels, all lengths that leave a prefix and a rest are
    drawn alike. So rows whose prompt has no labels are read as prompt and answer.

    Batches have an `attention_mask` of four dimensions, *Shape:* `(rows, 1, queries, keys)`, bool: a token sees the
    prefix and what is before it. It takes the place of the masks of all layers, windows included: it is for models of
    `full` attention, with backends that take such masks. A row is one piece of a document, padded on the right.

    To generate, let the model read the prompt with `is_causal=False`, and go on with the cache that this returns.
    """

    name = "prefix-lm"
    predicts = "the tokens after a prefix"
    families = ("decoder",)
    auto_class = AutoModelForCausalLM
    pipeline_tag = "text-generation"
    token_ids = ("pad_token_id", "bos_token_id", "eos_token_id")
    needs = ("pad_token", "eos_token")
    reads = ("input_ids", "labels")

    def rows(self, documents: Iterable[Iterable[int]]) -> Iterator[dict[str, list[int]]]:
        """Return a row a piece."""
        return open_rows(documents, self.max_length, self.tokenizer.bos_token_id, self.tokenizer.eos_token_id)

    def example(self, row: dict[str, list[int]], rng: np.random.Generator) -> dict[str, list[int]]:
        """Return the row with the tokens after a prefix as labels."""
        tokens = row["input_ids"]
        if len(tokens) < 2:
            raise ValueError(f"a row has {len(tokens)} token: a prefix and a rest need two at least.")
        prefix = int(rng.integers(1, len(tokens)))
        return {"input_ids": tokens, "labels": [IGNORE] * prefix + tokens[prefix:]}

    def collate(self, examples: list[dict[str, list[int]]]) -> Batch:
        """Pad rows on the right, and say which tokens see which."""
        batch = pad_rows(examples, self.tokenizer, "right")
        key = torch.arange(batch["labels"].shape[1])
        in_prefix = (batch["labels"] == IGNORE).long().cumprod(1).bool() & batch["attention_mask"].bool()
        mask = (key <= key[:, None]) | in_prefix[:, None, :]
        return {**batch, "attention_mask": mask[:, None]}
