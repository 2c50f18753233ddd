# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Reads the cards of local datasets."""

import os
from typing import Any

from huggingface_hub import metadata_load

from ..common.packaged import path_of


def read_data_card(name: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the metadata of the card of a dataset. The card of a folder is the `README.md` in it or in its parent, so
    that the splits can share a card. The card of a file `book.txt` is `book.md` in the same folder.

    Args:
        name: a file or a folder.

    Returns:
        The metadata, with the name of the data as `pretty_name`; an empty dict if there is no such card.

    Raises:
        ValueError: if the metadata of the card is not YAML.
    """
    path = path_of(name)
    places = [path / "README.md", path.absolute().parent / "README.md"] if path.is_dir() else [path.with_suffix(".md")]
    for place in places:
        if place.is_file():
            try:
                found = metadata_load(place)
            except Exception as error:  # the YAML parser has its own exceptions
                raise ValueError(
                    f"{place}: the metadata (YAML between the --- lines) cannot be read: {error}"
                ) from error
            # The README.md of a project or of a model has none.
            if found and "pretty_name" in found:
                return found
    return {}


def license_of(card: dict[str, Any]) -> str:
    """Return the license in a card. Licenses that the Hub does not know are `other`, with a `license_name`."""
    known = card.get("license", "not stated")
    return str(card.get("license_name", known) if known == "other" else known)
