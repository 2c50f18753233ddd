# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Denoising: the encoder reads a damaged text, the decoder writes the whole one."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from .objective import SourceObjective
from .packing import cut_documents
from .texts import frame_of

_SENTENCE_ENDS = (".", "!", "?")
# With less, hardly a span has a token, and drawing some would take long.
_SHORTEST_MEAN = 0.1


@dataclass(eq=False, kw_only=True)
class Denoising(SourceObjective):
    """Damage a text, and write it as it was (Lewis et al., 2020, https://huggingface.co/papers/1910.13461). See
    [`SourceObjective`].

    `labels` are all tokens of the text, with its special tokens. A row is one piece of a document. What is damaged is
    between the special tokens that the tokenizer puts around a text, in the order of the arguments; other special
    tokens are neither hidden nor deleted. The defaults are those of BART's large models.

    Args:
        permute_sentences: put the sentences in random order. A sentence ends with a token that ends with one of `.!?`.
        rotation: the probability that a text is turned so that it begins with a token chosen at random.
        deletion: the share of tokens that is deleted, one of them being left.
        infilling: the share of tokens in spans for each of which one mask token stands. A span without tokens puts a
            mask where nothing is missing.
        poisson_lambda: the mean length of those spans, which is drawn from a Poisson distribution.
    """

    permute_sentences: bool = True
    rotation: float = 0.0
    deletion: float = 0.0
    infilling: float = 0.3
    poisson_lambda: float = 3.0

    name = "denoising"
    predicts = "the text that was damaged"
    needs = ("pad_token", "eos_token", "mask_token")

    def _set_up(self) -> None:
        for field in ("rotation", "deletion", "infilling"):
            if not 0 <= getattr(self, field) <= 1:
                raise ValueError(f"{field} = {getattr(self, field)}: must be at least 0 and at most 1.")
        if self.poisson_lambda < _SHORTEST_MEAN:
            raise ValueError(f"poisson_lambda = {self.poisson_lambda}: must be at least {_SHORTEST_MEAN}.")
        if not (self.permute_sentences or self.rotation or self.deletion or self.infilling):
            raise ValueError("permute_sentences, rotation, deletion and infilling are all off: nothing is damaged.")
        self._special = np.asarray(self.tokenizer.all_special_ids)
        ends = [number for token, number in self.tokenizer.get_vocab().items() if _ends_sentence(token)]
        self._ends = np.setdiff1d(ends, self._special)
        self._frame = frame_of(self.tokenizer)

    def rows(self, documents: Iterable[Iterable[int]]) -> Iterator[dict[str, list[int]]]:
        """Return a row a piece."""
        begin, end = self._frame
        return ({"input_ids": piece} for piece in cut_documents(documents, self.max_length, begin=begin, end=end))

    def example(self, row: dict[str, list[int]], rng: np.random.Generator) -> dict[str, list[int]]:
        """Return the damaged text, and the text as labels."""
        tokens = row["input_ids"]
        before, after = self._frame
        start = len(before) if tokens[: len(before)] == before else 0
        stop = len(tokens) - len(after) if tokens[len(tokens) - len(after) :] == after else len(tokens)
        stop = max(start, stop)  # of a row that is nothing but one special token
        body = np.asarray(tokens[start:stop], dtype=np.int64)
        if self.permute_sentences:
            body = self._permuted(body, rng)
        if len(body) and rng.random() < self.rotation:
            body = np.roll(body, -int(rng.integers(len(body))))
        if self.deletion:
            ordinary = np.flatnonzero(~np.isin(body, self._special))
            size = min(_share(len(ordinary), self.deletion, rng), max(0, len(ordinary) - 1))
            body = np.delete(body, rng.permutation(ordinary)[:size])
        if self.infilling:
            body = self._infilled(body, rng)
        return {"input_ids": [*tokens[:start], *body.tolist(), *tokens[stop:]], "labels": tokens}

    def _permuted(self, body: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        sentences = np.split(body, np.flatnonzero(np.isin(body, self._ends)) + 1)
        return np.concatenate([sentences[number] for number in rng.permutation(len(sentences))])

    def _infilled(self, body: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        special = np.isin(body, self._special)
        missing = _share(int((~special).sum()), self.infilling, rng)
        lengths = _lengths(missing, self.poisson_lambda, rng)
        # Tokens that stay and spans, in a row: all ways to choose which are spans are alike.
        places = len(body) - missing + len(lengths)
        sizes = np.ones(places, dtype=np.int64)
        is_span = np.isin(np.arange(places), rng.permutation(places)[: len(lengths)])
        sizes[is_span] = lengths
        starts = (np.cumsum(sizes) - sizes)[is_span]
        kept = ~np.repeat(is_span, sizes) | special
        return np.insert(body, starts, self.tokenizer.mask_token_id)[np.insert(kept, starts, True)]


def _ends_sentence(token: str) -> bool:
    return token.endswith(_SENTENCE_ENDS)


def _share(size: int, share: float, rng: np.random.Generator) -> int:
    """Return a share of a number, rounded at random, so that it is exact in the mean."""
    return min(size, int(size * share + rng.random()))


def _lengths(total: int, mean: float, rng: np.random.Generator) -> list[int]:
    """Draw lengths of spans up to a total. There are no more spans than tokens in them, so that no text grows."""
    lengths: list[int] = []
    empty = 0
    while total:
        length = min(int(rng.poisson(mean)), total)
        total -= length
        if length:
            lengths.append(length)
        else:
            empty += 1
    lengths += [0] * min(empty, sum(lengths) - len(lengths))
    return [lengths[number] for number in rng.permutation(len(lengths))]
