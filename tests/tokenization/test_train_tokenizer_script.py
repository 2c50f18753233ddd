# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
from pathlib import Path

import pytest
from child_process import child
from scripts.scripts import loaded
from transformers import AutoTokenizer

from hf_tx.common.packaged import SPEECHES, path_of

SCRIPT = Path(__file__).parents[2] / "scripts" / "train_tokenizer.py"
TEXT = path_of(SPEECHES)


@pytest.fixture(scope="module")
def script():
    with loaded("train_tokenizer") as module:
        yield module


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "corpus.txt"
    path.write_text("\n".join(TEXT.read_text(encoding="utf-8").split("\n")[:200]), encoding="utf-8")
    return path


def test_the_command_of_the_package_trains_on_the_text_of_the_repository(tmp_path):
    """In a process and a folder of its own, where there are no scripts."""
    folder = tmp_path / "tokenizer"
    arguments = ["--text", str(TEXT), "--output", str(folder), "--vocab-size", "2000", "--model-max-length", "256"]
    result = child(["-m", "hf_tx.cli", "train-tokenizer", *arguments], tmp_path / "elsewhere")
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    lines = dict(line.split(maxsplit=1) for line in result.stdout.splitlines())
    assert lines["vocabulary"] == "2000 tokens, including <bos> <eos> <pad>"
    assert 3.0 < float(lines["compression"].split()[0]) < 5.0
    assert lines["example"].startswith("'Mr. Speaker, Mr. President,")
    assert lines["as"].startswith("tokens   ['<bos>', 'M")
    assert lines["saved"].endswith(str(folder))

    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert len(tokenizer) == 2000
    assert (tokenizer.padding_side, tokenizer.model_max_length) == ("left", 256)
    text = TEXT.read_text(encoding="utf-8")[:20000] + " \u2603\n"
    assert tokenizer.decode(tokenizer.encode(text), skip_special_tokens=True) == text


def test_a_dataset_with_options(script, tmp_path, capsys):
    rows = tmp_path / "rows.csv"
    rows.write_text("body,title\n" + "Hello to the other brother,Greetings\n" * 50)
    arguments = ["--dataset", str(rows), "--columns", "body", "title", "--output", str(tmp_path / "tokenizer")]
    arguments += ["--lowercase", "--min-frequency", "3"]
    arguments += ["--family", "encoder", "--algorithm", "wordpiece", "--vocab-size", "100"]
    assert script.main(arguments) == 0
    assert "as tokens   ['[CLS]', 'hello', 'to', 'the', 'other', 'brother'," in capsys.readouterr().out
    assert AutoTokenizer.from_pretrained(tmp_path / "tokenizer").tokenize("HELLO greetings") == ["hello", "greetings"]


def test_overwriting_is_asked_for(script, corpus, capsys):
    folder = corpus.parent / "tokenizer"
    arguments = ["--text", str(corpus), "--output", str(folder), "--vocab-size"]
    assert script.main([*arguments, "300"]) == 0
    assert script.main([*arguments, "400"]) == 2
    assert "is not empty: choose another, or replace its content" in capsys.readouterr().err
    assert len(AutoTokenizer.from_pretrained(folder)) == 300
    assert script.main([*arguments, "400", "--overwrite"]) == 0
    assert len(AutoTokenizer.from_pretrained(folder)) == 400
    assert sorted(path.name for path in corpus.parent.iterdir()) == ["corpus.txt", "tokenizer"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give either --text or --dataset"),
        (["--text", "corpus.txt", "--dataset", "rows.jsonl"], "give either --text or --dataset"),
        (["--text", "empty.txt"], "text file 'empty.txt' is empty"),
        (["--text", "binary.bin"], "'binary.bin' is not UTF-8 text: a NUL byte at byte offset 4"),
        (["--text", "latin.txt"], "'latin.txt' is not UTF-8 text: invalid continuation byte at byte offset 3"),
        (["--text", "corpus.txt", "missing.txt"], "text file 'missing.txt' does not exist"),
        (["--text", "nothing"], "the folder 'nothing' has no *.txt file"),
        (["--dataset", "missing.jsonl"], "missing.jsonl: there is no such file"),
        (["--dataset", "rows.jsonl"], "dataset 'rows.jsonl' has no column 'text': its columns are 'body'"),
        (["--text", "corpus.txt", "--vocab-size", "100"], "vocab_size=100 is too small"),
        (["--text", "corpus.txt", "--algorithm", "wordpiece", "--vocab-size", "50"], "vocab_size=50 is too small"),
        (["--text", "corpus.txt", "--model-max-length", "0"], "model_max_length=0 must be at least 1"),
        (["--text", "corpus.txt", "--output", "corpus.txt"], "corpus.txt' is a file, not a folder"),
        (["--text", "corpus.txt", "--output", "other"], "other' contains other files than a tokenizer (mine)"),
        (["--text", "corpus.txt", "--vocab-sise", "100"], "unknown option --vocab-sise: did you mean --vocab-size?"),
    ],
)
def test_what_does_not_serve_writes_nothing(script, corpus, monkeypatch, capsys, arguments, message):
    monkeypatch.chdir(corpus.parent)
    Path("empty.txt").touch()
    Path("binary.bin").write_bytes(b"\x7fELF\0\0")
    Path("latin.txt").write_bytes(b"abc\xe9 def")
    Path("rows.jsonl").write_text('{"body": "hello"}\n')
    Path("nothing").mkdir()
    Path("other").mkdir()
    Path("other/mine").touch()
    before = sorted(Path().rglob("*"))
    if "--output" not in arguments:
        arguments = [*arguments, "--output", "new/tokenizer"]
    assert script.main(arguments) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("train_tokenizer.py: error: ")
    assert printed.err.count("\n") == 1
    assert message in printed.err
    assert sorted(Path().rglob("*")) == before


def test_the_output_folder_is_checked_before_the_work(script, corpus, monkeypatch):
    def never(*_args, **_kwargs):
        raise AssertionError("trained although the result cannot be saved")

    monkeypatch.setattr("hf_tx.cli.train_tokenizer.train_tokenizer", never)
    assert script.main(["--text", str(corpus), "--output", str(corpus.parent)]) == 2


def test_choices_are_listed(script, capsys):
    assert script.main(["--text", "x", "--output", "y", "--algorithm", "word"]) == 2
    assert "'bpe', 'wordpiece', 'unigram'" in capsys.readouterr().err.replace("choose from ", "")


def test_an_interruption_saves_nothing(script, corpus, monkeypatch, capsys):
    def interrupted(*_args, **_kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr("hf_tx.cli.train_tokenizer.train_tokenizer", interrupted)
    assert script.main(["--text", str(corpus), "--output", str(corpus.parent / "tokenizer")]) == 130
    assert "nothing was saved" in capsys.readouterr().err
    assert not (corpus.parent / "tokenizer").exists()
