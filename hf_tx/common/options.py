# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Options as the command line spells them."""

import json
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Any


def flag(name: str) -> str:
    """Return how a command line spells an option: `--max-length` for `max_length`."""
    return f"--{name.replace('_', '-')}"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a question that names what is spelt most alike, to go after an unknown name; nothing if none is near."""
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
