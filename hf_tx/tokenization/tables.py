# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Reads the rows of tables of text.

The type of a cell is never guessed: in a csv and a tsv all cells are text, and an empty one is missing; in JSON cells
have the types of JSON.

| kind            | a row is                                     | quotes                                    |
|-----------------|----------------------------------------------|-------------------------------------------|
| `.csv`          | a line, or several if a quoted cell has them | around cells, doubled in them (RFC 4180)  |
| `.tsv`          | a line                                       | have no meaning                           |
| `.json, .jsonl` | an object a line, or one of a single array   | those of JSON                             |

Rows with more or fewer cells than the header, and repeated names, raise an error. Blank lines are skipped.
"""

import csv
import json
import math
import os
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, NoReturn

from transformers.utils import logging

from .files import ending, read_lines, read_pieces

logger = logging.get_logger(__name__)

#: The builder of `datasets` by the extension of a file, if `read_rows` does not read it.
TABLES = {".json": "json", ".jsonl": "json", ".csv": "csv", ".tsv": "csv", ".parquet": "parquet"}
_SEPARATORS = {",": "a comma", ";": "a semicolon", "\t": "a tab", "|": "a vertical bar"}

Row = dict[str, Any]


def read_rows(path: str | os.PathLike[str], opened: Any = None, separator: str | None = None) -> Iterator[Row]:
    """Read the rows of a `.csv`, `.tsv`, `.json` or `.jsonl` file, compressed or not, one at a time.

    The separator of a csv is that of its header: a comma, a semicolon, a tab or a vertical bar.

    Args:
        path: the file.
        opened: the opened file, if it is not read from the path.
        separator: separator of a csv, if it is known.

    Yields:
        The cells of each row by column.

    Raises:
        ValueError: if the file is not UTF-8 text, or a row is broken; with the number of the line.
    """
    pieces = read_pieces(path, opened)
    kind = ending(path)
    if TABLES[kind] == "json":
        yield from _of_json(pieces, str(path))
    else:
        yield from _of_cells(read_lines(pieces), str(path), "\t" if kind == ".tsv" else separator, kind != ".tsv")


def _of_cells(lines: Iterator[str], name: str, separator: str | None, quoted: bool) -> Iterator[Row]:
    csv.field_size_limit(1 << 62)  # a document may be a cell
    skipped = 0
    first = next(lines)
    while not first.strip("\r\n"):
        first, skipped = next(lines), skipped + 1
    separator = separator or _separator(first, name, skipped + 1)
    rules: dict[str, Any] = {"strict": True, "quoting": csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE}
    cells = csv.reader(chain([first], lines), delimiter=separator, **rules)
    header: list[str] = []
    last = skipped  # line of the row before
    count, with_quotes = 0, 0
    try:
        for row in cells:
            line, last = last + 1, skipped + cells.line_num
            if not row:
                continue
            if not header:
                header = _names(row, name, line)
                if len(header) == 1 and any(other in header[0] for other in _SEPARATORS):
                    between = _SEPARATORS.get(separator, repr(separator))
                    logger.warning(
                        f"{name}: has only one column, {header[0]!r}: its first line does not contain the "
                        f"separator, {between}, outside of quotes."
                    )
                continue
            if len(row) != len(header):
                between = f"separated by {_SEPARATORS.get(separator, repr(separator))}"
                rule = "; put a cell that contains one into quotes" if quoted else ""
                _refuse(name, line, f"has {len(row)} cells {between}, but the header has {len(header)}{rule}")
            count += 1
            with_quotes += not quoted and any(len(cell) > 1 and cell[0] == cell[-1] == '"' for cell in row)
            yield {column: cell or None for column, cell in zip(header, row, strict=True)}
    except csv.Error as error:
        _refuse(
            name, last + 1, f"begins a row with broken quotes ({error}): double the quotes inside of a quoted cell"
        )
    if with_quotes:
        logger.warning(
            f"{name}: {with_quotes} of {count} rows have cells in quotes. The quotes are kept, because a tsv has no "
            "quoting; to remove them, rename the file to .csv."
        )


def _separator(header: str, name: str, line: int) -> str:
    bare = "".join(header.split('"')[::2])  # the part outside of quotes
    found = [separator for separator in _SEPARATORS if separator in bare]
    if found[1:]:
        there = " and ".join(_SEPARATORS[separator] for separator in found)
        _refuse(
            name, line, f"has {there}, so the separator is ambiguous: put names that contain one of them into quotes"
        )
    separator = found[0] if found else ","
    if separator != ",":
        logger.warning(f"{name}: the separator is {_SEPARATORS[separator]}, as in the first line.")
    return separator


def _names(header: list[str], name: str, line: int) -> list[str]:
    # The names that pandas gives them: its files have an index without a name.
    names = [cell or f"Unnamed: {number}" for number, cell in enumerate(header)]
    twice = [cell for number, cell in enumerate(names) if cell in names[:number]]
    if twice:
        _refuse(name, line, f"has the column {twice[0]!r} twice; rename one of them")
    return names


def _of_json(pieces: Iterator[str], name: str) -> Iterator[Row]:
    lines = ((number, line) for number, line in _numbered(pieces) if line.strip())
    number, line = next(lines)
    if not line.lstrip().startswith("{") or not _is_whole(line):
        # A value over several lines must be read as a whole.
        yield from _of_value("".join([line, *(line for _, line in lines)]), name, number)
        return
    for at, text in chain([(number, line)], lines):
        row = _parsed(text, name, at)
        if not isinstance(row, dict):
            _refuse(name, at, f"is not an object, but {text.strip()!r:.60}: every row must be {{column: value}}")
        yield row


def _numbered(pieces: Iterable[str]) -> Iterator[tuple[int, str]]:
    begun: list[str] = []
    number = 1
    for piece in pieces:
        # Not at the other line ends of Unicode, which can be part of strings.
        *whole, last = piece.split("\n")
        for line in whole:
            yield number, "".join([*begun, line, "\n"])
            begun, number = [], number + 1
        begun.append(last)
    if any(begun):
        yield number, "".join(begun)


def _is_whole(line: str) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


def _of_value(text: str, name: str, line: int) -> Iterator[Row]:
    found = _parsed(text, name, line)
    if isinstance(found, dict) and found and all(isinstance(column, list) for column in found.values()):
        lengths = set(map(len, found.values()))
        if len(lengths) == 1:
            found = [dict(zip(found, row, strict=True)) for row in zip(*found.values(), strict=True)]
    if isinstance(found, dict):
        found = [found]
    if not isinstance(found, list) or not all(isinstance(row, dict) for row in found):
        _refuse(name, line, "must begin an array of objects, which are the rows, or an object of columns")
    yield from found


def _parsed(text: str, name: str, line: int) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_without_repetition, parse_constant=_no_number, parse_float=_finite)
    except json.JSONDecodeError as error:
        _refuse(name, line + error.lineno - 1, f"is not JSON: {error.msg} at character {error.colno}")
    except (ValueError, RecursionError) as error:
        _refuse(name, line, f"is not JSON: {error}")


def _without_repetition(pairs: list[tuple[str, Any]]) -> Row:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError(f"a name occurs twice in {', '.join(name for name, _ in pairs)}")
    return found


def _no_number(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a number")


def _finite(number: str) -> float:
    found = float(number)
    if math.isinf(found):
        raise ValueError(f"{number} is too large for a number of 64 bits")
    return found


def _refuse(name: str, line: int, reason: str) -> NoReturn:
    raise ValueError(f"{name}: cannot be read: line {line} {reason}")
