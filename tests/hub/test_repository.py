# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""What is found wrong in a folder before it becomes a repository."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_models import build

from hf_tx.cli import main
from hf_tx.hub import check_repository

CARD = "---\nlicense: apache-2.0\nlibrary_name: transformers\n---\n# A model\n"


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("good")
    build("decoder", head="lm").save_pretrained(folder)
    (folder / "README.md").write_text(CARD, "utf-8")
    return folder


def without(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def written(name: str, text: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_text(text, "utf-8") and None


def card(front: str) -> Callable[[Path], None]:
    return written("README.md", f"---\n{front}\n---\n# A model\n")


def config(**changes: object) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        stored = json.loads((folder / "config.json").read_text("utf-8"))
        (folder / "config.json").write_text(json.dumps(stored | changes), "utf-8")

    return change


def tensors(change: Callable[[dict[str, torch.Tensor]], object]) -> Callable[[Path], None]:
    def rewrite(folder: Path) -> None:
        held = load_file(folder / "model.safetensors")
        change(held)
        save_file(held, folder / "model.safetensors", metadata={"format": "pt"})

    return rewrite


FAULTS = {
    "weights_gone": (without("model.safetensors"), "weights: config.json: the model cannot be loaded: "),
    "weights_cut": (
        lambda folder: (folder / "model.safetensors").write_bytes(b"half"),
        "files: model.safetensors: is broken or incomplete: ",
    ),
    "weights_missing": (
        tensors(lambda held: held.pop("model.norm.weight")),
        "weights: model.safetensors: tensors of the model are missing: model.norm.weight",
    ),
    "weights_left_over": (
        tensors(lambda held: held.update(spare=torch.zeros(2))),
        "weights: model.safetensors: tensors are not used by the model: spare",
    ),
    "config_cut": (written("config.json", "{"), "files: config.json: is broken or incomplete: "),
    "tokenizer_broken": (
        written("tokenizer_config.json", "{}"),
        "files: tokenizer_config.json: the tokenizer cannot be loaded: ",
    ),
    "no_class": (
        config(architectures=["Nothing"]),
        "weights: config.json: architectures = ['Nothing']: the class is not",
    ),
    "code_gone": (
        without("modeling_decoder.py"),
        "code: modeling_decoder.py: auto_map['AutoModel'] names this file, but",
    ),
    "import_gone": (without("norms.py"), "norms.py"),
    "code_broken": (
        written("modeling_decoder.py", "class :"),
        "code: modeling_decoder.py: the file, or a file that it imports, cannot be read",
    ),
    "class_gone": (
        config(auto_map={"AutoModel": "block.TxBlok"}),
        "code: block.py: auto_map['AutoModel'] names TxBlok, which the file does not define.",
    ),
    "no_card": (
        without("README.md"),
        "card: README.md: is missing: write a model card with metadata (license) and a description of the model.",
    ),
    "no_licence": (card("library_name: transformers"), "card: README.md: the metadata has no license: add one"),
    "no_yaml": (
        card("license: [apache"),
        "card: README.md: the metadata (YAML between the --- lines) cannot be read: ",
    ),
    "tags": (card("license: mit\ntags: text"), "card: README.md: metadata: tags = 'text' must be a list."),
    "base_model": (
        card("license: mit\nbase_model: /home/me/model"),
        "card: README.md: metadata: base_model = '/home/me/model' is not the name of a repository: ",
    ),
    "token": (written("notes.txt", "hf_" + "a" * 34), "secrets: notes.txt: contains a token of the Hub: remove it"),
    "private_key": (
        written("key", "-----BEGIN RSA PRIVATE KEY-----"),
        "secrets: key: contains a private key: remove it, and revoke it.",
    ),
    "pickle": (
        written("training_args.bin", ""),
        "pickles: training_args.bin: is a pickle, which can run code when it",
    ),
}


def test_a_saved_model_with_a_card_is_right(good: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check_repository(good) == []
    assert main(["check", "repo", str(good)]) == 0
    assert (
        capsys.readouterr().out
        == f"{good}: no problems in files, weights, code and card; no secrets and no pickles.\n"
    )


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_found(name: str, good: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spoil, message = FAULTS[name]
    folder = shutil.copytree(good, tmp_path / "model")
    spoil(folder)
    problems = check_repository(folder)
    assert any(str(problem).startswith(message) or message in str(problem) for problem in problems), problems
    assert len({problem.rule for problem in problems}) == 1
    assert main(["check", "repo", str(folder)]) == 1
    assert main(["push", str(folder), "name"]) == 2  # before anything is asked of the Hub
    assert str(problems[0]) in capsys.readouterr().out


def test_what_is_not_pushed_is_not_looked_at(good: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(good, tmp_path / "model")
    for name in ("checkpoint-3", "_nonfinite-step-4", ".cache"):
        (folder / name).mkdir()
        (folder / name / "optimizer.pt").write_text("hf_" + "a" * 34)
    assert check_repository(folder) == []


def test_a_folder_without_a_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "repo", str(tmp_path)]) == 2
    assert f"{tmp_path} is not the folder of a model: it has no config.json." in capsys.readouterr().err
