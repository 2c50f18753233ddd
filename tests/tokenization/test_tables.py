# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Rows of tables of text: as many as there are, cell for cell, or refused with the number of the line."""

import bz2
import csv
import gzip
import io
import json
import logging
import lzma
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hf_tx.tokenization.files import read_lines
from hf_tx.tokenization.loading import load_rows
from hf_tx.tokenization.tables import read_rows


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")


def rows_of(path: Path, content: str | bytes) -> list[dict[str, Any]]:
    """Return the rows of a file, which the library `datasets` must give too, kept and streamed."""
    path.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)
    rows = list(read_rows(path))
    assert load_rows([str(path)])["train"].to_list() == rows
    assert list(load_rows([str(path)], streaming=True)["train"]) == rows
    return rows


# ----------------------------------------------------------------------------------------------------------------- tsv
def test_a_quote_means_nothing_in_a_tsv(tmp_path: Path) -> None:
    lines = [f"row {number}\t{number % 2}" for number in range(40)]
    lines[3], lines[20] = '"unclosed\t1', 'closed" "again"\t0'
    rows = rows_of(tmp_path / "rows.tsv", "text\tlabel\n" + "\n".join(lines))
    assert [f"{row['text']}\t{row['label']}" for row in rows] == lines


def test_cells_of_a_tsv_that_look_quoted_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert rows_of(tmp_path / "rows.tsv", 'a\tb\n"x"\t1\ny\t2\n')[0] == {"a": '"x"', "b": "1"}
    assert "1 of 2 rows have cells in quotes" in caplog.text


# ----------------------------------------------------------------------------------------------------------------- csv
def test_text_stays_text(tmp_path: Path) -> None:
    words = ["None", "NA", "null", "nan", "N/A", "01023", "1e5", "2024-01-24", "True", " spaced ", "#5", "inf", "-"]
    rows = rows_of(
        tmp_path / "rows.csv", "text,label\n" + "".join(f"{word},{word}\n" for word in words) + 'x,\n"",y\n'
    )
    assert [row["text"] for row in rows] == [*words, "x", None]
    assert [row["label"] for row in rows] == [*words, None, "y"]
    dates = [{"text": word, "when": "2024-01-24T10:00:00"} for word in words]
    assert rows_of(tmp_path / "rows.jsonl", "".join(json.dumps(row) + "\n" for row in dates)) == dates


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_cells_are_what_was_written(tmp_path: Path, end: str) -> None:
    cells = ["two\nlines", "with, a comma", 'a "quote"', "x\u2028y\u0085z\x0b\x0c", " \t", "w" * 300_000, "end\r\nend"]
    written = io.StringIO()
    csv.writer(written, lineterminator=end, quoting=csv.QUOTE_ALL).writerows(
        [["text", "label"], *([cell, "a"] for cell in cells)]
    )
    for mark in ("", "\ufeff"):
        rows = rows_of(tmp_path / "rows.csv", mark + written.getvalue())
        assert [row["text"] for row in rows] == cells


def test_blank_lines_are_no_rows(tmp_path: Path) -> None:
    assert rows_of(tmp_path / "rows.csv", "\n\na,b\n\n1,2\n\n\n3,4\n\n") == [
        {"a": "1", "b": "2"},
        {"a": "3", "b": "4"},
    ]
    assert rows_of(tmp_path / "rows.jsonl", '\n{"a": 1}\n \n\n{"a": 2}') == [{"a": 1}, {"a": 2}]


@pytest.mark.parametrize("separator", [";", "\t", "|"])
def test_the_header_says_what_separates_cells(
    tmp_path: Path, separator: str, caplog: pytest.LogCaptureFixture
) -> None:
    text = f'text{separator}"la,bel"\n"a{separator}b"{separator}3,5\nc, d{separator}4\n'
    rows = rows_of(tmp_path / "rows.csv", text)
    assert rows == [{"text": f"a{separator}b", "la,bel": "3,5"}, {"text": "c, d", "la,bel": "4"}]
    assert "the separator is a" in caplog.text


@pytest.mark.parametrize(("name", "header"), [("a.tsv", "text,label"), ("a.tsv", "text|label"), ("a.csv", '"a,b"')])
def test_one_column_whose_name_holds_a_separator_is_told(
    tmp_path: Path, name: str, header: str, caplog: pytest.LogCaptureFixture
) -> None:
    rows_of(tmp_path / name, f"{header}\nx\n")
    column = header.strip('"')
    assert f"has only one column, '{column}': its first line does not contain the separator, a " in caplog.text


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", "a,b\n1,2\n\n1,2,3\n", "line 4 has 3 cells separated by a comma, but the header has 2"),
        ("a.csv", 'a,b\n"x\ny",2\n1\n', "line 4 has 1 cells separated by a comma, but the header has 2"),
        ("a.tsv", "a\tb\n1\n", "line 2 has 1 cells separated by a tab, but the header has 2$"),
        ("a.csv", 'a,b\n1,2\n"x,2\n1,2\n', "line 3 begins a row with broken quotes .unexpected end of data"),
        ("a.csv", 'a,b\n"x,2\n1,"2"\n', "line 2 begins a row with broken quotes"),
        ("a.csv", "\na,b,a\n1,2,3\n", "line 2 has the column 'a' twice"),
        ("a.csv", "text;note,label\nx,1\n", "line 1 has a comma and a semicolon, so the separator"),
        ("a.csv", "text|note,label\nx,1\n", "line 1 has a comma and a vertical bar, so the separator"),
        ("a.csv", "a,b\n", "cannot be read: it has no rows"),
        ("a.jsonl", '{"a": 1e999}', "line 1 is not JSON: 1e999 is too large for a number of 64 bits"),
        ("a.csv", b"a,b\n1,\0\n", "is not UTF-8 text: a NUL byte at byte offset 6"),
        ("a.jsonl", '{"a": 1}\n\n{"a": }\n', "line 3 is not JSON: Expecting value at character 7"),
        ("a.jsonl", '{"a": 1}\n[1]\n', r"line 2 is not an object, but '\[1\]'"),
        ("a.jsonl", '{"a": 1}\n{"a": NaN}\n', "line 2 is not JSON: NaN is not a number"),
        ("a.jsonl", '{"a": 1, "a": 2}\n', "line 1 is not JSON: a name occurs twice in a, a"),
        ("a.json", '[{"a": 1},\n {"a": 2]', "line 2 is not JSON"),
        ("a.json", '["x"]', "must begin an array of objects"),
        ("a.jsonl", "{}\n{}\n", "rows 1 to 2 have no columns"),
    ],
)
def test_a_broken_table_is_refused_by_line(tmp_path: Path, name: str, content: str | bytes, message: str) -> None:
    path = tmp_path / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    for streaming in (False, True):
        with pytest.raises(ValueError, match=rf"{name}.*{message}"):
            list(load_rows([str(path)], streaming=streaming)["train"])


def test_json_of_any_shape(tmp_path: Path) -> None:
    rows = [{"text": "x\u2028y", "label": 1}, {"text": "z", "label": 2}]
    for text in (
        json.dumps(rows),
        json.dumps(rows, indent=2, ensure_ascii=False),
        "\n".join(json.dumps(row, ensure_ascii=False) for row in rows),
        json.dumps({"text": ["x\u2028y", "z"], "label": [1, 2]}, indent=1),
    ):
        assert rows_of(tmp_path / "rows.json", text) == rows


def test_rows_may_lack_columns_and_nest(tmp_path: Path) -> None:
    rows = [{"a": 1}, {"a": 2, "b": {"c": ["x"]}}, {"a": None, "b": None}, {"d": "2024-01-24"}]
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = load_rows([str(path)])["train"].to_list()
    assert [{name: value for name, value in row.items() if value is not None} for row in found] == [
        {name: value for name, value in row.items() if value is not None} for row in rows
    ]


# --------------------------------------------------------------------------------------------------------------- files
def zipped(data: bytes) -> bytes:
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as archive:
        archive.writestr("rows", data)
    return written.getvalue()


COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zip": zipped,
}


MORE = 20  # rows of the first batch


def _lines(first: Any, last: Any) -> str:
    """Rows of a first batch with one value, and a last row, of the next batch, with another."""
    cells = [*[first] * MORE, last]
    return "".join(json.dumps({"text": "word " * 20, "cell": cell}) + "\n" for cell in cells)


@pytest.mark.parametrize(
    ("first", "last"),
    [
        (1, 1.5),  # Arrow would make 1 of it,
        (1.5, True),  # 1.0,
        ("a", 1),  # "1",
        ({"a": 1}, {"b": 1}),  # and an object without anything
        ([1], ["1"]),
    ],
)
def test_later_rows_of_another_type_are_refused_by_row(
    first: Any, last: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hf_tx.tokenization.table_builder._BATCH_BYTES", 150 * MORE)
    path = tmp_path / "rows.jsonl"
    path.write_text(_lines(first, last), "utf-8")
    with pytest.raises(ValueError, match="rows.jsonl: cannot be read: row 21 has .* in column 'cell', which is "):
        load_rows([str(path)])


@pytest.mark.parametrize(("first", "last"), [(None, "late"), ([], [1]), ({"a": None}, {"a": "late"}), (1.5, 2)])
def test_what_is_empty_at_first_gets_its_type_later(
    first: Any, last: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hf_tx.tokenization.table_builder._BATCH_BYTES", 150 * MORE)
    assert rows_of(tmp_path / "rows.jsonl", _lines(first, last))[-1]["cell"] == last


def test_values_of_several_types_stay_what_they_are(tmp_path: Path) -> None:
    for cells in ([1.5, True], [True, 1.5], [1, "1", None], [{"a": 1.5}, {"a": True}], [[1], [False]]):
        rows = rows_of(tmp_path / "rows.jsonl", "".join(json.dumps({"cell": cell}) + "\n" for cell in cells))
        assert repr([row["cell"] for row in rows]) == repr(cells)  # 1.0 == True


@pytest.mark.parametrize("ending", COMPRESS)
def test_compressed_tables(tmp_path: Path, ending: str) -> None:
    compress = COMPRESS[ending]
    expected = [{"text": "ä,b", "label": "1"}, {"text": "c", "label": "2"}]
    assert rows_of(tmp_path / f"rows.csv{ending}", compress('text,label\n"ä,b",1\nc,2\n'.encode())) == expected
    assert rows_of(tmp_path / f"rows.tsv{ending}", compress("text\tlabel\nä,b\t1\nc\t2\n".encode())) == expected
    lines = "".join(json.dumps(row) + "\n" for row in expected)
    assert rows_of(tmp_path / f"rows.jsonl{ending}", compress(lines.encode())) == expected
    whole = compress(b"text\n" + bytes(range(65, 91)) * 200)
    for size in (0, 1, len(whole) // 2, len(whole) - 1):
        path = tmp_path / f"cut.csv{ending}"
        path.write_bytes(whole[:size])
        with pytest.raises(ValueError, match=rf"cut.csv{ending}"):
            load_rows([str(path)])


def test_an_archive_of_several_files_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "rows.csv.zip", "w") as archive:
        archive.writestr("a.csv", "a\n1\n")
        archive.writestr("b.csv", "a\n1\n")
    with pytest.raises(ValueError, match=r"rows.csv.zip.* is an archive of 2 files"):
        load_rows([str(tmp_path / "rows.csv.zip")])


def test_a_folder_of_tables_is_read_like_its_files(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "train.tsv").write_text('text\tlabel\n"x\tNA\ny\t01\n')
    (folder / "test.tsv.gz").write_bytes(gzip.compress(b"text\tlabel\nz\t2\n"))
    for streaming in (False, True):
        found = {name: list(split) for name, split in load_rows([str(folder)], streaming=streaming).items()}
        assert found == {
            "train": [{"text": '"x', "label": "NA"}, {"text": "y", "label": "01"}],
            "test": [{"text": "z", "label": "2"}],
        }


def test_folders_of_save_to_disk(tmp_path: Path) -> None:
    from datasets import ClassLabel, Dataset, DatasetDict, Features, Value

    features = Features({"text": Value("string"), "label": ClassLabel(names=["no", "yes"])})
    rows = Dataset.from_dict({"text": ["x", "y"], "label": [0, 1]}, features=features)
    rows.save_to_disk(tmp_path / "one")
    DatasetDict({"train": rows, "test": rows.select([1])}).save_to_disk(tmp_path / "several")
    for streaming in (False, True):
        (one,) = load_rows([str(tmp_path / "one")], streaming=streaming).values()
        several = load_rows([str(tmp_path / "several")], streaming=streaming)
        assert list(one) == list(several["train"]) == rows.to_list()
        assert list(several["test"]) == rows.to_list()[1:]
        assert one.features == features


def test_a_file_that_has_changed_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "rows [1].csv"
    for text in ("x", "y", "longer"):
        assert rows_of(path, f"text\n{text}\n") == [{"text": text}]


@pytest.mark.parametrize("size", [1, 2, 3, 5, 100])
def test_lines_do_not_depend_on_pieces(size: int) -> None:
    text = "one\r\ntwo\rthree\n\n\r\r\nfour\u2028\x85\x0bfive\n\rsix"
    pieces = iter([text[start : start + size] for start in range(0, len(text), size)])
    assert list(read_lines(pieces)) == io.StringIO(text, newline="").readlines()


def test_rows_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    from hf_tx.training.data import load_measured

    (tmp_path / "rows.tsv").write_text("text\n" + "x\n" * 40)
    caplog.set_level(logging.INFO, "hf_tx")
    assert len(load_measured(dataset=[str(tmp_path / "rows.tsv")])) == 40
    assert "rows.tsv: 40 rows were read" in caplog.text
