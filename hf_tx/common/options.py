# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Options as the command line spells them."""

import json
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any


def flag(name: str) -> str:
    """Return how a command line spells an option: `--max-length` for `max_length`."""
    return f"--{name.replace('_', '-')}"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a question that names what is spelt most alike, to go after an unknown name; nothing if none is near."""
    close = get_close_matches(name, list(known), 1)
    return f" (did you mean {close[0]}?)" if close else ""


def json_option(arguments: Any, name: str) -> dict[str, Any]:
    """Return an option that is a JSON object; without it, an empty one.

    Raises:
        ValueError: it is something else.
    """
    text, option = getattr(arguments, name), flag(name)
    if text is None:
        return {}
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"{option} {text}: is no JSON: {error}.") from error
    if not isinstance(found, dict):
        raise ValueError(f"{option} {text}: must be an object, {{name: value}}.")
    return found
