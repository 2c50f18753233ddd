# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Datasets for the scripts: from files, a folder, or the Hub, with a part that is held out."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..tokenization.corpus import TABLES
from .corpus import read_documents, split_documents


@dataclass
class DataArguments:
    """Where the data comes from: `text` or `dataset`."""

    text: list[str] = field(
        default_factory=list,
        metadata={"action": "extend", "help": "Text files, or folders of *.txt; each file is a document."},
    )
    dataset: list[str] = field(
        default_factory=list,
        metadata={"action": "extend", "help": "A dataset: a name on the Hub, a folder, or csv, json, jsonl, parquet."},
    )
    dataset_config: str | None = field(
        default=None, metadata={"help": "The configuration of a dataset that has some."}
    )
    columns: list[str] = field(
        default_factory=list,
        metadata={"action": "extend", "help": "The columns that hold the texts. Default: what the task calls them."},
    )
    train_split: str = field(default="train", metadata={"help": "The split to train on."})
    eval_split: str = field(
        default="validation", metadata={"help": "The split to measure on; if there is none, rows are held out."}
    )
    held_out: float = field(default=0.1, metadata={"help": "Share of the data to measure on, where no split is."})
    max_train_samples: int | None = field(default=None, metadata={"help": "Train on that many rows, for trials."})
    max_eval_samples: int | None = field(default=None, metadata={"help": "Measure on that many rows, for trials."})

    def __post_init__(self) -> None:
        if bool(self.text) == bool(self.dataset):
            raise ValueError("give either --text or --dataset: where the data comes from.")
        if not 0 < self.held_out <= 0.5:
            raise ValueError(f"--held-out {self.held_out}: must be above 0 and at most 0.5.")
        for name in ("max_train_samples", "max_eval_samples"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"--{name.replace('_', '-')} {value}: must be at least 1.")


def load_splits(arguments: DataArguments, seed: int = 0) -> tuple[Any, Any]:
    """Load the data to train on and that to measure on.

    Of text files the end is held out; of a dataset the split `eval_split`, or else rows that are drawn by the seed.

    Args:
        arguments: where the data comes from.
        seed: draws the rows that are held out.

    Returns:
        Two datasets of the library `datasets`; those of text files have a column `text`.

    Raises:
        ValueError: an unknown kind of file, a split that is not there or is empty.
        OSError: a file or a dataset that is not there.
    """
    from datasets import Dataset  # takes a second to import

    if arguments.text:
        parts = split_documents(read_documents(arguments.text), arguments.held_out)
        splits = [Dataset.from_dict({"text": part}) for part in parts]
    else:
        splits = _dataset_splits(arguments, seed)
    found = []
    for split, purpose, most in zip(
        splits, ("train on", "measure"), (arguments.max_train_samples, arguments.max_eval_samples), strict=True
    ):
        if not len(split):
            raise ValueError(f"{_named(arguments)}: there is nothing to {purpose}.")
        found.append(split if most is None else split.select(range(min(most, len(split)))))
    return found[0], found[1]


def check_columns(dataset: Any, columns: Sequence[str]) -> None:
    """Raise ValueError for a column that a dataset does not have, with those that it has."""
    missing = [column for column in columns if column not in dataset.column_names]
    if missing:
        has = ", ".join(dataset.column_names)
        raise ValueError(f"the dataset has no column {missing[0]!r}: its columns are {has}; name yours.")


def _named(arguments: DataArguments) -> str:
    return " ".join(arguments.text or arguments.dataset)


def _dataset_splits(arguments: DataArguments, seed: int) -> list[Any]:
    from datasets import load_dataset
    from datasets.exceptions import DatasetGenerationError

    names = arguments.dataset
    try:
        if len(names) == 1 and Path(names[0]).suffix.lower() not in TABLES:
            loaded = load_dataset(names[0], arguments.dataset_config)
        else:
            builder, options = _builder(names)
            loaded = load_dataset(builder, data_files=names, **options)
    except (DatasetGenerationError, ValueError) as error:
        raise ValueError(f"{_named(arguments)}: cannot be read: {error.__cause__ or error}") from error
    except StopIteration as error:  # what the library raises for empty files
        raise ValueError(f"{_named(arguments)}: holds no rows.") from error
    if arguments.train_split not in loaded:
        raise ValueError(
            f"{_named(arguments)}: has no split {arguments.train_split!r}; its splits are {', '.join(loaded)}."
        )
    train = loaded[arguments.train_split]
    if arguments.eval_split in loaded and arguments.eval_split != arguments.train_split:
        return [train, loaded[arguments.eval_split]]
    if len(train) < 2:
        raise ValueError(f"{_named(arguments)}: has {len(train)} rows, of which none can be held out.")
    parts = train.train_test_split(test_size=arguments.held_out, seed=seed)
    return [parts["train"], parts["test"]]


def _builder(names: Sequence[str]) -> tuple[str, dict[str, Any]]:
    """Return what of the library reads these files, and with which options."""
    suffixes = {Path(name).suffix.lower() for name in names}
    for name in names:
        if Path(name).suffix.lower() not in TABLES:
            raise ValueError(f"{name}: is no {', '.join(TABLES)} file; several names must be files of one kind.")
        if not Path(name).is_file():
            raise FileNotFoundError(f"{name}: there is no such file.")
    if len(suffixes) > 1:
        raise ValueError(f"files of several kinds ({', '.join(sorted(suffixes))}): give files of one kind.")
    return TABLES[suffixes.pop()]
