# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Loads tables of text with the `datasets` library and its cache. It is imported where `datasets` is."""

import hashlib
import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

import datasets
import pyarrow as pa  # type: ignore[import-untyped]
from datasets.builder import Key
from datasets.utils.file_utils import xopen

from . import files, tables

# Rows are converted to a table when they are about this large.
_BATCH_BYTES = 10_000_000
_CELL_BYTES = 50


@dataclass
class TableConfig(datasets.BuilderConfig):
    """The options: `separator` is that of a csv, if it is not a comma."""

    separator: str = ","


class TableBuilder(datasets.ArrowBasedBuilder):
    """Reads `.csv`, `.tsv`, `.json` and `.jsonl` files by `read_rows`. The columns and their types are those of the
    first rows."""

    BUILDER_CONFIG_CLASS = TableConfig
    config: TableConfig

    def _info(self) -> datasets.DatasetInfo:
        return datasets.DatasetInfo()

    def _split_generators(self, dl_manager: Any) -> list[datasets.SplitGenerator]:
        listed = self.config.data_files
        splits = [
            # A downloaded file has another name, without an extension.
            datasets.SplitGenerator(
                name=str(split), gen_kwargs={"names": list(listed[split]), "paths": dl_manager.download(listed[split])}
            )
            for split in listed
        ]
        if self.info.features is None:
            _, table = next(self._generate_tables(**splits[0].gen_kwargs))
            self.info.features = datasets.Features.from_arrow_schema(table.schema)
        return splits

    def _generate_tables(self, names: list[str], paths: list[str]) -> Iterator[tuple[Key, pa.Table]]:
        separator = None if self.config.separator == "," else self.config.separator
        for number, (name, path) in enumerate(zip(names, paths, strict=True)):
            rows = tables.read_rows(name, xopen(path, "rb"), separator)
            first = next(rows, None)
            if first is None:
                raise ValueError(f"{name}: cannot be read: it has no rows")
            before = 0
            for part, batch in enumerate(_batches(chain([first], rows))):
                yield (
                    Key(number, part),
                    self._table(batch, f"{name}: cannot be read: rows {before + 1} to {before + len(batch)}"),
                )
                before += len(batch)

    def _table(self, rows: list[tables.Row], where: str) -> pa.Table:
        columns = list(dict.fromkeys(column for row in rows for column in row))
        if not columns:
            raise ValueError(f"{where} have no columns")
        features = self.info.features
        if features is not None:
            if more := set(columns) - set(features):
                raise ValueError(
                    f"{where} have a column {min(more)!r}, which the rows before them do not have; all rows need the "
                    "same columns"
                )
            columns = list(features)
        elif tables.TABLES[files.ending(self.config.data_files[next(iter(self.config.data_files))][0])] == "csv":
            features = datasets.Features({column: datasets.Value("string") for column in columns})
        cells = {column: [row.get(column) for row in rows] for column in columns}
        options: Any = {"features": features} if features is not None else {"on_mixed_types": "use_json"}
        try:
            return datasets.Dataset.from_dict(cells, **options).data.table
        except (ValueError, TypeError, OverflowError, pa.ArrowException) as error:
            raise ValueError(f"{where} do not have the types of their columns: {error}") from error


def code_digest() -> str:
    """Return a digest that changes when tables are read in another way, so that no old cache is used."""
    code = "".join(inspect.getsource(module) for module in (files, tables)) + inspect.getsource(TableBuilder)
    return hashlib.sha256(code.encode("utf-8")).hexdigest()


def _batches(rows: Iterator[tables.Row]) -> Iterator[list[tables.Row]]:
    batch: list[tables.Row] = []
    size = 0
    for row in rows:
        batch.append(row)
        size += sum(_size(cell) for cell in row.values())
        if size >= _BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _size(cell: Any) -> int:
    if isinstance(cell, dict):
        return sum(map(_size, cell.values()))
    if isinstance(cell, list):
        return sum(map(_size, cell))
    return _CELL_BYTES + (len(cell) if isinstance(cell, str) else 0)
