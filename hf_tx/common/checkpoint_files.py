# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Checks that the files of a model and its tokenizer are complete."""

import fnmatch
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

#: The files that transformers reads from the folder of a model, apart from weights and code.
SETTINGS = (
    *("config.json", "generation_config.json", "adapter_config.json", "modules.json", "*processor_config.json"),
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.json"),
    *("chat_template.json", "*.jinja"),
)
#: The files of the weights, and their index.
WEIGHTS = ("model*.safetensors", "adapter_model*.safetensors", "*.index.json")
#: The state of a training, apart from pickles that only contain numbers.
STATE = ("trainer_state.json",)
PICKLES = ("pytorch_model*.bin", "adapter_model.bin")


def matches(name: str, patterns: tuple[str, ...]) -> bool:
    """Return whether the name of a file is one of the patterns."""
    return any(fnmatch.fnmatch(name, pattern) for pattern in patterns)


def check_files(folder: str | os.PathLike[str], weights: bool = True) -> None:
    """Check the files of a model and its tokenizer before transformers reads them: for a broken file it raises an
    error that does not name the file, or ignores the file, and it opens pickles.

    Args:
        folder: folder of the model. A name on the Hub is not checked here, because its client checks what it
            downloads.
        weights: whether to check the weights too.

    Raises:
        ValueError: if a file is empty, incomplete or otherwise broken, or if the weights are only stored as a pickle.
    """
    for name, problem in broken_files(Path(folder), weights):
        raise ValueError(f"{Path(folder, name)}: {problem}")


def broken_files(folder: Path, weights: bool = True) -> Iterator[tuple[str, str]]:
    """Yield the name of each file for which [`check_files`] raises an error, and what is wrong with it."""
    names = sorted(file.name for file in folder.iterdir() if file.is_file()) if folder.is_dir() else []
    for name in names:
        if matches(name, SETTINGS + STATE + WEIGHTS if weights else SETTINGS):
            try:
                _CHECKS[Path(name).suffix](folder / name)
            except (ValueError, SafetensorError) as error:
                yield name, f"is broken or incomplete: {error}. Copy, download or save it again."
    for name in names if weights else ():
        kind = "adapter_model" if name.startswith("adapter") else "model"
        if matches(name, PICKLES) and not any(folder.glob(f"{kind}*.safetensors")):
            reason = (
                f"the folder has no weights in safetensors, and pickles ({name}) can run code when they are loaded"
            )
            yield name, f"{reason}. If you trust it, load it with transformers, and save it again."


def _check_json(file: Path) -> None:
    found: Any = json.loads(file.read_text("utf-8"))
    kind: Any = list if file.name == "modules.json" else dict
    if not isinstance(found, kind):
        raise ValueError("it must be an object with names and values")
    if file.name.endswith(".index.json"):
        files = found.get("weight_map")
        if not isinstance(files, dict) or not files:
            raise ValueError("it names no files of weights")
        missing = sorted(name for name in set(files.values()) if not (file.parent / name).is_file())
        if missing:
            raise ValueError(f"it names {', '.join(missing)}, which is not in the folder")


def _check_tensors(file: Path) -> None:
    with safe_open(file, framework="pt"):  # compares the offsets of the tensors with the size of the file
        pass


def _check_template(file: Path) -> None:
    from transformers.utils.chat_template_utils import _compile_jinja_template  # which supports additional tags

    template = file.read_text("utf-8")
    if not template.strip():
        raise ValueError("it is empty")
    try:
        _compile_jinja_template(template)
    except ImportError:  # then no template can be used
        return
    except Exception as error:
        raise ValueError(str(error)) from error


_CHECKS = {".json": _check_json, ".safetensors": _check_tensors, ".jinja": _check_template}
