# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""The card of a data set is found where people put it, and others are not taken for it."""

from pathlib import Path

import pytest

from hf_tx.hub import license_of, read_data_card

CARD = "---\npretty_name: Talks\nlicense: mit\n---\n# Talks\n"


def test_where_a_card_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "data" / "train").mkdir(parents=True)
    (tmp_path / "data" / "README.md").write_text(CARD)
    (tmp_path / "book.txt").write_text("text")
    monkeypatch.chdir(tmp_path / "data")
    for name in (tmp_path / "data", tmp_path / "data" / "train", "train", "."):
        assert read_data_card(name)["pretty_name"] == "Talks"
    assert read_data_card(tmp_path / "book.txt") == read_data_card("owner/name") == {}
    (tmp_path / "book.md").write_text(CARD.replace("Talks", "Book"))
    assert read_data_card(tmp_path / "book.txt")["pretty_name"] == "Book"


@pytest.mark.parametrize("text", ["# A project\n", "---\nlicense: mit\nlibrary_name: transformers\n---\n"])
def test_the_readme_of_something_else_is_no_card(text: str, tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text(text)
    assert read_data_card(tmp_path) == {}


def test_broken_metadata_is_refused(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("---\npretty_name: [\n---\n")
    with pytest.raises(ValueError, match="README.md: the metadata \(YAML between the --- lines\) cannot be read"):
        read_data_card(tmp_path)


def test_the_licence() -> None:
    for card, expected in (
        ({}, "not stated"),
        ({"license": "mit"}, "mit"),
        ({"license": "other", "license_name": "ours"}, "ours"),
        ({"license": "other"}, "other"),
    ):
        assert license_of(card) == expected
