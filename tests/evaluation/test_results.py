# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
import dataclasses
import math

import pytest

from hf_tx.evaluation import Score, TextResult, rank

BITS = math.log(2)


def result(name: str, bits: float, tokens: int = 50, **changes) -> TextResult:
    fields = dict(num_bytes=100, num_unknown=0, unknown_bytes=0, lossless=True, texts_digest="t", tokens_digest="a")
    fields |= dict(task="causal-lm", settings={}, scores=(Score(bits * BITS / 2, tokens // 2, 1),) * 2)
    return TextResult(name=name, **{**fields, **changes})


def test_one_tokenizer_is_ranked_by_either_measure():
    results = [result("second", 200), result("third", 300), result("first", 100)]
    for by in ("perplexity", "bits_per_byte"):
        assert [ranked.name for ranked in rank(results, by=by)] == ["first", "second", "third"]
    assert results[0].perplexity == pytest.approx(2 ** (200 / 50))
    assert results[0].bits_per_byte == pytest.approx(2.0)


def test_other_tokenizers_are_ranked_by_bits_per_byte_only():
    """The one with the better perplexity is the worse model: it has more tokens to predict."""
    results = [result("fine", 300, tokens=100, tokens_digest="b"), result("coarse", 250)]
    assert results[0].perplexity < results[1].perplexity
    message = r"'fine' and 'coarse' have different tokenizers \(100 and 50 tokens .*use by='bits_per_byte'"
    with pytest.raises(ValueError, match=message):
        rank(results, by="perplexity")
    assert [ranked.name for ranked in rank(results)] == ["coarse", "fine"]


def test_unknown_tokens_are_charged():
    """Ten bytes that the tokenizer knows nothing of do not make a model better."""
    known, unknown = result("known", 100), result("unknown", 60, num_unknown=2, unknown_bytes=10)
    assert unknown.bits_per_byte == pytest.approx((60 + 12 * math.log2(257)) / 100)
    assert rank([unknown, known])[0] is known
    unread = result("unread", 60, num_unread=3, unread_bytes=9)
    assert unread.bits_per_byte == pytest.approx(unknown.bits_per_byte)
    # A baseline of the same tokens is charged the same.
    assert unread.bits_per_byte_of(known.score) == pytest.approx((100 + 12 * math.log2(257)) / 100)


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"texts_digest": "u"}, "scored different texts"), ({"task": "masked-lm"}, "because their tasks are different")],
)
def test_what_has_no_common_measure_is_refused(changes, message):
    first = result("first", 100)
    for by in ("perplexity", "bits_per_byte"):
        with pytest.raises(ValueError, match=f"'first' and 'second' .*{message}"):
            rank([first, dataclasses.replace(first, name="second", **changes)], by=by)


def test_another_measure_is_refused():
    with pytest.raises(ValueError, match="by = 'loss': must be one of bits_per_byte, perplexity"):
        rank([result("first", 100)], by="loss")
