# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""From texts to tokens."""

from collections.abc import Iterator, Sequence
from typing import Any

from transformers import PreTrainedTokenizerBase

from ..common.pieces import cut_text, plain_encoder

# Characters that the tokenizer reads in one call.
_CALL = 1 << 20


def encode_texts(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str]) -> list[list[int]]:
    """Encode texts as wholes, without special tokens. What spells one is plain text here."""
    return encode_words(tokenizer, texts, False)[0]


def encode_words(
    tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], wanted: bool = True
) -> tuple[list[list[int]], list[list[int]]]:
    """Encode texts like `encode_texts`. Returns their tokens, and the number of the word in which each token is
    (nothing if they are not wanted).

    Long texts are read in pieces (see `cut_text`), so that the memory is that of the tokens."""
    tokens: list[list[int]] = [[] for _ in texts]
    words: list[list[int]] = [[] for _ in texts]
    # Unigram has its special tokens among the pieces of words too, and finds them; so they are spelt here.
    special = set(tokenizer.all_special_ids) - {tokenizer.unk_token_id}
    # One object for each token that there is, and not for each time that it occurs.
    shared = list(range(len(tokenizer)))
    for numbers, pieces in _calls(tokenizer, texts):
        encoded: Any = tokenizer(
            pieces,
            add_special_tokens=False,
            split_special_tokens=True,
            return_attention_mask=False,
            return_token_type_ids=False,
            verbose=False,
        )
        for at, (number, found) in enumerate(zip(numbers, encoded["input_ids"], strict=True)):
            spelt = [_spelling(tokenizer, token) if token in special else [token] for token in found]
            tokens[number] += [shared[token] for part in spelt for token in part]
            if wanted:
                first = words[number][-1] + 1 if words[number] else 0
                of_words = zip(encoded.word_ids(at), spelt, strict=True)
                words[number] += [first + word for word, part in of_words for _ in part]
    return tokens, words


def _calls(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str]) -> Iterator[tuple[list[int], list[str]]]:
    """Yield pieces of texts, as many as are read in one call, with the numbers of their texts."""
    numbers: list[int] = []
    pieces: list[str] = []
    size = 0
    encode = plain_encoder(tokenizer)
    for number, text in enumerate(texts):
        for piece in cut_text(text, encode):
            numbers.append(number)
            pieces.append(piece)
            size += len(piece)
            if size >= _CALL:
                yield numbers, pieces
                numbers, pieces, size = [], [], 0
    if pieces:
        yield numbers, pieces


def _spelling(tokenizer: PreTrainedTokenizerBase, token: int) -> list[int]:
    vocabulary, unknown = tokenizer.get_vocab(), tokenizer.unk_token_id
    characters = [vocabulary.get(character, unknown) for character in str(tokenizer.convert_ids_to_tokens(token))]
    return [number for number in characters if number is not None]


def frame_of(tokenizer: PreTrainedTokenizerBase) -> tuple[list[int], list[int]]:
    """Return the special tokens that the tokenizer puts before and after a text."""
    encoded = tokenizer("a", return_special_tokens_mask=True)
    tokens, special = encoded["input_ids"], encoded["special_tokens_mask"]
    start = special.index(0)
    stop = len(special) - special[::-1].index(0)
    return tokens[:start], tokens[stop:]
