# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Documentation that several methods share: heads have the arguments of their base models."""

import inspect
import re
from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

_SECTION = re.compile(r"(?P<head>.*?\n *Args:\n)(?P<arguments>.*?)(?P<rest>\n\n *\w+:\n.*|\n\s*)\Z", re.DOTALL)


def _arguments(text: str) -> dict[str, str]:
    """Return the lines on every argument, by its name."""
    indent = len(text) - len(text.lstrip(" "))
    starts = re.compile(rf"^ {{{indent}}}(?=\S)", re.MULTILINE)
    entries = [text[at:to] for at, to in _spans([match.start() for match in starts.finditer(text)], len(text))]
    return {entry.split(":")[0].strip(" *"): entry.rstrip("\n") for entry in entries}


def _spans(starts: list[int], end: int) -> list[tuple[int, int]]:
    return list(zip(starts, [*starts[1:], end], strict=True))


def arguments_of(source: Callable[..., Any]) -> Callable[[F], F]:
    """Return a decorator that completes the `Args:` of a method: arguments that its docstring leaves out are described
    as those of the same name are in the docstring of `source`, in the order of the signature."""

    def decorate(method: F) -> F:
        ours, theirs = (_SECTION.match(each.__doc__ or "") for each in (method, source))
        if ours is None or theirs is None:  # python -OO has no docstrings
            return method
        described = {**_arguments(theirs["arguments"]), **_arguments(ours["arguments"])}
        taken = [name for name in inspect.signature(method).parameters if name in described]
        method.__doc__ = ours["head"] + "\n".join(described[name] for name in taken) + ours["rest"]
        return method

    return decorate
