# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""From texts to tokens."""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from transformers import PreTrainedTokenizerBase

from ..common.pieces import cut_text, plain_encoder

# Characters and texts that the tokenizer reads in one call, at most about.
_CALL, _MOST_PIECES = 1 << 20, 1000


def encode_texts(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str]) -> list[list[int]]:
    """Encode texts as wholes, without special tokens. What spells one is plain text here."""
    # One object for each token that there is, and not for each time that it occurs.
    shared = list(range(len(tokenizer)))
    return [[shared[token] for token in tokens] for tokens, _ in iter_encoded(tokenizer, texts)]


def iter_encoded(
    tokenizer: PreTrainedTokenizerBase, texts: Iterable[str], with_words: bool = False
) -> Iterator[tuple["array[int]", "array[int]"]]:
    """Encode texts like `encode_texts`, in a few bytes a token.

    Long texts are read in pieces (see `cut_text`), so that the memory is that of the tokens of one text.

    Args:
        tokenizer: cuts the texts.
        texts: the texts, which may be a stream.
        with_words: whether it is asked in which word a token is.

    Yields:
        For each text its tokens, and the number of the word of each token (nothing if it is not asked). *Shape:*
        `(tokens,)` each, int32.
    """
    # Unigram has its special tokens among the pieces of words too, and finds them; so they are spelt here.
    special = set(tokenizer.all_special_ids) - {tokenizer.unk_token_id}
    tokens, words = array("i"), array("i")
    for pieces in _calls(tokenizer, texts):
        encoded: Any = tokenizer(
            [piece for piece, _ in pieces],
            add_special_tokens=False,
            split_special_tokens=True,
            return_attention_mask=False,
            return_token_type_ids=False,
            verbose=False,
        )
        for at, (found, (_, is_last)) in enumerate(zip(encoded["input_ids"], pieces, strict=True)):
            of_words = encoded.word_ids(at) if with_words else []
            if not special.isdisjoint(found):
                spelt = [_spelling(tokenizer, token) if token in special else [token] for token in found]
                of_words = [word for word, part in zip(of_words, spelt, strict=with_words) for _ in part]
                found = [token for part in spelt for token in part]
            first = words[-1] + 1 if words else 0
            tokens.extend(found)
            words.extend(first + word for word in of_words)
            if is_last:
                yield tokens, words
                tokens, words = array("i"), array("i")


def _calls(tokenizer: PreTrainedTokenizerBase, texts: Iterable[str]) -> Iterator[list[tuple[str, bool]]]:
    """Yield pieces of texts, as many as are read in one call, and whether a text ends with each."""
    found: list[tuple[str, bool]] = []
    size = 0
    encode = plain_encoder(tokenizer)
    for text in texts:
        left = len(text)
        for piece in cut_text(text, encode):
            left -= len(piece)
            found.append((piece, not left))
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


def frame_of(tokenizer: PreTrainedTokenizerBase) -> tuple[list[int], list[int]]:
    """Return the special tokens that the tokenizer puts before and after a text."""
    encoded = tokenizer("a", return_special_tokens_mask=True)
    tokens, special = encoded["input_ids"], encoded["special_tokens_mask"]
    start = special.index(0)
    stop = len(special) - special[::-1].index(0)
    return tokens[:start], tokens[stop:]
