# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
import pytest

from hf_tx.objectives import continuation_pairs


def test_pairs_by_hand():
    pairs = continuation_pairs([5, 6, 7, 8, 9], source_length=3, target_length=2, eos_token_id=1)
    assert pairs == [
        {"input_ids": [1], "labels": [5, 6]},
        {"input_ids": [5, 6, 1], "labels": [7, 8]},
        {"input_ids": [7, 8, 1], "labels": [9, 1]},
    ]
    assert continuation_pairs([5, 6], source_length=3, target_length=2, eos_token_id=1, closes=False) == [
        {"input_ids": [1], "labels": [5, 6]}
    ]
    assert continuation_pairs([], source_length=3, target_length=2, eos_token_id=1) == []


@pytest.mark.parametrize("target_length", [1, 3, 7, 50])
@pytest.mark.parametrize("source_length", [2, 5, 60])
def test_every_token_is_in_one_target_after_its_own_past(source_length, target_length):
    text = list(range(10, 40))
    pairs = continuation_pairs(
        text, source_length=source_length, target_length=target_length, eos_token_id=1, closes=False
    )
    assert sum((pair["labels"] for pair in pairs), []) == text
    for pair in pairs:
        before = text[: text.index(pair["labels"][0])]
        assert len(pair["input_ids"]) == min(len(before) + 1, source_length)
        assert pair["input_ids"] == [*before[max(0, len(before) - source_length + 1) :], 1]


@pytest.mark.parametrize(("source_length", "target_length"), [(1, 4), (4, 0)])
def test_lengths_without_room_are_refused(source_length, target_length):
    with pytest.raises(ValueError, match=f"source_length = {source_length}, target_length = {target_length}"):
        continuation_pairs([5], source_length=source_length, target_length=target_length, eos_token_id=1)
