# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Whole checkpoints: the model, its tokenizer, its generation config and a card that says where it comes from."""

import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from transformers import AutoConfig, AutoTokenizer
from transformers.utils import cached_file

from ..models.version import __version__
from .convert import class_named, from_hf, to_hf

_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "vocab.json", "vocab.txt", "spiece.model")

_CARD = """---
library_name: transformers
tags: [{tags}]
base_model: {source}
---

# {title}

The weights come from `{source}` ({architecture}), converted by hf_tx {version}. They are the same numbers, and the
model computes the same{changes}.

    {usage}
"""


def convert_checkpoint(
    source: str | Path,
    target: str | Path,
    *,
    back: bool = False,
    model_type: str | None = None,
    dtype: str | None = None,
    mixers: Any = None,
    config_changes: dict[str, Any] | None = None,
) -> Any:
    """Convert a checkpoint into a folder, with tokenizer, generation config and model card.

    Args:
        source: a folder, or a name on the Hub.
        target: the folder to write; it must not exist, or be empty. It is there when all of it is.
        back: from hf_tx to the library.
        model_type: with `back`, see [`to_hf`].
        dtype: of the weights. Default: the source's.
        mixers: see [`from_hf`].
        config_changes: see [`from_hf`].

    Returns:
        The converted model.

    Raises:
        ValueError: the target has something in it; and see [`from_hf`] and [`to_hf`].
    """
    target = Path(target)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise ValueError(f"{target}: is there already; name a folder that is new or empty.")
    if back:
        if mixers is not None or config_changes:
            raise ValueError(
                "mixers and config_changes: they are changes of a model of hf_tx, and not for the way back."
            )
        model = to_hf(_load_ours(source, dtype), model_type)
        changes, usage = "", f"import transformers; model = transformers.{type(model).__name__}.from_pretrained(...)"
    else:
        model = from_hf(source, dtype=dtype, mixers=mixers, config_changes=config_changes)
        changed = {**({"mixers": mixers} if mixers is not None else {}), **(config_changes or {})}
        changes = f", except for what was changed: `{changed}`" if changed else ""
        usage = f"import hf_tx; model = hf_tx.{type(model).__name__}.from_pretrained(...)"
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        model.save_pretrained(unfinished)
        if _has_tokenizer(source):
            AutoTokenizer.from_pretrained(source).save_pretrained(unfinished)
        card = _CARD.format(
            tags="hf_tx" if not back else "transformers",
            source=source,
            title=target.name,
            architecture=(getattr(model.config, "origin", None) or {}).get("architecture", type(model).__name__),
            version=__version__,
            changes=changes,
            usage=usage,
        )
        _copy_sentence_modules(source, unfinished)
        (unfinished / "README.md").write_text(card, "utf-8")
        unfinished.chmod(0o755)
        if target.exists():
            target.rmdir()
        os.replace(unfinished, target)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return model


def _load_ours(source: str | Path, dtype: str | None) -> Any:
    config = AutoConfig.from_pretrained(source)
    if not config.model_type.startswith("hf_tx"):
        raise ValueError(f"{source}: is a {config.model_type}, which is no model of hf_tx.")
    if not config.architectures:
        raise ValueError(f"{source}: config.json names no architectures.")
    return class_named(config.architectures[0]).from_pretrained(source, dtype=dtype or "auto")


def _has_tokenizer(source: str | Path) -> bool:
    return any(_find(source, name) is not None for name in _TOKENIZER_FILES)


def _find(source: str | Path, name: str) -> str | None:
    """Return the path of a file of a folder or of the Hub, or None if there is none."""
    return cached_file(str(source), name, _raise_exceptions_for_missing_entries=False)


def _copy_sentence_modules(source: str | Path, target: Path) -> None:
    """Copy what makes a checkpoint one of sentence-transformers: the list of modules, and those after the model."""
    modules = _find(source, "modules.json")
    if modules is None:
        return
    after = [Path(module["path"]) for module in json.loads(Path(modules).read_text("utf-8")) if module["path"]]
    for path in after:
        if path.is_absolute() or ".." in path.parts:
            raise ValueError(f"{source}: modules.json names {path}, which is not in the checkpoint.")
    names = [Path(name) for name in ("modules.json", "config_sentence_transformers.json", "sentence_bert_config.json")]
    names += [path / name for path in after for name in ("config.json", "model.safetensors", "pytorch_model.bin")]
    for name in names:
        if (found := _find(source, name.as_posix())) is not None:
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(found, target / name)
