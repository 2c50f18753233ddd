# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Makes errors of loading name what could not be loaded."""

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
    """Name the option or argument in the error of a block: those of transformers may only mention the connection. The
    block must only load something, because broken files raise exceptions of any type."""
    try:
        _require_place(name)
        yield
    except ImportError:  # names the missing package
        raise
    except OSError as error:
        raise OSError(f"{what} {name}: cannot be loaded: {_of_the_hub(error, name) or message_of(error)}") from error
    except Exception as error:
        if "Unrecognized model" in str(error) and Path(name).is_dir() and not (Path(name) / "config.json").exists():
            raise OSError(f"{what} {name}: cannot be loaded: the folder has no config.json.") from error
        raise ValueError(f"{what} {name}: cannot be loaded: {message_of(error)}") from error


def _of_the_hub(error: BaseException, name: str | os.PathLike[str]) -> str | None:
    """Return what is wrong with a name that is not a folder, or None if the error of transformers is clear. For a name
    that does not exist, or without a connection to the Hub, it describes the files of its cache."""
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
        return (
            "there is no such folder, and no repository of this name on the Hub that you have access to. Check the "
            "spelling, or log in with `hf auth login`."
        )
    if any(isinstance(cause, LocalEntryNotFoundError | OfflineModeIsEnabled) for cause in causes):
        why = "is not used (HF_HUB_OFFLINE is set)" if is_offline_mode() else "cannot be reached"
        return f"there is no such folder, the Hub {why}, and the model is not in the local cache."
    return None


def _require_place(name: str | os.PathLike[str]) -> None:
    """Check for errors that transformers would describe as errors of the Hub or of a config.

    Raises:
        OSError: if there is no such folder, and it cannot be a name on the Hub; or if the folder is empty.
        ValueError: if it contains GGUF.
    """
    path = Path(name)
    if not str(name).strip():
        raise OSError("the name is empty.")
    if path.is_dir() and not any(path.iterdir()):
        raise OSError("the folder is empty.")
    is_path = path.is_absolute() or str(name).startswith(".") or len(path.parts) > 2
    if is_path and not path.exists():
        raise OSError("there is no such folder, and it is not a name on the Hub, which has the form owner/name.")
    files = [path] if path.is_file() else [] if (path / "config.json").exists() else list(path.glob("*.gguf"))
    if any(file.suffix == ".gguf" for file in files):
        raise ValueError(
            "it contains GGUF and no config.json: load it with transformers (from_pretrained with gguf_file=), and "
            "save the model again, or pass it."
        )
