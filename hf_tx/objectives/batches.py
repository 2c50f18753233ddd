# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Rows of different lengths as one batch."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase

from ..models.losses import IGNORE

Row = Mapping[str, Any]
Batch = dict[str, torch.Tensor]


def pad_rows(rows: Sequence[Mapping[str, list[int]]], tokenizer: PreTrainedTokenizerBase, side: str = "") -> Batch:
    """Pad rows to the longest. The labels of padding are -100, whatever token it is.

    Rows without `position_ids` get an `attention_mask`. In packed rows, padding is a document of its own, as in those
    of `pack_documents`.

    Args:
        rows: `input_ids` and, if they have them, `labels` (all rows) and `position_ids` (where a row lacks them beside
            others that do not, it is one document).
        tokenizer: gives the token to pad with.
        side: `left` or `right`. Default: that of the tokenizer.

    Returns:
        *Shape:* `(rows, longest)` each, int64.
    """
    padded = {name: [row[name] for row in rows] for name in ("input_ids", "labels") if name in rows[0]}
    if any("position_ids" in row for row in rows):
        padded["position_ids"] = [row.get("position_ids") or list(range(len(row["input_ids"]))) for row in rows]
    else:
        padded["attention_mask"] = [[1] * len(row["input_ids"]) for row in rows]
    fill = {"input_ids": tokenizer.pad_token_id, "labels": IGNORE, "attention_mask": 0}
    side = side or tokenizer.padding_side
    batch = {}
    for name, lists in padded.items():
        length = max(map(len, lists))
        added = [length - len(values) for values in lists]
        padding = [list(range(size)) if name == "position_ids" else [fill[name]] * size for size in added]
        pairs = zip(lists, padding, strict=True)
        batch[name] = torch.tensor([more + values if side == "left" else values + more for values, more in pairs])
    return batch


def pad_pairs(rows: Sequence[Mapping[str, list[int]]], tokenizer: PreTrainedTokenizerBase) -> Batch:
    """Pad sources (`input_ids`) on the side of the tokenizer, and targets (`labels`) on the right: the decoder begins
    with its start token, whatever the side. *Shape:* `(rows, longest)` each, int64."""
    sources = pad_rows([{"input_ids": row["input_ids"]} for row in rows], tokenizer)
    targets = pad_rows([{"input_ids": row["labels"], "labels": row["labels"]} for row in rows], tokenizer, "right")
    return {**sources, "labels": targets["labels"]}
