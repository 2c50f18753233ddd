# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""What all tasks have in common: columns that are checked, rows, and measures beside a baseline."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, ClassVar

import torch
from transformers import EvalPrediction, PreTrainedConfig, PreTrainedTokenizerBase, TrainingArguments
from transformers.utils import logging

from ...common.columns import tell_unread
from ...common.pieces import beginning
from ...evaluation.task_metrics import libraries
from ..data import check_columns
from ..trainer import TxTrainer
from .options import TaskOptions

logger = logging.get_logger(__name__)
Measures = dict[str, float]


class Task(ABC):
    """What a model is fine-tuned for. All that can be wrong with the data is found when the task is made.

    Args:
        tokenizer: of the model.
        config: of the model, before it knows of the task.
        train: the rows to learn from, a `Dataset` of the library `datasets`. None: a model that knows its classes is
            only measured.
        held_out: the rows to measure on.
        max_length: the most tokens of a row.
        columns: the columns of texts. Default: what the task calls them.
        label_column: the column of what is to be learnt. Default: the first of those that the task knows.
        options: those of the task alone: the fields of its `options_class`.

    Raises:
        ValueError: a column that is not there, or a row that does not serve.
        ImportError: what measures the task is not installed.
    """

    #: The name in `TASKS`.
    name: ClassVar[str]
    #: The Hub's name of what a model that has learnt it does, for a card.
    pipeline_tag: ClassVar[str]
    #: The Auto class of its models.
    auto_class: ClassVar[Any]
    #: The options of the task alone.
    options_class: ClassVar[type[Any]] = TaskOptions
    #: What the columns of texts are called.
    texts: ClassVar[tuple[str, ...]] = ("text",)
    #: What the column of labels may be called.
    labels: ClassVar[tuple[str, ...]]
    #: The columns that are read where they are there, beside those of texts and labels.
    reads: ClassVar[tuple[str, ...]] = ()
    #: The metric that has to be there, if it needs a library.
    metric: ClassVar[str | None] = None
    #: Options of the Trainer that not all tasks and objectives honour, and this one does; see `check_honoured`.
    honours: Collection[str] = (
        "label_smoothing_factor",
        "neftune_noise_alpha",
        "activation_checkpointing",
        "train_sampling_strategy",
    )
    trainer_class: ClassVar[type[Any]] = TxTrainer
    #: Of what the measures of `baseline` are.
    baseline_name: ClassVar[str] = "majority"
    #: What is counted of rows that are not read as a whole: columns that `encode` adds, which mark them, in words.
    cuts: ClassVar[dict[str, str]] = {"cut_rows": "rows that were cut"}

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        config: PreTrainedConfig,
        train: Any,
        held_out: Any,
        *,
        max_length: int,
        columns: Sequence[str] = (),
        label_column: str | None = None,
        **options: Any,
    ) -> None:
        if self.metric is not None:
            libraries(self.metric)
        self.tokenizer, self.config, self.max_length = tokenizer, config, max_length
        self.train: Any = train
        self.held_out: Any = held_out
        #: What is given of its own options.
        self.given: Any = self.options_class(**options)
        self.columns = self.choose_columns(columns)
        known = [name for name in self.labels if name in self.first_split.column_names]
        self.label_column = label_column or (known or self.labels)[0]
        for split in self.splits.values():
            check_columns(split, [*self.columns, self.label_column])
        self.set_up()
        found = self.first_split.column_names
        tell_unread(found, [*self.columns, self.label_column, *(name for name in self.reads if name in found)])
        #: How many rows are not read as a whole, by the name of the data and what `cuts` counts.
        self.cut: dict[str, dict[str, int]] = {}
        rows: dict[str, Any] = {name: self.rows(split) for name, split in self.splits.items()}
        #: What is trained on, if anything is, and what is measured on.
        self.train_rows: Any = rows.get("training")
        self.held_out_rows: Any = rows["held-out"]

    @property
    def said(self) -> str:
        """The task in messages."""
        return f"--task {self.name}"

    @property
    def splits(self) -> dict[str, Any]:
        """The data by its name in messages."""
        splits = {"training": self.train, "held-out": self.held_out}
        return {name: split for name, split in splits.items() if split is not None}

    @property
    def first_split(self) -> Any:
        """The data that says what columns and labels are."""
        return self.held_out if self.train is None else self.train

    def choose_columns(self, columns: Sequence[str]) -> tuple[str, ...]:
        """Return the columns of texts.

        Raises:
            ValueError: not as many as the task reads.
        """
        if columns and len(columns) != len(self.texts):
            raise ValueError(f"--columns {' '.join(columns)}: {self.name} reads {len(self.texts)}.")
        return tuple(columns or self.texts)

    def check_texts(self, *columns: str) -> None:
        """Raise ValueError for a text that is none, or empty."""
        for split_name, split in self.splits.items():
            for column in columns:
                for number, text in enumerate(split[column]):
                    if not isinstance(text, str) or not text.strip():
                        where = row_name(split, split_name, number)
                        raise ValueError(f"{where}: {column} = {text!r:.60} is not text; remove such rows.")

    def set_up(self) -> None:
        """Check the rows, and find out what the model must know."""
        self.check_texts(*self.columns)

    @property
    @abstractmethod
    def measured(self) -> Iterable[str]:
        """The names of the numbers in `measures`, all of them in `MEASURES`."""

    def measuring_options(self) -> dict[str, Any]:
        """Return those of the task's own options that measure the same again."""
        return {}

    def config_fields(self) -> dict[str, Any]:
        """Return the fields of the config that the data decides."""
        return {}

    def rows(self, split: Any) -> Any:
        """Return the rows of a split that the collator takes, and count those that are not read as a whole."""
        rows = split.map(self.encode, batched=True, remove_columns=split.column_names, desc=f"rows of {self.name}")
        counts = {column: sum(rows[column]) for column in self.cuts}
        self.cut |= {name: counts for name, each in self.splits.items() if each is split}
        return rows.remove_columns(list(self.cuts))

    def encode_cut(self, *texts: Sequence[str], **options: Any) -> tuple[Any, list[bool]]:
        """Encode texts or pairs of at most `max_length` tokens, and return which of them were cut.

        Args:
            *texts: the texts, or the first and the second of each pair.
            **options: of the tokenizer.
        """
        read = [[beginning(text, self.max_length + 1, self.tokenizer) for text in column] for column in texts]
        encoded = self.tokenizer(*read, truncation=True, max_length=self.max_length, **options)
        if encoded.encodings is not None:
            return encoded, [bool(each.overflowing) for each in encoded.encodings]
        whole = self.tokenizer(*read, **options, verbose=False)["input_ids"]
        return encoded, [len(ids) > self.max_length for ids in whole]

    @abstractmethod
    def encode(self, batch: Mapping[str, list[Any]]) -> Mapping[str, list[Any]]:
        """Return the rows that examples give, both as columns, with those of `cuts`."""

    @abstractmethod
    def collator(self, model: Any) -> Any:
        """Return what makes batches of rows."""

    @property
    def unknown(self) -> int | None:
        """The token of what the tokenizer does not know, if nothing else is said by it: it is not what was to be
        written."""
        token = self.tokenizer.unk_token_id
        return None if token == self.tokenizer.eos_token_id else token

    def prepare_options(self, options: TrainingArguments) -> None:
        """Set what the task needs of the Trainer, and of it alone."""
        return

    def reduce(self, outputs: Any, labels: torch.Tensor) -> Any:
        """Return what `measures` needs of a batch's outputs: the less, the less memory an evaluation takes."""
        return _first(outputs)

    @abstractmethod
    def measures(self, prediction: EvalPrediction) -> dict[str, Any]:
        """Compare what a model says of the held-out rows with their labels: numbers, and details of them."""

    def baseline(self) -> dict[str, Any] | None:
        """Return the same measures of what says the most frequent everywhere; None: the model before the training is
        what to compare with."""
        return None

    def facts(self) -> dict[str, Any]:
        """Return what a card says of the data."""
        return {"task": self.name, "most tokens of a row": self.max_length, **self.cut_facts()}

    def cut_facts(self) -> dict[str, str]:
        """Return in words how many rows are not read as a whole."""
        return {
            words: ", ".join(
                f"{self.cut[name][column]:,} of {len(split):,} ({name} data)" for name, split in self.splits.items()
            )
            for column, words in self.cuts.items()
        }

    def tell_cuts(self) -> None:
        """Log what is not read as a whole, if anything is."""
        own = ", ".join(f"{name} = {value}" for name, value in self.measuring_options().items())
        options = f"--max-length {self.max_length}" + (f" and --task-options: {own}" if own else "")
        for column, (words, numbers) in zip(self.cuts, self.cut_facts().items(), strict=True):
            if any(counts[column] for counts in self.cut.values()):
                logger.warning(f"{words}: {numbers}, with {options}.")


def row_name(split: Any, split_name: str, number: int) -> str:
    """Say which row of a split is meant: by its number in the data that the split was drawn from, if it was."""
    drawn = split._indices  # which datasets show nowhere else
    if drawn is None:
        return f"row {number} of the {split_name} data"
    return f"row {drawn.column(0)[number].as_py()} of the data ({split_name} part)"


def numbers(measures: Mapping[str, Any]) -> Measures:
    """Return the measures that are numbers: others are not logged."""
    return {name: float(value) for name, value in measures.items() if isinstance(value, int | float)}


def _first(outputs: Any) -> Any:
    """Return the logits, without the states that encoder-decoders give beside them."""
    return outputs[0] if isinstance(outputs, tuple | list) else outputs
