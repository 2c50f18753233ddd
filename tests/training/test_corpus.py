# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
import pytest

from hf_tx.training import read_documents, split_documents

LINES = [f"line {number:02}\n" for number in range(20)]  # of 8 characters


def test_every_file_is_a_document(tmp_path):
    (tmp_path / "texts" / "more").mkdir(parents=True)
    (tmp_path / "texts" / "b.txt").write_bytes(b"second\r\n")
    (tmp_path / "texts" / "a.txt").write_bytes("fürst\n".encode())
    (tmp_path / "texts" / "more" / "c.txt").write_bytes(b"third")
    (tmp_path / "texts" / "notes.md").write_bytes(b"not a text")
    (tmp_path / "last").write_bytes(b"\xef\xbb\xbflast")
    assert read_documents([tmp_path / "texts", str(tmp_path / "last")]) == ["fürst\n", "second\r\n", "third", "last"]


@pytest.mark.parametrize(
    ("content", "error"),
    [(None, "does not exist"), (b"", "is empty"), (b" \n", "only contains white space"), (b"ab\0", "a NUL byte")],
)
def test_files_that_are_no_text_are_refused(tmp_path, content, error):
    path = tmp_path / "file"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises((ValueError, FileNotFoundError), match=error):
        read_documents([path])
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="has no"):
        read_documents([tmp_path / "empty"])


def test_the_last_lines_are_held_out():
    # 10% of 160 characters are two lines; 8% are less, and the nearest end of a line is that of the 18th, too.
    for share in (0.1, 0.08):
        assert split_documents(["".join(LINES)], share) == (["".join(LINES[:18])], ["".join(LINES[18:])])


def test_the_cut_may_lie_in_any_document():
    documents = ["".join(LINES[:12]), "".join(LINES[12:19]), "".join(LINES[19:])]
    assert split_documents(documents, 0.1) == (
        [documents[0], "".join(LINES[12:18])],
        ["".join(LINES[18:19]), documents[2]],
    )
    assert split_documents(documents, 0.4) == (documents[:1], documents[1:])


@pytest.mark.parametrize(
    ("text", "held_out"),
    [
        # The line is longer than what is to be held out, so that the cut is at a space ...
        ("one two six ten " * 10, "one two six ten "),
        # ... or between two characters.
        ("x" * 160, "x" * 16),
        # A long line at the end: neither all of it nor nothing.
        ("short\n" * 5 + "one two " * 15, "one two " * 2),
    ],
)
def test_long_lines_are_cut(text, held_out):
    train, held = split_documents([text], 0.1)
    assert held == [held_out]
    assert "".join(train + held) == text


@pytest.mark.parametrize("share", [0.01, 0.1, 0.33, 0.5, 0.9])
@pytest.mark.parametrize("sizes", [[1], [1000], [3, 500, 2, 1, 77]])
def test_nothing_is_lost(share, sizes):
    documents = [("a bc\n" * size)[:size] for size in sizes]
    train, held = split_documents(documents, share)
    assert "".join(train + held) == "".join(documents)
    assert all(train + held)


@pytest.mark.parametrize("share", [0.0, 1.0, -0.1])
def test_a_share_leaves_something_on_both_sides(share):
    with pytest.raises(ValueError, match=f"held_out = {share}"):
        split_documents(["text"], share)
