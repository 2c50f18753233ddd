# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Saving a tokenizer into a folder of its own, whole or not at all."""

import os
from pathlib import Path

from transformers import PreTrainedTokenizerFast

from ..common.whole import whole_folder

# What the versions of transformers have written for a tokenizer. A folder with anything else is never replaced.
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
    """Check, without writing, that a tokenizer may be saved to a folder.

    Args:
        folder: the folder. It and its parents need not exist.
        overwrite: whether a tokenizer that is in the folder may be replaced.

    Returns:
        The absolute path of the folder.

    Raises:
        FileExistsError: the folder is a file, or is not empty and `overwrite` is false, or holds files that do not
            belong to a tokenizer (then `overwrite` does not help: replacing the folder would delete them).
        PermissionError: the folder cannot be made.
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
            f"output folder {str(path)!r} holds more than a tokenizer ({', '.join(foreign[:3])}): choose another"
        )
    if present and not overwrite:
        raise FileExistsError(
            f"output folder {str(path)!r} is not empty: choose another, or allow it to be replaced (overwrite)"
        )
    return path


def save_tokenizer(
    tokenizer: PreTrainedTokenizerFast, folder: str | os.PathLike[str], *, overwrite: bool = False
) -> Path:
    """Save a tokenizer so that the folder holds either all of it or what it held before.

    The files are written beside the folder and moved into place as a whole. So a tokenizer that is replaced leaves no
    file behind that a loader would mix with the new one.

    Args:
        tokenizer: the tokenizer.
        folder: where to save it. Missing parents are made.
        overwrite: whether a tokenizer that is in the folder may be replaced.

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
