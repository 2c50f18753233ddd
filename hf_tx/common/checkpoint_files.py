# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""The files of a model and its tokenizer: which they are, and whether they are whole."""

import fnmatch
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

#: What a load of the library reads of a folder, beside weights and code.
SETTINGS = (
    *("config.json", "generation_config.json", "adapter_config.json", "modules.json", "*processor_config.json"),
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.json"),
    *("chat_template.json", "*.jinja"),
)
#: Its weights, and where each of their tensors is.
WEIGHTS = ("model*.safetensors", "adapter_model*.safetensors", "*.index.json")
#: Where a training was, beside the pickles that hold numbers alone.
STATE = ("trainer_state.json",)
PICKLES = ("pytorch_model*.bin", "adapter_model.bin")


def matches(name: str, patterns: tuple[str, ...]) -> bool:
    """Return whether the name of a file is one of the patterns."""
    return any(fnmatch.fnmatch(name, pattern) for pattern in patterns)


def check_files(folder: str | os.PathLike[str], weights: bool = True) -> None:
    """Check the files of a model and its tokenizer before the library reads them: it meets a broken file with an error
    that does not name it, or goes on without it, and opens pickles.

    Args:
        folder: of the model. What is no folder on this machine, but a name on the Hub, is left to its client, which
            knows what each file should be.
        weights: whether the weights are to be read too.

    Raises:
        ValueError: a file is empty, cut off or otherwise broken, or weights are there as a pickle alone.
    """
    for name, problem in broken_files(Path(folder), weights):
        raise ValueError(f"{Path(folder, name)}: {problem}")


def broken_files(folder: Path, weights: bool = True) -> Iterator[tuple[str, str]]:
    """Yield the name of each file that [`check_files`] refuses, and what is wrong with it."""
    names = sorted(file.name for file in folder.iterdir() if file.is_file()) if folder.is_dir() else []
    for name in names:
        if matches(name, SETTINGS + STATE + WEIGHTS if weights else SETTINGS):
            try:
                _CHECKS[Path(name).suffix](folder / name)
            except (ValueError, SafetensorError) as error:
                yield name, f"is broken, perhaps cut off: {error}. Copy or save it anew."
    for name in names if weights else ():
        kind = "adapter_model" if name.startswith("adapter") else "model"
        if matches(name, PICKLES) and not any(folder.glob(f"{kind}*.safetensors")):
            reason = (
                f"the folder holds no weights in safetensors, and pickles ({name}) can run code when they are read"
            )
            yield name, f"{reason}: load it with transformers if you trust it, and save it anew."


def _check_json(file: Path) -> None:
    found: Any = json.loads(file.read_text("utf-8"))
    kind: Any = list if file.name == "modules.json" else dict
    if not isinstance(found, kind):
        raise ValueError("holds no names and values")
    if file.name.endswith(".index.json"):
        files = found.get("weight_map")
        if not isinstance(files, dict) or not files:
            raise ValueError("names no files of weights")
        missing = sorted(name for name in set(files.values()) if not (file.parent / name).is_file())
        if missing:
            raise ValueError(f"names {', '.join(missing)}, not in the folder")


def _check_tensors(file: Path) -> None:
    with safe_open(file, framework="pt"):  # compares the places of the tensors with the size of the file
        pass


def _check_template(file: Path) -> None:
    from transformers.utils.chat_template_utils import _compile_jinja_template  # which has tags of its own

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
