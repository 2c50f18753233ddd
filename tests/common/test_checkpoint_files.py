# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from hf_tx.common.checkpoint_files import check_files
from hf_tx.common.loading import loading


def test_a_folder_is_checked_for_what_a_load_reads(tmp_path: Path) -> None:
    check_files("a-name/on-the-hub")
    save_file({"weight": torch.zeros(2)}, tmp_path / "model.safetensors")
    for name, content in {"rows.json": "{}\n{}", "notes.txt": "", "other.bin": "", "pytorch_model.bin": ""}.items():
        (tmp_path / name).write_text(content)
    check_files(tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("adapter_model.safetensors", "", "adapter_model.safetensors: is broken or incomplete: "),
        ("adapter_model.bin", "", r"pickles \(adapter_model.bin\) can run code"),
        ("pytorch_model-00001-of-00002.bin", "", "pickles"),
        (
            "adapter_config.json",
            "[]",
            "adapter_config.json: is broken or incomplete: it must be an object with names and values",
        ),
        ("modules.json", "[", "modules.json: is broken"),
        ("model.safetensors.index.json", json.dumps({"weight_map": {"a": "part.safetensors"}}), "names part.safet"),
        ("model.safetensors.index.json", "{}", "names no files of weights"),
        ("config.json", "\x00\xff", "config.json: is broken"),
    ],
)
def test_what_is_broken_is_named(name: str, content: str, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(content, "latin-1")
    with pytest.raises(ValueError, match=message):
        check_files(tmp_path)
    weights = name.endswith((".safetensors", ".bin", ".index.json"))
    if weights:
        check_files(tmp_path, weights=False)


@pytest.mark.parametrize(
    ("raised", "kind"), [(KeyError("a"), ValueError), (Exception("b"), ValueError), (EOFError(), ValueError)]
)
def test_errors_of_any_kind_say_what_was_loaded(raised: Exception, kind: type[Exception]) -> None:
    with pytest.raises(kind, match="--model here: cannot be loaded: "), loading("--model", "here"):
        raise raised
    with pytest.raises(ImportError, match="^a package$"), loading("--model", "here"):
        raise ImportError("a package")
