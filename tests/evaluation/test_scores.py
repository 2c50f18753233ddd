# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
import math

import pytest

from hf_tx.evaluation import Score, UnigramModel


def test_measures_by_hand():
    # Four tokens of probabilities 1/2, 1/4, 1/8 and 1/8: 1 + 2 + 3 + 3 = 9 bits, for a text of 6 bytes.
    score = Score(nats=9 * math.log(2), num_tokens=4, num_correct=1)
    assert score.loss == pytest.approx(9 / 4 * math.log(2))
    assert score.perplexity == pytest.approx(2 ** (9 / 4))
    assert score.bits_per_byte(6) == pytest.approx(1.5)
    assert score.accuracy == 0.25


def test_scores_are_added_token_by_token():
    # A mean of the means would be 2.
    total = Score(1.0, 1, 1) + Score(9.0, 3, 0)
    assert (total.loss, total.accuracy) == (2.5, 0.25)


def test_a_hopeless_score_has_no_overflow():
    assert Score(1e6, 1, 0).perplexity == math.inf


def test_nothing_has_no_mean():
    with pytest.raises(ValueError, match="no token was predicted"):
        _ = Score(0.0, 0, 0).loss
    with pytest.raises(ValueError, match="no token was predicted"):
        _ = Score(0.0, 0, 0).accuracy
    with pytest.raises(ValueError, match="num_bytes = 0"):
        Score(1.0, 1, 0).bits_per_byte(0)


def test_a_unigram_model_by_hand():
    # Counts 3, 1, 0, 0 of four tokens; one is added to each: (3 + 1) / 8, (1 + 1) / 8, 1 / 8, 1 / 8.
    model = UnigramModel([[0, 1], [0, 0]], vocab_size=4)
    assert [model.probability(token) for token in range(4)] == [0.5, 0.25, 0.125, 0.125]
    score = model.score([0, 1, 3, 2])
    assert score.nats == pytest.approx(9 * math.log(2))
    assert (score.num_tokens, score.num_correct) == (4, 1)
    # What was frequent in training is the answer, not what is frequent here.
    assert model.score([1, 1, 0]).num_correct == 1


def test_smoothing():
    model = UnigramModel([[2, 2, 1]], vocab_size=3, smoothing=0.5)
    assert [model.probability(token) for token in range(3)] == pytest.approx([0.5 / 4.5, 1.5 / 4.5, 2.5 / 4.5])
    assert UnigramModel([[3, 1, 3, 1]], vocab_size=5).most_frequent == 1
    assert UnigramModel([], vocab_size=5).score([4, 4]).perplexity == pytest.approx(5)


@pytest.mark.parametrize("options", [{"vocab_size": 0}, {"vocab_size": 3, "smoothing": 0.0}])
def test_a_unigram_model_without_probabilities_is_refused(options):
    with pytest.raises(ValueError, match="both must be above 0"):
        UnigramModel([[0]], **options)
