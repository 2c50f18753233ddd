# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
import pytest
import torch
from tiny_models import assert_close, shared, tokens

from hf_tx.evaluation import score_targets
from hf_tx.objectives import pack_documents, pack_for_causal_lm


def test_rows_by_hand():
    rows = pack_documents([[5, 6], [7, 8, 9, 10]], 6, begin=[1], end=[2], pad_token_id=0)
    assert rows == [
        # The second document is cut, since one more token would leave no room for the frame.
        {
            "input_ids": [1, 5, 6, 2, 0, 0],
            "position_ids": [0, 1, 2, 3, 0, 1],
            "special_tokens_mask": [1, 0, 0, 1, 1, 1],
        },
        {
            "input_ids": [1, 7, 8, 9, 10, 2],
            "position_ids": [0, 1, 2, 3, 4, 5],
            "special_tokens_mask": [1, 0, 0, 0, 0, 1],
        },
    ]


def test_causal_rows_by_hand():
    rows = pack_for_causal_lm([[5, 6], [7, 8, 9]], 5, bos_token_id=1, eos_token_id=2, pad_token_id=0)
    assert rows == [
        {"input_ids": [1, 5, 6, 2, 0], "position_ids": [0, 1, 2, 3, 0], "labels": [-100, 5, 6, 2, -100]},
        {"input_ids": [1, 7, 8, 9, 2], "position_ids": [0, 1, 2, 3, 4], "labels": [-100, 7, 8, 9, 2]},
    ]


@pytest.mark.parametrize("length", [3, 4, 7, 16, 64])
@pytest.mark.parametrize("frame", [([], []), ([1], []), ([1], [2])])
def test_every_token_stands_in_one_row(length, frame):
    begin, end = frame
    documents = [tokens(1, size, seed=size)[0].tolist() for size in (1, 5, 40, 2, 3, 17)] + [[]]
    rows = pack_documents(documents, length, begin=begin, end=end, pad_token_id=0)
    assert all(len(values) == length for row in rows for values in row.values())
    kept = [
        token
        for row in rows
        for token, special in zip(row["input_ids"], row["special_tokens_mask"], strict=True)
        if not special
    ]
    assert kept == sum(documents, [])
    for row in rows:
        starts = [index for index, position in enumerate(row["position_ids"]) if position == 0]
        for start, stop in zip(starts, [*starts[1:], length], strict=True):
            piece = row["input_ids"][start:stop]
            assert row["position_ids"][start:stop] == list(range(stop - start))
            assert set(piece) == {0} or (piece[: len(begin)] == begin and piece[len(piece) - len(end) :] == end)
    wasted = sum(token == 0 for row in rows for token in row["input_ids"])
    assert wasted <= len(rows) * (len(begin) + len(end)) + length


def test_a_full_row_is_not_followed_by_an_empty_one():
    assert len(pack_documents([[5, 6, 7]], 4, begin=[1], pad_token_id=0)) == 1
    assert pack_documents([], 4, begin=[1], pad_token_id=0) == []


def test_a_row_has_room_for_a_token():
    with pytest.raises(ValueError, match="length = 2: a row needs room for 2 special tokens and at least one token"):
        pack_documents([[5]], 2, begin=[1], end=[2], pad_token_id=0)


@pytest.mark.parametrize("mixers", ["full", "sliding,full"])
def test_packed_documents_have_the_loss_that_they_have_alone(mixers):
    model = shared("decoder", "sdpa", "lm", mixers=mixers)
    documents = [tokens(1, size, seed=size)[0].tolist() for size in (3, 9, 5)]
    rows = pack_for_causal_lm(documents, 32, bos_token_id=1, eos_token_id=2, pad_token_id=0)
    assert len(rows) == 1
    batch = {name: torch.tensor([values]) for name, values in rows[0].items()}
    with torch.no_grad():
        packed = model(**batch).loss
    alone = [
        score_targets(model, [({"input_ids": torch.tensor([[1, *document]])}, torch.tensor([[*document, 2]]))])
        for document in documents
    ]
    total = sum(alone[1:], start=alone[0])
    assert total.num_tokens == 3 + 9 + 5 + 3
    assert_close(packed, torch.tensor(total.loss))
