# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Reads columns of texts row by row, and logs which columns are not used."""

import codecs
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from transformers.utils import logging

from .pieces import LONGEST_PIECE, Text, cut_text

logger = logging.get_logger(__name__)

# Number of rows that are read at a time.
_ROWS = 10


def tell_unread(columns: Sequence[str], read: Collection[str]) -> None:
    """Log which columns of a dataset are not used."""
    unread = [column for column in columns if column not in read]
    if unread:
        logger.warning_once(
            f"the columns {', '.join(unread)} of the data are not used; the columns that are used are "
            f"{', '.join(read)}."
        )


def iter_columns(rows: Any, columns: Sequence[str]) -> Iterator[tuple[Text, ...]]:
    """Read columns of texts, with no more than a few rows in memory.

    Args:
        rows: a `Dataset`, an `IterableDataset`, or another iterable of rows.
        columns: their names.

    Yields:
        The texts of each row. A long text of a `Dataset` comes in parts, which are decoded when they are read.

    Raises:
        ValueError: if a text is not a string.
    """
    from datasets import Dataset, IterableDataset  # takes a second to import

    found: Iterator[tuple[Any, ...]]
    if isinstance(rows, Dataset):
        tables = rows.select_columns(list(dict.fromkeys(columns))).with_format("arrow").iter(_ROWS)
        found = (row for table in tables for row in zip(*(map(_value, table[name]) for name in columns), strict=True))
    elif isinstance(rows, IterableDataset):
        # In a worker of a DataLoader, iterating over the rows one by one would leave out those of other workers.
        batches = rows.iter(_ROWS)
        found = (row for batch in batches for row in zip(*(batch[name] for name in columns), strict=True))
    else:
        found = (tuple(row[name] for name in columns) for row in rows)
    for row in found:
        for text in row:
            if not isinstance(text, str | Iterator):
                raise ValueError(f"a text is {type(text).__name__}, not a string: {text!r}; remove such rows.")
        yield row


def iter_pieces(rows: Any, columns: Sequence[str], most: int | None = None) -> Iterator[str]:
    """Yield the texts in columns in pieces (see [`cut_text`]).

    Args:
        rows: see `iter_columns`.
        columns: their names.
        most: stop after about this number of characters. Default: read all.
    """
    for texts in iter_columns(rows, columns):
        for text in texts:
            for piece in cut_text(text):
                yield piece
                if most is not None and (most := most - len(piece)) <= 0:
                    return


def _value(scalar: Any) -> Any:
    """Return the value of a cell."""
    import pyarrow

    if isinstance(scalar, pyarrow.StringScalar | pyarrow.LargeStringScalar) and scalar.is_valid:
        content = memoryview(scalar.as_buffer())
        return str(content, "utf-8") if len(content) <= LONGEST_PIECE else _parts(content)
    return scalar.as_py()


def _parts(content: memoryview) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder("utf-8")()
    for start in range(0, len(content), LONGEST_PIECE):
        yield decoder.decode(content[start : start + LONGEST_PIECE])
