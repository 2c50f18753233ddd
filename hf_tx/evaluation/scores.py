# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""The score of a model on a text, and the metrics that follow from it."""

import math
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Score:
    """How well tokens were predicted. Scores of several texts are added, so that every token counts the same.

    Attributes:
        nats: the negative logarithms of the probabilities of the tokens, summed.
        num_tokens: how many tokens were predicted.
        num_correct: how many of them had the highest probability.
    """

    nats: float
    num_tokens: int
    num_correct: int

    def __add__(self, other: "Score") -> "Score":
        return Score(self.nats + other.nats, self.num_tokens + other.num_tokens, self.num_correct + other.num_correct)

    @classmethod
    def total(cls, scores: Iterable["Score"]) -> "Score":
        """Return the score of the tokens of several texts; there may be none."""
        return sum(scores, start=cls(0.0, 0, 0))

    @property
    def loss(self) -> float:
        """Nats per token."""
        if not self.num_tokens:
            raise ValueError("no token was predicted, so the mean is not defined")
        return self.nats / self.num_tokens

    @property
    def perplexity(self) -> float:
        """The exponential of the loss. It depends on the tokenizer: compare models of different tokenizers by bits per
        byte."""
        # Past this, exp() raises.
        return math.exp(self.loss) if self.loss < 700 else math.inf

    @property
    def accuracy(self) -> float:
        """Share of the tokens that had the highest probability."""
        if not self.num_tokens:
            raise ValueError("no token was predicted, so the mean is not defined")
        return self.num_correct / self.num_tokens

    def bits_per_byte(self, num_bytes: int) -> float:
        """Bits that the model needs for a byte of the text, whatever its tokenizer.

        Args:
            num_bytes: bytes of the original text in UTF-8, all of whose tokens were scored.

        Raises:
            ValueError: if there are no bytes.
        """
        if num_bytes < 1:
            raise ValueError(f"num_bytes = {num_bytes}: must be at least 1")
        return self.nats / math.log(2) / num_bytes
