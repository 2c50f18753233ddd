# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Loads datasets by name: files, folders and datasets on the Hub, all read in the same way.

The `datasets` library finds the files, and caches what was read. Tables of text are read by `read_rows`, unless the
dataset card defines how (options and features).
"""

import os
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from .files import COMPRESSED, ending
from .tables import TABLES

_SAVED = ("dataset_dict.json", "state.json")
# Fields that define where a dataset is, and not how it is read.
_OF_PLACE = {"name", "version", "data_dir", "data_files", "description", "sep", "delimiter", "features"}


def load_rows(names: Sequence[str], config: str | None = None, *, streaming: bool = False) -> dict[str, Any]:
    """Load datasets by name.

    Args:
        names: a name on the Hub, or a folder (written by `save_to_disk`, or with files), or files with the same
            extension: `.csv`, `.tsv`, `.json`, `.jsonl` or `.parquet`; all but the last also compressed (`.gz`,
                `.bz2`,
            `.xz`, `.zst`, `.zip`).
        config: the configuration of the dataset, if it has several.
        streaming: read rows one at a time instead of storing them in the cache of `datasets`.

    Returns:
        The splits. Files are the split `train`.

    Raises:
        FileNotFoundError: if a file, folder or name does not exist.
        ConnectionError: if the Hub cannot be reached.
        ValueError: if the files have several extensions, cannot be read, or have no rows.
        ImportError: if the library that decompresses a file is not installed.
    """
    from datasets import DatasetDict, load_dataset, load_dataset_builder, load_from_disk  # takes a second to import
    from datasets.exceptions import DatasetGenerationError, DatasetsError

    where = " ".join(names)
    is_files = len(names) > 1 or ending(names[0]) in TABLES or Path(names[0]).is_file()
    kind = _kind_of(names) if is_files else None
    try:
        if len(names) == 1 and any(Path(names[0], file).is_file() for file in _SAVED):
            saved = load_from_disk(names[0])
            splits = saved if isinstance(saved, DatasetDict) else {str(saved.split or "train"): saved}
            if streaming:
                splits = {name: split.to_iterable_dataset() for name, split in splits.items()}
        elif kind is None:
            found = load_dataset_builder(names[0], name=config)
            if _reads_as_usual(found):
                splits = _read(found.config.data_files, streaming, found)
            else:
                # Only an empty cell is a missing value, in all tables.
                cells = {"keep_default_na": False, "na_values": [""]} if found.name == "csv" else {}
                splits = load_dataset(names[0], name=config, streaming=streaming, **cells)
        elif kind == "parquet":
            splits = load_dataset("parquet", data_files=list(names), streaming=streaming)
        else:
            splits = _read(_listed(names), streaming)
    except FileNotFoundError as error:
        raise FileNotFoundError(f"dataset {where!r} was not found: {error}") from error
    except (ValueError, DatasetsError) as error:
        cause = error.__cause__ if isinstance(error, DatasetGenerationError) and error.__cause__ else error
        if isinstance(cause, ImportError):
            raise cause from None
        said = str(cause)
        # Errors of a row already name the file.
        named = ": cannot be read: " in said or any(repr(os.path.abspath(name)) in said for name in names)
        raise ValueError(said if named else f"{where}: cannot be read: {said}") from error
    except StopIteration as error:  # raised by `datasets` for empty files
        raise ValueError(f"{where}: has no rows.") from error
    return dict(splits)


def _kind_of(names: Sequence[str]) -> str:
    """Return the builder of `datasets` that reads the files.

    Raises:
        FileNotFoundError: if a file does not exist.
        ValueError: if a file is not a table or empty, or has another extension than the others.
    """
    for name in names:
        if ending(name) not in TABLES or (ending(name) == ".parquet" and Path(name).suffix.lower() in COMPRESSED):
            listed = ", ".join(TABLES)
            text = "; pass plain text as text files (--text)" if len(names) == 1 else ""
            raise ValueError(
                f"{name} is not a {listed} file{text or '; several names must be files with the same extension'}"
            )
        if not Path(name).is_file():
            raise FileNotFoundError(f"{name}: there is no such file")
        if not Path(name).stat().st_size:
            raise ValueError(f"{name}: has no rows, because the file is empty")
    kinds = {ending(name) for name in names}
    if len(kinds) > 1:
        raise ValueError(
            f"the files have several extensions ({', '.join(sorted(kinds))}): pass files with the same extension."
        )
    return TABLES[kinds.pop()]


def _listed(names: Sequence[str]) -> Any:
    """Return files as `datasets` lists them, with what identifies a changed file. As patterns, names with brackets
    would not be found."""
    from datasets.data_files import DataFilesDict, DataFilesList

    paths = [os.path.abspath(name) for name in names]
    stats = map(os.stat, paths)
    return DataFilesDict(
        {"train": DataFilesList(paths, [(str(stat.st_mtime_ns), str(stat.st_size)) for stat in stats])}
    )


def _reads_as_usual(builder: Any) -> bool:
    """Return whether a dataset consists of tables of text, without options in its card."""
    if builder.name not in ("csv", "json") or builder.info.features is not None:
        return False
    usual = type(builder.config)()
    options = [field.name for field in fields(usual) if field.name not in _OF_PLACE]
    return all(getattr(builder.config, name) == getattr(usual, name) for name in options)


def _read(files: Any, streaming: bool, found: Any = None) -> Any:
    from .table_builder import TableBuilder, code_digest

    options: dict[str, Any] = {}
    if found is not None:
        options = {"dataset_name": found.dataset_name, "config_name": found.config.name, "base_path": found.base_path}
        options |= {"repo_id": found.repo_id, "separator": getattr(found.config, "sep", ",")}
    builder = TableBuilder(data_files=files, hash=code_digest(), **options)
    if streaming:
        return builder.as_streaming_dataset()
    builder.download_and_prepare()
    return builder.as_dataset()
