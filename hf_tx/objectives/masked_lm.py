# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Masked language modelling: tokens, whole words or spans are hidden, and predicted from both sides."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from transformers import AutoModelForMaskedLM

from ..common.pieces import Text
from ..models.losses import IGNORE
from .objective import TokenObjective
from .packing import cut_documents, iter_packed
from .texts import frame_of, iter_encoded_words, lines_of, start_of

Masking = Literal["token", "word", "span"]

# Of SpanBERT: lengths of spans, in words, are geometric with this parameter, up to the longest; 3.8 in the mean.
_SPAN_PARAMETER = 0.2
_LONGEST_SPAN = 10
_NO_WORD = -1
# Lines of samples, and the most tokens of each.
_PROMPTS, _PROMPT = 3, 24


@dataclass(eq=False, kw_only=True)
class MaskedLM(TokenObjective):
    """Hide tokens and predict them. See [`TokenObjective`].

    `labels` are the tokens at the places that were chosen, and -100 everywhere else. Special tokens are never chosen,
    nor drawn as random tokens. Of a row of n units, n * mlm_probability are chosen (rounded at random, so that the
    rate is exact in the mean), and at least one, so that no row is without a label.

    Args:
        masking: what is chosen: each `token` by itself (Devlin et al., 2019, https://huggingface.co/papers/1810.04805);
            all tokens of a `word`; or a `span` of words (Joshi et al., 2020, https://huggingface.co/papers/1907.10529),
            whose tokens are all replaced in the same way. A word is what the tokenizer's pre-tokenizer splits off.
        mlm_probability: the share of tokens (or words) that is chosen.
        mask_replace_prob: the share of those that read as the mask token.
        random_replace_prob: the share of those that read as any other token. The rest stays as it is.
        packed: rows of `max_length` tokens hold several documents, isolated by `position_ids`; see `pack_documents`.
            Otherwise a row is one piece of a document, and batches are padded.
    """

    masking: Masking = "token"
    mlm_probability: float = 0.15
    mask_replace_prob: float = 0.8
    random_replace_prob: float = 0.1
    packed: bool = True

    name = "masked-lm"
    predicts = "masked tokens"
    families = ("encoder",)
    auto_class = AutoModelForMaskedLM
    pipeline_tag = "fill-mask"
    needs = ("pad_token", "mask_token")
    reads = ("input_ids", "labels", "position_ids", "word_ids")

    def _set_up(self) -> None:
        if self.masking not in get_args(Masking):
            raise ValueError(f"masking = {self.masking!r}: must be one of {', '.join(get_args(Masking))}.")
        if not 0 < self.mlm_probability < 1:
            raise ValueError(f"mlm_probability = {self.mlm_probability}: must be above 0 and below 1.")
        shares = self.mask_replace_prob, self.random_replace_prob
        if min(shares) < 0 or sum(shares) > 1:
            raise ValueError(
                f"mask_replace_prob, random_replace_prob = {shares}: must be at least 0, and at most 1 together."
            )
        if self.masking != "token" and not (
            self.tokenizer.is_fast and self.tokenizer.backend_tokenizer.pre_tokenizer is not None
        ):
            raise ValueError(
                f"masking = {self.masking!r} needs a fast tokenizer that splits texts into words (a pre-tokenizer), "
                "and this one does not; use masking = 'token'."
            )
        self._special = np.asarray(self.tokenizer.all_special_ids)
        self._ordinary = np.setdiff1d(list(self.tokenizer.get_vocab().values()), self._special)

    def prompts(self, texts: Iterable[str]) -> list[str]:
        """Return the first words of some lines, with a mask in place of one in the middle."""
        length = min(_PROMPT, self.max_length // 2)
        lines = [start_of(self.tokenizer, line, length).split(" ") for line in lines_of(texts)[:_PROMPTS]]
        mask = self.tokenizer.mask_token
        return [" ".join([*words[: len(words) // 2], mask, *words[len(words) // 2 + 1 :]]) for words in lines]

    def check_prompt(self, prompt: str) -> None:
        """Raise ValueError for a prompt without a mask, with several, or without room for it."""
        if prompt.count(self.tokenizer.mask_token) != 1:
            raise ValueError(
                f"--prompt {prompt!r:.60}: must have exactly one {self.tokenizer.mask_token}, which says what to "
                "fill in."
            )
        super().check_prompt(prompt)

    def features(self) -> dict[str, Any]:
        """Return the columns of the rows and their types."""
        names = ["input_ids", *["position_ids"] * self.packed, *["word_ids"] * (self.masking != "token")]
        return dict.fromkeys(names, super().features()["input_ids"])

    def encode(self, *columns: Iterable[Text]) -> Iterator[dict[str, Any]]:
        """Return the rows that texts give, with the number of the word of every token where words are masked."""
        if self.masking == "token":
            return super().encode(*columns)
        (texts,) = columns
        return map(_unzipped, self._rows(iter_encoded_words(self.tokenizer, texts), with_words=True))

    def rows(self, documents: Iterable[Iterable[int]]) -> Iterator[dict[str, list[int]]]:
        """Return packed rows, or a row a piece."""
        return self._rows(documents)

    def _rows(self, documents: Iterable[Iterable[Any]], with_words: bool = False) -> Iterator[dict[str, list[Any]]]:
        """Return rows of tokens, or of tokens that each have the number of their word."""
        frame: Any = (*frame_of(self.tokenizer), [self.tokenizer.pad_token_id])
        if with_words:
            frame = ([(token, _NO_WORD) for token in part] for part in frame)
        begin, end, (pad,) = frame
        if not self.packed:
            return ({"input_ids": piece} for piece in cut_documents(documents, self.max_length, begin=begin, end=end))
        rows = iter_packed(documents, self.max_length, begin=begin, end=end, pad_token_id=pad)
        return ({name: row[name] for name in ("input_ids", "position_ids")} for row in rows)

    def example(self, row: dict[str, list[int]], rng: np.random.Generator) -> dict[str, list[int]]:
        """Return the row with some tokens hidden, and these as labels."""
        tokens = np.asarray(row["input_ids"])
        unit, follows = self._units(row, ~np.isin(tokens, self._special))
        chosen = self._choose(follows, rng)
        group = np.where(unit >= 0, chosen[unit], -1) if len(follows) else unit
        hidden = group >= 0
        if self.masking != "span":
            group = np.arange(len(tokens))  # each token of a word is replaced in its own way
        kind = rng.random(len(tokens))[group]
        masked = hidden & (kind < self.mask_replace_prob)
        random = hidden & ~masked & (kind < self.mask_replace_prob + self.random_replace_prob)
        read = np.where(masked, self.tokenizer.mask_token_id, tokens)
        read = np.where(random, rng.choice(self._ordinary, len(tokens)), read)
        row = {name: values for name, values in row.items() if name != "word_ids"}
        return {**row, "input_ids": read.tolist(), "labels": np.where(hidden, tokens, IGNORE).tolist()}

    def _units(self, row: dict[str, list[int]], ordinary: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the unit of each token (-1 for none), and whether a unit goes on where the one before it ends."""
        words = np.arange(len(ordinary))
        if self.masking != "token":
            if "word_ids" not in row:
                raise ValueError(
                    f"masking = {self.masking!r} needs the column word_ids: make rows of texts with prepare(), and "
                    "keep the Trainer from leaving columns out (remove_unused_columns=False)."
                )
            words = np.asarray(row["word_ids"])
        position = np.asarray(row.get("position_ids", range(len(ordinary))))
        goes_on = np.concatenate(([False], ordinary[:-1])) & (position > 0)
        new = ordinary & ~(goes_on & (words == np.roll(words, 1)))
        return np.where(ordinary, np.cumsum(new) - 1, -1), goes_on[new]

    def _choose(self, follows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Choose units. Returns the number of the group in which each is, or -1."""
        size = len(follows)
        group = np.full(size, -1)
        missing = min(size, max(1, int(size * self.mlm_probability + rng.random())))
        if self.masking != "span":
            group[rng.permutation(size)[:missing]] = 0
            return group
        lengths = np.arange(1, _LONGEST_SPAN + 1)
        shares = (1 - _SPAN_PARAMETER) ** lengths
        spans = 0
        while missing:
            start = rng.choice(np.flatnonzero(group < 0))
            longest = min(missing, rng.choice(lengths, p=shares / shares.sum()))
            for unit in range(start, min(start + longest, size)):
                if group[unit] >= 0 or (unit > start and not follows[unit]):
                    break
                group[unit] = spans
                missing -= 1
            spans += 1
        return group


def _unzipped(row: dict[str, list[Any]]) -> dict[str, list[int]]:
    tokens, words = zip(*row["input_ids"], strict=True)
    return {**row, "input_ids": list(tokens), "word_ids": list(words)}
