# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
import json
import math
import re
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import transformers
from child_process import environment
from scripts.scripts import FOLDER
from transformers.utils import logging

import hf_tx
from hf_tx.evaluation import UnigramModel
from hf_tx.tokenization import train_tokenizer
from hf_tx.training import RECIPES, encode_documents, split_documents

TEXT = (FOLDER / "data" / "state_of_the_union.txt").read_text(encoding="utf-8")[:30_000]
TINY = [
    *("--steps", "4", "--batch-size", "4", "--context-length", "32", "--vocab-size", "400", "--max-new-tokens", "6"),
    *("--hidden-size", "32", "--num-hidden-layers", "2", "--num-attention-heads", "2"),
]
#: What the run of each family adds to that.
MORE = {
    "decoder": ["--attn-implementation", "eager"],
    "encoder": ["--seed", "3"],
    "encoder-decoder": ["--mixers", "sliding,full", "--encoder-mixers", "full", "--sliding-window", "5"],
}
ENVIRONMENT = environment(HF_HUB_OFFLINE="1")


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A working directory with a text, whose name a run need not give."""
    (tmp_path / "text.txt").write_text(TEXT, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    logging.enable_progress_bar()


@pytest.fixture(scope="module", params=list(RECIPES))
def finished(request, tmp_path_factory):
    """A run of each family: family, folder that it ran in, and the process."""
    folder = tmp_path_factory.mktemp(request.param)
    (folder / "text.txt").write_text(TEXT, encoding="utf-8")
    command = [sys.executable, FOLDER / "quickstart.py", "--text", "text.txt", "--family", request.param]
    process = subprocess.run(
        [*command, *TINY, *MORE[request.param]],
        cwd=folder,
        env=ENVIRONMENT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    return request.param, folder, process


def results_of(folder: Path) -> dict:
    return json.loads((folder / "results.json").read_text("utf-8"))


def listed(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_it_tells_what_it_does_and_leaves_nothing_else(finished):
    family, folder, process = finished
    assert {path.name for path in folder.iterdir()} == {"text.txt", "runs"}
    assert [path.name for path in (folder / "runs").iterdir()] == [f"quickstart-{family}"]
    assert not [name for name in listed(folder) if "pycache" in name or "/." in name]
    # Progress bars, and nothing that asks for attention.
    assert "4/4" in process.stderr
    for word in ("Traceback", "Warning", "[transformers]", "rror"):
        assert word not in process.stderr
    assert "[y/N]" not in process.stdout
    lines = process.stdout.splitlines()
    assert lines[0] == f"text          {len(TEXT.encode()):,} bytes, the last {sum_of_held_out():,} of them held out"
    assert lines[-1] == f"saved to      {folder.resolve() / 'runs' / f'quickstart-{family}'}"
    assert any(line.split() == ["model", "unigram"] for line in lines)


def sum_of_held_out() -> int:
    return len("".join(split_documents([TEXT], 0.1)[1]).encode())


def test_what_it_measured_is_what_the_checkpoint_gives(finished):
    family, folder, process = finished
    output = folder / "runs" / f"quickstart-{family}"
    results = results_of(output)
    recipe_class = RECIPES[family]
    model = recipe_class.auto_class.from_pretrained(output)
    tokenizer = transformers.AutoTokenizer.from_pretrained(output)
    recipe = recipe_class(tokenizer, 32)
    train, held_out = (encode_documents(tokenizer, part) for part in split_documents([TEXT], 0.1))
    unigram = UnigramModel([document.token_ids for document in train], len(tokenizer))
    measured = recipe.measure(model, unigram, held_out, batch_size=4)
    found = results["held_out"]
    assert found["tokens"] == measured.model.num_tokens
    assert found["bytes"] == (None if family == "encoder" else sum_of_held_out())
    assert set(found["model"]) == {"loss", "perplexity", "accuracy" if family == "encoder" else "bits_per_byte"}
    for name in ("model", "unigram"):
        assert found[name] == pytest.approx(measured.as_dict()[name], rel=1e-5)
        for value in found[name].values():
            assert f"{value:.3f}" in process.stdout
    transformers.set_seed(results["arguments"]["seed"])
    untrained = recipe.measure(recipe_class.auto_class.from_config(model.config), unigram, held_out, batch_size=4)
    assert found["unigram"]["loss"] < found["model"]["loss"] < untrained.model.loss - 0.01


def test_the_fresh_process_had_the_code_of_the_checkpoint_and_the_same_loss(finished):
    family, folder, process = finished
    results = results_of(folder / "runs" / f"quickstart-{family}")
    reloaded = results["reloaded"]
    assert reloaded["model_class"].startswith("transformers_modules.")
    assert reloaded["loss"] == pytest.approx(reloaded["loss_before_saving"], rel=1e-5)
    assert 1 < reloaded["loss"] < 7
    samples = results["samples"]
    if family == "encoder":
        assert len(samples) == 3
        assert all(len(sample["text"]) == 5 for sample in samples)
        assert all("[MASK]" in sample["prompt"] for sample in samples)
    else:
        strategies = ["greedy", "beam", "temperature", "top-k", "top-p", "repetition penalty"]
        assert [sample["strategy"] for sample in samples] == strategies
        assert len({sample["text"] for sample in samples}) > 2
    assert all(sample["prompt"] in process.stdout for sample in samples)


def test_the_checkpoint_is_what_was_asked_for(finished):
    family, folder, _ = finished
    output = folder / "runs" / f"quickstart-{family}"
    config = transformers.AutoConfig.from_pretrained(output)
    tokenizer = transformers.AutoTokenizer.from_pretrained(output)
    assert (len(tokenizer), tokenizer.model_max_length) == (400, 32)
    assert config.vocab_size == 400
    assert results_of(output)["arguments"]["steps"] == 4
    if family == "encoder-decoder":
        assert (config.encoder.mixers, config.encoder.sliding_window) == (["full", "full"], None)
        assert (config.decoder.mixers, config.decoder.sliding_window) == (["sliding", "full"], 5)
    if family != "encoder":
        # The Trainer turns it off.
        assert config.use_cache
    if family == "decoder":
        assert tokenizer("a b").input_ids[0] == config.bos_token_id


def quickstart(script, *arguments: object, **changes: object) -> int:
    return script.main(["--text", "text.txt", "--output", "out", *TINY, *map(str, arguments)])


@pytest.fixture
def without_reload(script, monkeypatch):
    """Leaves the fresh process out, which other tests start."""
    monkeypatch.setattr(script, "load_elsewhere", lambda *_: {"samples": [], "loss": 0.0, "loss_before_saving": 0.0})


@pytest.mark.parametrize("family", list(RECIPES))
def test_the_same_seed_gives_the_same_model(script, here, without_reload, family):
    found = []
    for seed in (1, 1, 2):
        assert quickstart(script, "--family", family, "--seed", seed, "--overwrite") == 0
        found.append((results_of(Path("out"))["held_out"], Path("out/model.safetensors").read_bytes()))
    assert found[0] == found[1]
    assert found[0][1] != found[2][1]
    # What is measured is the same, whatever the seed.
    assert found[0][0]["unigram"] == found[2][0]["unigram"]
    assert found[0][0]["tokens"] == found[2][0]["tokens"]


def test_texts_are_given_together_or_one_after_another(script, here):
    for given in (["a", "b"], ["a", "--text", "b"]):
        assert script.parse(["--text", *given]).text == ["a", "b"]


def test_held_out_text_has_no_part_in_training(script, here, without_reload):
    (here / "text.txt").write_text(TEXT + "\n" + "qqqq zzzz\n" * 300, encoding="utf-8")
    assert quickstart(script) == 0
    vocabulary = transformers.AutoTokenizer.from_pretrained("out").get_vocab()
    assert not [token for token in vocabulary if "qq" in token or "zz" in token]
    held_out = results_of(Path("out"))["held_out"]
    # Of the unigram model, too: letters that it saw rarely or never.
    assert held_out["unigram"]["loss"] > math.log(400)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--text", "missing.txt"], "text file 'missing.txt' does not exist"),
        (["--text", "empty.txt"], "text file 'empty.txt' is empty"),
        (["--text", "binary.bin"], "'binary.bin' is not UTF-8 text: a NUL byte at byte offset 4"),
        (["--text", "latin.txt"], "'latin.txt' is not UTF-8 text"),
        (["--text", "nothing"], "has no *.txt file"),
        (["--text", "tiny.txt"], "too little text: 5 bytes, where 320 are the least"),
        (["--context-length", "2048"], "too little text: 30,"),
        (["--mixers", "slidding"], "unknown mixer 'slidding'. Did you mean 'sliding'?"),
        (["--mixers", "sliding", "--sliding-window", "0"], "error: sliding_window = 0: must be above 0"),
        (["--mixers", "full*x"], "'full*x' is not 'name' or 'name*count'"),
        (["--sliding-window", "4"], "no layer has a window"),
        (["--encoder-mixers", "full"], "--family decoder has one stack"),
        (["--hidden-size", "33"], "hidden_size = 33: must be a multiple of num_attention_heads = 2"),
        (["--attn-implementation", "sdpaa"], "sdpaa"),
        (["--attn-implementation", "flex_attention"], "flex_attention' has no backward pass on CPU"),
        (["--vocab-size", "100"], "vocab_size=100 is too small"),
        (["--family", "encoders"], "invalid choice: 'encoders'"),
        (["--steps", "0"], "--steps 0: must be at least 1"),
        (["--steps", "many"], "argument --steps: invalid int value: 'many'"),
        (["--batch-size", "0"], "--batch-size 0: must be at least 1"),
        (["--context-length", "4"], "--context-length 4: must be at least 8"),
        (["--learning-rate", "nan"], "--learning-rate nan: must be above 0"),
        (["--held-out", "0.7"], "--held-out 0.7: must be above 0 and at most 0.5"),
        (["--step-size", "3"], "--step-size"),
        (["--prompt", "short", "word " * 40], "tokens leave no room in --context-length 32"),
        (
            ["--family", "encoder", "--prompt", "no mask"],
            "--prompt 'no mask': exactly one [MASK] says what to fill in",
        ),
        (["--output", "text.txt"], "text.txt' is a file, not a folder"),
        (["--output", "full"], "full' is not empty: choose another, or allow it to be replaced (--overwrite)"),
        (["--output", "mine", "--overwrite"], "mine' holds more than a checkpoint (diary.txt)"),
    ],
)
def test_what_does_not_serve_writes_nothing(script, here, capfd, monkeypatch, arguments, message):
    if "flex_attention" in arguments and torch.cuda.is_available():
        pytest.skip("flex_attention trains on a GPU")
    Path("empty.txt").touch()
    Path("binary.bin").write_bytes(b"\x7fELF\0\0" * 1000)
    Path("latin.txt").write_bytes(b"abc\xe9 def\n" * 1000)
    Path("tiny.txt").write_bytes(b"tiny\n")
    Path("nothing").mkdir()
    for folder, file in (("full", "config.json"), ("mine", "diary.txt")):
        Path(folder).mkdir()
        Path(folder, file).touch()
    before = listed(here)
    # Only the last of an option counts, but texts are collected.
    given = arguments if "--text" in arguments else ["--text", "text.txt", *arguments]
    assert script.main(["--output", "new/out", *TINY, *given]) == 2
    printed = capfd.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("quickstart.py: error: ")
    assert printed.err.count("\n") == 1, printed.err
    assert message in printed.err
    assert listed(here) == before


def test_too_little_text_says_how_much_is_enough(script, here, capfd, without_reload):
    assert quickstart(script, "--context-length", 2048) == 2
    message = capfd.readouterr().err
    enough = int(message.partition("give about ")[2].partition(" bytes")[0].replace(",", ""))
    (here / "text.txt").write_text((TEXT * (enough // len(TEXT) + 1))[:enough], encoding="utf-8")
    assert quickstart(script, "--context-length", 2048, "--steps", 1, "--batch-size", 1) == 0


def test_the_process_ends_with_code_2_and_one_line(here):
    process = subprocess.run(
        [sys.executable, FOLDER / "quickstart.py", "--text", "missing.txt"],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 2
    assert process.stdout == ""
    assert process.stderr == "quickstart.py: error: text file 'missing.txt' does not exist\n"
    assert listed(here) == ["text.txt"]


def test_several_processes_are_refused(script, here, monkeypatch, capfd):
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert quickstart(script) == 2
    assert "runs in one process" in capfd.readouterr().err


def test_weights_that_are_not_finite_are_not_saved(script, here, capfd):
    assert quickstart(script, "--learning-rate", "1e30") == 2
    assert "training diverged, and nothing was saved: lower --learning-rate" in capfd.readouterr().err
    assert listed(here) == ["text.txt"]


def test_ctrl_c_leaves_a_checkpoint_that_loads(here):
    command = [sys.executable, FOLDER / "quickstart.py", "--text", "text.txt", "--output", "out", *TINY]
    process = subprocess.Popen(
        [*command, "--steps", "100000"],
        env={**ENVIRONMENT, "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        bar = ""
        while not re.search(r"[1-9]\d*/100000", bar):  # the first steps are done
            read = process.stderr.read(1)
            assert read, bar
            bar += read
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 130
    last = error.splitlines()[-1]
    assert last.startswith("quickstart.py: interrupted; the model after ")
    assert last.endswith(f" steps is in {here.resolve() / 'out'}")
    assert 1 <= int(last.partition("after ")[2].split()[0]) < 100000
    assert "Traceback" not in error
    assert {path.name for path in here.iterdir()} == {"text.txt", "out"}
    assert not Path("out/results.json").exists()
    model = transformers.AutoModelForCausalLM.from_pretrained("out")
    tokenizer = transformers.AutoTokenizer.from_pretrained("out")
    tokens = model.generate(**tokenizer("My fellow", return_tensors="pt"), max_new_tokens=3, do_sample=False)
    assert tokens.shape[1] == len(tokenizer("My fellow").input_ids) + 3


def test_ctrl_c_before_training_leaves_nothing(script, here, monkeypatch, capfd):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(script, "train_tokenizer", interrupted)
    assert quickstart(script) == 130
    assert capfd.readouterr().err == "quickstart.py: interrupted, nothing was saved\n"
    assert listed(here) == ["text.txt"]


def test_ctrl_c_after_training_leaves_the_checkpoint(script, here, monkeypatch, capfd):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(script, "load_elsewhere", interrupted)
    assert quickstart(script) == 130
    assert capfd.readouterr().err.endswith(
        f"quickstart.py: interrupted; the trained model is in {here.resolve() / 'out'}\n"
    )
    assert transformers.AutoModelForCausalLM.from_pretrained("out").config.vocab_size == 400


@pytest.mark.parametrize("code", [0, 1])
def test_a_checkpoint_that_does_not_serve_is_told(script, here, monkeypatch, capfd, code):
    def run(command, **_):
        (found,) = (word.partition("=")[2] for word in command if word.startswith("--json="))
        Path(found).write_text(json.dumps({"loss": 1.0, "samples": []}))
        return SimpleNamespace(returncode=code)

    monkeypatch.setattr(script.subprocess, "run", run)
    assert quickstart(script) == 1
    message = "does not serve in a fresh process" if code else "has the loss 1.0, the model "
    assert message in capfd.readouterr().err
    assert not Path("out/results.json").exists()


def test_samples_are_written_without_hf_tx(here):
    """A checkpoint whose code imports hf_tx does not load, although hf_tx is on the path."""
    tokenizer = train_tokenizer([TEXT], vocab_size=300, show_progress=False)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    hf_tx.TxDecoderForCausalLM(hf_tx.TxDecoderConfig(vocab_size=len(tokenizer), **sizes)).save_pretrained("out")
    tokenizer.save_pretrained("out")
    with open("out/modeling_decoder.py", "a", encoding="utf-8") as file:
        file.write("\nimport hf_tx\n")
    process = subprocess.run(
        [sys.executable, FOLDER / "sample.py", "out", "--prompt", "My fellow"],
        env=ENVIRONMENT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 2, process.stdout
    last = process.stderr.splitlines()[-1]
    assert last == "sample.py: error: importing hf_tx is blocked here: a checkpoint must load without it"
