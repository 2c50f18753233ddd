# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
import functools
from collections.abc import Callable
from pathlib import Path

import pytest
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from hf_tx.tokenization import train_tokenizer

# ASCII only, so that every other character is new to the tokenizers.
SENTENCES = [
    "The river runs past the old mill, and the miller runs past the river.\n",
    "Who said hello to the other brother? Nobody said hello; everybody said goodbye.\n",
    "In 1984, 27 of 365 days were rainy. The rest, they say, was sunny!\n",
    "    indented = lines(of, code)  # and\ttabs\n",
    "Weather and water, whether or not: the farther the father, the rather the lather.\n",
]


@pytest.fixture(scope="session")
def texts() -> list[str]:
    return SENTENCES * 8


@pytest.fixture(scope="session")
def trained(
    texts: list[str], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str, str], tuple[PreTrainedTokenizerFast, PreTrainedTokenizerFast, Path]]:
    """Gives for an algorithm and a family: the tokenizer, what AutoTokenizer loads, and the folder."""

    @functools.cache
    def train(algorithm: str, family: str) -> tuple[PreTrainedTokenizerFast, PreTrainedTokenizerFast, Path]:
        folder = tmp_path_factory.mktemp(f"{algorithm}-{family}")
        tokenizer = train_tokenizer(
            texts, algorithm=algorithm, family=family, vocab_size=500, model_max_length=64, show_progress=False
        )
        tokenizer.save_pretrained(folder)
        return tokenizer, AutoTokenizer.from_pretrained(folder), folder

    return train
