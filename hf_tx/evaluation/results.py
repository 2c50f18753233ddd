# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Results of language models on texts, and their ranking."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from .directions import ranked
from .scores import Score

#: How texts are predicted; see `TEXT_TASKS`.
TextTask = Literal["causal-lm", "masked-lm", "continuation", "seq2seq-lm"]
Measure = Literal["bits_per_byte", "perplexity"]


@dataclass(frozen=True)
class TextTaskKind:
    """What is to be known of a way in which texts are predicted.

    Attributes:
        encoder_decoder: whether the model is an encoder-decoder.
        pairs: whether a text is a pair of source and target.
        moves_on: whether windows move on by a stride.
        prefix: what the names of its metrics begin with.
    """

    encoder_decoder: bool = False
    pairs: bool = False
    moves_on: bool = False
    prefix: str = ""


#: The ways in which texts are predicted, the default of `hf-tx evaluate` first.
TEXT_TASKS: dict[str, TextTaskKind] = {
    "causal-lm": TextTaskKind(moves_on=True),
    "masked-lm": TextTaskKind(prefix="pseudo_"),
    "continuation": TextTaskKind(encoder_decoder=True),
    "seq2seq-lm": TextTaskKind(encoder_decoder=True, pairs=True),
}

# A byte, or the end of an unknown piece, without a model.
_BITS_OF_A_SYMBOL = math.log2(257)


@dataclass(frozen=True)
class TextResult:
    """The result of a language model on texts.

    Attributes:
        name: name of the model.
        task: how it predicts: `causal-lm`, `masked-lm`, `continuation` or `seq2seq-lm`.
        scores: the score of each text.
        num_bytes: bytes of the original texts in UTF-8, before the tokenizer changed anything.
        num_unknown: how many of the scored tokens were unknown to the tokenizer.
        unknown_bytes: bytes of the original texts that these stand for.
        lossless: whether the tokens decode to the texts. If not, the tokenizer dropped something that the model did
            not have to predict, such as capitals or white space.
        texts_digest: equal for two results on the same texts.
        tokens_digest: equal for two tokenizers that cut the texts into the same tokens.
        settings: settings that the numbers depend on.
        num_unread: pieces of the original texts without a token, apart from spaces.
        unread_bytes: bytes of these.
    """

    name: str
    task: TextTask
    scores: tuple[Score, ...] = field(repr=False)
    num_bytes: int
    num_unknown: int
    unknown_bytes: int
    lossless: bool
    texts_digest: str
    tokens_digest: str
    settings: dict[str, Any]
    num_unread: int = 0
    unread_bytes: int = 0

    @property
    def score(self) -> Score:
        """The score of all tokens."""
        return Score.total(self.scores)

    @property
    def perplexity(self) -> float:
        """Perplexity of a token; of a masked language model, pseudo-perplexity."""
        return self.score.perplexity

    @property
    def bits_per_byte(self) -> float:
        """Bits for a byte of the original texts; see `bits_per_byte_of`."""
        return self.bits_per_byte_of(self.score)

    def bits_per_byte_of(self, score: Score) -> float:
        """Return the bits for a byte of the original texts.

        Pieces of the text that are unknown tokens, or have no token, are charged as if they were spelled out without a
        model, with log2(257) bits for each byte and for the end of each piece.

        Args:
            score: of the same tokens, by this model or another.
        """
        spelt = self.unknown_bytes + self.num_unknown + self.unread_bytes + self.num_unread
        return score.bits_per_byte(self.num_bytes) + spelt * _BITS_OF_A_SYMBOL / self.num_bytes

    def as_dict(self) -> dict[str, Any]:
        """Return a dict for JSON. The names of metrics of a masked language model begin with `pseudo_`."""
        score, kind = self.score, TEXT_TASKS[self.task].prefix
        return {
            "name": self.name,
            "task": self.task,
            f"{kind}perplexity": score.perplexity,
            f"{kind}bits_per_byte": self.bits_per_byte,
            "loss": score.loss,
            "accuracy": score.accuracy,
            "texts": len(self.scores),
            "bytes": self.num_bytes,
            "tokens": score.num_tokens,
            "unknown_tokens": self.num_unknown,
            "unknown_bytes": self.unknown_bytes,
            "unread_bytes": self.unread_bytes,
            "lossless_tokenizer": self.lossless,
            "texts_digest": self.texts_digest,
            "tokens_digest": self.tokens_digest,
            "settings": self.settings,
        }

    def as_metric(self) -> dict[str, Any]:
        """Return what the modules of `evaluate` give: perplexities of the texts, their mean, and measures of all."""
        perplexities = [score.perplexity for score in self.scores]
        return {
            "perplexities": perplexities,
            "mean_perplexity": sum(perplexities) / len(perplexities),
            "perplexity": self.perplexity,
            "bits_per_byte": self.bits_per_byte,
            "tokens": self.score.num_tokens,
            "bytes": self.num_bytes,
            "unknown_tokens": self.num_unknown,
        }


def rank(results: Iterable[TextResult], by: Measure = "bits_per_byte") -> list[TextResult]:
    """Order models from the best to the worst.

    Args:
        results: of models that scored the same texts in the same way.
        by: `bits_per_byte`, or `perplexity` where the texts are the same tokens for all models.

    Returns:
        The results, the best first.

    Raises:
        ValueError: if the results cannot be compared, because texts, tasks, or the tokens of a perplexity differ.
    """
    results = list(results)
    if by not in get_args(Measure):
        raise ValueError(f"by = {by!r}: must be one of {', '.join(get_args(Measure))}")
    for other in results[1:]:
        first = results[0]
        both = f"{first.name!r} and {other.name!r}"
        if first.texts_digest != other.texts_digest:
            raise ValueError(f"{both} cannot be compared, because they scored different texts: score the same texts")
        if first.task != other.task:
            raise ValueError(
                f"{both} cannot be compared, because their tasks are different ({first.task}, {other.task}): compare "
                "models on one task"
            )
        if by == "perplexity" and first.tokens_digest != other.tokens_digest:
            raise ValueError(
                f"{both} have different tokenizers ({first.score.num_tokens:,} and {other.score.num_tokens:,} tokens "
                "of the same texts), so their perplexities cannot be compared: use by='bits_per_byte'"
            )
    return ranked(results, by, lambda result: getattr(result, by))
