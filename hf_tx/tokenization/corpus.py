# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Texts from files and datasets, one piece at a time, so that a corpus never has to fit in memory."""

import os
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from transformers.utils import logging

from ..common.packaged import path_of
from .files import COMPRESSED, ending, read_pieces
from .loading import load_rows
from .tables import TABLES

logger = logging.get_logger(__name__)


def iter_texts(paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]) -> Iterator[str]:
    """Read text files, compressed or not, piece by piece.

    Joined, the pieces of a file are its text: line ends are kept, and only a byte order mark is removed. A piece ends
    at the end of a line, unless a line is very long.

    Args:
        paths: one or several files or folders. A folder stands for all `*.txt` files (also compressed ones, such as
            `*.txt.gz`) in it and in its subfolders, in sorted order, and `hf_tx:state_of_the_union` for a text that is
            part of hf_tx. Paths are checked immediately, contents while they are read.

    Returns:
        An iterator over pieces of about 64 KiB.

    Raises:
        FileNotFoundError: if a path does not exist.
        ValueError: if no path is given, a folder has no `*.txt` file, or a file is a table (such as `.csv`), empty,
            blank, or not UTF-8 text (with the offset of the first byte that is not).
    """
    listed = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    if not listed:
        raise ValueError("no text files were given: pass at least one file or folder")
    files = [file for path in listed for file in _files(path_of(path))]
    return chain.from_iterable(map(read_pieces, files))


def iter_dataset(
    dataset: str | os.PathLike[str] | Iterable[Mapping[str, Any]],
    *,
    column: str = "text",
    config: str | None = None,
    split: str = "train",
) -> Iterator[str]:
    """Read one column of a dataset row by row.

    Args:
        dataset: the id of a dataset on the Hub, a local dataset folder, a `.json`, `.jsonl`, `.csv`, `.tsv` or
            `.parquet` file (see `load_rows`), or rows that are already loaded.
        column: the column with the text.
        config: the configuration of the dataset, if it has several.
        split: the split to read. A single file is the split `train`.

    Returns:
        An iterator over the texts of the rows.

    Raises:
        FileNotFoundError: if the file, folder or name on the Hub does not exist.
        ConnectionError: if the Hub cannot be reached.
        ValueError: if the configuration, the split or the column does not exist, the dataset has no rows or cannot be
            read, or a value is not a string.
    """
    if isinstance(dataset, str | os.PathLike):
        name = f"dataset {os.fspath(dataset)!r}"
        splits = load_rows([os.fspath(dataset)], config, streaming=True)
        if split not in splits:
            raise ValueError(f"{name} has no split {split!r}: its splits are {', '.join(splits)}")
        rows: Iterator[Mapping[str, Any]] = iter(splits[split])
    else:
        name, rows = "the dataset", iter(dataset)
    # Reading one row now reports a wrong name, split or column before anything else is done.
    first = next(rows, None)
    if first is None:
        raise ValueError(f"{name} has no rows, so there is no text to read")
    if column not in first:
        raise ValueError(f"{name} has no column {column!r}: its columns are {', '.join(map(repr, first))}")
    return _column(chain([first], rows), column, name)


def texts_in(directory: Path) -> list[Path]:
    """Return the text files in a directory and below, compressed ones too."""
    endings = ("", *COMPRESSED)
    return sorted(file for more in endings for file in directory.rglob(f"*.txt{more}") if file.is_file())


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        found = texts_in(path)
        if not found:
            raise ValueError(f"the folder {str(path)!r} has no *.txt files: pass the files, or another folder")
        return [file for text in found for file in _files(text)]
    if not path.exists():
        raise FileNotFoundError(f"text file {str(path)!r} does not exist")
    if ending(path) in TABLES:
        raise ValueError(
            f"{str(path)!r} is a table, not plain text: read one of its columns as a dataset (iter_dataset, --dataset)"
        )
    if path.is_file() and path.stat().st_size == 0:
        raise ValueError(f"text file {str(path)!r} is empty")
    return [path]


def _column(rows: Iterable[Mapping[str, Any]], column: str, name: str) -> Iterator[str]:
    number = -1
    for number, row in enumerate(rows):
        text = row.get(column)
        if not isinstance(text, str):
            raise ValueError(
                f"{name}: row {number} of column {column!r} is {type(text).__name__}, not a string; "
                "choose a column of texts, or remove these rows"
            )
        yield text
    logger.info(f"{name}: read {number + 1:,} rows.")
