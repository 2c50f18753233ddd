# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""The same table gives the same problem, classes and targets in whatever way its labels are stored."""

import csv
import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset, Value
from transformers import PreTrainedConfig, PreTrainedTokenizerBase

from hf_tx.tokenization import train_tokenizer
from hf_tx.training.data import load_measured
from hf_tx.training.tasks.labels import Labels
from hf_tx.training.tasks.sequence_classification import SequenceClassification

TEXT = "one two three four"


class Unencoded(SequenceClassification):
    """The task without its rows, which take time and say nothing of labels."""

    def rows(self, split: Any) -> Any:
        return split


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerBase:
    return train_tokenizer([TEXT] * 9, family="encoder", vocab_size=290, show_progress=False)


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")


def stored(folder: Path, labels: Sequence[Any]) -> dict[str, str]:
    """Write a table in all ways in which it may be stored; return the files by what they are."""
    tables: dict[str, Sequence[Any]] = {"as they are": labels, "as text": list(map(str, labels))}
    if all(isinstance(label, int) and not isinstance(label, bool) for label in labels):
        tables |= {"as floats": list(map(float, labels)), "floats as text": [f"{label}.0" for label in labels]}
    files = {}
    for how, column in tables.items():
        rows = [{"text": TEXT, "label": label} for label in column]
        # A csv is text in any case.
        kinds = ("csv", "tsv", "jsonl", "json", "parquet") if how == "as they are" else ("jsonl", "parquet")
        paths = {kind: folder / f"{how}.{kind}" for kind in ("csv", "tsv", "jsonl", "json", "parquet")}
        for kind, separator in (("csv", ","), ("tsv", "\t")):
            with open(paths[kind], "w", newline="") as file:
                csv.writer(file, delimiter=separator).writerows([rows[0], *(row.values() for row in rows)])
        paths["jsonl"].write_text("".join(json.dumps(row) + "\n" for row in rows))
        paths["json"].write_text(json.dumps(rows))
        Dataset.from_list(rows).to_parquet(paths["parquet"])
        files |= {f"{kind}, {how}": str(paths[kind]) for kind in kinds}
    return files


@pytest.mark.parametrize(
    ("labels", "problem", "names", "targets"),
    [
        ([0, 1, 1], "single_label_classification", ["0", "1"], [0, 1, 1]),
        ([3, 1, 2], "single_label_classification", ["1", "2", "3"], [2, 0, 1]),
        (list(range(11)), "single_label_classification", list(map(str, range(11))), list(range(11))),
        ([True, False], "single_label_classification", ["False", "True"], [1, 0]),
        (["None", "NA", "nan"], "single_label_classification", ["NA", "None", "nan"], [1, 0, 2]),
        (["01", "02", "1"], "single_label_classification", ["01", "02", "1"], [0, 1, 2]),
        (["a", "1", "2.0"], "single_label_classification", ["1", "2.0", "a"], [2, 0, 1]),
        (["2024-01-24", "2023-01-24"], "single_label_classification", ["2023-01-24", "2024-01-24"], [1, 0]),
        ([0.5, 1.0, -3.0], "regression", None, [0.5, 1.0, -3.0]),
        ([1e-3, 2e5], "regression", None, [1e-3, 2e5]),
    ],
)
def test_how_a_label_is_stored_means_nothing(
    tmp_path: Path,
    tokenizer: PreTrainedTokenizerBase,
    labels: list[Any],
    problem: str,
    names: list[str] | None,
    targets: list[Any],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "hf_tx")
    for how, file in stored(tmp_path, labels).items():
        rows = load_measured(dataset=[file])
        task = Unencoded(tokenizer, PreTrainedConfig(), rows, rows, max_length=16)
        assert task.problem_type == problem, how
        assert task.targets["training"] == targets, how
        assert names is None or task.classes.names == names, how
        # A model that has learnt the classes finds them, however they are stored.
        config = PreTrainedConfig(**task.config_fields())
        measured = Unencoded(tokenizer, config, None, rows, max_length=16)
        assert measured.targets["held-out"] == targets, how
        assert f"label: {problem}" in caplog.text
        caplog.clear()


def test_the_problem_can_be_said(tmp_path: Path, tokenizer: PreTrainedTokenizerBase) -> None:
    for how, file in stored(tmp_path, [10, 20, 40, 20]).items():
        rows = load_measured(dataset=[file])

        def task(problem: str | None, rows: Any = rows) -> Unencoded:
            return Unencoded(tokenizer, PreTrainedConfig(), rows, rows, max_length=16, problem_type=problem)

        with pytest.raises(
            ValueError, match="10 is out of range.* problem_type in --task-options says that they are names"
        ):
            task(None)
        assert task("regression").targets["training"] == [10.0, 20.0, 40.0, 20.0], how
        classes = task("single_label_classification")
        assert classes.classes.names == ["10", "20", "40"], how
        assert classes.targets["training"] == [0, 1, 2, 1], how


def test_an_empty_cell_is_no_label(tmp_path: Path, tokenizer: PreTrainedTokenizerBase) -> None:
    path = tmp_path / "rows.csv"
    for labels in (["a", "", "NA"], ["0", "1", ""], ["0.5", "", "1"]):
        path.write_text("text,label\n" + "".join(f"x,{label}\n" for label in labels))
        rows = load_measured(dataset=[str(path)])
        row = labels.index("")
        with pytest.raises(ValueError, match=f"row {row} of the training data: label None is (neither|not) "):
            Unencoded(tokenizer, PreTrainedConfig(), rows, rows, max_length=16)


def test_names_that_are_numbers_are_not_taken_for_the_numbers_of_classes() -> None:
    labels = Labels.of_model(Value("int64"), PreTrainedConfig(id2label={0: "1", 1: "2", 2: "4"}))
    assert [labels.number(label, "row 0") for label in (1, 2.0, "4", "4.0")] == [0, 1, 2, 2]
    for label in (0, 3, "0"):
        with pytest.raises(ValueError, match="is not one of the 3 classes of the model: 1, 2, 4"):
            labels.number(label, "row 0")
    labels = Labels.of_model(Value("string"), PreTrainedConfig(id2label={0: "no", 1: "yes"}))
    assert [labels.number(label, "row 0") for label in ("1", 1.0, "yes", "0.0")] == [1, 1, 1, 0]
