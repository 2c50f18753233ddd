# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Errors that say what is wrong with a folder or a name."""

from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import transformers as hf
from huggingface_hub import errors

import hf_tx
import hf_tx.common.loading
from hf_tx.common.loading import loading


@pytest.mark.parametrize("name", ["/missing", "./missing", "a/b/c"])
def test_a_folder_that_is_not_there(name: str) -> None:
    message = f"--model {name}: cannot be loaded: there is no such folder"
    with pytest.raises(OSError, match=message), loading("--model", name):
        pass


def test_a_folder_that_holds_no_model(tmp_path: Path) -> None:
    for name in ("", " "):
        with pytest.raises(OSError, match="--model .*the name is empty"), loading("--model", name):
            pass
    with pytest.raises(OSError, match="the folder is empty"), loading("--model", tmp_path):
        pass
    (tmp_path / "notes.txt").write_text("a")
    with pytest.raises(OSError, match="the folder has no config.json"), loading("--model", tmp_path):
        hf.AutoConfig.from_pretrained(tmp_path)


def test_names_on_the_hub_are_not_asked_for_here() -> None:
    for name in ("owner/name", "name"):
        with loading("--model", name):
            pass


def test_gguf_says_the_way_out(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    for place in (tmp_path, tmp_path / "model.gguf"):
        with pytest.raises(ValueError, match="GGUF .*gguf_file="):
            hf_tx.from_hf(place)


@pytest.mark.parametrize("config", [hf.Gemma3Config, hf.Mistral3Config])
def test_a_model_that_reads_more_than_text_names_its_text_model(config: Any, tmp_path: Path) -> None:
    config().save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"from_hf\(model\.language_model\)"):
        hf_tx.from_hf(tmp_path)


def _of_the_library(cause: Exception, said: str) -> OSError:
    error = OSError(said)
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("cause", "offline", "message"),
    [
        (
            errors.LocalEntryNotFoundError("a"),
            False,
            "no such folder, the Hub cannot be reached, and the model is not in the local cache",
        ),
        (
            errors.LocalEntryNotFoundError("a"),
            True,
            r"the Hub is not used \(HF_HUB_OFFLINE is set\), and the model is not",
        ),
        (
            errors.RepositoryNotFoundError("a", response=Mock()),
            False,
            "no repository of this name on the Hub that you",
        ),
        (errors.GatedRepoError("a", response=Mock()), False, "SAID BY THE LIBRARY"),
    ],
)
def test_a_name_that_the_hub_does_not_give(
    cause: Exception, offline: bool, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hf_tx.common.loading, "is_offline_mode", lambda: offline)
    with (
        pytest.raises(OSError, match=f"^--model owner/nme: cannot be loaded: [^:]*{message}") as caught,
        loading("--model", "owner/nme"),
    ):
        raise _of_the_library(cause, "SAID BY THE LIBRARY")
    assert ("SAID BY THE LIBRARY" in str(caught.value)) == isinstance(cause, errors.GatedRepoError)
