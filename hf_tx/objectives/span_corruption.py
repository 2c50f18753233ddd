# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Span corruption: sentinels stand for the spans that are left out of a text, which the decoder writes."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, takewhile

import numpy as np

from .objective import SourceObjective
from .packing import cut_documents
from .texts import frame_of


@dataclass(eq=False, kw_only=True)
class SpanCorruption(SourceObjective):
    """Leave spans out of a text, and write them (Raffel et al., 2020, https://huggingface.co/papers/1910.10683). See
    [`SourceObjective`].

    In the source, a sentinel (`<extra_id_0>`, `<extra_id_1>` ...) stands for each span. `labels` are the spans, each
    after its sentinel, and `<eos>`: `a <extra_id_0> d </s>` and `<extra_id_0> b c </s>`. Special tokens are never left
    out. `restore` puts source and labels together again. A row is one piece of a document, as long as source and
    labels have room for it in `max_length`: for a text of 100 tokens that is 91 and 21, special tokens included.

    Args:
        noise_density: the share of tokens that is left out.
        mean_noise_span_length: their mean number in a span.
    """

    noise_density: float = 0.15
    mean_noise_span_length: float = 3.0

    name = "span-corruption"
    predicts = "the spans that sentinels stand for"
    extra_ids = 100

    def _set_up(self) -> None:
        if not 0 < self.noise_density < 1 or self.mean_noise_span_length < 1:
            raise ValueError(
                f"noise_density = {self.noise_density}, mean_noise_span_length = {self.mean_noise_span_length}: must "
                "be between 0 and 1, and at least 1, respectively."
            )
        vocabulary = self.tokenizer.get_vocab()
        names = takewhile(vocabulary.__contains__, map("<extra_id_{}>".format, count()))
        #: The sentinels, in their order.
        self.sentinels = [vocabulary[name] for name in names]
        self._special = np.asarray(self.tokenizer.all_special_ids)
        self._frame = frame_of(self.tokenizer)
        #: The longest piece of text for which source and labels have room.
        self.text_length = 0
        while self._longest(self.text_length + 1) <= self.max_length:
            self.text_length += 1
        if not self.text_length:
            raise ValueError(
                f"max_length = {self.max_length}: source and labels of one token need {self._longest(1)} tokens."
            )
        self._check_sentinels(self._amounts(self.text_length)[1])

    def rows(self, documents: Iterable[Iterable[int]]) -> Iterator[dict[str, list[int]]]:
        """Return a row a piece."""
        begin, end = self._frame
        length = len(begin) + self.text_length + len(end)
        return ({"input_ids": piece} for piece in cut_documents(documents, length, begin=begin, end=end))

    def example(self, row: dict[str, list[int]], rng: np.random.Generator) -> dict[str, list[int]]:
        """Return the source with sentinels, and the spans as labels."""
        tokens = row["input_ids"]
        if not set(self.sentinels).isdisjoint(tokens):
            raise ValueError("a row without labels holds a sentinel: rows that are corrupted already need labels.")
        ordinary = ~np.isin(tokens, self._special)
        noise = ordinary.copy()
        noise[ordinary] = self._noise(int(ordinary.sum()), rng)
        begins = noise & ~np.concatenate(([False], noise[:-1]))
        self._check_sentinels(int(begins.sum()))
        sentinels = iter(self.sentinels)
        source: list[int] = []
        target: list[int] = []
        for token, is_noise, begins_span in zip(tokens, noise, begins, strict=True):
            if begins_span:
                sentinel = next(sentinels)
                source.append(sentinel)
                target.append(sentinel)
            (target if is_noise else source).append(token)
        return {"input_ids": source, "labels": [*target, self.tokenizer.eos_token_id]}

    def restore(self, source: Sequence[int], target: Sequence[int]) -> list[int]:
        """Put the spans of a target into the gaps of its source, which gives the text before corruption.

        Args:
            source: tokens with sentinels, without padding.
            target: the spans, each after its sentinel. What follows `<eos>` is not read.

        Raises:
            ValueError: the target begins without a sentinel, or has no span for one of the source.
        """
        known = set(self.sentinels)
        spans: dict[int, list[int]] = {}
        span: list[int] | None = None
        for token in takewhile(lambda token: token != self.tokenizer.eos_token_id, target):
            if token in known:
                span = spans.setdefault(token, [])
            elif span is None:
                raise ValueError(f"the target begins with token {token}, which is not a sentinel.")
            else:
                span.append(token)
        missing = [token for token in source if token in known and token not in spans]
        if missing:
            raise ValueError(f"the target has no span for {self.tokenizer.convert_ids_to_tokens(missing[0])!r}.")
        return [token for place in source for token in (spans[place] if place in known else [place])]

    def _amounts(self, length: int) -> tuple[int, int]:
        """Return how many tokens of a text are left out, and in how many spans."""
        noise = min(max(round(length * self.noise_density), 1), max(length - 1, 1))
        spans = max(round(noise / self.mean_noise_span_length), 1)
        return noise, min(spans, max(length - noise, 1))

    def _longest(self, length: int) -> int:
        noise, spans = self._amounts(length)
        return max(length - noise + spans + len(sum(self._frame, [])), noise + spans + 1)

    def _noise(self, length: int, rng: np.random.Generator) -> np.ndarray:
        """Choose what is left out. Something stays between two spans, and may stay before the first and after the
        last; in the code of T5, every text ends with a span. *Shape:* `(length,)`, bool."""
        if not length:
            return np.zeros(0, dtype=bool)
        noise, spans = self._amounts(length)
        lengths = np.zeros(2 * spans + 1, dtype=np.int64)
        lengths[::2] = _cut(length - noise + 2, spans + 1, rng)
        lengths[[0, -1]] -= 1
        lengths[1::2] = _cut(noise, spans, rng)
        return np.repeat(np.arange(len(lengths)) % 2 == 1, lengths)

    def _check_sentinels(self, spans: int) -> None:
        if spans > len(self.sentinels):
            raise ValueError(
                f"{self.name} needs {spans} sentinels for {spans} spans in a text, and the tokenizer has "
                f"{len(self.sentinels)} (<extra_id_0> ...): train one with extra_ids={spans}, as for an "
                "encoder-decoder, or take a smaller max_length or longer spans (mean_noise_span_length)."
            )


def _cut(length: int, pieces: int, rng: np.random.Generator) -> np.ndarray:
    """Cut a length into pieces of at least 1, all ways alike. *Shape:* `(pieces,)`, int."""
    cuts = np.sort(rng.choice(length - 1, pieces - 1, replace=False)) + 1
    return np.diff([0, *cuts, length])
