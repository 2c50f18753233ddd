# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Stores rows in Arrow files, which are memory-mapped instead of read."""

import os
from collections.abc import Iterable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

# Number of rows that are lists of numbers at a time; lists take ten times the memory of a table.
_PART = 200


def cache_file(dataset: Any, key: Any) -> Path:
    """Return the file for rows that are made of a dataset: next to the dataset in the cache of `datasets`, or, if the
    dataset is not cached, in a folder that is removed when the process ends.

    Args:
        dataset: a `Dataset`.
        key: what the rows depend on, apart from the dataset.
    """
    from datasets import is_caching_enabled
    from datasets.fingerprint import Hasher

    if not (is_caching_enabled() and dataset.cache_files):
        return temporary_file()
    return Path(dataset.cache_files[0]["filename"]).with_name(f"rows-{Hasher.hash([dataset._fingerprint, key])}.arrow")


def temporary_file() -> Path:
    """Return a file for rows that is removed when the process ends."""
    from datasets.fingerprint import generate_random_fingerprint, get_temporary_cache_files_directory

    return Path(get_temporary_cache_files_directory(), f"rows-{generate_random_fingerprint()}.arrow")


def write_rows(rows: Iterable[Mapping[str, Any]], features: Mapping[str, Any], path: Path) -> Any:
    """Write rows to a file, a few at a time, unless the file exists.

    Args:
        rows: the rows.
        features: their columns, for `datasets.Features`.
        path: the file, which is created when it is complete.

    Returns:
        The rows as a `Dataset`.
    """
    import pyarrow
    from datasets import Dataset, Features
    from datasets.arrow_writer import ArrowWriter
    from datasets.utils.tqdm import tqdm

    if not path.exists():
        schema = Features(features).arrow_schema
        iterator = iter(rows)
        unfinished = path.with_name(f"{path.name}.{os.getpid()}")
        try:
            with (
                tqdm(desc="Making rows", unit=" rows") as bar,
                ArrowWriter(features=Features(features), path=str(unfinished)) as writer,
            ):
                while part := list(islice(iterator, _PART)):
                    writer.write_table(pyarrow.Table.from_pylist(part, schema=schema))
                    bar.update(len(part))
                writer.finalize()
            unfinished.replace(path)
        finally:
            unfinished.unlink(missing_ok=True)
    return Dataset.from_file(str(path))
