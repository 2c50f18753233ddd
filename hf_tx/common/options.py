# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Names and values of command line options."""

import json
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any


def flag(name: str) -> str:
    """Return the name of an option on the command line: `--max-length` for `max_length`."""
    return f"--{name.replace('_', '-')}"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a question with the most similar known name, for the message of an unknown name, or an empty string."""
    close = get_close_matches(name, list(known), 1)
    return f" (did you mean {close[0]}?)" if close else ""


def json_option(arguments: Any, name: str) -> dict[str, Any]:
    """Return the value of an option that is a JSON object; an empty dict if it is not given.

    Raises:
        ValueError: if it is something else.
    """
    text, option = getattr(arguments, name), flag(name)
    if text is None:
        return {}
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"{option} {text} is not JSON: {error}.") from error
    if not isinstance(found, dict):
        raise ValueError(f'{option} {text} must be a JSON object, such as {{"name": value}}.')
    return found
