# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Checks a model repository before it is pushed, so that others can load, understand and trust it."""

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

#: Files that are never pushed: checkpoints of the Trainer, caches, and names that begin with `_`.
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
        file: path of the file in the folder.
        message: what is wrong, and what to do.
    """

    rule: str
    file: str
    message: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.file}: {self.message}"


def check_repository(folder: str | os.PathLike[str]) -> list[Problem]:
    """Check a folder before it is pushed to the Hub.

    Checks that all files are complete, and the tokenizer loads; that the weights load without missing or unused
    tensors; that the code that the config names is complete; that the card has valid metadata with a license; that no
    file contains a secret; and that none is a pickle, which can run code when it is loaded. No code of the folder is
    executed: the weights are loaded with installed classes.

    Args:
        folder: folder of a model.

    Returns:
        The problems; an empty list if there are none.

    Raises:
        FileNotFoundError: if there is no such folder, or it has no config.json.
    """
    path = Path(folder)
    if not (path / "config.json").is_file():
        raise FileNotFoundError(f"{folder} is not the folder of a model: it has no config.json.")
    problems = [Problem("files", name, message) for name, message in broken_files(path)]
    if problems:  # the other checks would fail on them
        return problems
    for check in (_weights, _tokenizer, _code, _card, _secrets, _pickles):
        problems += check(path)
    return problems


def pushed_files(folder: Path) -> Iterator[Path]:
    """Yield the paths of the files of a folder that are pushed, relative to the folder."""
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
        return [
            Problem("weights", "config.json", f"architectures = {names}: the class is not installed, or not named.")
        ]
    with without_progress_bars(), without_warnings():
        try:
            _, info = cls.from_pretrained(folder, use_safetensors=True, output_loading_info=True)
        except Exception as error:
            return [Problem("weights", "config.json", f"the model cannot be loaded: {message_of(error)}")]
    return [
        Problem("weights", "model.safetensors", f"{what}: {', '.join(sorted(map(str, info[key]))[:5])}")
        for key, what in (
            ("missing_keys", "tensors of the model are missing"),
            ("unexpected_keys", "tensors are not used by the model"),
            ("mismatched_keys", "tensors have another shape than in the model"),
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
        return [Problem("files", "tokenizer_config.json", f"the tokenizer cannot be loaded: {message_of(error)}")]
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
            problems.append(Problem("code", f"{module}.py", f"auto_map[{name!r}] names this file, but it is missing."))
            continue
        try:
            defined = {
                node.name for node in ast.parse(source.read_text("utf-8")).body if isinstance(node, ast.ClassDef)
            }
            missing = [Path(each).name for each in get_relative_import_files(source) if not Path(each).is_file()]
        except (SyntaxError, FileNotFoundError) as error:
            problems.append(
                Problem("code", f"{module}.py", f"the file, or a file that it imports, cannot be read: {error}")
            )
            continue
        problems += [Problem("code", each, f"{module}.py imports this file, but it is missing.") for each in missing]
        if attribute not in defined:
            problems.append(
                Problem(
                    "code", f"{module}.py", f"auto_map[{name!r}] names {attribute}, which the file does not define."
                )
            )
    return problems


def _card(folder: Path) -> list[Problem]:
    path = folder / "README.md"
    if not path.is_file():
        return [
            Problem(
                "card",
                "README.md",
                "is missing: write a model card with metadata (license) and a description of the model.",
            )
        ]
    try:
        ModelCard.load(path)  # also reads the results of evaluations
        data = metadata_load(path) or {}
    except Exception as error:
        return [
            Problem(
                "card", "README.md", f"the metadata (YAML between the --- lines) cannot be read: {message_of(error)}"
            )
        ]
    problems = []
    if not data.get("license"):
        problems.append("the metadata has no license: add one, such as `license: apache-2.0`.")
    for key in ("tags", "datasets", "metrics"):
        if not isinstance(data.get(key, []), list):
            problems.append(f"metadata: {key} = {data[key]!r} must be a list.")
    for key in ("base_model", "datasets"):
        given = data.get(key) or []
        for each in given if isinstance(given, list) else [given]:
            try:
                validate_repo_id(each)
            except HFValidationError as error:
                problems.append(f"metadata: {key} = {each!r} is not the name of a repository: {error}")
    return [Problem("card", "README.md", message) for message in problems]


def _secrets(folder: Path) -> list[Problem]:
    problems = []
    for name in pushed_files(folder):
        if name.suffix == ".safetensors":
            continue
        content = (folder / name).read_bytes()
        for what, pattern in _SECRETS.items():
            if re.search(pattern, content):
                problems.append(Problem("secrets", str(name), f"contains {what}: remove it, and revoke it."))
    return problems


def _pickles(folder: Path) -> list[Problem]:
    message = "is a pickle, which can run code when it is loaded: remove it, or save it as safetensors."
    return [Problem("pickles", str(name), message) for name in pushed_files(folder) if name.suffix in _PICKLES]


# --------------------------------------------------------------------------------------------------------------- tools
def _class_named(name: str) -> Any:
    places = (modeling_decoder, modeling_encoder, modeling_encoder_decoder, transformers)
    return next((found for place in places if (found := getattr(place, name, None)) is not None), None)
