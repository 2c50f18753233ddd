# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Errors of a load that say what was loaded."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .messages import message_of


@contextmanager
def loading(what: str, name: str | os.PathLike[str]) -> Iterator[None]:
    """Say of which option or argument an error speaks: those of the library may speak of the connection alone. The
    block loads something and does nothing else: the library and those below it raise errors of any kind for a broken
    file."""
    try:
        _require_place(name)
        yield
    except ImportError:  # a package that is needed, which says so itself
        raise
    except OSError as error:
        raise OSError(f"{what} {name}: cannot be loaded: {message_of(error)}") from error
    except Exception as error:
        if "Unrecognized model" in str(error) and Path(name).is_dir() and not (Path(name) / "config.json").exists():
            raise OSError(f"{what} {name}: cannot be loaded: the folder holds no config.json.") from error
        raise ValueError(f"{what} {name}: cannot be loaded: {message_of(error)}") from error


def _require_place(name: str | os.PathLike[str]) -> None:
    """Check what the library would say in terms of the Hub or of a config.

    Raises:
        OSError: there is no such folder, and it can be no name on the Hub; or it is empty.
        ValueError: it holds GGUF.
    """
    path = Path(name)
    if not str(name).strip():
        raise OSError("the name is empty.")
    if path.is_dir() and not any(path.iterdir()):
        raise OSError("the folder is empty.")
    is_path = path.is_absolute() or str(name).startswith(".") or len(path.parts) > 2
    if is_path and not path.exists():
        raise OSError("there is no such folder, and a name on the Hub is of the form owner/name.")
    files = [path] if path.is_file() else [] if (path / "config.json").exists() else list(path.glob("*.gguf"))
    if any(file.suffix == ".gguf" for file in files):
        raise ValueError(
            "it holds GGUF and no config.json: load it with the library (from_pretrained with gguf_file=), and save "
            "that, or pass the model."
        )
