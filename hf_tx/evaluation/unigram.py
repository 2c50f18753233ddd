# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""The unigram model: every token has its own probability, independent of the other tokens."""

from collections import Counter
from collections.abc import Iterable
from itertools import chain
from math import log

from .scores import Score


class UnigramModel:
    """Predicts each token with its frequency (Jurafsky and Martin, Speech and Language Processing, chapter 3).

    `p(token) = (count + smoothing) / (tokens + smoothing * vocab_size)`

    Args:
        texts: the tokens that are counted, text by text.
        vocab_size: number of tokens that exist.
        smoothing: number that is added to every count, so that unseen tokens have a probability (Laplace: 1).

    Raises:
        ValueError: if smoothing or vocabulary size is not above 0.
    """

    def __init__(self, texts: Iterable[Iterable[int]], vocab_size: int, smoothing: float = 1.0) -> None:
        if vocab_size < 1 or smoothing <= 0:
            raise ValueError(f"vocab_size = {vocab_size}, smoothing = {smoothing}: both must be above 0")
        self.counts = Counter(chain.from_iterable(texts))
        self.vocab_size = vocab_size
        self.smoothing = smoothing
        self.total = sum(self.counts.values()) + smoothing * vocab_size
        #: The token that it would always answer; the smallest id of those that are equally frequent.
        self.most_frequent = min(self.counts, key=lambda token: (-self.counts[token], token), default=0)

    def probability(self, token: int) -> float:
        """Return the probability of a token."""
        return (self.counts[token] + self.smoothing) / self.total

    def score(self, token_ids: Iterable[int]) -> Score:
        """Score the tokens of a text."""
        occurrences = Counter(token_ids)
        nats = -sum(count * log(self.probability(token)) for token, count in occurrences.items())
        return Score(nats, occurrences.total(), occurrences[self.most_frequent])
