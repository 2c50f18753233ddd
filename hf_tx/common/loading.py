# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Errors of a load that say what was loaded."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from .messages import message_of


@contextmanager
def loading(what: str, name: str | os.PathLike[str]) -> Iterator[None]:
    """Say of which option or argument an error speaks: those of the library may speak of the connection alone. The
    block loads something and does nothing else: the library and those below it raise errors of any kind for a broken
    file."""
    try:
        yield
    except ImportError:  # a package that is needed, which says so itself
        raise
    except OSError as error:
        raise OSError(f"{what} {name}: cannot be loaded: {message_of(error)}") from error
    except Exception as error:
        raise ValueError(f"{what} {name}: cannot be loaded: {message_of(error)}") from error
