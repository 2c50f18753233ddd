# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""What all objectives have in common."""

import pickle
from typing import Any

import pytest
import torch
from datasets import Dataset
from objective_data import make, make_texts
from tiny_models import SIZES
from torch.utils.data import DataLoader

from hf_tx.objectives import OBJECTIVES, objectives_of, text_objective_of
from hf_tx.training import NEW_MODELS, new_config

NAMES = tuple(OBJECTIVES)
#: Draw something in every epoch.
RANDOM = ("masked-lm", "span-corruption", "denoising", "prefix-lm")
#: Their rows have no labels, so that the collator makes them.
MAKE_LABELS = (*RANDOM, "causal-lm")


def dataset() -> Dataset:
    texts = make_texts()
    backwards = [" ".join(reversed(text.split())) for text in texts]
    # The column of another type is to be left out.
    return Dataset.from_dict({"text": texts, "anchor": texts, "positive": backwards, "id": range(len(texts))})


def make_rows(objective: Any, **options: Any) -> list[dict[str, Any]]:
    return list(objective.prepare(dataset(), **options))


def without_labels(name: str, **options: Any) -> Any:
    """An objective and options with which its rows have no labels yet."""
    return make(name, **({"packed": False} if name == "causal-lm" else {}), **options)


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return list(one) == list(other) and all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("name", NAMES)
def test_a_stream_gives_the_rows_of_a_table(name):
    objective = make(name)
    table = objective.prepare(dataset())
    stream = objective.prepare(dataset().to_iterable_dataset(num_shards=2))
    assert table.column_names == list(objective.features())
    assert list(stream.take(3)) == list(table.take(3))
    texts = dataset().remove_columns("id")
    unknown = texts.to_iterable_dataset().map(lambda row: row)  # a stream that does not know its columns
    assert unknown.column_names is None
    assert list(objective.prepare(unknown)) == list(table)


@pytest.mark.parametrize("name", NAMES)
def test_a_model_learns_from_a_batch(name):
    objective = make(name)
    sizes = {**SIZES, "max_position_embeddings": 32, "vocab_size": len(objective.tokenizer)}
    torch.manual_seed(0)
    model = objective.auto_class.from_config(
        new_config(objective.families[0], **{**objective.token_fields(), **sizes})
    )
    module = objective.trainable(model)
    batch = objective(make_rows(objective)[:4])
    module.train()
    before = module(**batch).loss
    before.backward()
    assert all(weight.grad is not None for weight in model.parameters()), "DDP would wait for such weights"
    torch.optim.SGD(model.parameters(), 1e-3).step()
    assert module(**batch).loss < before


@pytest.mark.parametrize("name", RANDOM)
def test_what_is_drawn_depends_on_seed_epoch_and_tokens_alone(name):
    objective, rows = make(name), make_rows(make(name))[:6]
    batch = objective(rows)
    assert same(objective(rows), batch)
    assert same(make(name)(rows), batch)
    assert not same(make(name, seed=1)(rows), batch)
    for number, row in enumerate(rows):
        alone = objective([row])["labels"][0]
        assert torch.equal(alone, batch["labels"][number, : len(alone)]), "it depends on the batch"
    objective.set_epoch(1)
    other = objective(rows)
    assert not same(other, batch)
    objective.set_epoch(0)
    assert same(objective(rows), batch)


@pytest.mark.parametrize("stream", [False, True])
def test_worker_processes_draw_what_one_process_draws(stream):
    objective = make("masked-lm")
    rows = objective.prepare(dataset())
    if stream:
        rows = rows.to_iterable_dataset(num_shards=1)

    def epochs(**workers: Any) -> list[list[dict[str, torch.Tensor]]]:
        loader = DataLoader(rows, batch_size=4, collate_fn=objective, **workers)
        found = []
        for epoch in range(2):
            objective.set_epoch(epoch)
            found.append(list(loader))
        return found

    expected = epochs()
    assert not same(expected[0][0], expected[1][0])
    for count in (1, 2):
        for persistent in (False, True):
            found = epochs(num_workers=count, persistent_workers=persistent)
            for one, other in zip(found, expected, strict=True):
                assert all(same(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("name", NAMES)
def test_a_copy_in_another_process_is_the_same(name):
    objective = make(name)
    rows = make_rows(objective)[:3]
    assert same(pickle.loads(pickle.dumps(objective))(rows), objective(rows))


@pytest.mark.parametrize("name", NAMES)
def test_fixed_rows_are_the_same_in_every_epoch(name):
    objective = make(name)
    first = objective(make_rows(objective)[:4])
    fixed = make_rows(objective, fixed=True)[:4]
    for epoch in (0, 3):
        objective.set_epoch(epoch)
        assert same(objective(fixed), first)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "contrastive"])
def test_labels_that_are_there_are_kept(name):
    objective = make(name)
    tokens, labels = [7, 40, 41, 42, 43], [-100, 40, -100, 42, 43]
    batch = objective([{"input_ids": tokens, "labels": labels}, {"input_ids": tokens[:3], "labels": labels[:3]}])
    assert batch["input_ids"][0].tolist() == tokens
    assert batch["labels"][0].tolist() == labels
    short = batch["labels"][1].tolist()
    assert sorted(short) == sorted([*labels[:3], -100, -100])


@pytest.mark.parametrize("name", MAKE_LABELS)
def test_padding_of_a_row_is_told_by_its_mask(name):
    objective = without_labels(name)
    tokens = make_rows(objective)[0]["input_ids"]
    padded = {"input_ids": [5, 5, *tokens, 5], "attention_mask": [0, 0, *[1] * len(tokens), 0]}
    # Tensors and arrays are rows as well.
    arrays = {name: torch.tensor(values) for name, values in padded.items()}
    expected = objective([{"input_ids": tokens}])
    assert same(objective([padded]), expected)
    assert same(objective([arrays]), expected)


@pytest.mark.parametrize("name", MAKE_LABELS)
def test_wrong_rows_are_refused(name):
    objective = without_labels(name)
    good = make_rows(objective)[0]
    long = {"input_ids": list(range(40, 140))}
    for row, message in (
        ({"input_ids": []}, r"row 1 of a batch has no tokens"),
        (long, r"row 1 of a batch has \d+ tokens, and max_length = 32: cut texts with prepare"),
        ({"text": "words"}, r"row 1 of a batch has no input_ids: make rows of texts with prepare"),
        ([5, 6, 7], r"row 1 of a batch has no input_ids"),
        ({"input_ids": [[5, 6]]}, r"row 1 of a batch needs lists of one length, .*'input_ids': \(1, 2\)"),
        ({"input_ids": [5, 6], "attention_mask": [1]}, r"'input_ids': \(2,\), 'attention_mask': \(1,\)"),
    ):
        with pytest.raises(ValueError, match=message):
            objective([good, row])


@pytest.mark.parametrize("name", NAMES)
def test_a_tokenizer_without_a_token_is_refused(name):
    whole = make(name).tokenizer
    for role in OBJECTIVES[name].needs:
        lacking = pickle.loads(pickle.dumps(whole))
        setattr(lacking, role, None)
        with pytest.raises(
            ValueError, match=f"{name} needs a {role}, and the tokenizer has none: .*tokenizer.{role} ="
        ):
            OBJECTIVES[name](lacking, 32)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "contrastive"])
def test_a_length_without_room_is_refused_at_once(name):
    with pytest.raises(ValueError, match="length = "):
        make(name, 1)


@pytest.mark.parametrize(("options", "message"), [({"max_length": 0}, "max_length = 0"), ({"seed": -1}, "seed = -1")])
def test_numbers_out_of_range_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        make("causal-lm", **options)


@pytest.mark.parametrize("name", NAMES)
def test_a_dataset_that_does_not_serve_is_refused(name):
    objective, column = make(name), OBJECTIVES[name].columns[-1]
    renamed = dataset().rename_column(column, "other")
    with pytest.raises(ValueError, match=rf"no column '{column}': its columns are .*'other'"):
        objective.prepare(renamed)
    columns = ["other" if name == column else name for name in objective.columns]
    assert list(objective.prepare(renamed, columns if len(columns) > 1 else columns[0])) == make_rows(objective)
    for wrong, kind in ((list(dataset()), "list"), ({"train": dataset()}, "dict"), (None, "NoneType")):
        with pytest.raises(ValueError, match=f"the dataset is a {kind}: prepare.. takes one split"):
            objective.prepare(wrong)
    with pytest.raises(ValueError, match="reads a column for each of"):
        objective.prepare(dataset(), ["id", "id", "id"][: 3 if name != "contrastive" else 1])
    with pytest.raises(ValueError, match="a text is int, not a string: 0; remove such rows"):
        objective.prepare(dataset(), ["id"] * len(objective.columns))
    empty = dataset().select([])
    with pytest.raises(ValueError, match="no tokens to learn from"):
        objective.prepare(empty)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "contrastive"])
def test_blank_texts_are_left_out(name):
    objective = make(name)
    texts = make_texts(6)
    with_blanks = Dataset.from_dict({"text": ["", texts[0], "", *texts[1:], ""]})
    assert list(objective.prepare(with_blanks)) == list(objective.prepare(Dataset.from_dict({"text": texts})))
    with pytest.raises(ValueError, match="the texts in 'text' have no tokens to learn from"):
        objective.prepare(Dataset.from_dict({"text": ["", ""]}))


@pytest.mark.parametrize("algorithm", ["bpe", "wordpiece", "unigram"])
@pytest.mark.parametrize("name", ["causal-lm", "masked-lm", "span-corruption"])
def test_what_spells_a_special_token_is_text(name, algorithm):
    objective = make(name, 64, algorithm=algorithm)
    tokenizer = objective.tokenizer
    special = [token for token in tokenizer.all_special_tokens if token != tokenizer.unk_token]
    encoded = []
    for word in ("", *special):
        (row,) = objective.encode([f"river {word} mill"])
        encoded.append(row["input_ids"])
    for token, tokens in zip(special, encoded[1:], strict=True):
        number = tokenizer.convert_tokens_to_ids(token)
        assert number == tokenizer.pad_token_id or tokens.count(number) == encoded[0].count(number)


def test_the_registry():
    for name, objective in OBJECTIVES.items():
        assert objective.name == name
        assert set(objective.families) <= set(NEW_MODELS)
        assert objective.pipeline_tag
        assert objective.predicts
        assert objective.text_task in (None, name)
    defaults = {family: objectives_of(family)[0] for family in NEW_MODELS}
    assert defaults == {"decoder": "causal-lm", "encoder": "masked-lm", "encoder-decoder": "span-corruption"}
    of_text = {family: text_objective_of(family) for family in NEW_MODELS}
    assert of_text == {"decoder": "causal-lm", "encoder": "masked-lm", "encoder-decoder": "continuation"}


@pytest.mark.parametrize("name", ["causal-lm", "masked-lm", "prefix-lm", "span-corruption"])
@pytest.mark.parametrize("column", ["seq_idx", "token_type_ids", "text"])
def test_what_is_not_read_of_a_row_is_refused(name, column):
    objective = make(name)
    row = {"input_ids": [130, 131, 132, 133, 134, 135]}
    objective([{**row, "special_tokens_mask": [0] * 6}])
    with pytest.raises(ValueError, match=f"row 0 of a batch has '{column}', which {name} does not read"):
        objective([{**row, column: [0] * 6}])
