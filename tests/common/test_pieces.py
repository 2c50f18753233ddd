# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Long texts in pieces: as many characters as a tokenizer may read at a time, and the tokens of the whole."""

import random
from collections.abc import Callable
from typing import Any

import pytest
from tokenizers import Tokenizer, decoders, models, normalizers
from transformers import PreTrainedTokenizerFast

from hf_tx.common import pieces
from hf_tx.common.pieces import beginning, cut_text, plain_encoder
from hf_tx.evaluation.texts import _encode
from hf_tx.objectives import texts as objective_texts
from hf_tx.objectives.texts import encode_texts, iter_encoded_words
from hf_tx.tokenization import train_tokenizer

WORDS = ["thrills", "of", "Oslo", "mill,", "d\u00fcrfen", "(x)", "don't", "\u2603", "1969", "end.\n", "\u5b57\u5b57"]
LENGTH = 300


def text_of(size: int) -> str:
    """Return words in one line that seldom ends."""
    draw = random.Random(0)
    return " ".join(draw.choice(WORDS) for _ in range(size))


def encode_words(tokenizer: Any, texts: list[str]) -> list[list[list[int]]]:
    """Return the tokens of each text, and their words."""
    found = [list(zip(*pairs, strict=True)) for pairs in iter_encoded_words(tokenizer, texts)]
    return [[list(values) for values in column] for column in zip(*found, strict=True)]


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "LONGEST_PIECE", LENGTH)
    monkeypatch.setattr(objective_texts, "_CALL", 4 * LENGTH)


@pytest.mark.parametrize(
    ("algorithm", "family"), [("bpe", "decoder"), ("wordpiece", "encoder"), ("unigram", "encoder")]
)
def test_pieces_have_the_tokens_of_the_whole(
    algorithm: Any, family: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    text = text_of(3000)
    tokenizer = train_tokenizer([text], algorithm=algorithm, family=family, vocab_size=330, show_progress=False)
    expected, whole = encode_words(tokenizer, [text, "one"]), _encode(tokenizer, text, 0, None)
    seen: list[int] = []
    call: Callable[..., Any] = type(tokenizer)._encode_plus

    def watched(self: Any, text: Any, *arguments: Any, **keywords: Any) -> Any:
        seen.extend(map(len, text if isinstance(text, list) else [text]))
        return call(self, text, *arguments, **keywords)

    monkeypatch.setattr(pieces, "LONGEST_PIECE", LENGTH)
    monkeypatch.setattr(objective_texts, "_CALL", 4 * LENGTH)
    monkeypatch.setattr(type(tokenizer), "_encode_plus", watched)
    assert encode_texts(tokenizer, [text, "one"]) == expected[0]
    tokens, words = encode_words(tokenizer, [text, "one"])
    assert tokens == expected[0]
    # Words are as many as before, and begin where they did.
    for found, before in zip(words, expected[1], strict=True):
        begins = [[one != other for one, other in zip(row, row[1:], strict=False)] for row in (found, before)]
        assert begins[0] == begins[1]
    assert _encode(tokenizer, text, 0, None) == whole
    assert LENGTH // 2 < max(seen) <= 2 * pieces._CONTEXT
    assert "tokens can differ" not in caplog.text


def test_pieces_are_the_text_and_bounded(short: None) -> None:
    for text in ("", "x", text_of(500), "w" * 5000, "a\n" * 2000, " " * 2000, "\u5b57" * 1000, "x, " * 700):
        found = list(cut_text(text))
        assert "".join(found) == text
        assert max(map(len, found)) <= LENGTH
        assert all(found) or not text


def test_a_cut_that_may_change_tokens_is_told(short: None, caplog: pytest.LogCaptureFixture) -> None:
    # A tokenizer that puts a mark before whatever it reads.
    vocabulary = {character: number for number, character in enumerate("\u2581abc")} | {"<unk>": 4}
    backend = Tokenizer(models.BPE(vocabulary, [], unk_token="<unk>"))
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    backend.decoder = decoders.Fuse()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>")
    text = "abc ba " * 100
    assert "".join(cut_text(text, plain_encoder(tokenizer))) == text
    assert "At 2 of the cuts, the tokens can differ" in caplog.text
    caplog.clear()
    assert len(list(cut_text("abc", plain_encoder(tokenizer)))) == 1
    assert not caplog.text


def test_a_long_text_trains_the_tokenizer_of_its_words(short: None) -> None:
    text = text_of(2000)
    options: Any = {"vocab_size": 330, "show_progress": False}
    one = train_tokenizer([text], **options)
    assert one.get_vocab() == train_tokenizer(list(cut_text(text)), **options).get_vocab()


@pytest.mark.parametrize("size", [1, 7, 64, 1000, 5000])
def test_the_pieces_do_not_depend_on_the_parts(size: int, short: None) -> None:
    text = text_of(1000)
    parts = (text[start : start + size] for start in range(0, len(text), size))
    tokenizer = train_tokenizer([text], vocab_size=330, show_progress=False)
    encode = plain_encoder(tokenizer)
    assert list(cut_text(parts, encode)) == list(cut_text(text, encode))


@pytest.mark.parametrize("side", ["right", "left"])
def test_a_text_that_is_truncated_is_not_read_whole(side: str, short: None) -> None:
    text = text_of(2000)
    tokenizer = train_tokenizer([text], vocab_size=330, show_progress=False)
    tokenizer.truncation_side = side
    for most in (1, 100, 1000):
        read = beginning(text, most + 1, tokenizer)
        assert (len(read) < len(text) / 2) == (side == "right")
        options: Any = {"truncation": True, "max_length": most}
        found, expected = tokenizer(read, **options), tokenizer(text, **options)
        assert found["input_ids"] == expected["input_ids"]
        assert found.encodings[0].overflowing
    assert beginning(text, 10**9, tokenizer) == text
