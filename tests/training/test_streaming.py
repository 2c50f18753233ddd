# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Text that is read while a model learns from it: the rows of the whole text, the part held out, memory."""

import gzip
import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from objective_data import make, make_texts
from torch.utils.data import DataLoader
from transformers import TrainingArguments

from hf_tx.common import pieces
from hf_tx.objectives import texts as objective_texts
from hf_tx.training.data import DataArguments, load_measured, rows_of_texts
from hf_tx.training.streaming import TextStream, load_stream, stream_rows

LINES = [f"{text}\n" for text in make_texts(60)]


@pytest.fixture(autouse=True)
def _short_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setattr(pieces, "LONGEST_PIECE", 1 << 10)
    monkeypatch.setattr("hf_tx.common.columns.LONGEST_PIECE", 1 << 10)
    monkeypatch.setattr(objective_texts, "_CALL", 1 << 12)
    monkeypatch.setattr("hf_tx.tokenization.files._BLOCK_BYTES", 1 << 9)
    monkeypatch.setattr("hf_tx.tokenization.files._LONGEST_LINE", 1 << 11)


def options(folder: Path, **changes: Any) -> TrainingArguments:
    return TrainingArguments(str(folder), max_steps=2, use_cpu=True, **changes)


def written(path: Path, text: str) -> str:
    path.write_text(text, "utf-8")
    return str(path)


def documents(stream: TextStream) -> list[str]:
    return ["".join(row["text"]) for row in stream]


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("causal-lm", {}),
        ("causal-lm", {"packed": False}),
        ("masked-lm", {"masking": "word"}),
        ("continuation", {}),
        ("span-corruption", {}),
    ],
)
def test_streamed_files_give_the_rows_of_their_texts(name: str, more: dict[str, Any], tmp_path: Path) -> None:
    texts = ["".join(LINES).replace("\n", " \u2603 "), "short", "".join(reversed(LINES))]
    files = tuple(written(tmp_path / f"{number}.txt", text) for number, text in enumerate(texts))
    objective = make(name, **more)
    expected = list(objective.prepare(rows_of_texts(texts)))
    assert list(objective.stream(TextStream(files), ["text"])) == expected
    skipped = objective.stream(TextStream(files[:1], 1000), ["text"])
    assert list(skipped) == list(objective.prepare(rows_of_texts([texts[0][1000:]])))


def test_the_beginning_of_text_files_is_held_out(tmp_path: Path) -> None:
    whole = ["".join(LINES), "".join(LINES[:5])]
    files = [written(tmp_path / f"{number}.txt", text) for number, text in enumerate(whole)]
    arguments = DataArguments(text=[str(tmp_path)])
    for size in (1, 500, 1500, len(whole[0]), len(whole[0]) + 300):
        train, held_out, found_by = load_stream(arguments, ["text"], size)
        held, left = list(held_out["text"]), documents(train)
        assert "".join([*held, *left]) == "".join(whole)
        assert abs(len("".join(held)) - size) <= max(size / 2, 1)
        assert size < 500 or held[-1].endswith("\n")
        assert list(load_measured(**found_by)["text"]) == held
    train, held_out, found_by = load_stream(arguments, ["text"])
    assert found_by["held_out_first"] == round(0.1 * sum(map(len, whole)))
    # The order of a pass does not depend on the one before.
    assert documents(train) == documents(train)
    with pytest.raises(ValueError, match="--held-out-first 99999: the texts have .* too few would be left"):
        load_stream(arguments, ["text"], 99_999)
    other = DataArguments(text=files[:1], eval_text=files[1:])
    train, held_out, found_by = load_stream(other, ["text"])
    assert (documents(train), list(held_out["text"])) == (whole[:1], whole[1:])
    assert list(load_measured(**found_by)["text"]) == whole[1:]
    with pytest.raises(ValueError, match="is a file that is trained on too"):
        load_stream(DataArguments(text=files, eval_text=files[1:]), ["text"])


def test_the_first_rows_or_a_split_of_a_dataset_are_held_out(tmp_path: Path) -> None:
    def jsonl(name: str, lines: list[str]) -> str:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        return written(tmp_path / name, "".join(json.dumps({"text": line, "id": 1}) + "\n" for line in lines))

    file = DataArguments(dataset=[jsonl("rows.jsonl", LINES)])
    train, held_out, found_by = load_stream(file, ["text"], 20)
    assert list(held_out["text"]) == LINES[:20]
    assert [row["text"] for row in train] == LINES[20:]
    assert list(load_measured(**found_by)["text"]) == LINES[:20]
    with pytest.raises(ValueError, match="has no more than 1,000 rows, which would all be held out"):
        load_stream(file, ["text"])
    with pytest.raises(ValueError, match="no column 'body'"):
        load_stream(file, ["body"], 20)
    jsonl("set/train.jsonl", LINES[:30])
    jsonl("set/validation.jsonl", LINES[30:])
    splits = DataArguments(dataset=[str(tmp_path / "set")], max_eval_samples=7)
    train, held_out, found_by = load_stream(splits, ["text"])
    assert ([row["text"] for row in train], list(held_out["text"])) == (LINES[:30], LINES[30:37])
    assert list(load_measured(**found_by)["text"]) == LINES[30:37]


def test_rows_are_drawn_anew_in_each_pass_and_all_of_them(tmp_path: Path) -> None:
    files = [written(tmp_path / "a.txt", "".join(LINES))]
    objective = make("causal-lm")
    train, _, _ = load_stream(DataArguments(text=files), ["text"])
    ordered = list(stream_rows(objective, train, ["text"], options(tmp_path), 0))
    rows = stream_rows(objective, train, ["text"], options(tmp_path), 8)
    passes = []
    for epoch in (0, 1, 0):
        rows.set_epoch(epoch)
        passes.append(list(rows))
    assert passes[0] == passes[2] != passes[1]
    assert all(sorted(map(str, found)) == sorted(map(str, ordered)) for found in passes)
    # Worker processes leave no row out.
    loader = DataLoader(rows, batch_size=None, num_workers=2)
    assert sorted(map(str, loader)) == sorted(map(str, ordered))


def test_a_stream_of_shards_is_read_whole_by_workers() -> None:
    stream = rows_of_texts(LINES).to_iterable_dataset(num_shards=3)
    objective = make("causal-lm")
    expected = list(objective.prepare(rows_of_texts(LINES)))
    assert list(DataLoader(objective.prepare(stream), batch_size=None, num_workers=2)) == expected


def test_rows_of_any_length_are_not_made_by_one_process_for_all(tmp_path: Path) -> None:
    train = TextStream((written(tmp_path / "a.txt", "".join(LINES)),))
    for name, expected in (("causal-lm", None), ("span-corruption", False)):
        given = options(tmp_path)
        rows = stream_rows(make(name), train, ["text"], given, 0)
        assert given.accelerator_config.dispatch_batches is expected
        assert rows.num_shards == 1
    epochs = TrainingArguments(str(tmp_path), num_train_epochs=2, use_cpu=True)
    with pytest.raises(ValueError, match="--num-train-epochs 2: .* give --max-steps"):
        stream_rows(make("causal-lm"), train, ["text"], epochs, 0)


def test_memory_does_not_depend_on_the_length_of_the_text(tmp_path: Path) -> None:
    objective = make("causal-lm")
    peaks = []
    for times in (1, 4):
        text = ("".join(LINES).replace("\n", " ") * 6 * times).encode()
        path = tmp_path / f"{times}.txt.gz"
        path.write_bytes(gzip.compress(text))
        train, _, _ = load_stream(DataArguments(text=[str(path)]), ["text"], 2000)
        rows = stream_rows(objective, train, ["text"], options(tmp_path), 16)
        next(iter(rows))
        tracemalloc.start()
        count = sum(1 for _ in rows)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert count * 32 > len(text) / 10
    assert peaks[1] - peaks[0] < 20_000 < len(text) / 8
