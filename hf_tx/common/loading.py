# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Errors of a load that say what was loaded."""

import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def loading(what: str, name: str | os.PathLike[str]) -> Iterator[None]:
    """Say of which option or argument an error speaks: those of the library may speak of the connection alone."""
    try:
        yield
    except (OSError, ValueError) as error:
        kind = OSError if isinstance(error, OSError) else ValueError
        raise kind(f"{what} {name}: cannot be loaded: {error}") from error
