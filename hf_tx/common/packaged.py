# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Texts that come with hf_tx: options name them without the path of the package, so that a command on a card runs on
any machine."""

import os
from pathlib import Path

_FOLDER, _PREFIX = Path(__file__).parents[1] / "data", "hf_tx:"

#: The names of these texts; `hf_tx/data/` holds each, and what is to be known of it.
PACKAGED = tuple(f"{_PREFIX}{file.stem}" for file in sorted(_FOLDER.glob("*.txt")))
#: The speeches that are read where no text is given.
SPEECHES = f"{_PREFIX}state_of_the_union"


def path_of(name: str | os.PathLike[str]) -> Path:
    """Return the path of a file or folder, or that of a text of the package for its name.

    Raises:
        FileNotFoundError: there is no such text in the package.
    """
    text = os.fspath(name)
    if not text.startswith(_PREFIX):
        return Path(name)
    if text not in PACKAGED:
        raise FileNotFoundError(f"{text}: no such text comes with hf_tx; there is {', '.join(PACKAGED)}")
    return _FOLDER / f"{text.removeprefix(_PREFIX)}.txt"
