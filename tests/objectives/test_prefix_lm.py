# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
import collections

import pytest
import torch
from datasets import Dataset
from objective_data import make, make_texts
from tiny_models import assert_close, build

from hf_tx.models.positions import POSITIONS


def batch_of(objective, count=8):
    return objective(list(objective.prepare(Dataset.from_dict({"text": make_texts(count)}))))


def test_what_sees_what():
    objective = make("prefix-lm")
    rows = [
        {"input_ids": [1, 5, 6, 7], "labels": [-100, -100, 6, 7]},
        {"input_ids": [1, 5, 6], "labels": [-100, 5, 6]},
    ]
    batch = objective(rows)
    expected = [
        [[1, 1, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1]],
        [[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1]],  # what padding sees matters to nobody
    ]
    assert batch["attention_mask"].dtype == torch.bool
    assert batch["attention_mask"].long().tolist() == [[row] for row in expected]
    assert batch["labels"].tolist() == [[-100, -100, 6, 7], [-100, 5, 6, -100]]


def test_padding_that_no_label_tells_apart_is_no_prefix():
    batch = make("prefix-lm")([{"input_ids": [1, 5], "labels": [-100, -100]}, {"input_ids": [1, 5, 6, 7]}])
    assert batch["attention_mask"][0, 0, 0].tolist() == [True, True, False, False]


def test_labels_are_all_that_follows_a_prefix():
    objective = make("prefix-lm")
    rows = list(objective.prepare(Dataset.from_dict({"text": make_texts(20)})))
    for row, tokens, labels in zip(
        rows, *(objective(rows)[name].tolist() for name in ("input_ids", "labels")), strict=True
    ):
        length = len(row["input_ids"])
        assert tokens[:length] == row["input_ids"]
        prefix = labels.count(-100) - (len(labels) - length)
        assert 1 <= prefix < length
        assert labels == [-100] * prefix + row["input_ids"][prefix:] + [-100] * (len(labels) - length)


def test_all_lengths_of_a_prefix_are_alike():
    objective, found = make("prefix-lm"), collections.Counter()
    for epoch in range(1000):
        objective.set_epoch(epoch)
        found[objective([{"input_ids": [1, 5, 6, 7, 8]}])["labels"][0].tolist().count(-100)] += 1
    assert set(found) == {1, 2, 3, 4}
    assert all(count == pytest.approx(250, abs=50) for count in found.values())


@pytest.mark.parametrize("backend", ["eager", "sdpa"])
def test_the_prefix_is_read_from_both_sides_and_the_rest_from_the_left(backend):
    objective = make("prefix-lm")
    batch = batch_of(objective)
    model = build("decoder", backend, "lm", vocab_size=len(objective.tokenizer))
    logits = model(**batch).logits
    row, labels = batch["input_ids"][0], batch["labels"][0]
    prefix = int((labels == -100).long().cumprod(0).sum())
    assert 2 < prefix < len(row) - 2

    def changed(place):
        other = batch["input_ids"].clone()
        other[0, place] = 3 if other[0, place] != 3 else 4
        return (model(**{**batch, "input_ids": other}).logits != logits).any(-1)

    assert changed(prefix - 1)[0, :prefix].all(), "the prefix sees its end"
    assert changed(prefix)[0].tolist() == [place >= prefix for place in range(len(row))], "and nothing after it"
    assert not changed(prefix)[1:].any()


@pytest.mark.parametrize("position_type", list(POSITIONS))
def test_a_prompt_that_was_read_from_both_sides_goes_on_as_in_training(position_type):
    objective = make("prefix-lm")
    batch = {name: values[:1] for name, values in batch_of(objective).items()}
    model = build("decoder", "sdpa", "lm", vocab_size=len(objective.tokenizer), position_type=position_type)
    prefix = int((batch["labels"] == -100).long().cumprod(1).sum())
    expected = model(**batch).logits
    read = model(batch["input_ids"][:, :prefix], is_causal=False, use_cache=True)
    rest = model(batch["input_ids"][:, prefix:], cache=read.cache)
    assert_close(torch.cat((read.logits, rest.logits), dim=1), expected)


def test_the_loss_is_that_of_rows_alone():
    objective = make("prefix-lm")
    rows = list(objective.prepare(Dataset.from_dict({"text": make_texts(3)})))
    model = build("decoder", "sdpa", "lm", vocab_size=len(objective.tokenizer))
    losses, counts = [], []
    for row in rows:
        alone = objective([row])
        counts.append(int((alone["labels"] != -100).sum()))
        losses.append(model(**alone).loss * counts[-1])
    assert_close(model(**objective(rows)).loss, sum(losses) / sum(counts))


def test_a_row_of_one_token_is_refused():
    with pytest.raises(ValueError, match="a row has 1 token: a prefix and a rest need two at least"):
        make("prefix-lm")([{"input_ids": [5]}])


def test_a_mixer_without_scores_is_refused_by_the_model():
    objective = make("prefix-lm")
    model = build("decoder", "sdpa", "lm", vocab_size=len(objective.tokenizer), mixers="gru")
    with pytest.raises(ValueError, match="layer 0 .'gru'. is not attention"):
        model(**batch_of(objective))
