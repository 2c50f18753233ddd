# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
import random
from collections.abc import Callable
from typing import Any

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from hf_tx.generation.vocabulary import Vocabulary, vocabulary_of
from hf_tx.tokenization import train_tokenizer


def test_the_bytes_of_tokens_are_what_the_tokenizer_writes(tokenizer: Any) -> None:
    vocabulary = vocabulary_of(tokenizer)
    draw = random.Random(1)
    usable = [index for piece, index in vocabulary.ids.items() if piece.isascii()]
    assert len(usable) > 50
    for _ in range(200):
        tokens = [draw.choice(usable) for _ in range(8)]
        text = vocabulary.text(tokens).decode()
        written = tokenizer.decode(tokens, clean_up_tokenization_spaces=False)
        assert written == (text.removeprefix(" ") if vocabulary.drops_first_space else text)


def test_a_text_comes_back(tokenizer: Any) -> None:
    text = '{"name":"mill","age":30} the river'
    vocabulary = vocabulary_of(tokenizer)
    tokens = vocabulary.tokenize(text.encode())
    assert tokens is not None
    assert tokenizer.decode(tokens) == text
    assert len(tokens) <= len(vocabulary.greedily(text.encode()))


@pytest.mark.parametrize(("kind", "letter"), [("byte-level", "水"), ("byte-fallback", "水"), ("unigram", None)])
def test_letters_that_no_token_is(tokenizers: Callable[[str], Any], kind: str, letter: str | None) -> None:
    vocabulary = vocabulary_of(tokenizers(kind))
    if letter is None:
        assert vocabulary.tokenize("水".encode()) is None
    else:
        tokens = vocabulary.tokenize(letter.encode())
        assert tokens is not None
        assert tokenizers(kind).decode(tokens) == letter


def test_the_first_space(tokenizers: Callable[[str], Any]) -> None:
    assert not vocabulary_of(tokenizers("byte-level")).drops_first_space
    assert vocabulary_of(tokenizers("unigram")).drops_first_space
    assert vocabulary_of(tokenizers("byte-fallback")).drops_first_space


def test_special_tokens_are_no_text(tokenizer: Any) -> None:
    vocabulary = vocabulary_of(tokenizer)
    assert all(vocabulary.pieces[index] is None for index in tokenizer.all_special_ids)


def test_tokens_that_were_added() -> None:
    tokenizer = train_tokenizer(["the mill runs"] * 4, vocab_size=280, show_progress=False)
    before = vocabulary_of(tokenizer)
    assert vocabulary_of(tokenizer) is before
    tokenizer.add_tokens(["<word>"])
    tokenizer.add_special_tokens({"additional_special_tokens": ["<special>"]})
    after = vocabulary_of(tokenizer)
    assert after.pieces[tokenizer.convert_tokens_to_ids("<word>")] == b"<word>"
    assert after.pieces[tokenizer.convert_tokens_to_ids("<special>")] is None


def test_atoms_write_all_that_the_vocabulary_writes(tokenizer: Any) -> None:
    vocabulary = vocabulary_of(tokenizer)
    atoms = Vocabulary([vocabulary.pieces[atom] for atom in vocabulary.atoms])
    assert len(atoms.ids) < len(vocabulary.ids)
    assert all(atoms.tokenize(piece) is not None for piece in vocabulary.ids)


def test_wordpiece_is_refused(tokenizers: Callable[[str], Any]) -> None:
    with pytest.raises(ValueError, match="decoder WordPiece adds and moves spaces"):
        vocabulary_of(tokenizers("wordpiece"))


def test_a_tokenizer_without_a_decoder_is_refused() -> None:
    words = Tokenizer(models.WordLevel({"<unk>": 0, "a": 1, "b": 2}, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    with pytest.raises(ValueError, match="without a decoder"):
        vocabulary_of(PreTrainedTokenizerFast(tokenizer_object=words))
