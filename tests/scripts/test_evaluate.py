# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
import json
import subprocess
import sys
from pathlib import Path

import pytest
from child_process import environment
from scripts.scripts import FOLDER
from tiny_models import SIZES, TOKENS, build, enlarge

import hf_tx
from hf_tx.evaluation import evaluate_texts, load_model
from hf_tx.tokenization import train_tokenizer

TEXTS = ["The river runs past the old mill, and the miller.", "Nobody said hello to the miller, and he said nothing."]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Models, and texts in files of several kinds."""
    folder = tmp_path_factory.mktemp("evaluate")
    models = {"decoder": ("decoder", 300), "fine": ("decoder", 290), "encoder": ("encoder", 300)}
    models["seq2seq"] = ("encoder_decoder", 400)
    for name, (family, size) in models.items():
        tokenizer = train_tokenizer(
            TEXTS * 2, family=family.replace("_", "-"), vocab_size=size, model_max_length=64, show_progress=False
        )
        tokenizer.save_pretrained(folder / name)
        build(family, head="lm", vocab_size=len(tokenizer)).save_pretrained(folder / name)
        if family == "encoder":
            config = hf_tx.TxEncoderConfig(
                **{**SIZES, "vocab_size": len(tokenizer)},
                **TOKENS,
                id2label={0: "ham", 1: "spam"},
                label2id={"ham": 0, "spam": 1},
            )
            enlarge(hf_tx.TxEncoderForSequenceClassification(config)).save_pretrained(folder / "classifier")
            tokenizer.save_pretrained(folder / "classifier")
    (folder / "text.txt").write_text("\n".join(TEXTS), "utf-8")
    rows = [
        {"text": text, "source": text, "target": text[::-1], "label": at, "n": at} for at, text in enumerate(TEXTS)
    ]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    (folder / "names.csv").write_text("text,label\nA mill.,ham\nA river.,spam\nNo mill.,ham\n", "utf-8")
    (folder / "wrong.csv").write_text("text,label\nA mill.,0\nA river.,2\n", "utf-8")
    return folder


@pytest.fixture
def here(folder, tmp_path, monkeypatch):
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.chdir(folder)
    return folder


def test_language_models_of_other_tokenizers_are_compared_by_bits_per_byte(script, here, capsys):
    command = ["--model", "decoder", "fine", "--text", "text.txt", "--context-length", "16", "--stride", "5"]
    assert script.main([*command, "--output", "found.json"]) == 0
    content = json.loads((here / "found.json").read_text("utf-8"))
    expected = {}
    for name in ("decoder", "fine"):
        model, tokenizer = load_model(name, "causal-lm")
        text = "\n".join(TEXTS)
        result = evaluate_texts(model, tokenizer, [text], task="causal-lm", context_length=16, stride=5, name=name)
        expected[name] = result.as_dict()
    best, other = content["results"]
    assert best.pop("settings") == other.pop("settings") == expected["fine"].pop("settings")
    del expected["decoder"]["settings"]
    assert best["bits_per_byte"] < other["bits_per_byte"]
    assert {best["name"]: pytest.approx(best), other["name"]: pytest.approx(other)} == expected
    assert content["arguments"]["stride"] == 5
    assert content["versions"]["hf_tx"] == hf_tx.__version__
    assert set(content["seconds"]) == {"decoder", "fine"}
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split("  ")[0] == "model"
    assert "perplexity" not in lines[0]
    assert [line.split()[:2] for line in lines[1:3]] == [
        [r["name"], f"{r['bits_per_byte']:.4f}"] for r in (best, other)
    ]
    assert lines[3].startswith("perplexity is not shown: 'decoder' and 'fine' have different tokenizers")


def test_one_model_is_shown_with_its_perplexity(script, here, capsys):
    assert script.main(["--model", "encoder", "--task", "masked-lm", "--dataset", "rows.jsonl"]) == 0
    header, line = (text.split("  ") for text in capsys.readouterr().out.splitlines())
    values = dict(zip(filter(None, map(str.strip, header)), filter(None, map(str.strip, line)), strict=True))
    model, tokenizer = load_model("encoder", "masked-lm")
    result = evaluate_texts(model, tokenizer, TEXTS, task="masked-lm")
    assert float(values["pseudo perplexity"].replace(",", "")) == pytest.approx(result.perplexity, abs=1e-3)
    assert values["bytes"] == str(sum(map(len, TEXTS)))


def test_targets_and_their_sources(script, here):
    assert (
        script.main(["--model", "seq2seq", "--task", "seq2seq-lm", "--dataset", "rows.jsonl", "--output", "s.json"])
        == 0
    )
    model, tokenizer = load_model("seq2seq", "seq2seq-lm")
    pairs = [(text, text[::-1]) for text in TEXTS]
    result = evaluate_texts(model, tokenizer, pairs, task="seq2seq-lm")
    found = json.loads((here / "s.json").read_text("utf-8"))["results"][0]
    assert found["loss"] == pytest.approx(result.score.loss)


def test_several_models_read_the_same_columns(script, here):
    models, columns = ["seq2seq", "./seq2seq"], ["--columns", "source"]
    output = ["--output", "several.json"]
    assert script.main(["--model", *models, "--task", "seq2seq-lm", "--dataset", "rows.jsonl", *columns, *output]) == 0
    first, second = json.loads(Path("several.json").read_text("utf-8"))["results"]
    assert first["bits_per_byte"] == second["bits_per_byte"]


def test_classes_by_name(script, here, capsys):
    pytest.importorskip("sklearn")
    options = ["--model", "classifier", "--task", "sequence-classification", "--dataset", "names.csv"]
    assert script.main([*options, "--batch-size", "2", "--output", "c.json"]) == 0
    found = json.loads((here / "c.json").read_text("utf-8"))["results"][0]
    model, tokenizer = load_model("classifier", "sequence-classification")
    classes = [
        model(**tokenizer(text, return_tensors="pt")).logits.argmax().item()
        for text in ("A mill.", "A river.", "No mill.")
    ]
    right = [0, 1, 0]
    assert found["accuracy"] == pytest.approx(sum(a == b for a, b in zip(classes, right, strict=True)) / 3)
    assert set(found["per_class"]) == {"ham", "spam"}
    assert (found["rows"], found["cut_rows"]) == (3, 0)
    assert f"{found['accuracy']:.4f}" in capsys.readouterr().out


@pytest.mark.parametrize("suffix", ["yaml", "json"])
def test_options_from_a_file(script, here, suffix, capsys):
    options = {"model": ["decoder"], "text": "text.txt", "context_length": 16, "stride": None, "overwrite": True}
    # JSON is YAML.
    Path(f"options.{suffix}").write_text(json.dumps(options), "utf-8")
    assert script.main([f"options.{suffix}"]) == 0
    from_file = capsys.readouterr().out
    assert script.main(["--model", "decoder", "--text", "text.txt", "--context-length", "16"]) == 0
    assert capsys.readouterr().out == from_file


OTHER = ["--model", "decoder", "--text", "text.txt"]
ROWS = ["--model", "decoder", "--dataset", "rows.jsonl"]
CLASSES = ["--model", "classifier", "--task", "sequence-classification"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "the following arguments are required: --model"),
        (["--model", "decoder"], "give either --text or --dataset: where"),
        ([*OTHER, "--dataset", "rows.jsonl"], "give either --text or --dataset"),
        ([*OTHER, "--strid", "4"], "unknown option --strid: did you mean --stride?"),
        (
            [*OTHER, "--task", "lm"],
            "--task lm: must be one of causal-lm, masked-lm, continuation, seq2seq-lm, sequence-classification",
        ),
        ([*OTHER, "--stride", "64"], "stride = 64: must be at least 1 and at most context_length - 1 = 63"),
        ([*CLASSES, "--dataset", "names.csv", "--stride", "4"], "--stride 4: is an option of --task causal-lm"),
        ([*OTHER, "--objective", "causal-lm", "--task", "causal-lm"], "give either --task or --objective"),
        ([*OTHER, "--objective", "lm"], "--objective lm: must be one of causal-lm, "),
        ([*OTHER, "--objective", "span-corruption"], "has no class for the task span-corruption"),
        ([*OTHER, "--objective", "causal-lm", "--context-length", "65"], "--context-length 65: the model and its"),
        ([*CLASSES, "--dataset", "names.csv", "--max-length", "0"], "--max-length 0: must be at least 1"),
        ([*OTHER, "--held-out", "0.6"], "--held-out 0.6: must be above 0 and at most 0.5"),
        ([*OTHER, "--columns", "a", "b"], "--columns a b: --task causal-lm reads one"),
        ([*ROWS, "--task", "chat"], "no column 'prompt'"),
        ([*OTHER, "--split", "test"], "--split and --dataset-config are those of a --dataset"),
        ([*OTHER, "--batch-size", "0"], "--batch-size 0: must be at least 1"),
        ([*OTHER, "--output", "missing/found.json"], "must be a file in a folder that exists"),
        ([*OTHER, "--output", "text.txt"], "--output text.txt: exists; name another file, or give --overwrite"),
        (
            ["--model", "seq2seq", "--text", "text.txt", "--task", "seq2seq-lm"],
            "the dataset has no column 'source': its columns are text",
        ),
        ([*OTHER, "--task", "masked-lm"], "'decoder' has no class for the task masked-lm"),
        (["--model", "decoder", "missing", "--text", "text.txt"], "--model missing: "),
        (["--model", "decoder", "encoder", "--text", "text.txt"], "'encoder' has no class for the task"),
        (["--model", "decoder", "decoder", "--text", "text.txt"], "a model is given twice"),
        (["--model", "decoder", "--text", "missing.txt"], "text file 'missing.txt' does not exist"),
        ([*ROWS, "--columns", "txt"], "no column 'txt': its columns are text, source, target, label, n"),
        ([*ROWS, "--columns", "n"], "text 0 is 0: texts must be strings"),
        ([*ROWS, "--split", "test"], "rows.jsonl: has no split 'test'; its splits are train"),
        (
            [*CLASSES, "--dataset", "wrong.csv"],
            "row 1 of the held-out data: label 2 is not one of the 2 classes of the model: ham, spam",
        ),
        (
            ["--model", "encoder", *CLASSES[2:], "--dataset", "names.csv"],
            "does not have 2 weights of TxEncoderForSequence",
        ),
        (["missing.yaml"], "missing.yaml"),
    ],
)
def test_bad_input_ends_before_the_first_step(script, here, capsys, monkeypatch, arguments, message):
    if CLASSES[-1] in arguments:
        pytest.importorskip("sklearn")

    def step(*args, **kwargs):
        raise AssertionError("a model was run")

    monkeypatch.setattr("hf_tx.evaluation.texts.score_rows", step)
    before = sorted(here.iterdir())
    assert script.main(arguments) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("evaluate.py: error: ")
    assert message in error
    assert sorted(here.iterdir()) == before


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[1, 2]", "it must contain names and values of options"),
        ("{", "cannot be read"),
        ('{"strid": 4}', "unknown option --strid: did you mean --stride?"),
        ('{"stride": "x"}', "--stride"),
    ],
)
def test_a_file_without_options_is_refused(script, here, capsys, content, message):
    Path("bad.json").write_text(content, "utf-8")
    assert script.main(["bad.json"]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.distributed
@pytest.mark.parametrize(
    "options",
    [
        ["--model", "decoder", "--dataset", "rows.jsonl", "--context-length", "8", "--batch-size", "2"],
        ["--model", "classifier", "--dataset", "names.csv", "--task", "sequence-classification", "--batch-size", "1"],
    ],
)
def test_two_processes_share_the_work_and_find_the_same(script, here, capsys, options):
    assert script.main([*options, "--output", "one.json", "--overwrite"]) == 0
    shown = capsys.readouterr().out.splitlines()[:2]
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    child = subprocess.run(
        [*launcher, str(FOLDER / "evaluate.py"), *options, "--output", "two.json", "--overwrite"],
        capture_output=True,
        text=True,
        env=environment(CUDA_VISIBLE_DEVICES=""),
    )
    assert child.returncode == 0, child.stderr
    assert child.stdout.splitlines()[:2] == shown, "one of two processes speaks"
    one, two = (json.loads((here / name).read_text("utf-8")) for name in ("one.json", "two.json"))
    assert (one["processes"], two["processes"]) == (1, 2)
    for name, value in one["results"][0].items():
        assert two["results"][0][name] == (pytest.approx(value, rel=1e-6) if isinstance(value, float) else value)
