# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Texts and tokenizers for the tests of objectives."""

import functools
import random
from typing import Any

from transformers import PreTrainedTokenizerBase

from hf_tx.objectives import OBJECTIVES
from hf_tx.tokenization import train_tokenizer

_WORDS = ["river", "mill", "miller", "brother", "stone", "water", "under", "quietly", "remember", "forgotten", "bread"]


def make_texts(count: int = 40, seed: int = 0) -> list[str]:
    """Return texts of 1 to 8 sentences, no two alike."""
    draw = random.Random(seed)
    sentences = [" ".join(draw.choices(_WORDS, k=draw.randint(3, 9))) + draw.choice(".!?") for _ in range(count * 4)]
    return [f"{number} " + " ".join(draw.sample(sentences, draw.randint(1, 8))) for number in range(count)]


@functools.cache
def _tokenizer(family: str, algorithm: str) -> PreTrainedTokenizerBase:
    extra_ids = 30 if family == "encoder-decoder" else 0
    tokenizer = train_tokenizer(
        make_texts(), family=family, algorithm=algorithm, vocab_size=400, extra_ids=extra_ids, show_progress=False
    )
    if extra_ids:
        tokenizer.mask_token = "<extra_id_29>"  # for denoising
    return tokenizer


def make(name: str, max_length: int = 32, *, algorithm: str = "bpe", **options: Any) -> Any:
    """Return an objective with a tokenizer of its family. BPE gives the same tokenizer in every run."""
    objective = OBJECTIVES[name]
    return objective(_tokenizer(objective.families[0], algorithm), max_length, **options)


def real_tokens(row: dict[str, Any], name: str = "input_ids") -> list[int]:
    """Return a row of a batch without padding."""
    mask = row.get("attention_mask")
    return row[name].tolist() if mask is None else row[name][mask.bool()].tolist()
