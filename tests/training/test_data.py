# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Where the data of the scripts comes from, and what is held out of it."""

import json
from pathlib import Path
from typing import Any

import pytest

from hf_tx.training.data import DataArguments, check_columns, load_measured, load_splits

ROWS = [{"text": f"row {number}", "label": number % 3} for number in range(20)]


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")


def jsonl(path: Path, rows: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return str(path)


def test_the_end_of_text_files_is_held_out(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\n" * 10)
    (tmp_path / "b.txt").write_text("two\n" * 10)
    train, held_out, found_by = load_splits(DataArguments(text=[str(tmp_path)], held_out=0.25))
    assert list(train["text"]) == ["one\n" * 10, "two\n" * 5]
    assert list(held_out["text"]) == ["two\n" * 5]
    assert list(load_measured(**found_by)) == list(held_out)
    assert list(load_measured(text=[str(tmp_path)])["text"]) == ["one\n" * 10, "two\n" * 10]


def test_other_text_files_are_measured(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / f"{name}.txt").write_text(f"{name}\n" * 3)
    arguments = DataArguments(text=[str(tmp_path / "a.txt")], eval_text=[str(tmp_path / "b.txt")])
    train, held_out, found_by = load_splits(arguments)
    assert (list(train["text"]), list(held_out["text"])) == (["a\n" * 3], ["b\n" * 3])
    assert list(load_measured(**found_by)) == list(held_out)
    with pytest.raises(ValueError, match="c.txt: holds a text that is trained on too"):
        load_splits(DataArguments(text=[str(tmp_path)], eval_text=[str(tmp_path / "c.txt")]))


def test_rows_of_a_dataset_are_held_out_by_the_seed(tmp_path: Path) -> None:
    arguments = DataArguments(dataset=[jsonl(tmp_path / "rows.jsonl", ROWS)], held_out=0.2)
    train, held_out, found_by = load_splits(arguments, seed=3)
    assert (len(train), len(held_out)) == (16, 4)
    assert sorted([*train["text"], *held_out["text"]]) == sorted(row["text"] for row in ROWS)
    assert list(load_splits(arguments, seed=3).held_out) == list(held_out)
    assert list(load_measured(**found_by)) == list(held_out)
    assert list(load_splits(arguments, seed=4).held_out) != list(held_out)
    few = DataArguments(dataset=arguments.dataset, held_out=0.2, max_train_samples=5, max_eval_samples=2)
    train, held_out, found_by = load_splits(few, seed=3)
    assert (len(train), len(held_out)) == (5, 2)
    assert list(load_measured(**found_by)) == list(held_out)
    assert list(load_measured(dataset=arguments.dataset)) == ROWS


def test_a_split_of_the_dataset_is_held_out(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    jsonl(folder / "train.jsonl", ROWS[:15])
    jsonl(folder / "validation.jsonl", ROWS[15:])
    train, held_out, found_by = load_splits(DataArguments(dataset=[str(folder)]))
    assert (len(train), len(held_out)) == (15, 5)
    assert list(load_measured(**found_by)) == list(held_out)
    with pytest.raises(ValueError, match=r"has no split 'test'; its splits are train, validation"):
        load_measured(dataset=[str(folder)])
    with pytest.raises(ValueError, match=r"has no split 'all'; its splits are train, validation"):
        load_splits(DataArguments(dataset=[str(folder)], train_split="all"))


def test_another_dataset_is_measured(tmp_path: Path) -> None:
    one, two = (jsonl(tmp_path / f"{name}.jsonl", rows) for name, rows in (("one", ROWS[:15]), ("two", ROWS[15:])))
    train, held_out, found_by = load_splits(DataArguments(dataset=[one], eval_dataset=[two]))
    assert (list(train), list(held_out)) == (ROWS[:15], ROWS[15:])
    assert list(load_measured(**found_by)) == ROWS[15:]
    for wrong in ({"dataset": [one], "eval_dataset": [one]}, {"text": ["a.txt"], "eval_dataset": [two]}):
        with pytest.raises(
            ValueError, match="--eval-dataset .*: must be of --dataset, and other than what is trained"
        ):
            DataArguments(**wrong)


def test_csv_and_tsv(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("text,label\nx,1\ny,2\nz,1\n")
    (tmp_path / "rows.tsv").write_text("text\tlabel\nx\t1\ny\t2\nz\t1\n")
    for name in ("rows.csv", "rows.tsv"):
        train, held_out, _ = load_splits(DataArguments(dataset=[str(tmp_path / name)], held_out=0.3))
        assert train.column_names == ["text", "label"]
        assert len(train) + len(held_out) == 3


@pytest.mark.parametrize(
    ("names", "error", "message"),
    [
        (["gone.jsonl"], FileNotFoundError, r"gone.jsonl: there is no such file"),
        (
            ["rows.jsonl", "rows.csv"],
            ValueError,
            r"the files have several extensions \(.csv, .jsonl\): pass files with the same",
        ),
        (["rows.jsonl", "rows.xml"], ValueError, r"rows.xml is not a .json, .jsonl, .csv, .tsv, .parquet file"),
        (["broken.jsonl"], ValueError, r"broken.jsonl: cannot be read: "),
        (["broken.parquet"], ValueError, r"broken.parquet: cannot be read: "),
        (["header.csv"], ValueError, r"header.csv: cannot be read: "),
        (["one.jsonl"], ValueError, r"one.jsonl: has 1 rows, of which none can be held out"),
    ],
)
def test_files_that_do_not_serve(
    names: list[str], error: type[Exception], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    jsonl(tmp_path / "rows.jsonl", ROWS)
    jsonl(tmp_path / "one.jsonl", ROWS[:1])
    (tmp_path / "rows.csv").write_text("text\nx\n")
    (tmp_path / "rows.xml").write_text("<x/>")
    (tmp_path / "broken.jsonl").write_text("{")
    (tmp_path / "broken.parquet").write_bytes(bytes(range(256)))
    (tmp_path / "header.csv").write_text("text,label\n")
    with pytest.raises(error, match=message):
        load_splits(DataArguments(dataset=names))


def test_options_that_do_not_serve() -> None:
    for options, message in (
        ({}, "give either --text or --dataset"),
        (dict(text=["a"], dataset=["b"]), "give either --text or --dataset"),
        (dict(dataset=["a"], eval_text=["b"]), "--eval-text: is of --text; a --dataset has --eval-split"),
        (dict(text=["a"], held_out=0.0), "--held-out 0.0: must be above 0 and at most 0.5"),
        (dict(text=["a"], max_eval_samples=0), "--max-eval-samples 0: must be at least 1"),
    ):
        with pytest.raises(ValueError, match=message):
            DataArguments(**options)


def test_a_column_that_is_not_there(tmp_path: Path) -> None:
    train, *_ = load_splits(DataArguments(dataset=[jsonl(tmp_path / "rows.jsonl", ROWS)]))
    with pytest.raises(ValueError, match="the dataset has no column 'body': its columns are text, label; name yours"):
        check_columns(train, ["text", "body"])
