# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Errors of a load that say what was loaded."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from huggingface_hub import is_offline_mode
from huggingface_hub.errors import (
    GatedRepoError,
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
)

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
        raise OSError(f"{what} {name}: cannot be loaded: {_of_the_hub(error, name) or message_of(error)}") from error
    except Exception as error:
        if "Unrecognized model" in str(error) and Path(name).is_dir() and not (Path(name) / "config.json").exists():
            raise OSError(f"{what} {name}: cannot be loaded: the folder holds no config.json.") from error
        raise ValueError(f"{what} {name}: cannot be loaded: {message_of(error)}") from error


def _of_the_hub(error: BaseException, name: str | os.PathLike[str]) -> str | None:
    """Return what is wrong with a name that is no folder, or None where the library says it in words of its own: what
    it says of a name that it does not find, or of a Hub that it does not reach, is about the files of its cache."""
    if Path(name).exists():
        return None
    causes: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and cause not in causes:
        causes.append(cause)
        cause = cause.__cause__ or cause.__context__
    if any(isinstance(cause, GatedRepoError) for cause in causes):
        return None
    if any(isinstance(cause, RepositoryNotFoundError) for cause in causes):
        return "there is no such folder here, and on the Hub none of this name that you may read: is it spelt so?"
    if any(isinstance(cause, LocalEntryNotFoundError | OfflineModeIsEnabled) for cause in causes):
        why = "is not asked (HF_HUB_OFFLINE is set)" if is_offline_mode() else "cannot be reached"
        return f"there is no such folder here, the Hub {why}, and its cache on this machine does not hold it."
    return None


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
