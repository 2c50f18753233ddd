# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Names and values of command line options."""

import json
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Any


def flag(name: str) -> str:
    """Return the name of an option on the command line: `--max-length` for `max_length`."""
    return f"--{name.replace('_', '-')}"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a question with the most similar known name, for the message of an unknown name, or an empty string."""
    close = get_close_matches(name, list(known), 1)
    return f" (did you mean {close[0]}?)" if close else ""


def check_names(option: str, owner: str, given: Iterable[str], known: Sequence[str]) -> None:
    """Raise ValueError for a name that an option given as JSON does not know.

    Args:
        option: how the command line spells it.
        owner: what has the names: an objective or a task.
        given: the names that are given.
        known: those that there are.
    """
    for name in given:
        if name not in known:
            listed = f"has {', '.join(known)}" if known else "has none"
            raise ValueError(f"{option}: {owner} has no option {name!r}{did_you_mean(name, known)}; it {listed}.")


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
