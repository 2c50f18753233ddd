# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Writes files and folders completely, or not at all."""

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """Write a folder that replaces another one when it is complete. If an error is raised, the old folder is not
    changed.

    Args:
        path: the folder. Missing parents are created, and an existing folder is replaced.

    Yields:
        The path of a new folder to write, which does not exist yet.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{path.name}-", dir=path.parent) as temporary:
        new, old = Path(temporary, "new"), Path(temporary, "old")
        yield new
        if path.exists():
            path.rename(old)
        try:
            new.rename(path)
        except BaseException:
            if old.exists():
                old.rename(path)
            raise


def write_json(path: str | os.PathLike[str], content: Any, indent: int = 2) -> None:
    """Write JSON to a file, which is created when it is complete."""
    path = Path(path)
    part = path.with_name(f".{path.name}.part")
    part.write_text(json.dumps(content, indent=indent, ensure_ascii=False) + "\n", "utf-8")
    part.replace(path)
