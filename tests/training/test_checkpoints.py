# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
import os
from pathlib import Path

import pytest
from tiny_models import shared

from hf_tx.tokenization import train_tokenizer
from hf_tx.training import check_checkpoint_folder, save_checkpoint


class Part:
    def __init__(self, **files: str) -> None:
        self.files = files

    def save_pretrained(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        for name, content in self.files.items():
            Path(folder, name.replace("__", ".")).write_text(content)


class Failing(Part):
    def save_pretrained(self, folder: Path) -> None:
        super().save_pretrained(folder)
        raise KeyboardInterrupt


def content(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}


def test_parts_are_saved_together(tmp_path):
    folder = save_checkpoint(tmp_path / "a" / "b", Part(config__json="1"), Part(tokenizer__json="2"))
    assert folder == (tmp_path / "a" / "b").resolve()
    assert content(folder) == {"config.json": "1", "tokenizer.json": "2"}
    assert os.listdir(folder.parent) == ["b"]
    assert folder.stat().st_mode & 0o077 == (tmp_path / "a").stat().st_mode & 0o077


def test_all_that_a_model_and_a_tokenizer_save_may_be_replaced(tmp_path):
    tokenizer = train_tokenizer(["some text"], vocab_size=300, show_progress=False)
    folder = save_checkpoint(tmp_path / "out", shared("decoder", "sdpa", "lm"), tokenizer)
    (folder / "results.json").touch()
    (folder / "model-00001-of-00002.safetensors").touch()
    assert (folder / "modeling_decoder.py").is_file()
    save_checkpoint(folder, Part(config__json="new"), overwrite=True)
    assert content(folder) == {"config.json": "new"}
    assert os.listdir(tmp_path) == ["out"]


def test_a_failure_leaves_what_was_there(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        save_checkpoint(tmp_path / "out", Part(config__json="1"), Failing(tokenizer__json="2"))
    assert os.listdir(tmp_path) == []
    save_checkpoint(tmp_path / "out", Part(config__json="old"))
    with pytest.raises(KeyboardInterrupt):
        save_checkpoint(tmp_path / "out", Failing(config__json="new"), overwrite=True)
    assert content(tmp_path / "out") == {"config.json": "old"}
    assert os.listdir(tmp_path) == ["out"]


def test_a_failure_of_the_last_step_leaves_what_was_there(tmp_path, monkeypatch):
    save_checkpoint(tmp_path / "out", Part(config__json="old"))
    rename = Path.rename

    def failing(self, target):
        if self.name == "new":
            raise OSError("no space left")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", failing)
    with pytest.raises(OSError, match="no space left"):
        save_checkpoint(tmp_path / "out", Part(config__json="new"), overwrite=True)
    assert content(tmp_path / "out") == {"config.json": "old"}
    assert os.listdir(tmp_path) == ["out"]


def test_checking_writes_nothing(tmp_path):
    (tmp_path / "empty").mkdir()
    for name in ("empty", "new", "a/b/c"):
        assert check_checkpoint_folder(tmp_path / name) == (tmp_path / name).resolve()
    assert os.listdir(tmp_path) == ["empty"]
    assert os.listdir(tmp_path / "empty") == []


@pytest.mark.parametrize("name", ["notes.txt", "train.py", "data/config.json", "vocab.txt/mine", ".hidden"])
def test_a_folder_with_anything_else_is_never_replaced(tmp_path, name):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).touch()
    (tmp_path / "config.json").touch()
    for overwrite in (False, True):
        with pytest.raises(FileExistsError, match=f"holds more than a checkpoint .{name.split('/')[0]}.: choose"):
            check_checkpoint_folder(tmp_path, overwrite=overwrite)


def test_overwriting_is_asked_for(tmp_path):
    (tmp_path / "config.json").touch()
    with pytest.raises(FileExistsError, match="is not empty: choose another, or allow it to be replaced"):
        save_checkpoint(tmp_path, Part())
    assert content(tmp_path) == {"config.json": ""}


def test_files_are_no_folders(tmp_path):
    (tmp_path / "file").touch()
    for name in ("file", "file/out", "file/a/b"):
        with pytest.raises(FileExistsError, match="file' is a file, not a folder"):
            check_checkpoint_folder(tmp_path / name)


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="needs a folder that nobody can write to")
def test_a_folder_that_cannot_be_written_is_refused():
    with pytest.raises(OSError, match="output folder '/proc/out' cannot be written: .* in '/proc'"):
        check_checkpoint_folder("/proc/out")
