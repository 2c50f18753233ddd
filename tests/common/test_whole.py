# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
import json
from pathlib import Path

import pytest

from hf_tx.common.whole import whole_folder, write_json


def listed(folder: Path) -> dict[str, str]:
    return {path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*") if path.is_file()}


def test_a_folder_is_replaced_as_a_whole(tmp_path: Path) -> None:
    for text in ("one", "two"):
        with whole_folder(tmp_path / "a" / "b") as new:
            new.mkdir()
            (new / text).write_text(text)
    assert listed(tmp_path) == {"a/b/two": "two"}


def test_what_breaks_off_leaves_a_folder_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "file").write_text("kept")

    def broken() -> None:
        with whole_folder(tmp_path / "old") as new:
            new.mkdir()
            (new / "half").touch()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        broken()
    assert listed(tmp_path) == {"old/file": "kept"}
    assert [path.name for path in tmp_path.iterdir()] == ["old"]


def test_json_replaces_a_file_when_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "found.json"
    write_json(path, {"name": "Zoë"})
    assert json.loads(path.read_text("utf-8")) == {"name": "Zoë"}

    def full(*_: object) -> None:
        raise OSError("full")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="full"):
        write_json(path, {})
    assert json.loads(path.read_text("utf-8")) == {"name": "Zoë"}
