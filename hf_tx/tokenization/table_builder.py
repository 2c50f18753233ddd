# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Loads tables of text with the `datasets` library and its cache. It is imported where `datasets` is."""

import hashlib
import inspect
import json
import sys
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
# The types of JSON values, by the type of a column.
_HOLD: dict[str, tuple[type, ...]] = {"string": (str,), "bool": (bool,), "int64": (int,), "float64": (int, float)}


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
            schemas = (table.schema for _, table in self._generate_tables(**splits[0].gen_kwargs))
            self.info.features = datasets.Features.from_arrow_schema(_complete(next(schemas), schemas))
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
                yield Key(number, part), self._table(batch, before, f"{name}: cannot be read")
                before += len(batch)

    def _table(self, rows: list[tables.Row], before: int, name: str) -> pa.Table:
        where = f"{name}: rows {before + 1} to {before + len(rows)}"
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
        try:
            if features is None:
                inferred = datasets.Dataset.from_dict(cells, on_mixed_types="use_json").features
                features = datasets.Features(
                    {
                        column: kind if all(_fits(cell, kind) for cell in cells[column]) else datasets.Json()
                        for column, kind in inferred.items()
                    }
                )
            for column in columns:
                if isinstance(features[column], datasets.Json):
                    # A string that is JSON itself would be parsed.
                    cells[column] = [None if cell is None else json.dumps(cell) for cell in cells[column]]
                    continue
                for number, cell in enumerate(cells[column], before + 1):
                    if not _fits(cell, features[column]):
                        raise ValueError(
                            f"{name}: row {number} has {cell!r:.60} in column {column!r}, which is {features[column]} "
                            "in the first rows: a column must have values of one type"
                        )
            return datasets.Dataset.from_dict(cells, features=features).data.table
        except (TypeError, OverflowError, pa.ArrowException) as error:
            raise ValueError(f"{where} do not have the types of their columns: {error}") from error


def _complete(schema: pa.Schema, following: Iterator[pa.Schema]) -> pa.Schema:
    """Give columns that are empty so far the type of the first rows with a value in them."""
    while any(map(_has_null, schema.types)) and (other := next(following, None)) is not None:
        try:
            schema = pa.unify_schemas([schema, other])
        except pa.ArrowException:
            break  # the row is found when it is read
    return schema


def _has_null(kind: pa.DataType) -> bool:
    return pa.types.is_null(kind) or any(_has_null(kind.field(number).type) for number in range(kind.num_fields))


def _fits(cell: Any, feature: Any) -> bool:
    """Return whether a column of this type stores a cell without changes.

    Arrow would convert 1.5 to 1 in a column of integers, and drop unknown names in a column of objects.
    """
    if cell is None:
        return True
    if isinstance(feature, dict):
        return isinstance(cell, dict) and all(name in feature and _fits(cell[name], feature[name]) for name in cell)
    if isinstance(feature, datasets.List):
        return isinstance(cell, list) and all(_fits(item, feature.feature) for item in cell)
    return isinstance(feature, datasets.Value) and type(cell) in _HOLD.get(feature.dtype, ())


def code_digest() -> str:
    """Return a digest that changes when tables are read in another way, so that no old cache is used."""
    code = "".join(inspect.getsource(module) for module in (files, tables)) + inspect.getsource(sys.modules[__name__])
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
