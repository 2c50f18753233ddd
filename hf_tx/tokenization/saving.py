# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Saves a tokenizer to a folder, completely or not at all."""

import os
from pathlib import Path

from transformers import PreTrainedTokenizerFast

from ..common.whole import whole_folder

# The files that versions of transformers write for a tokenizer. A folder with other files is never replaced.
_TOKENIZER_FILES = frozenset(
    {
        "added_tokens.json",
        "chat_template.jinja",
        "merges.txt",
        "special_tokens_map.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "vocab.json",
        "vocab.txt",
    }
)


def check_output_folder(folder: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
    """Check, without writing, that a tokenizer can be saved to a folder.

    Args:
        folder: the folder. It and its parents need not exist.
        overwrite: whether a tokenizer in the folder can be replaced.

    Returns:
        The absolute path of the folder.

    Raises:
        FileExistsError: if the folder is a file, is not empty and `overwrite` is False, or contains files that do not
            belong to a tokenizer (also with `overwrite`, because replacing the folder would delete them).
        PermissionError: if the folder cannot be created.
    """
    path = Path(folder).resolve()
    for parent in (path, *path.parents):
        if parent.exists():
            if not parent.is_dir():
                raise FileExistsError(f"output {str(parent)!r} is a file, not a folder: choose another")
            break
    place = parent if parent != path else path.parent
    if not os.access(place, os.W_OK | os.X_OK):
        raise PermissionError(f"output folder {str(path)!r} cannot be written: no permission in {str(place)!r}")
    present = sorted(entry.name for entry in path.iterdir()) if path.exists() else []
    foreign = [name for name in present if name not in _TOKENIZER_FILES]
    if foreign:
        raise FileExistsError(
            f"output folder {str(path)!r} contains other files than a tokenizer ({', '.join(foreign[:3])}): choose "
            "another"
        )
    if present and not overwrite:
        raise FileExistsError(
            f"output folder {str(path)!r} is not empty: choose another, or replace its content with overwrite"
        )
    return path


def save_tokenizer(
    tokenizer: PreTrainedTokenizerFast, folder: str | os.PathLike[str], *, overwrite: bool = False
) -> Path:
    """Save a tokenizer to a folder, completely or not at all.

    The files are written to a new folder, which then replaces the old one, so that no file of a former tokenizer is
    left.

    Args:
        tokenizer: the tokenizer.
        folder: where to save it. Missing parents are created.
        overwrite: whether a tokenizer in the folder can be replaced.

    Returns:
        The absolute path of the folder.

    Raises:
        FileExistsError: as `check_output_folder`.
        PermissionError: as `check_output_folder`.
    """
    path = check_output_folder(folder, overwrite=overwrite)
    with whole_folder(path) as new:
        tokenizer.save_pretrained(new)
    return path
