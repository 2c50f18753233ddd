# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Datasets for trainings: from files, a folder, or the Hub, with a part that is held out."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from transformers.utils import logging

from ..common.options import flag
from ..tokenization.loading import load_rows
from .corpus import hold_out_beginning, read_documents, split_documents, text_files

logger = logging.get_logger(__name__)


@dataclass
class SourceArguments:
    """Where data comes from, whether to learn from it or to measure: `text` or `dataset`."""

    text: list[str] = field(
        default_factory=list,
        metadata={"action": "extend", "help": "Text files, or folders of *.txt; each file is a document."},
    )
    dataset: list[str] = field(
        default_factory=list,
        metadata={"action": "extend", "help": "A dataset: a name on the Hub, a folder, or csv, json, jsonl, parquet."},
    )
    dataset_config: str | None = field(
        default=None, metadata={"help": "Configuration of the dataset, if it has several."}
    )
    columns: list[str] = field(
        default_factory=list,
        metadata={"action": "extend", "help": "Columns with the texts. Default: the names of the task."},
    )
    max_eval_samples: int | None = field(default=None, metadata={"help": "Evaluate on at most this many rows."})

    def __post_init__(self) -> None:
        if bool(self.text) == bool(self.dataset):
            raise ValueError("give either --text or --dataset: where the data comes from.")


@dataclass
class DataArguments(SourceArguments):
    """What is trained on and what is measured on."""

    eval_text: list[str] = field(
        default_factory=list,
        metadata={"action": "extend", "help": "Text files to evaluate on. Default: the end of --text."},
    )
    eval_dataset: list[str] = field(
        default_factory=list,
        metadata={"action": "extend", "help": "Dataset to evaluate on, instead of a split of --dataset."},
    )
    train_split: str = field(default="train", metadata={"help": "Split to train on."})
    eval_split: str | None = field(
        default=None,
        metadata={"help": "Split to evaluate on. Default: validation; if there is none, rows are held out."},
    )
    held_out: float = field(
        default=0.1, metadata={"help": "Share of the data to hold out for evaluation, if there is no split for it."}
    )
    max_train_samples: int | None = field(default=None, metadata={"help": "Train on at most this many rows."})

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.eval_text and not self.text:
            raise ValueError("--eval-text: is of --text; a --dataset has --eval-split or --eval-dataset.")
        if self.eval_dataset and (self.text or set(self.eval_dataset) & set(self.dataset)):
            given = " ".join(self.eval_dataset)
            raise ValueError(f"--eval-dataset {given}: must be of --dataset, and other than what is trained on.")
        same = self.eval_split == self.train_split and not self.eval_dataset
        if self.eval_split is not None and (self.text or same):
            raise ValueError(f"--eval-split {self.eval_split}: must be a split of --dataset other than --train-split.")
        if not 0 < self.held_out <= 0.5:
            raise ValueError(f"--held-out {self.held_out}: must be above 0 and at most 0.5.")
        for name in ("max_train_samples", "max_eval_samples"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{flag(name)} {value}: must be at least 1.")


class Splits(NamedTuple):
    """Data to train on, and data to measure on, as datasets of the library `datasets`.

    Attributes:
        train: the rows to learn from.
        held_out: the rows to measure on.
        found_by: the arguments of [`load_measured`] that give `held_out` again.
    """

    train: Any
    held_out: Any
    found_by: dict[str, Any]


def load_splits(arguments: DataArguments, seed: int = 0) -> Splits:
    """Load the data to train on and that to measure on.

    Of text files the end is held out, unless `eval_text` names others. With a dataset, `eval_dataset` is measured (its
    split `eval_split`, or else `test`, or the only one), or else the split `eval_split`, or else `validation`, or else
    rows that are drawn by the seed.

    Args:
        arguments: where the data comes from.
        seed: draws the rows that are held out.

    Returns:
        Both, and how the second is found again; those of text files have a column `text`.

    Raises:
        ValueError: an unknown kind of file, a split that is not there or is empty, a text that is in both parts.
        OSError: a file or a dataset that is not there.
    """
    names = arguments.text or arguments.dataset
    found_by: dict[str, Any] = {"max_eval_samples": arguments.max_eval_samples}
    if arguments.text:
        train, held_out = map(rows_of_texts, _split_texts(arguments))
        if arguments.eval_text:
            found_by |= {"text": arguments.eval_text}
        else:
            found_by |= {"text": arguments.text, "held_out": arguments.held_out}
    else:
        loaded = _loaded(arguments.dataset, arguments.dataset_config)
        train = split_named(arguments.train_split, loaded, arguments.dataset)
        config = arguments.dataset_config
        found_by |= {"dataset": arguments.eval_dataset or arguments.dataset, "dataset_config": config}
        measured = arguments.eval_split or "validation"
        if arguments.eval_dataset:
            held_out = load_measured(dataset=arguments.eval_dataset, dataset_config=config, split=arguments.eval_split)
            found_by |= {"split": arguments.eval_split}
        elif arguments.eval_split is not None or (measured in loaded and measured != arguments.train_split):
            held_out = split_named(measured, loaded, arguments.dataset)
            found_by |= {"split": measured}
        else:
            train, held_out = _divided(train, arguments.held_out, seed, names)
            found_by |= {"split": arguments.train_split, "held_out": arguments.held_out, "seed": seed}
    return Splits(
        first_rows(train, arguments.max_train_samples, names, "train on"),
        first_rows(held_out, arguments.max_eval_samples, names, "measure"),
        found_by,
    )


def load_measured(
    *,
    text: Sequence[str] = (),
    dataset: Sequence[str] = (),
    dataset_config: str | None = None,
    split: str | None = None,
    held_out: float | None = None,
    held_out_first: int | None = None,
    seed: int = 0,
    max_eval_samples: int | None = None,
) -> Any:
    """Load data to measure on.

    Args:
        text: text files, or folders of them. Either these or `dataset`.
        dataset: a name on the Hub, a folder, or files of rows.
        dataset_config: the configuration of a dataset that has some.
        split: of the dataset. Default: `test`, or the only one; with `held_out` or `held_out_first`, `train`.
        held_out: take the share that [`load_splits`] holds out, and not all.
        held_out_first: take what [`load_stream`] holds out: so many characters of texts, or rows.
        seed: what has drawn the rows that were held out.
        max_eval_samples: take that many rows at most.

    Returns:
        A dataset of the library `datasets`; that of text files has a column `text`.

    Raises:
        ValueError: an unknown kind of file, a split that is not there or is empty.
        OSError: a file or a dataset that is not there.
    """
    names = text or dataset
    if text:
        if held_out_first is not None:
            documents, *_ = hold_out_beginning([str(file) for file in text_files(text)], held_out_first)
        else:
            documents = read_documents(text)
        found = rows_of_texts(documents if held_out is None else split_documents(documents, held_out)[1])
    elif held_out_first is not None:
        from datasets import Dataset

        stream = split_named(split or "train", load_rows(names, dataset_config, streaming=True), names)
        found = Dataset.from_list(list(stream.take(held_out_first)))
    else:
        loaded = _loaded(dataset, dataset_config)
        usual = "train" if held_out is not None else "test" if len(loaded) > 1 else next(iter(loaded))
        found = split_named(split or usual, loaded, names)
        if held_out is not None:
            _, found = _divided(found, held_out, seed, names)
    return first_rows(found, max_eval_samples, names, "measure")


def check_columns(dataset: Any, columns: Sequence[str]) -> None:
    """Raise ValueError for a column that a dataset does not have, with those that it has."""
    # A stream may not know its columns before it is read.
    found = dataset.column_names or list(next(iter(dataset), {}))
    missing = [column for column in columns if column not in found]
    if missing:
        has = ", ".join(found)
        raise ValueError(f"the dataset has no column {missing[0]!r}: its columns are {has}; name yours.")


def rows_of_texts(texts: list[str]) -> Any:
    """Return texts as rows, each of which may be as long as it likes. Transformers would copy them several times."""
    import pyarrow
    from datasets import Dataset  # takes a second to import
    from datasets.fingerprint import generate_random_fingerprint
    from datasets.table import InMemoryTable

    table = pyarrow.table({"text": pyarrow.array(texts, pyarrow.large_string())})
    return Dataset(InMemoryTable(table), fingerprint=generate_random_fingerprint())


def _split_texts(arguments: DataArguments) -> tuple[list[str], list[str]]:
    texts = read_documents(arguments.text)
    if not arguments.eval_text:
        return split_documents(texts, arguments.held_out)
    held_out = read_documents(arguments.eval_text)
    if not set(texts).isdisjoint(held_out):
        raise ValueError(f"--eval-text {' '.join(arguments.eval_text)}: holds a text that is trained on too.")
    return texts, held_out


def _loaded(names: Sequence[str], config: str | None) -> dict[str, Any]:
    """Return the splits of a dataset by name, and say how many rows they have."""
    splits = load_rows(names, config)
    counts = ", ".join(
        f"{len(rows):,} rows" + (f" of {name}" if len(splits) > 1 else "") for name, rows in splits.items()
    )
    logger.info(f"{' '.join(names)}: {counts} were read.")
    return splits


def split_named(name: str, loaded: Any, names: Sequence[str]) -> Any:
    """Return a split. Raise ValueError if there is no such split, with those that there are."""
    if name not in loaded:
        raise ValueError(f"{' '.join(names)}: has no split {name!r}; its splits are {', '.join(loaded)}.")
    return loaded[name]


def _divided(rows: Any, held_out: float, seed: int, names: Sequence[str]) -> tuple[Any, Any]:
    if len(rows) < 2:
        raise ValueError(f"{' '.join(names)}: has {len(rows)} rows, of which none can be held out.")
    parts = rows.train_test_split(test_size=held_out, seed=seed)
    return parts["train"], parts["test"]


def first_rows(rows: Any, most: int | None, names: Sequence[str], purpose: str) -> Any:
    """Return the rows, or as many as asked for. Raise ValueError if there is none."""
    if not len(rows):
        raise ValueError(f"{' '.join(names)}: there is nothing to {purpose}.")
    return rows if most is None else rows.select(range(min(most, len(rows))))
