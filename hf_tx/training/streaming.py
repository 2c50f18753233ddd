# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Text of any size: read from files or the Hub while a model learns from it, and never held as a whole."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any, ClassVar

from transformers import TrainingArguments
from transformers.utils import logging

from ..common.arrow import temporary_file, write_rows
from ..common.columns import iter_columns, tell_unread
from ..objectives import Objective
from ..tokenization.corpus import iter_texts
from ..tokenization.loading import load_rows
from .corpus import hold_out_beginning, text_files
from .data import DataArguments, Splits, check_columns, first_rows, load_measured, rows_of_texts, split_named

logger = logging.get_logger(__name__)

#: Characters at the beginning of a stream on which a tokenizer is trained, and whose tokens a unigram model counts.
FIRST_CHARACTERS = 10_000_000
# What is held out at most, if the user does not say how much.
_HELD_OUT_CHARACTERS, _HELD_OUT_ROWS = 1_000_000, 1_000


@dataclass(frozen=True)
class TextStream:
    """Text files as rows with a `text`, each the text of a file in parts that are read when they are asked for.

    Args:
        files: in their order.
        skipped: characters of the first file that are left out.
    """

    files: tuple[str, ...]
    skipped: int = 0

    column_names: ClassVar[list[str]] = ["text"]

    def __iter__(self) -> Iterator[dict[str, Iterator[str]]]:
        """Yield the rows; the parts of each are to be read before the next row."""
        for number, file in enumerate(self.files):
            yield {"text": _after(iter_texts(file), 0 if number else self.skipped)}


def check_streaming(arguments: Any) -> None:
    """Raise ValueError for options of a stream without one, and for those that a stream cannot honour."""
    if arguments.held_out_first is not None and arguments.held_out_first < 1:
        raise ValueError(f"--held-out-first {arguments.held_out_first}: must be at least 1.")
    if arguments.shuffle_buffer_size < 0:
        raise ValueError(f"--shuffle-buffer-size {arguments.shuffle_buffer_size}: must be at least 0.")
    if not arguments.streaming:
        if arguments.held_out_first is not None:
            raise ValueError("--held-out-first: is an option of --streaming; otherwise give --held-out.")
        return
    if arguments.max_train_samples is not None:
        raise ValueError("--max-train-samples: --max-steps says how much of a stream is read; leave it out.")
    if arguments.held_out_first is not None and (
        arguments.eval_text or arguments.eval_dataset or arguments.eval_split is not None
    ):
        raise ValueError(
            "--held-out-first: --eval-text, --eval-dataset or --eval-split says what is measured on; leave it out."
        )


def load_stream(arguments: DataArguments, columns: Sequence[str], held_out_first: int | None = None) -> Splits:
    """Load data to train on as a stream, and data to measure on like [`load_splits`]. Where neither other files nor a
    split are measured on, the beginning of the stream is held out: characters of text files, up to the end of the
    line that is nearest, or rows of a dataset.

    Args:
        arguments: where the data comes from.
        columns: those that are read.
        held_out_first: how many characters or rows are held out. Default: the share `arguments.held_out` of the size
            of the files, at most 1,000,000 characters; 1,000 rows.

    Returns:
        A [`TextStream`] or an `IterableDataset` to train on, and a `Dataset` to measure on.

    Raises:
        ValueError: an unknown kind of file, a split or a column that is not there, or nothing is left to train on.
        OSError: a file or a dataset that is not there.
    """
    return (_of_texts if arguments.text else _of_rows)(arguments, columns, held_out_first)


def stream_rows(
    objective: Objective, train: Any, columns: Sequence[str], options: TrainingArguments, buffer_size: int
) -> Any:
    """Return the rows that a model learns from a stream, in an order that is drawn anew in each pass.

    Args:
        objective: makes the rows.
        train: see [`load_stream`].
        columns: those that are read.
        options: of the Trainer. Where rows have any length, processes read the stream each for itself, since batches
            that one process makes for all must be of one length.
        buffer_size: from how many rows the next one is drawn; 0 keeps their order.

    Returns:
        An `IterableDataset`.

    Raises:
        ValueError: training is measured in passes, or there is nothing to learn from.
    """
    if options.max_steps < 1:
        raise ValueError(
            f"--num-train-epochs {options.num_train_epochs:g}: how long a pass over a stream is, is not known; give "
            "--max-steps."
        )
    rows = objective.stream(train, columns)
    if next(iter(rows), None) is None:
        raise ValueError(f"the texts in {', '.join(map(repr, columns))} have no tokens to learn from.")
    share: Any = options.accelerator_config
    if share.dispatch_batches is None and not getattr(objective, "packed", False):
        share.dispatch_batches = False
    return rows.shuffle(seed=options.seed, buffer_size=buffer_size) if buffer_size else rows


def _of_texts(arguments: DataArguments, columns: Sequence[str], held_out_first: int | None) -> Splits:
    files = [str(file) for file in text_files(arguments.text)]
    for file in files:
        iter_texts(file)  # refuses what is no text file
    found_by: dict[str, Any] = {"max_eval_samples": arguments.max_eval_samples}
    if arguments.eval_text:
        held_out = load_measured(text=arguments.eval_text)
        evaluated = {Path(file).resolve() for file in text_files(arguments.eval_text)}
        if not evaluated.isdisjoint(Path(file).resolve() for file in files):
            raise ValueError(f"--eval-text {' '.join(arguments.eval_text)}: is a file that is trained on too.")
        train, found_by["text"] = TextStream(tuple(files)), arguments.eval_text
    else:
        if held_out_first is None:
            share = round(arguments.held_out * sum(Path(file).stat().st_size for file in files))
            held_out_first = max(1, min(share, _HELD_OUT_CHARACTERS))
        texts, left, skipped = hold_out_beginning(files, held_out_first)
        train = TextStream(tuple(left), skipped)
        held_out = rows_of_texts(texts)
        found_by |= {"text": arguments.text, "held_out_first": held_out_first}
        _tell(f"the first {sum(map(len, texts)):,} characters are measured on and not trained on.")
    return Splits(train, first_rows(held_out, arguments.max_eval_samples, arguments.text, "measure"), found_by)


def _of_rows(arguments: DataArguments, columns: Sequence[str], held_out_first: int | None) -> Splits:
    names = arguments.dataset
    found = load_rows(names, arguments.dataset_config, streaming=True)
    train = split_named(arguments.train_split, found, names)
    check_columns(train, columns)
    tell_unread(train.column_names or columns, columns)
    found_by: dict[str, Any] = {"max_eval_samples": arguments.max_eval_samples}
    config = arguments.dataset_config
    found_by |= {"dataset": arguments.eval_dataset or names, "dataset_config": config}
    measured = arguments.eval_split or "validation"
    has_split = held_out_first is None and measured in found and measured != arguments.train_split
    if arguments.eval_dataset:
        held_out = load_measured(dataset=arguments.eval_dataset, dataset_config=config, split=arguments.eval_split)
        check_columns(held_out, columns)
        found_by["split"] = arguments.eval_split
    elif arguments.eval_split is not None or has_split:
        held_out = split_named(measured, found, names)
        check_columns(held_out, columns)
        found_by["split"] = measured
    else:
        count = _HELD_OUT_ROWS if held_out_first is None else held_out_first
        held_out, train = train.take(count), train.skip(count)
        if next(iter(train), None) is None:
            raise ValueError(
                f"{' '.join(names)}: has no more than {count:,} rows, which would all be held out; give fewer by "
                "--held-out-first."
            )
        found_by |= {"split": arguments.train_split, "held_out_first": count}
        _tell(f"the first {count:,} rows are measured on and not trained on.")
    rows = islice(iter_columns(held_out, columns), arguments.max_eval_samples)
    kept = write_rows(_named(rows, columns), _features(columns), temporary_file())
    return Splits(train, first_rows(kept, None, names, "measure"), found_by)


def _named(rows: Iterator[tuple[Any, ...]], columns: Sequence[str]) -> Iterator[Mapping[str, Any]]:
    return (dict(zip(columns, row, strict=True)) for row in rows)


def _features(columns: Sequence[str]) -> dict[str, Any]:
    from datasets import Value

    return {column: Value("large_string") for column in columns}


def _after(pieces: Iterator[str], skipped: int) -> Iterator[str]:
    """Return the pieces without the first characters."""
    for piece in pieces:
        if skipped < len(piece):
            return chain((piece[skipped:],), pieces)
        skipped -= len(piece)
    return iter(())


def _tell(what: str) -> None:
    logger.warning_once(f"--streaming: {what}")
