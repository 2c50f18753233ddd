# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Registries, which map the names in a config to implementations."""

import difflib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar

T = TypeVar("T")


def nearest(name: str, known: Iterable[str]) -> str:
    """Return " Did you mean 'x'?" for the known name that is closest to `name`, or "" when none is close."""
    close = difflib.get_close_matches(str(name), list(known), n=1)
    return f" Did you mean {close[0]!r}?" if close else ""


def require(condition: bool, field: str, value: Any, rule: str) -> None:
    """Raise ValueError("field = value: rule") unless the condition holds."""
    if not condition:
        raise ValueError(f"{field} = {value!r}: {rule}.")


def require_known(field: str, value: Any, known: Iterable[str]) -> None:
    """Raise a ValueError with the known values and the most similar one, unless the value is one of them."""
    known = list(known)
    if value not in known:  # to look for the nearest takes its time
        require(False, field, value, f"is unknown.{nearest(value, known)} Known: {', '.join(known)}")


class Registry(Generic[T]):
    """Maps the names of one kind of choice (mixer, position, norm, feed-forward) to what implements them.

    Args:
        kind: kind of the names, in the singular, for error messages.

    Example:

    ```python
    >>> colours = Registry("colour")
    >>> colours.register("red", 0xFF0000)
    >>> colours.get("red") == 0xFF0000
    True
    >>> colours.get("rde")
    Traceback (most recent call last):
        ...
    ValueError: unknown colour 'rde'. Did you mean 'red'? Known: red.

    ```
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        #: Asked for a name that is unknown: registers it if a plug-in has it, or says what is known of that plug-in.
        self.find: Callable[[str], str] | None = None
        self._entries: dict[str, tuple[T, str]] = {}

    def register(self, name: str, value: T, origin: str = "hf_tx") -> None:
        """Add an entry.

        Args:
            name: the name that a config uses.
            value: its implementation.
            origin: who registers it; both origins are named when two claim one name.

        Raises:
            ValueError: the name is taken.
        """
        self.refuse_taken(name, origin)
        self._entries[name] = (value, origin)

    def refuse_taken(self, name: str, origin: str) -> None:
        """Raise a ValueError if `name` is taken; `origin` is the origin of the new entry."""
        if name in self._entries:
            raise ValueError(
                f"{self.kind} {name!r} is already registered by {self._entries[name][1]}; {origin} needs another name."
            )

    def get(self, name: str) -> T:
        """Return the implementation of `name`.

        Raises:
            ValueError: the name is unknown; the message lists the known ones.
            ImportError: it belongs to a plug-in that cannot be used.
        """
        if name not in self._entries:
            hint = self._ask_plugins(name)
            if name not in self._entries:
                known = ", ".join(self._entries)
                raise ValueError(f"unknown {self.kind} {name!r}.{nearest(name, self._entries)} Known: {known}.{hint}")
        return self._entries[name][0]

    def _ask_plugins(self, name: object) -> str:
        return self.find(name) if self.find is not None and isinstance(name, str) else ""

    def __contains__(self, name: object) -> bool:
        if name not in self._entries:
            self._ask_plugins(name)
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)
