# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Converts whole checkpoints: the model, its tokenizer, its generation config and a model card."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

from huggingface_hub import ModelCardData, metadata_load
from transformers import AutoConfig, AutoTokenizer
from transformers.utils import cached_file
from yaml import YAMLError  # type: ignore[import-untyped]

from ..common.checkpoint_files import check_files
from ..common.loading import loading
from ..common.whole import whole_folder
from ..models.version import __version__
from .building import class_named
from .context import extend_context
from .convert import from_hf, to_hf

_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "vocab.json", "vocab.txt", "spiece.model")
_KEPT_METADATA = ("license", "license_name", "license_link", "language", "datasets", "pipeline_tag", "base_model")

_CARD = """---
{front_matter}
---

# {title}

This model was converted from `{source}` ({architecture}) by hf_tx {version}. The weights are the same, and the model
computes the same{changes}.

    {usage}
"""


def convert_checkpoint(
    source: str | Path,
    target: str | Path,
    *,
    back: bool = False,
    model_type: str | None = None,
    dtype: str | None = None,
    architecture: str | None = None,
    mixers: Any = None,
    config_changes: dict[str, Any] | None = None,
    context: int | None = None,
    context_method: str | None = None,
) -> Any:
    """Convert a checkpoint into a folder, with tokenizer, generation config and model card.

    Args:
        source: a folder, or a name on the Hub.
        target: the folder to write, which must be new or empty. It is only created if the conversion succeeds.
        back: convert from hf_tx to transformers.
        model_type: with `back`, see [`to_hf`].
        dtype: dtype of the weights. Default: that of the source.
        architecture: see [`from_hf`].
        mixers: see [`from_hf`].
        config_changes: see [`from_hf`].
        context: extend the context to this length, see [`extend_context`]; the `model_max_length` of the tokenizer is
            then at least as large.
        context_method: the `method` of [`extend_context`].

    Returns:
        The converted model.

    Raises:
        ValueError: if the target is not empty, an option has no meaning in this direction, a file is broken, or the
            tokenizer or the card does not load; and see [`from_hf`], [`to_hf`] and [`extend_context`].
    """
    target = Path(target)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise ValueError(f"{target} already exists and is not empty: choose a new or empty folder.")
    changed = {
        "mixers": mixers,
        "config_changes": config_changes or None,
        "context": context,
        "context_method": context_method,
    }
    changed = {name: value for name, value in changed.items() if value is not None}
    if back and changed:
        raise ValueError(f"{', '.join(changed)}: cannot be used when converting to transformers (back, --to-hf).")
    if back and architecture is not None:
        raise ValueError(
            f"architecture = {architecture!r}: cannot be used when converting to transformers (back, --to-hf)."
        )
    if model_type is not None and not back:
        raise ValueError(
            f"model_type = {model_type!r}: can only be used when converting to transformers (back, --to-hf)."
        )
    if context_method is not None and context is None:
        raise ValueError(
            f"context_method = {context_method!r}: can only be used together with context, the new length."
        )
    check_files(source)
    tokenizer, (said, card_of_source) = _tokenizer(source), _card_of(source)
    if back:
        model = to_hf(_load_ours(source, dtype), model_type)
        usage = f"import transformers; model = transformers.{type(model).__name__}.from_pretrained(...)"
    else:
        model = from_hf(source, dtype=dtype, architecture=architecture, mixers=mixers, config_changes=config_changes)
        if context is not None:
            extend_context(model, context, context_method)
            if tokenizer is not None:
                tokenizer.model_max_length = max(context, tokenizer.model_max_length)
        usage = f"import hf_tx; model = hf_tx.{type(model).__name__}.from_pretrained(...)"
    with whole_folder(target) as new:
        model.save_pretrained(new)
        if tokenizer is not None:
            tokenizer.save_pretrained(new)
        data = ModelCardData(library_name="transformers", tags=None if back else ["hf_tx"], **said)
        card = _CARD.format(
            front_matter=data.to_yaml(),
            source=source,
            title=target.name,
            architecture=(getattr(model.config, "origin", None) or {}).get("architecture", type(model).__name__),
            version=__version__,
            changes=f", except for these changes: `{changed}`" if changed else "",
            usage=usage,
        )
        _copy_sentence_modules(source, new)
        (new / "README.md").write_text(card + card_of_source, "utf-8")
    return model


def _card_of(source: str | Path) -> tuple[dict[str, Any], str]:
    """Return the metadata in the card of the source that also applies to the converted model, and its text, as a
    section of the new card.

    Raises:
        ValueError: if it cannot be read.
    """
    path = _find(source, "README.md")
    said, text = {}, ""
    if path is not None:
        try:
            said = {name: value for name, value in (metadata_load(path) or {}).items() if name in _KEPT_METADATA}
            text = re.sub(
                r"\A\s*---\s*\n.*?\n---\s*(\n|\Z)", "", Path(path).read_text("utf-8"), flags=re.DOTALL
            ).strip()
        except (ValueError, YAMLError) as error:
            raise ValueError(f"{source}: README.md cannot be read: {error}") from error
    if not Path(source).exists():  # the Hub does not accept a path
        said["base_model"] = str(source)
    return said, f"\n## Model card of `{source}`\n\n{text}\n" if text else ""


def _load_ours(source: str | Path, dtype: str | None) -> Any:
    with loading("source", source):
        config = AutoConfig.from_pretrained(source, trust_remote_code=False)
    if not config.model_type.startswith("hf_tx"):
        raise ValueError(f"{source} is a {config.model_type}, not a model of hf_tx.")
    if not config.architectures:
        raise ValueError(f"{source}: config.json has no architectures; add the name of the class.")
    cls = class_named(config.architectures[0])
    with loading("source", source):
        model, info = cls.from_pretrained(
            source, dtype=dtype or "auto", use_safetensors=True, output_loading_info=True
        )
    for keys, what in (("missing_keys", "lacks weights"), ("unexpected_keys", "has weights that are not used")):
        if info[keys]:
            raise ValueError(f"{source} {what}, such as {min(info[keys])}: it is not a complete {cls.__name__}.")
    return model


def _tokenizer(source: str | Path) -> Any:
    """Return the tokenizer, or None if there is none.

    Raises:
        ValueError: if it cannot be loaded.
    """
    if all(_find(source, name) is None for name in _TOKENIZER_FILES):
        return None
    try:
        return AutoTokenizer.from_pretrained(source, trust_remote_code=False)
    except Exception as error:  # of many kinds: its files, its code, a package that it needs
        raise ValueError(f"{source}: the tokenizer cannot be loaded: {error}") from error


def _find(source: str | Path, name: str) -> str | None:
    """Return the path of a file of a folder or of the Hub, or None if there is none."""
    with loading("source", source):
        return cached_file(str(source), name, _raise_exceptions_for_missing_entries=False)


def _copy_sentence_modules(source: str | Path, target: Path) -> None:
    """Copy the files of sentence-transformers, if there are any: the list of modules, and the modules after the
    model."""
    modules = _find(source, "modules.json")
    if modules is None:
        return
    after = [Path(module["path"]) for module in json.loads(Path(modules).read_text("utf-8")) if module["path"]]
    for path in after:
        if path.is_absolute() or ".." in path.parts:
            raise ValueError(f"{source}: modules.json names {path}, which is outside of the checkpoint.")
        weights, pickled = (
            _find(source, (path / name).as_posix()) for name in ("model.safetensors", "pytorch_model.bin")
        )
        if weights is None and pickled is not None:
            raise ValueError(
                f"{source}: {path} contains a pickle, which can run code when it is loaded; save the checkpoint "
                "again with sentence-transformers, which writes safetensors."
            )
        check_files(Path(source, path))
    names = [Path(name) for name in ("modules.json", "config_sentence_transformers.json", "sentence_bert_config.json")]
    names += [path / name for path in after for name in ("config.json", "model.safetensors")]
    for name in names:
        if (found := _find(source, name.as_posix())) is not None:
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(found, target / name)
