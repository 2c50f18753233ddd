# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
import pytest
from transformers import AutoTokenizer

from hf_tx.tokenization import check_output_folder, save_tokenizer

FILES = ["tokenizer.json", "tokenizer_config.json"]


def listing(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_new_folder(trained, tmp_path):
    tokenizer, _, _ = trained("bpe", "decoder")
    folder = tmp_path / "several" / "parents" / "tokenizer"
    assert check_output_folder(folder) == folder
    assert not folder.parent.parent.exists()
    assert save_tokenizer(tokenizer, folder) == folder
    assert listing(folder) == FILES
    assert listing(folder.parent) == ["tokenizer"]
    assert AutoTokenizer.from_pretrained(folder)("hello") == tokenizer("hello")


def test_an_empty_folder(trained, tmp_path):
    tokenizer, _, _ = trained("bpe", "decoder")
    save_tokenizer(tokenizer, tmp_path)
    assert listing(tmp_path) == FILES


def test_replacing_leaves_no_old_file(trained, tmp_path):
    old, _, _ = trained("bpe", "decoder")
    new, _, _ = trained("wordpiece", "encoder")
    folder = tmp_path / "tokenizer"
    save_tokenizer(old, folder)
    # Files of this kind are read together with tokenizer.json, and would bring old special tokens back.
    (folder / "special_tokens_map.json").write_text('{"eos_token": "<old>"}')
    (folder / "added_tokens.json").write_text('{"<old>": 500}')
    with pytest.raises(FileExistsError, match="'.*tokenizer' is not empty"):
        save_tokenizer(new, folder)
    assert len(listing(folder)) == 4
    save_tokenizer(new, folder, overwrite=True)
    assert listing(folder) == FILES
    assert listing(tmp_path) == ["tokenizer"]
    loaded = AutoTokenizer.from_pretrained(folder)
    assert loaded.get_vocab() == new.get_vocab()
    assert loaded.eos_token is None


def test_other_files_are_never_replaced(trained, tmp_path):
    tokenizer, _, _ = trained("bpe", "decoder")
    save_tokenizer(tokenizer, tmp_path / "model")
    (tmp_path / "model" / "model.safetensors").write_bytes(b"weights")
    for overwrite in (False, True):
        with pytest.raises(
            FileExistsError, match=r"contains other files than a tokenizer \(model.safetensors\): choose another"
        ):
            save_tokenizer(tokenizer, tmp_path / "model", overwrite=overwrite)
    assert listing(tmp_path / "model") == ["model.safetensors", *FILES]


def test_a_file_in_the_way(tmp_path):
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(FileExistsError, match="file' is a file, not a folder"):
            check_output_folder(folder, overwrite=True)


def test_a_save_that_fails_changes_nothing(trained, tmp_path, monkeypatch):
    tokenizer, _, _ = trained("bpe", "decoder")
    folder = tmp_path / "tokenizer"
    save_tokenizer(tokenizer, folder)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}

    def full(*_args, **_kwargs):
        raise OSError("no space left on device")

    monkeypatch.setattr(type(tokenizer), "save_pretrained", full)
    with pytest.raises(OSError, match="no space left"):
        save_tokenizer(tokenizer, folder, overwrite=True)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert listing(tmp_path) == ["tokenizer"]


def test_a_move_that_fails_puts_the_old_one_back(trained, tmp_path, monkeypatch):
    tokenizer, _, _ = trained("bpe", "decoder")
    folder = tmp_path / "tokenizer"
    save_tokenizer(tokenizer, folder)
    rename = type(folder).rename

    def failing(self, target):
        if self.name == "new":
            raise OSError("the move failed")
        return rename(self, target)

    monkeypatch.setattr(type(folder), "rename", failing)
    with pytest.raises(OSError, match="the move failed"):
        save_tokenizer(tokenizer, folder, overwrite=True)
    assert listing(folder) == FILES
    assert listing(tmp_path) == ["tokenizer"]
