# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""What the cards of data sets on this machine say."""

import os
from typing import Any

from huggingface_hub import metadata_load

from ..common.packaged import path_of


def read_data_card(name: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the metadata of the card of a data set: of `README.md` in a folder, or in the folder around it, so that
    both parts of a split have one card; of `book.md` beside a file `book.txt`.

    Args:
        name: a file or a folder.

    Returns:
        The metadata, in which `pretty_name` is the name of the data; none if there is no such card.

    Raises:
        ValueError: there is one, and its metadata is no YAML.
    """
    path = path_of(name)
    places = [path / "README.md", path.absolute().parent / "README.md"] if path.is_dir() else [path.with_suffix(".md")]
    for place in places:
        if place.is_file():
            try:
                found = metadata_load(place)
            except Exception as error:  # of the library for YAML, which is not ours
                raise ValueError(f"{place}: its metadata cannot be read: {error}") from error
            # The README.md of a project or of a model has none.
            if found and "pretty_name" in found:
                return found
    return {}


def license_of(card: dict[str, Any]) -> str:
    """Return the licence that a card names; the Hub calls licences that it does not know `other`."""
    known = card.get("license", "not stated")
    return str(card.get("license_name", known) if known == "other" else known)
