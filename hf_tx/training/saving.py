# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Saving a checkpoint into a folder of its own, whole or not at all."""

import fnmatch
import os
import tempfile
from pathlib import Path
from typing import Protocol

from .. import models
from ..common.whole import whole_folder


class _Savable(Protocol):
    def save_pretrained(self, save_directory: Path) -> object: ...


# What a checkpoint consists of, beside the code of the models. A folder with anything else is never replaced.
_CHECKPOINT_PATTERNS = (
    "*.safetensors",
    "model.safetensors.index.json",
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "results.json",
    "trainer_state_*.json",
)


def _belongs_to_checkpoint(path: Path) -> bool:
    code = Path(models.__path__[0], path.name)
    known = any(fnmatch.fnmatch(path.name, pattern) for pattern in _CHECKPOINT_PATTERNS)
    return path.is_file() and (known or (path.suffix == ".py" and code.is_file()))


def check_checkpoint_folder(folder: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
    """Check that a checkpoint may be saved to a folder, and leave nothing behind.

    Args:
        folder: the folder. It and its parents need not exist.
        overwrite: whether a checkpoint that is in the folder may be replaced.

    Returns:
        The absolute path of the folder.

    Raises:
        FileExistsError: the folder is a file, or is not empty and `overwrite` is false, or holds something that does
            not belong to a checkpoint (then `overwrite` does not help: replacing the folder would delete it).
        OSError: the folder cannot be made.
    """
    path = Path(folder).resolve()
    place = path.parent
    while not place.exists():
        place = place.parent
    for existing in (path, place):
        if existing.exists() and not existing.is_dir():
            raise FileExistsError(f"output {str(existing)!r} is a file, not a folder: choose another")
    if path.exists():
        foreign = sorted(entry.name for entry in path.iterdir() if not _belongs_to_checkpoint(entry))
        if foreign:
            raise FileExistsError(
                f"output folder {str(path)!r} holds more than a checkpoint ({', '.join(foreign[:3])}): choose another"
            )
        if any(path.iterdir()) and not overwrite:
            raise FileExistsError(
                f"output folder {str(path)!r} is not empty: choose another, or allow it to be replaced (--overwrite)"
            )
    try:
        # Only writing tells: permissions do not speak of file systems that are read-only or full.
        with tempfile.TemporaryDirectory(prefix=f".{path.name}-", dir=place):
            pass
    except OSError as error:
        raise OSError(f"output folder {str(path)!r} cannot be written: {error.strerror} in {str(place)!r}") from error
    return path


def save_checkpoint(folder: str | os.PathLike[str], *parts: _Savable, overwrite: bool = False) -> Path:
    """Save a model, its tokenizer and the like, so that the folder holds either all of them or what it held before.

    The files are written beside the folder and moved into place as a whole.

    Args:
        folder: where to save. Missing parents are made.
        *parts: what has `save_pretrained`.
        overwrite: whether a checkpoint that is in the folder may be replaced.

    Returns:
        The absolute path of the folder.

    Raises:
        OSError: as `check_checkpoint_folder`.
    """
    path = check_checkpoint_folder(folder, overwrite=overwrite)
    with whole_folder(path) as new:
        for part in parts:
            part.save_pretrained(new)
    return path
