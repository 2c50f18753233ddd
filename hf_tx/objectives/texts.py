# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""From texts to tokens."""

from collections.abc import Sequence
from typing import Any

from transformers import PreTrainedTokenizerBase


def encode_texts(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str]) -> list[list[int]]:
    """Encode texts as wholes, without special tokens. What spells one is plain text here."""
    return encode_words(tokenizer, texts, False)[0]


def encode_words(
    tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], wanted: bool = True
) -> tuple[list[list[int]], list[list[int]]]:
    """Encode texts like `encode_texts`. Returns their tokens, and the number of the word in which each token is (all 0
    if they are not wanted)."""
    encoded: Any = tokenizer(
        list(texts),
        add_special_tokens=False,
        split_special_tokens=True,
        return_attention_mask=False,
        return_token_type_ids=False,
        verbose=False,
    )
    tokens: list[list[int]] = encoded["input_ids"]
    words = [encoded.word_ids(number) if wanted else [0] * len(text) for number, text in enumerate(tokens)]
    # Unigram has its special tokens among the pieces of words too, and finds them; so they are spelt here.
    special = set(tokenizer.all_special_ids) - {tokenizer.unk_token_id}
    for number, text in enumerate(tokens):
        if special.isdisjoint(text):
            continue
        spelt = [_spelling(tokenizer, token) if token in special else [token] for token in text]
        tokens[number] = [piece for part in spelt for piece in part]
        words[number] = [word for word, part in zip(words[number], spelt, strict=True) for _ in part]
    return tokens, words


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
