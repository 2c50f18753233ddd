# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""From texts to tokens."""

from collections.abc import Iterable, Iterator
from itertools import chain, groupby
from operator import itemgetter
from typing import Any

from transformers import PreTrainedTokenizerBase

from ..common.pieces import Text, cut_text, plain_encoder

# Characters and texts that the tokenizer reads in one call, at most about.
_CALL, _MOST_PIECES = 1 << 18, 1000
# Characters of a token, at most: not all of a long text is read for its start.
_LONGEST_TOKEN = 100
# Characters of a line that is a sentence or more.
_USUAL_LINE = 80


def encode_texts(tokenizer: PreTrainedTokenizerBase, texts: Iterable[Text]) -> list[list[int]]:
    """Encode texts as wholes, without special tokens. What spells one is plain text here."""
    # One object for each token that there is, and not for each time that it occurs.
    shared = list(range(len(tokenizer)))
    return [[shared[token] for token in tokens] for tokens in iter_encoded(tokenizer, texts)]


def iter_encoded(tokenizer: PreTrainedTokenizerBase, texts: Iterable[Text]) -> Iterator[Iterator[int]]:
    """Encode texts like `encode_texts`, with no more than a few pieces of a text in memory (see `cut_text`).

    Args:
        tokenizer: cuts the texts.
        texts: the texts, which may be a stream.

    Yields:
        The tokens of each text, to be read before those of the next.
    """
    for _, pieces in groupby(_encoded(tokenizer, texts), itemgetter(0)):
        yield chain.from_iterable(tokens for _, tokens, _ in pieces)


def iter_encoded_words(
    tokenizer: PreTrainedTokenizerBase, texts: Iterable[Text]
) -> Iterator[Iterator[tuple[int, int]]]:
    """Encode texts like `iter_encoded`.

    Yields:
        The tokens of each text, each with the number of its word in the text, to be read before those of the next.
    """
    for _, pieces in groupby(_encoded(tokenizer, texts, with_words=True), itemgetter(0)):
        yield _numbered(pieces)


def _numbered(pieces: Iterable[tuple[int, list[int], list[int]]]) -> Iterator[tuple[int, int]]:
    first = 0
    for _, tokens, words in pieces:
        yield from ((token, first + word) for token, word in zip(tokens, words, strict=True))
        first += words[-1] + 1 if words else 0


def _encoded(
    tokenizer: PreTrainedTokenizerBase, texts: Iterable[Text], with_words: bool = False
) -> Iterator[tuple[int, list[int], list[int]]]:
    """Yield the number of the text, the tokens, and if asked the words of each piece; every text has one at least."""
    # Unigram has its special tokens among the pieces of words too, and finds them; so they are spelt here.
    special = set(tokenizer.all_special_ids) - {tokenizer.unk_token_id}
    for pieces in _calls(tokenizer, texts):
        encoded: Any = tokenizer(
            [piece for _, piece in pieces],
            add_special_tokens=False,
            split_special_tokens=True,
            return_attention_mask=False,
            return_token_type_ids=False,
            verbose=False,
        )
        for at, ((number, _), tokens) in enumerate(zip(pieces, encoded["input_ids"], strict=True)):
            words = encoded.word_ids(at) if with_words else []
            if not special.isdisjoint(tokens):
                spelt = [_spelling(tokenizer, token) if token in special else [token] for token in tokens]
                words = [word for word, part in zip(words, spelt, strict=with_words) for _ in part]
                tokens = [token for part in spelt for token in part]
            yield number, tokens, words


def _calls(tokenizer: PreTrainedTokenizerBase, texts: Iterable[Text]) -> Iterator[list[tuple[int, str]]]:
    """Yield the pieces of texts with the numbers of these, as many as are read in one call."""
    found: list[tuple[int, str]] = []
    size = 0
    encode = plain_encoder(tokenizer)
    for number, text in enumerate(texts):
        for piece in cut_text(text, encode):
            found.append((number, piece))
            size += len(piece)
            if size >= _CALL or len(found) >= _MOST_PIECES:
                yield found
                found, size = [], 0
    if found:
        yield found


def _spelling(tokenizer: PreTrainedTokenizerBase, token: int) -> list[int]:
    vocabulary, unknown = tokenizer.get_vocab(), tokenizer.unk_token_id
    characters = [vocabulary.get(character, unknown) for character in str(tokenizer.convert_ids_to_tokens(token))]
    return [number for number in characters if number is not None]


def start_of(tokenizer: PreTrainedTokenizerBase, text: str, num_tokens: int) -> str:
    """Return the first tokens of a text as text."""
    (tokens,) = encode_texts(tokenizer, [text[: num_tokens * _LONGEST_TOKEN]])
    start: Any = tokenizer.decode(tokens[:num_tokens])
    return start.rstrip("\ufffd").strip()  # a character may be cut in two


def lines_of(texts: Iterable[str]) -> list[str]:
    """Return the lines of texts; those of a usual length if there are any."""
    lines = [line.strip() for text in texts for line in text.splitlines() if line.strip()]
    return [line for line in lines if len(line) >= _USUAL_LINE] or lines


def frame_of(tokenizer: PreTrainedTokenizerBase) -> tuple[list[int], list[int]]:
    """Return the special tokens that the tokenizer puts before and after a text."""
    encoded = tokenizer("a", return_special_tokens_mask=True)
    tokens, special = encoded["input_ids"], encoded["special_tokens_mask"]
    start = special.index(0)
    stop = len(special) - special[::-1].index(0)
    return tokens[:start], tokens[stop:]
