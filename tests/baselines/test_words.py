# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Words say what a text is about, and rare ones say more than frequent ones."""

import sys

import pytest

from hf_tx.baselines import classify_by_words


def test_classes_follow_words_and_their_weights() -> None:
    train = ["the the the ball", "the ball goal", "the the bank", "the bank loan"] * 3
    texts = ["the the the the goal", "loan the", "BALL!", "a bank, the bank"]
    assert classify_by_words(train, [4, 4, 7, 7] * 3, texts) == [4, 7, 4, 7]


def test_without_scikit_learn_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.feature_extraction.text", None)
    with pytest.raises(ImportError, match=r'pip install "hf_tx\[metrics\]"'):
        classify_by_words(["a", "b"], [0, 1], ["a"])
