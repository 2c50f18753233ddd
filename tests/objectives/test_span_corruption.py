# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
import numpy as np
import pytest
from datasets import Dataset
from objective_data import make, make_texts, real_tokens

from hf_tx.objectives import SpanCorruption


def pairs_of(objective, rows):
    """Source and labels of each row, without padding."""
    batch = objective(rows)
    for number in range(len(rows)):
        row = {name: values[number] for name, values in batch.items()}
        yield real_tokens(row), [label for label in row["labels"].tolist() if label != -100]


def rows_of(objective, count=200):
    return list(objective.prepare(Dataset.from_dict({"text": make_texts(count)})))


@pytest.mark.parametrize(
    "options", [{}, {"noise_density": 0.5, "mean_noise_span_length": 1.0}, {"noise_density": 0.9}]
)
@pytest.mark.parametrize("max_length", [4, 32])
def test_source_and_labels_give_the_text_back(options, max_length):
    objective = make("span-corruption", max_length, **options)
    rows = rows_of(objective, 60)
    for epoch in range(2):
        objective.set_epoch(epoch)
        for row, (source, target) in zip(rows, pairs_of(objective, rows), strict=True):
            assert objective.restore(source, target) == row["input_ids"]
            assert source != row["input_ids"]
            assert max(len(source), len(target)) <= max_length


def test_what_source_and_labels_look_like():
    objective = make("span-corruption")
    tokenizer = objective.tokenizer
    for (source, target), row in zip(pairs_of(objective, rows_of(objective)), rows_of(objective), strict=True):
        assert source[-1] == target[-1] == tokenizer.eos_token_id
        text = row["input_ids"][:-1]
        used = [token for token in target if token in objective.sentinels]
        assert used == [token for token in source if token in objective.sentinels]
        assert used == objective.sentinels[: len(used)]
        assert target[0] == objective.sentinels[0]
        kept = [token for token in source[:-1] if token not in used]
        spans = [token for token in target[:-1] if token not in used]
        assert len(kept) + len(spans) == len(text)
    assert tokenizer.convert_ids_to_tokens(objective.sentinels[:2]) == ["<extra_id_0>", "<extra_id_1>"]


def test_rates():
    objective = make("span-corruption", 64, noise_density=0.25, mean_noise_span_length=2.5)
    length, count = objective.text_length, 400
    noise = round(length * 0.25)
    spans = round(noise / 2.5)
    assert length - noise + spans + 1 == 64, "a piece is as long as the source has room for"
    choices = np.stack([objective._noise(length, np.random.default_rng(seed)) for seed in range(count)])
    assert (choices.sum(1) == noise).all()
    begins = choices & ~np.pad(choices, ((0, 0), (1, 0)))[:, :-1]
    assert (begins.sum(1) == spans).all()
    assert choices.mean() == pytest.approx(0.25, abs=0.01)
    # All places alike, but for the ends, and both ends alike: T5's own code leaves the end of every text out.
    of_places = choices.mean(0)
    assert (abs(of_places[5:-5] - 0.25) < 0.08).all()
    assert (of_places[[0, -1]] > 0.06).all()
    assert abs(of_places[0] - of_places[-1]) < 0.08


def test_the_lengths_of_the_docstring():
    objective = make("span-corruption", 91)
    assert objective.text_length == 100
    assert objective._amounts(100) == (15, 5)


def test_special_tokens_are_never_left_out():
    objective = make("span-corruption", algorithm="unigram", noise_density=0.6)
    eos, unknown = objective.tokenizer.eos_token_id, objective.tokenizer.unk_token_id
    row = {"input_ids": [40, 41, unknown, 42, 43, eos, 44, 45, 46, eos]}
    for epoch in range(20):
        objective.set_epoch(epoch)
        ((source, target),) = pairs_of(objective, [row])
        assert [token for token in source if token in (eos, unknown)] == [unknown, eos, eos]
        assert target.count(eos) == 1
        assert objective.restore(source, target) == row["input_ids"]


def test_a_text_of_one_token():
    objective = make("span-corruption")
    eos, first = objective.tokenizer.eos_token_id, objective.sentinels[0]
    ((source, target),) = pairs_of(objective, [{"input_ids": [40, eos]}])
    assert (source, target) == ([first, eos], [first, 40, eos])


def test_what_does_not_fit_together_is_refused():
    objective = make("span-corruption")
    first, second = objective.sentinels[:2]
    with pytest.raises(ValueError, match="the target has no span for '<extra_id_1>'"):
        objective.restore([first, 40, second], [first, 41])
    with pytest.raises(ValueError, match="the target begins with token 41, which is not a sentinel"):
        objective.restore([first, 40], [41, first])
    with pytest.raises(ValueError, match="holds a sentinel: rows that are corrupted already need labels"):
        objective([{"input_ids": [40, first, 41]}])


@pytest.mark.parametrize(
    ("max_length", "options", "message"),
    [
        (600, {}, r"needs 33 sentinels for 33 spans in a text, and the tokenizer has 30 .*extra_ids=33"),
        (2, {}, "max_length = 2: source and labels of one token need 3 tokens"),
        (32, {"noise_density": 0.0}, "noise_density = 0.0"),
        (32, {"noise_density": 1.0}, "noise_density = 1.0"),
        (32, {"mean_noise_span_length": 0.5}, "mean_noise_span_length = 0.5"),
    ],
)
def test_wrong_options_are_refused(max_length, options, message):
    with pytest.raises(ValueError, match=message):
        make("span-corruption", max_length, **options)


def test_a_tokenizer_without_sentinels_is_refused():
    with pytest.raises(ValueError, match=r"needs 2 sentinels .* the tokenizer has 0 .*: train one with extra_ids=2"):
        SpanCorruption(make("causal-lm").tokenizer, 32)
