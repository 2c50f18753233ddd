# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Texts from files and datasets, one piece at a time, so that a corpus never has to fit in memory."""

import os
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

_BLOCK_BYTES = 1 << 16
_LONGEST_LINE = 1 << 20
_BOM = b"\xef\xbb\xbf"
#: By the ending of a file: what of the library `datasets` reads it, and with which options.
TABLES: dict[str, tuple[str, dict[str, Any]]] = {
    ".json": ("json", {}),
    ".jsonl": ("json", {}),
    ".csv": ("csv", {}),
    ".tsv": ("csv", {"sep": "\t"}),
    ".parquet": ("parquet", {}),
}


def iter_texts(paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]) -> Iterator[str]:
    """Read text files piece by piece.

    Joined, the pieces of a file are its text: line ends stay as they are, only a byte order mark is left out. A piece
    ends with a line where the lines are of usual length.

    Args:
        paths: a file or a directory, or several. A directory stands for all `*.txt` files in it and below, in sorted
            order. Paths are checked here, contents while they are read.

    Returns:
        An iterator over pieces of about 64 KiB.

    Raises:
        FileNotFoundError: a path does not exist.
        ValueError: no path is given, a directory holds no `*.txt` file, or a file is a table (`.csv` or the like),
            empty, blank, or not UTF-8 text (with the offset of the first byte that is not).
    """
    listed = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    if not listed:
        raise ValueError("no text files were given: name at least one file or directory")
    files = [file for path in listed for file in _files(Path(path))]
    return chain.from_iterable(map(_read, files))


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
            `.parquet` file (all through `datasets.load_dataset`, streaming), or rows that are loaded already.
        column: the column that holds the text.
        config: the configuration of the dataset, for those that have several.
        split: the split to read. A single file is the split `train`.

    Returns:
        An iterator over the texts of the rows.

    Raises:
        FileNotFoundError: the file, folder or Hub id does not exist.
        ConnectionError: the Hub cannot be reached.
        ValueError: the configuration, the split or the column does not exist, the dataset has no rows or cannot be
            read, or a value is not a string.
    """
    if isinstance(dataset, str | os.PathLike):
        name, rows = f"dataset {os.fspath(dataset)!r}", _rows(os.fspath(dataset), config, split)
    else:
        name, rows = "the dataset", iter(dataset)
    # Reading one row now reports a wrong name, split or column before anything else is done.
    first = next(rows, None)
    if first is None:
        raise ValueError(f"{name} has no rows: there is no text to read")
    if column not in first:
        raise ValueError(f"{name} has no column {column!r}: its columns are {', '.join(map(repr, first))}")
    return _column(chain([first], rows), column, name)


def check_table(path: str | os.PathLike[str]) -> None:
    """Raise ValueError for a table of text (`.csv`, `.jsonl` or the like) that is blank or not UTF-8: the library
    `datasets` finds that only where a row is read, and does not say in which file."""
    if Path(path).suffix.lower() != ".parquet" and Path(path).stat().st_size:
        for _ in _read(Path(path)):
            pass


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        found = sorted(file for file in path.rglob("*.txt") if file.is_file())
        if not found:
            raise ValueError(f"directory {str(path)!r} holds no *.txt file: name the files, or another directory")
        return [file for text in found for file in _files(text)]
    if not path.exists():
        raise FileNotFoundError(f"text file {str(path)!r} does not exist")
    if path.suffix.lower() in TABLES:
        raise ValueError(
            f"{str(path)!r} is a table, not plain text: read one of its columns as a dataset (iter_dataset, --dataset)"
        )
    if path.is_file() and path.stat().st_size == 0:
        raise ValueError(f"text file {str(path)!r} is empty")
    return [path]


def _read(path: Path) -> Iterator[str]:
    offset = 0  # of the first byte of `data` in the file
    data = b""
    pending = ""
    blank = True
    with open(path, "rb") as file:
        while block := file.read(_BLOCK_BYTES):
            nul = block.find(b"\0")
            if nul >= 0:
                raise _not_text(path, offset + len(data) + nul, "a NUL byte")
            data += block
            if offset == 0 and data.startswith(_BOM):
                offset, data = len(_BOM), data[len(_BOM) :]
            try:
                text, rest = data.decode("utf-8"), b""
            except UnicodeDecodeError as error:
                if error.reason != "unexpected end of data":
                    raise _not_text(path, offset + error.start, error.reason) from None
                # A character lies across two blocks.
                text, rest = data[: error.start].decode("utf-8"), data[error.start :]
            offset += len(data) - len(rest)
            data = rest
            blank = blank and not text.strip()
            pending += text
            cut = pending.rfind("\n") + 1
            if not cut and len(pending) > _LONGEST_LINE:
                # Before a space, not after it: the tokenizers keep a space with the word that follows.
                cut = max(pending.rfind(" "), 0) or len(pending)
            if cut:
                yield pending[:cut]
                pending = pending[cut:]
    if data:
        raise _not_text(path, offset, "unexpected end of data")
    if blank:
        raise ValueError(f"text file {str(path)!r} holds nothing but white space")
    if pending:
        yield pending


def _not_text(path: Path, offset: int, reason: str) -> ValueError:
    return ValueError(
        f"{str(path)!r} is not UTF-8 text: {reason} at byte offset {offset}; convert it to UTF-8, or leave it out"
    )


def _rows(source: str, config: str | None, split: str) -> Iterator[Mapping[str, Any]]:
    # datasets takes a second to import, and only some corpora need it.
    from datasets import load_dataset
    from datasets.exceptions import DatasetsError

    builder, options = source, {"name": config}
    suffix = Path(source).suffix.lower()
    if suffix in TABLES:
        if not Path(source).is_file():
            raise FileNotFoundError(f"dataset file {source!r} does not exist")
        if Path(source).stat().st_size == 0:
            raise ValueError(f"dataset file {source!r} is empty")
        check_table(source)
        builder, options = TABLES[suffix]
        options = {**options, "data_files": source}
    elif Path(source).is_file():
        raise ValueError(f"dataset {source!r} is no {', '.join(TABLES)} file: give plain text as text files (--text)")
    try:
        yield from load_dataset(builder, split=split, streaming=True, **options)
    except FileNotFoundError as error:
        raise FileNotFoundError(f"dataset {source!r} was not found: {error}") from error
    except (ValueError, DatasetsError) as error:
        raise ValueError(f"dataset {source!r} cannot be read: {error}") from error


def _column(rows: Iterable[Mapping[str, Any]], column: str, name: str) -> Iterator[str]:
    for number, row in enumerate(rows):
        text = row.get(column)
        if not isinstance(text, str):
            raise ValueError(
                f"{name}: row {number} of column {column!r} is {type(text).__name__}, not a string; "
                "name a column of texts, or remove such rows"
            )
        yield text
