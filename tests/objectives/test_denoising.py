# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
import collections

import numpy as np
import pytest
from datasets import Dataset
from objective_data import make, make_texts

from hf_tx.objectives.denoising import _lengths

OFF = {"permute_sentences": False, "rotation": 0.0, "deletion": 0.0, "infilling": 0.0}


def damaged(count=300, max_length=64, **options):
    """An objective, and the texts and damaged texts of its rows, without the special tokens around them."""
    objective = make("denoising", max_length, **{**OFF, **options})
    rows = list(objective.prepare(Dataset.from_dict({"text": make_texts(count)})))
    eos, pairs = objective.tokenizer.eos_token_id, []
    for row in rows:
        example = objective.fix(row)
        assert example["labels"] == row["input_ids"], "the labels are the whole text"
        assert example["input_ids"][-1] == eos
        pairs.append((row["input_ids"][:-1], example["input_ids"][:-1]))
    return objective, pairs


def is_subsequence(short, long):
    rest = iter(long)
    return all(token in rest for token in short)


def test_infilling_hides_spans_of_poisson_lengths():
    objective, pairs = damaged(800, infilling=0.3)
    mask, hidden, total, spans = objective.tokenizer.mask_token_id, 0, 0, 0
    for text, source in pairs:
        kept = [token for token in source if token != mask]
        assert is_subsequence(kept, text)
        assert len(source) <= len(text)
        hidden, total = hidden + len(text) - len(kept), total + len(text)
        spans += len(source) - len(kept)
    assert total > 8000
    assert hidden / total == pytest.approx(0.3, abs=0.01)
    # 3.0 without the last span of a text, which is as long as is left to hide.
    assert 2.2 < hidden / spans < 3.0


def test_lengths_are_poisson():
    lengths = _lengths(30_000, 3.0, np.random.default_rng(0))
    assert sum(lengths) == 30_000
    shares = collections.Counter(lengths)
    poisson = {0: 0.0498, 1: 0.1494, 2: 0.2240, 3: 0.2240, 4: 0.1680, 5: 0.1008}
    for length, share in poisson.items():
        assert shares[length] / len(lengths) == pytest.approx(share, abs=0.012)
    for seed in range(200):  # a text never grows
        short = _lengths(2, 0.3, np.random.default_rng(seed))
        assert sum(short) == 2
        assert len(short) <= 2


def test_an_empty_span_puts_a_mask_where_nothing_is_missing():
    objective, pairs = damaged(infilling=0.3, poisson_lambda=0.5)
    mask = objective.tokenizer.mask_token_id
    masks = sum(source.count(mask) for _, source in pairs)
    hidden = sum(len(text) - len(source) for text, source in pairs) + masks
    assert masks > 100
    assert hidden / masks == pytest.approx(1.0, abs=0.08)  # 1.27 without empty spans, which are as many as allowed


def test_sentences_are_permuted_whole():
    objective, pairs = damaged(permute_sentences=True)
    tokens = objective.tokenizer.convert_ids_to_tokens

    def sentences(text):
        found, start = [], 0
        for place, token in enumerate(tokens(text), 1):
            if token[-1] in ".!?":
                found.append(tuple(text[start:place]))
                start = place
        return [*found, *([tuple(text[start:])] if start < len(text) else [])]

    moved = several = 0
    for text, source in pairs:
        parts = sentences(text)
        assert len(source) == len(text)
        assert sorted(source) == sorted(text)
        for part in parts:
            assert any(tuple(source[i : i + len(part)]) == part for i in range(len(source)))
        several += len(parts) > 2
        moved += len(parts) > 2 and source != text
    assert several > 100
    assert moved / several > 0.75  # three sentences stay where they are in one of six cases


def test_rotation_begins_anywhere():
    objective, pairs = damaged(rotation=1.0)
    starts = []
    for text, source in pairs:
        turns = [turn for turn in range(len(text)) if [*text[turn:], *text[:turn]] == source]
        assert turns
        starts.append(turns[0] / len(text))
    assert np.mean(starts) == pytest.approx(0.5, abs=0.06)
    _, pairs = damaged(rotation=0.4)
    turned = np.mean([text != source for text, source in pairs if len(set(text)) > 1])
    assert turned == pytest.approx(0.4, abs=0.1)


def test_deletion_leaves_the_rest_in_order():
    _, pairs = damaged(deletion=0.2)
    assert all(is_subsequence(source, text) and source for text, source in pairs)
    total, left = (sum(map(len, texts)) for texts in zip(*pairs, strict=True))
    assert 1 - left / total == pytest.approx(0.2, abs=0.01)
    assert all(len(source) == 1 for _, source in damaged(20, deletion=1.0)[1])


def test_special_tokens_are_neither_hidden_nor_deleted():
    objective = make("denoising", algorithm="unigram", infilling=0.8, deletion=0.3)
    eos, unknown = objective.tokenizer.eos_token_id, objective.tokenizer.unk_token_id
    row = {"input_ids": [40, 41, unknown, 42, 43, eos, 44, 45, 46, eos]}
    for epoch in range(30):
        objective.set_epoch(epoch)
        source = objective([row])["input_ids"][0].tolist()
        assert source.count(eos) == 2
        assert source.count(unknown) == 1
        assert source[-1] == eos


def test_the_defaults_are_those_of_bart():
    objective = make("denoising")
    row = list(objective.prepare(Dataset.from_dict({"text": make_texts(20)})))[0]
    source = objective.fix(row)["input_ids"]
    assert objective.tokenizer.mask_token_id in source
    assert (objective.permute_sentences, objective.infilling, objective.poisson_lambda) == (True, 0.3, 3.0)
    assert objective.rotation == objective.deletion == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (OFF, "all off: nothing is damaged"),
        ({"infilling": 1.5}, "infilling = 1.5"),
        ({"deletion": -0.1}, "deletion = -0.1"),
        ({"rotation": 2}, "rotation = 2"),
        ({"poisson_lambda": 0.0}, "poisson_lambda = 0.0"),
    ],
)
def test_wrong_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        make("denoising", **options)
