# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
import json

import pytest

from hf_tx.tokenization import iter_dataset, iter_texts

BLOCK = 1 << 16


# Text files


@pytest.mark.parametrize(
    "text",
    [
        "one line",
        "one\ntwo\n\nthree\n",
        "carriage\r\nreturns\rkept\r\n",
        "  leading and trailing  \n ",
        "\u2603" * BLOCK,  # three bytes each: every block ends within a character
        "x" * (BLOCK - 1) + "\U0001f600\nafter the border\n",
        "a line of words\n" * 20000,
        "one line of many words " * 100000,
        "w" * (3 * (1 << 20)),
    ],
    ids=lambda text: f"{text[:8]!r}-{len(text)}",
)
def test_the_pieces_of_a_file_are_its_text(tmp_path, text):
    path = tmp_path / "text.txt"
    path.write_bytes(text.encode("utf-8"))
    pieces = list(iter_texts(path))
    assert "".join(pieces) == text
    assert max(map(len, pieces)) <= (1 << 20) + BLOCK
    if "\n" in text:
        assert all(piece.endswith("\n") for piece in pieces[:-1])
    else:
        assert not any(piece.endswith(" ") for piece in pieces[:-1])
    assert list(iter_texts(str(path))) == pieces
    assert list(iter_texts([str(path), path])) == pieces * 2


def test_long_files_come_in_many_pieces(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("a line of words\n" * 20000)
    assert len(list(iter_texts(path))) >= 5


def test_a_byte_order_mark_is_not_text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_bytes(b"\xef\xbb\xbfhello\xef\xbb\xbf")
    assert list(iter_texts(path)) == ["hello\ufeff"]


def test_a_directory_stands_for_its_text_files(tmp_path):
    (tmp_path / "below").mkdir()
    for name in ("b.txt", "a.txt", "below/c.txt", "notes.md"):
        (tmp_path / name).write_text(name)
    assert list(iter_texts(tmp_path)) == ["a.txt", "b.txt", "below/c.txt"]


def test_paths_are_checked_before_anything_is_read(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty.txt").touch()
    (tmp_path / "rows.jsonl").write_text('{"text": "hello"}\n')
    with pytest.raises(FileNotFoundError, match=r"missing\.txt' does not exist"):
        iter_texts(tmp_path / "missing.txt")
    with pytest.raises(ValueError, match=r"the folder '.*empty' has no \*\.txt file"):
        iter_texts(tmp_path / "empty")
    with pytest.raises(ValueError, match=r"empty\.txt' is empty"):
        iter_texts(tmp_path / "empty.txt")
    with pytest.raises(ValueError, match=r"empty\.txt' is empty"):
        iter_texts(tmp_path)
    with pytest.raises(ValueError, match=r"rows\.jsonl' is a table, .* \(iter_dataset, --dataset\)"):
        iter_texts(tmp_path / "rows.jsonl")
    with pytest.raises(ValueError, match="no text files were given"):
        iter_texts([])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\0", "a NUL byte at byte offset 0;"),
        (b"abc\0def", "a NUL byte at byte offset 3;"),
        (b"\xef\xbb\xbfab\0", "a NUL byte at byte offset 5;"),
        ("words ".encode("utf-16"), "a NUL byte at byte offset 3;"),
        (b"x" * BLOCK + b"\xe2\x98\x83\0", f"a NUL byte at byte offset {BLOCK + 3};"),
        (b"x" * (BLOCK - 1) + b"\xe2\x98\0", f"a NUL byte at byte offset {BLOCK + 1};"),
        (b"\xff\xfe", "invalid start byte at byte offset 0;"),
        (b"abc\xe9 def", "invalid continuation byte at byte offset 3;"),
        (b"\xef\xbb\xbfab\xff", "invalid start byte at byte offset 5;"),
        (b"x" * BLOCK + b"ab\xff", f"invalid start byte at byte offset {BLOCK + 2};"),
        (b"x" * (BLOCK - 1) + b"\xe2(", f"invalid continuation byte at byte offset {BLOCK - 1};"),
        (b"cut off \xe2\x98", "unexpected end of data at byte offset 8;"),
        (b"x" * (BLOCK - 1) + b"\xe2", f"unexpected end of data at byte offset {BLOCK - 1};"),
        (b"\xed\xa0\x80", "invalid continuation byte at byte offset 0;"),
        (b" \n\t\r\n", "only contains white space"),
    ],
)
def test_files_that_are_not_text(tmp_path, data, message):
    path = tmp_path / "file.txt"
    path.write_bytes(data)
    with pytest.raises(ValueError, match=rf"file\.txt' .*{message}"):
        list(iter_texts(path))


# Datasets

ROWS = [{"text": "one\n", "label": 0}, {"text": "", "label": 1}, {"text": "drei, \u2603", "label": 0}]


def test_rows_that_are_loaded_already():
    assert list(iter_dataset(ROWS)) == ["one\n", "", "drei, \u2603"]
    with pytest.raises(ValueError, match="the dataset has no column 'txt': its columns are 'text', 'label'"):
        iter_dataset(ROWS, column="txt")
    with pytest.raises(ValueError, match="the dataset has no rows"):
        iter_dataset([])
    with pytest.raises(ValueError, match="row 0 of column 'label' is int, not a string"):
        list(iter_dataset(ROWS, column="label"))
    with pytest.raises(ValueError, match="row 1 of column 'text' is NoneType, not a string"):
        list(iter_dataset([*ROWS[:1], {"text": None}]))


def test_dataset_objects_files_and_folders(tmp_path):
    datasets = pytest.importorskip("datasets")
    expected = [row["text"] for row in ROWS]
    dataset = datasets.Dataset.from_list(ROWS)
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    dataset.to_parquet(tmp_path / "rows.parquet")
    folder = tmp_path / "folder"
    folder.mkdir()
    for split in ("train", "test"):
        (folder / f"{split}.csv").write_text(f"text,label\nin {split},1\n")
    (tmp_path / "rows.tsv").write_text("label\ttext\n1\tone, two\n")

    assert list(iter_dataset(dataset)) == expected
    assert list(iter_dataset(tmp_path / "rows.jsonl")) == expected
    assert list(iter_dataset(str(tmp_path / "rows.parquet"))) == expected
    assert list(iter_dataset(tmp_path / "rows.tsv")) == ["one, two"]
    assert list(iter_dataset(folder)) == ["in train"]
    assert list(iter_dataset(folder, split="test")) == ["in test"]


def test_datasets_that_do_not_serve(tmp_path):
    (tmp_path / "rows.jsonl").write_text('{"text": "one"}\n')
    (tmp_path / "broken.jsonl").write_text('{"text": "one"}\n{"text": ')
    (tmp_path / "empty.csv").touch()
    (tmp_path / "bare").mkdir()
    with pytest.raises(FileNotFoundError, match=r"missing\.jsonl: there is no such file"):
        iter_dataset(tmp_path / "missing.jsonl")
    with pytest.raises(FileNotFoundError, match="dataset '.*bare' was not found"):
        iter_dataset(tmp_path / "bare")
    with pytest.raises(ValueError, match=r"empty\.csv: has no rows"):
        iter_dataset(tmp_path / "empty.csv")
    with pytest.raises(ValueError, match=r"rows\.jsonl' has no column 'body': its columns are 'text'"):
        iter_dataset(tmp_path / "rows.jsonl", column="body")
    with pytest.raises(ValueError, match=r"rows\.jsonl' has no split 'test': its splits are train"):
        iter_dataset(tmp_path / "rows.jsonl", split="test")
    with pytest.raises(ValueError, match=r"broken\.jsonl: cannot be read: line 2 is not JSON"):
        list(iter_dataset(tmp_path / "broken.jsonl"))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "rows.jsonl",
            b'{"text": "\xe9"}\n',
            "rows.jsonl' is not UTF-8 text: invalid continuation byte at byte offset 10",
        ),
        ("rows.csv", b"text\n\xff\n", "rows.csv' is not UTF-8 text: invalid start byte at byte offset 5"),
        ("rows.json", b"\n\n", "rows.json' only contains white space"),
        ("rows.txt", b"text\n", "rows.txt is not a .json, .jsonl, .csv, .tsv, .parquet file"),
    ],
)
def test_a_table_that_is_none_is_refused_by_name(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=message):
        list(iter_dataset(tmp_path / name))
