# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
import pickle

import pytest
import torch
from datasets import Dataset
from objective_data import make, make_texts

from hf_tx.objectives import MaskedLM

MASKINGS = ("token", "word", "span")


def long_rows(objective, count=400):
    return list(objective.prepare(Dataset.from_dict({"text": make_texts(count)})))


def masked(masking, rows=None, **options):
    """What was read and what is to be predicted at the places of ordinary tokens, of many rows."""
    objective = make("masked-lm", 64, masking=masking, **options)
    rows = long_rows(objective) if rows is None else rows
    batch = objective(rows)
    original = torch.tensor([row["input_ids"] for row in rows])
    special = torch.isin(original, torch.tensor(objective.tokenizer.all_special_ids))
    return objective, rows, batch, original, special


@pytest.mark.parametrize("masking", MASKINGS)
@pytest.mark.parametrize("probability", [0.15, 0.4])
def test_rates(masking, probability):
    objective, _, batch, original, special = masked(masking, mlm_probability=probability)
    hidden = batch["labels"] != -100
    assert not (hidden & special).any()
    assert torch.equal(batch["labels"][hidden], original[hidden])
    assert torch.equal(batch["input_ids"][~hidden], original[~hidden])
    ordinary = int((~special).sum())
    assert ordinary > 8000
    # Spans go to the right, so that the first words of texts, which have more tokens here, are hidden less often.
    assert hidden.sum() / ordinary == pytest.approx(probability, abs=0.02 if masking == "span" else 0.012)
    read = batch["input_ids"][hidden]
    as_mask = read == objective.tokenizer.mask_token_id
    as_itself = read == original[hidden]
    # Spans are replaced as wholes, so that there are fewer choices; a random token is the right one at times.
    tolerance = 0.06 if masking == "span" else 0.03
    assert as_mask.float().mean() == pytest.approx(0.8, abs=tolerance)
    assert as_itself.float().mean() == pytest.approx(0.1, abs=tolerance)
    others = read[~as_mask & ~as_itself]
    assert not set(others.tolist()) & set(objective.tokenizer.all_special_ids)
    assert len(set(others.tolist())) > len(objective.tokenizer) / 3


def test_all_tokens_of_a_word_are_hidden_or_none():
    objective, rows, batch, _, special = masked("word")
    hidden = batch["labels"] != -100
    words = torch.tensor([row["word_ids"] for row in rows])
    assert torch.equal(words == -1, special)
    pieces = parts = 0
    for row in range(len(rows)):
        starts = [i for i in range(64) if words[row, i] != words[row, i - 1] or rows[row]["position_ids"][i] == 0]
        for start, stop in zip(starts, [*starts[1:], 64], strict=True):
            assert len(set(hidden[row, start:stop].tolist())) == 1
            pieces += stop - start > 1
            tokens = batch["input_ids"][row, start:stop][hidden[row, start:stop]]
            parts += len(tokens) > 1 and (tokens == objective.tokenizer.mask_token_id).any() and len(set(tokens)) > 1
    assert pieces > 100, "words of one token would show nothing"
    assert parts > 10, "each token of a word is replaced in its own way"


def test_words_are_those_of_the_text():
    objective = make("masked-lm", 64, masking="word", algorithm="wordpiece")
    text = "river milleriver stone?"
    (row,) = objective.encode([text])
    tokens = objective.tokenizer.convert_ids_to_tokens(row["input_ids"])
    words: dict[int, str] = {}
    for word, token in zip(row["word_ids"], tokens, strict=True):
        words[word] = words.get(word, "") + token.removeprefix("##")
    words.pop(-1)
    assert list(words.values()) == ["river", "milleriver", "stone", "?"]


def test_the_tokens_of_a_span_are_read_alike_and_none_goes_on_in_another_text():
    objective, rows, batch, original, special = masked("span")
    hidden, as_mask = batch["labels"] != -100, batch["input_ids"] == objective.tokenizer.mask_token_id
    both = hidden[:, 1:] & hidden[:, :-1]  # of one span, but for some that touch
    alike = as_mask[:, 1:] == as_mask[:, :-1]
    assert both.sum() > 500
    assert alike[both].float().mean() > 0.95, "0.68, if each token were replaced in its own way"


def test_a_long_text_has_spans_of_the_mean_of_the_paper():
    objective = make("masked-lm", 20_000, masking="span", mlm_probability=0.02, packed=False)
    (row,) = objective.encode([" ".join(make_texts(900))[:60_000]])
    total = spans = 0
    for epoch in range(10):
        objective.set_epoch(epoch)
        labels = objective([row])["labels"][0].tolist()
        words = {row["word_ids"][place] for place, label in enumerate(labels) if label != -100}
        total, spans = total + len(words), spans + sum(word - 1 not in words for word in words)
    assert total > 1500
    assert total / spans == pytest.approx(3.8, abs=0.4)


@pytest.mark.parametrize("masking", MASKINGS)
def test_the_shortest_row_has_a_label(masking):
    objective = make("masked-lm", masking=masking)
    rows = list(objective.prepare(Dataset.from_dict({"text": ["river"]})))
    for epoch in range(5):
        objective.set_epoch(epoch)
        assert int((objective(rows)["labels"] != -100).sum()) >= 1
    ids = objective.tokenizer.all_special_ids
    special = {"input_ids": ids, "word_ids": [-1] * len(ids)}
    assert int((objective([special])["labels"] != -100).sum()) == 0


@pytest.mark.parametrize("packed", [True, False])
def test_packed_or_a_row_a_piece(packed):
    objective = make("masked-lm", packed=packed, masking="word")
    texts = make_texts(5)
    rows = list(objective.prepare(Dataset.from_dict({"text": texts})))
    assert list(rows[0]) == ["input_ids", *["position_ids"] * packed, "word_ids"]
    batch = objective(rows)
    assert set(batch) == {"input_ids", "labels", "position_ids" if packed else "attention_mask"}
    cls, sep = objective.tokenizer.cls_token_id, objective.tokenizer.sep_token_id
    if not packed:
        assert all(row["input_ids"][0] == cls and row["input_ids"][-1] == sep for row in rows)
    words = [token for row in rows for token in row["input_ids"] if token not in objective.tokenizer.all_special_ids]
    assert words == sum(objective.tokenizer(texts, add_special_tokens=False)["input_ids"], [])


def test_a_row_without_words_is_refused():
    objective = make("masked-lm", masking="word")
    with pytest.raises(ValueError, match="masking = 'word' needs the column word_ids.*remove_unused_columns=False"):
        objective([{"input_ids": [5, 6, 7]}])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"masking": "words"}, "masking = 'words': must be one of token, word, span"),
        ({"mlm_probability": 0.0}, "mlm_probability = 0.0"),
        ({"mlm_probability": 1.0}, "mlm_probability = 1.0"),
        ({"mask_replace_prob": 0.8, "random_replace_prob": 0.3}, r"\(0.8, 0.3\)"),
        ({"mask_replace_prob": -0.1}, r"\(-0.1, 0.1\)"),
    ],
)
def test_wrong_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        make("masked-lm", **options)


def test_words_need_a_tokenizer_that_splits_them():
    tokenizer = pickle.loads(pickle.dumps(make("masked-lm").tokenizer))
    tokenizer.backend_tokenizer.pre_tokenizer = None
    with pytest.raises(ValueError, match="masking = 'word' needs a fast tokenizer that splits texts into words"):
        MaskedLM(tokenizer, 32, masking="word")
