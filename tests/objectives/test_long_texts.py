# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""The rows of one long text: neither they nor the text are in memory while they are made."""

import tracemalloc

import pytest
from datasets import Dataset
from objective_data import make_texts

from hf_tx.common import columns, pieces
from hf_tx.objectives import OBJECTIVES
from hf_tx.objectives import texts as objective_texts
from hf_tx.tokenization import train_tokenizer


@pytest.mark.parametrize(("name", "family"), [("causal-lm", "decoder"), ("masked-lm", "encoder")])
def test_rows_of_a_long_text_are_never_in_memory(name, family, monkeypatch):
    monkeypatch.setattr(pieces, "LONGEST_PIECE", 1 << 12)
    monkeypatch.setattr(columns, "LONGEST_PIECE", 1 << 12)
    monkeypatch.setattr(objective_texts, "_CALL", 1 << 14)
    text = " ".join(make_texts(200)) + " "
    tokenizer = train_tokenizer([text], family=family, vocab_size=400, show_progress=False)
    objective = OBJECTIVES[name](tokenizer, max_length=64)
    text *= 40_000 // len(text) + 1
    objective.prepare(Dataset.from_dict({"text": ["river"]}))  # imports
    peaks, num_tokens = [], []
    for times in (2, 4):
        dataset = Dataset.from_dict({"text": [text * times]})
        tracemalloc.start()
        try:
            rows = objective.prepare(dataset)
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
        num_tokens.append(sum(map(len, rows["input_ids"])))
    assert num_tokens[1] - num_tokens[0] > 8_000
    # Twice the length is what is longer.
    assert peaks[1] - peaks[0] < len(text)
