# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""What a repository must hold, so that others can load, understand and trust it."""

import ast
import fnmatch
import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import transformers
from huggingface_hub import ModelCard, metadata_load
from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import validate_repo_id
from transformers import AutoTokenizer
from transformers.dynamic_module_utils import get_relative_import_files

from ..common.checkpoint_files import broken_files
from ..common.messages import message_of
from ..common.quiet import without_progress_bars, without_warnings
from ..models import modeling_decoder, modeling_encoder, modeling_encoder_decoder

#: What never belongs to a repository, and is not pushed: the library's checkpoints, and what begins so.
IGNORED = ("_*", "_*/**", "checkpoint-*", "checkpoint-*/**", ".cache/**", "__pycache__/**", "*.pyc")
_PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".joblib", ".npy")
_SECRETS = {
    "a token of the Hub": rb"\bhf_[A-Za-z]{30,}\b",
    "a key of AWS": rb"\bAKIA[0-9A-Z]{16}\b",
    "a token of GitHub": rb"\b(?:ghp|gho|ghs|ghr)_[A-Za-z0-9]{36}\b|\bgithub_pat_[A-Za-z0-9_]{60,}\b",
    "a key of an API": rb"\bsk-[A-Za-z0-9_-]{32,}\b",
    "a private key": rb"-----BEGIN [A-Z ]*PRIVATE KEY-----",
}


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with a repository.

    Attributes:
        rule: `files`, `weights`, `code`, `card`, `secrets` or `pickles`.
        file: the file, from the folder.
        message: what is wrong, and what to do.
    """

    rule: str
    file: str
    message: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.file}: {self.message}"


def check_repository(folder: str | os.PathLike[str]) -> list[Problem]:
    """Check what is about to become a repository.

    Files are whole, and the tokenizer loads; the weights load without a tensor that is missing or left over; the code
    that the config names is whole; the card has front matter that the Hub accepts, with a licence; no file holds a
    secret; and none is a pickle, which runs code when it is loaded. Nothing of the folder is executed: weights are
    loaded by installed classes.

    Args:
        folder: of a model.

    Returns:
        What is wrong, nothing if all is well.

    Raises:
        FileNotFoundError: there is no such folder, or no config.json in it.
    """
    path = Path(folder)
    if not (path / "config.json").is_file():
        raise FileNotFoundError(f"{folder}: holds no config.json, so it is no model.")
    problems = [Problem("files", name, message) for name, message in broken_files(path)]
    if problems:  # the checks would stumble over them
        return problems
    for check in (_weights, _tokenizer, _code, _card, _secrets, _pickles):
        problems += check(path)
    return problems


def pushed_files(folder: Path) -> Iterator[Path]:
    """Yield the files of a folder that belong to its repository, from the folder."""
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_file() and not any(fnmatch.fnmatch(name, pattern) for pattern in IGNORED):
            yield path.relative_to(folder)


# -------------------------------------------------------------------------------------------------------------- checks
def _weights(folder: Path) -> list[Problem]:
    config = json.loads((folder / "config.json").read_text("utf-8"))
    names = config.get("architectures") or []
    cls = _class_named(names[0]) if names else None
    if cls is None:
        return [Problem("weights", "config.json", f"architectures = {names}: names no class that is installed.")]
    with without_progress_bars(), without_warnings():
        try:
            _, info = cls.from_pretrained(folder, use_safetensors=True, output_loading_info=True)
        except Exception as error:
            return [Problem("weights", "config.json", f"does not load: {message_of(error)}")]
    return [
        Problem("weights", "model.safetensors", f"{what}: {', '.join(sorted(map(str, info[key]))[:5])}")
        for key, what in (
            ("missing_keys", "tensors are missing"),
            ("unexpected_keys", "tensors have no place in the model"),
            ("mismatched_keys", "tensors have another shape"),
        )
        if info[key]
    ]


def _tokenizer(folder: Path) -> list[Problem]:
    if not (folder / "tokenizer_config.json").is_file():
        return []
    try:
        with without_warnings():
            AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    except Exception as error:  # of many kinds: its files, its code, a package that it needs
        return [Problem("files", "tokenizer_config.json", f"does not load: {message_of(error)}")]
    return []


def _code(folder: Path) -> list[Problem]:
    config = json.loads((folder / "config.json").read_text("utf-8"))
    problems = []
    for name, target in (config.get("auto_map") or {}).items():
        module, _, attribute = target.rpartition("--")[2].partition(".")
        source = folder / f"{module}.py"
        if "--" in target:
            continue  # the code of another repository
        if not source.is_file():
            problems.append(Problem("code", f"{module}.py", f"auto_map[{name!r}] names it, and it is not there."))
            continue
        try:
            defined = {
                node.name for node in ast.parse(source.read_text("utf-8")).body if isinstance(node, ast.ClassDef)
            }
            missing = [Path(each).name for each in get_relative_import_files(source) if not Path(each).is_file()]
        except (SyntaxError, FileNotFoundError) as error:
            problems.append(Problem("code", f"{module}.py", f"cannot be read with what it imports: {error}"))
            continue
        problems += [Problem("code", each, f"{module}.py imports it, and it is not there.") for each in missing]
        if attribute not in defined:
            problems.append(
                Problem("code", f"{module}.py", f"auto_map[{name!r}] names {attribute}, not defined there.")
            )
    return problems


def _card(folder: Path) -> list[Problem]:
    path = folder / "README.md"
    if not path.is_file():
        return [Problem("card", "README.md", "is not there: a model without a card cannot be judged.")]
    try:
        ModelCard.load(path)  # also reads the results of evaluations
        data = metadata_load(path) or {}
    except Exception as error:
        return [Problem("card", "README.md", f"its front matter cannot be read: {message_of(error)}")]
    problems = []
    if not data.get("license"):
        problems.append("front matter names no license: add one, such as `license: apache-2.0`.")
    for key in ("tags", "datasets", "metrics"):
        if not isinstance(data.get(key, []), list):
            problems.append(f"front matter: {key} = {data[key]!r} must be a list.")
    for key in ("base_model", "datasets"):
        given = data.get(key) or []
        for each in given if isinstance(given, list) else [given]:
            try:
                validate_repo_id(each)
            except HFValidationError as error:
                problems.append(f"front matter: {key} = {each!r} is no name of a repository: {error}")
    return [Problem("card", "README.md", message) for message in problems]


def _secrets(folder: Path) -> list[Problem]:
    problems = []
    for name in pushed_files(folder):
        if name.suffix == ".safetensors":
            continue
        content = (folder / name).read_bytes()
        for what, pattern in _SECRETS.items():
            if re.search(pattern, content):
                problems.append(Problem("secrets", str(name), f"holds {what}: take it out, and revoke it."))
    return problems


def _pickles(folder: Path) -> list[Problem]:
    message = "is a pickle, which runs code when it is loaded: remove it, or save it as safetensors."
    return [Problem("pickles", str(name), message) for name in pushed_files(folder) if name.suffix in _PICKLES]


# --------------------------------------------------------------------------------------------------------------- tools
def _class_named(name: str) -> Any:
    places = (modeling_decoder, modeling_encoder, modeling_encoder_decoder, transformers)
    return next((found for place in places if (found := getattr(place, name, None)) is not None), None)
