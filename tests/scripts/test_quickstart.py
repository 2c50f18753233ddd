# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""What the quickstart adds to a pre-training: a text where none is given, and samples by a process without hf_tx."""

import json
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import transformers
from child_process import environment
from scripts.scripts import FOLDER, results_of

import hf_tx
from hf_tx.cli import pretrain, sample
from hf_tx.common.packaged import SPEECHES, path_of
from hf_tx.hub import RunRecord, check_repository
from hf_tx.tokenization import train_tokenizer

TEXT = path_of(SPEECHES).read_text("utf-8")[:9_000]
TINY = [
    *("--max-steps", "2", "--context-length", "32", "--vocab-size", "400", "--max-new-tokens", "6", "--disable-tqdm"),
    *("true", "--hidden-size", "32", "--num-hidden-layers", "2", "--num-attention-heads", "2", "--seed", "3"),
]
#: The package alone does not bring matplotlib.
WITHOUT_PLOTS = """
import runpy, sys

sys.modules["matplotlib"] = None
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
ENVIRONMENT = environment(HF_HUB_OFFLINE="1")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    Path("text.txt").write_text(TEXT, "utf-8")
    return tmp_path / "work"


def processes(monkeypatch: pytest.MonkeyPatch, code: int = 0, loss: float | None = None) -> list[list[str]]:
    """Let no process start, and return the commands of those that would."""
    commands: list[list[str]] = []

    def run(command: list[str], **_: Any) -> SimpleNamespace:
        commands.append(command)
        if loss is not None:
            (found,) = (word.partition("=")[2] for word in command if word.startswith("--json="))
            Path(found).write_text(json.dumps({"loss": loss}), "utf-8")
        return SimpleNamespace(returncode=code)

    monkeypatch.setattr(pretrain.subprocess, "run", run)
    return commands


def test_without_a_text_it_learns_from_the_speeches(here: Path) -> None:
    """In a process, as a user has it: what is printed is what a card says, and a process without hf_tx has written."""
    process = subprocess.run(
        [
            sys.executable,
            "-P",
            "-c",
            WITHOUT_PLOTS,
            FOLDER / "quickstart.py",
            *TINY,
            "--context-length",
            "128",
            "--held-out",
            "0.003",
        ],
        env=ENVIRONMENT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    for word in ("Traceback", "rror", "[y/N]"):
        assert word not in process.stderr + process.stdout
    output = Path("runs/quickstart-decoder")
    assert sorted(path.name for path in here.iterdir()) == ["runs", "text.txt"]
    assert check_repository(output) == []
    record = RunRecord.load(output)
    assert record.plots == {}
    assert process.stderr.count("the losses are not plotted without matplotlib") == 1
    assert record.data[0].license == "public domain"
    # What computes the numbers again runs where the package is in another place.
    assert f"--text {SPEECHES} " in record.results[0].command
    assert str(Path(hf_tx.__file__).parent) not in (output / "README.md").read_text("utf-8")
    printed, sampled = process.stdout.split("\nin a new process without hf_tx:\n")
    for result in results_of(output).values():
        assert f"{result['value']:10.4f}" in printed
    for strategy in ("greedy", "beam", "temperature", "top-k", "top-p", "repetition penalty"):
        assert f"[{strategy}: " in sampled
    prompt = sampled.partition("prompt: ")[2].partition("\n")[0]
    assert len(prompt) > 5
    assert prompt in path_of(SPEECHES).read_text("utf-8")[-9_000:]
    losses = re.search(r"loss of 2 held-out rows there: ([\d.]+), and ([\d.]+) here", sampled)
    assert losses is not None
    assert float(losses[1]) == pytest.approx(float(losses[2]), rel=1e-5)


def test_an_encoder_fills_in(script: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    commands, prompt = processes(monkeypatch, code=1), "My fellow [MASK], thank you."
    given = ["--text", "text.txt", "--output", "out", "--family", "encoder"]
    assert script.main([*TINY, *given, "--prompt", prompt]) == 1
    assert f"--prompt={prompt}" in commands[0]
    model = transformers.AutoModelForMaskedLM.from_pretrained("out")
    (found,) = sample.fill_in(model, transformers.AutoTokenizer.from_pretrained("out"), [prompt])
    assert len(found["text"]) == 5


@pytest.mark.parametrize(
    ("objective", "marks"), [("span-corruption", "<extra_id_0>"), ("continuation", ""), ("denoising", "")]
)
def test_prompts_of_encoder_decoders(script: Any, monkeypatch: pytest.MonkeyPatch, objective: str, marks: str) -> None:
    commands = processes(monkeypatch, code=1)
    given = ["--text", "text.txt", "--family", "encoder-decoder", "--objective", objective, "--vocab-size", "420"]
    assert script.main([*TINY, *given]) == 1
    assert Path("runs/quickstart-encoder-decoder/model.safetensors").exists()
    (prompt,) = (word.partition("=")[2] for word in commands[0] if word.startswith("--prompt="))
    assert len(prompt) > 5
    assert marks in prompt
    measured = results_of("runs/quickstart-encoder-decoder")
    assert ("bits_per_byte" in measured) == (objective == "continuation")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--text", "missing.txt"], "text file 'missing.txt' does not exist"),
        (["--text", "hf_tx:nothing"], "hf_tx:nothing: no such text comes with hf_tx"),
        (["--prompt", "short", "word " * 40], "tokens, which leaves no room in a context of 32"),
        (["--family", "encoder", "--prompt", "no mask"], "--prompt 'no mask': must have exactly one [MASK]"),
        (["--no-samples", "--prompt", "a"], "--prompt: is an option of --samples"),
        (["--max-new-tokens", "0"], "--max-new-tokens 0: must be at least 1"),
        (["--mixers", "full", "--sliding-window", "4"], "no layer has a window"),
        (["--encoder-mixers", "full"], "--encoder-mixers: --family decoder has no such stack"),
        (["--steps", "3"], "unknown option --steps: use --max-steps"),
    ],
)
def test_a_refusal_is_one_line_and_leaves_nothing_behind(
    script: Any, here: Path, capfd: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    given = arguments if "--text" in arguments else ["--text", "text.txt", *arguments]
    assert script.main([*TINY, *given]) == 2
    *_, last = capfd.readouterr().err.strip().splitlines()
    assert last.startswith("quickstart.py: error: ")
    assert message in last
    assert [path.name for path in here.iterdir()] == ["text.txt"]


@pytest.mark.parametrize("code", [0, 1])
def test_a_model_that_is_not_as_it_was_trained_is_told(
    script: Any, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], code: int
) -> None:
    processes(monkeypatch, code, loss=1.0)
    assert script.main([*TINY, "--text", "text.txt", "--mixers", "sliding", "--sliding-window", "5"]) == 1
    output = "runs/quickstart-decoder"
    message = "does not load and write in a new process" if code else "has the loss 1.0 on held-out rows, the trained"
    assert f"quickstart.py: error: the model in {output} {message}" in capfd.readouterr().err
    model = transformers.AutoModelForCausalLM.from_pretrained(output)
    assert (model.config.sliding_window, model.config.use_cache) == (5, True)


def test_ctrl_c_after_training_leaves_the_model(
    script: Any, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(pretrain.subprocess, "run", interrupted)
    assert script.main([*TINY, "--text", "text.txt", "--output", "out"]) == 130
    assert capfd.readouterr().err.endswith("quickstart.py: interrupted; the trained model is in out\n")
    assert check_repository("out") == []


def test_samples_are_written_without_hf_tx() -> None:
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
