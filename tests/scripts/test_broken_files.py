# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Every file that a command opens can be cut off, and weights can be pickles: one message that names it, exit code 2,
and nothing left behind."""

import json
import pickle
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from child_process import environment
from scripts.scripts import loaded
from tiny_models import build

from hf_tx.cli import main, sample
from hf_tx.hub import ComparisonRecord, RunRecord
from hf_tx.tokenization import train_tokenizer

TEXT = "The river runs past the old mill, and the miller said nothing to it. " * 30
TEMPLATE = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
CUTS: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda content: b"",
    "middle": lambda content: content[: len(content) // 2],
    "end": lambda content: content[:-4],
}
SETTINGS = ["config.json", "generation_config.json"]
TOKENIZER = ["tokenizer.json", "tokenizer_config.json", "chat_template.jinja"]
ALL = ["model.safetensors", *SETTINGS, *TOKENIZER]
DATA = ["--text", "text.txt"]

#: The arguments of each command, and the files that it opens.
COMMANDS: dict[str, tuple[list[str], list[str]]] = {
    "evaluate": (["--model", "broken", *DATA], ALL),
    "finetune": (["--model", "broken", "--task", "chat", "--dataset", "chat.jsonl", "--output", "out"], ALL),
    "distill": (["--model", "broken", "--mixers", "linear", "--output", "out", *DATA], ALL),
    "pretrain": (["--tokenizer", "broken", "--context-length", "16", "--output", "out", *DATA], TOKENIZER),
    "convert": (["convert", "broken", "out", "--to-hf", "--model-type", "llama"], ALL),
    "estimate": (["estimate", "broken", "--context", "8"], ["config.json"]),
    "check model": (["check", "model", "broken"], ["config.json"]),
    "push": (["push", "broken", "name"], ALL),
    "serve": (["serve", "broken"], ALL),
    "chat": (["chat", "http://127.0.0.1:1", "--model=broken"], ALL),
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole") / "model"
    tokenizer = train_tokenizer([TEXT], vocab_size=300, model_max_length=32, show_progress=False)
    tokenizer.chat_template = TEMPLATE
    for part in (build("decoder", head="lm", vocab_size=len(tokenizer)), tokenizer):
        part.save_pretrained(folder)
    assert all((folder / name).is_file() for name in ALL)
    return folder


@pytest.fixture(scope="module")
def commands() -> Iterator[dict[str, Callable[[list[str]], int]]]:
    with ExitStack() as stack:
        scripts = ("evaluate", "finetune", "distill", "pretrain")
        yield {name: stack.enter_context(loaded(name)).main for name in scripts}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    Path("text.txt").write_text(TEXT, "utf-8")
    turns = [{"role": role, "content": "The mill."} for role in ("user", "assistant")]
    Path("chat.jsonl").write_text((json.dumps({"messages": turns}) + "\n") * 20, "utf-8")
    return tmp_path


@pytest.mark.parametrize("command", COMMANDS)
def test_a_file_that_is_cut_off_is_named(
    command: str, whole: Path, commands: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments, files = COMMANDS[command]
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())  # serve and chat look for what they need
    for file in files:
        for where, cut in CUTS.items():
            shutil.rmtree("broken", ignore_errors=True)
            shutil.copytree(whole, "broken")
            Path("broken", file).write_bytes(cut((whole / file).read_bytes()))
            before = sorted(Path().iterdir())
            assert commands.get(command, main)(arguments) == 2, (file, where)
            message = capsys.readouterr().err.strip().splitlines()[-1]
            assert "error: " in message, (file, where)
            assert file in message, (file, where)
            assert sorted(Path().iterdir()) == before, (file, where)


class Trap:
    def __reduce__(self) -> Any:
        return Path.touch, (Path("opened"),)


@pytest.mark.parametrize("command", [name for name, (_, files) in COMMANDS.items() if files == ALL])
def test_pickles_are_not_opened(
    command: str, whole: Path, commands: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    shutil.copytree(whole, "broken")
    Path("broken", "model.safetensors").unlink()
    Path("broken", "pytorch_model.bin").write_bytes(pickle.dumps(Trap()))
    assert commands.get(command, main)(COMMANDS[command][0]) == 2
    message = capsys.readouterr().err.strip().splitlines()[-1]
    assert "no weights in safetensors, and pickles (pytorch_model.bin) can run code when they are loaded" in message
    assert not Path("opened").exists()


SAMPLE = """
import json, runpy, sys
main = runpy.run_path(sys.argv[1])["main"]
for name in json.loads(sys.argv[2]):
    print(f"{name}: {main([name, '--prompt', 'The mill'])}", flush=True)
"""


def test_a_sample_of_a_broken_checkpoint(whole: Path) -> None:
    names = []
    for file in ("config.json", "generation_config.json", "model.safetensors", "tokenizer.json"):
        for where, cut in CUTS.items():
            names.append(f"{file}-{where}")
            shutil.copytree(whole, names[-1])
            Path(names[-1], file).write_bytes(cut((whole / file).read_bytes()))
    shutil.copytree(whole, "pickled")
    Path("pickled", "model.safetensors").rename("pickled/pytorch_model.bin")
    names.append("pickled")
    command = [sys.executable, "-P", "-c", SAMPLE, sample.__file__, json.dumps(names)]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == [f"{name}: 2" for name in names], done.stderr
    assert "Traceback" not in done.stderr
    messages = [line for line in done.stderr.splitlines() if line.startswith("sample.py: error: ")]
    assert len(messages) == len(names)
    assert all(name in message for name, message in zip(names, messages, strict=True))


def test_a_run_does_not_go_on_from_a_broken_checkpoint(commands: Any, capsys: pytest.CaptureFixture[str]) -> None:
    options = {"context-length": 16, "hidden-size": 16, "num-hidden-layers": 1, "num-attention-heads": 2}
    options |= {"vocab-size": 300, "max-steps": 3, "save-steps": 2, "eval-strategy": "no", "output": "out"}
    argv = [*DATA, *(f"--{name}={value}" for name, value in options.items())]
    assert commands["pretrain"](argv) == 0
    checkpoint = Path("out/checkpoint-2")
    shutil.rmtree("out/checkpoint-3")  # so that a step is left
    opened = [
        "config.json",
        "model.safetensors",
        "trainer_state.json",
        "optimizer.pt",
        "scheduler.pt",
        "rng_state.pth",
    ]
    for file in opened:
        content = (checkpoint / file).read_bytes()
        for where, cut in CUTS.items():
            (checkpoint / file).write_bytes(cut(content))
            capsys.readouterr()
            assert commands["pretrain"]([*argv, "--resume"]) == 2, (file, where)
            printed = re.split(r"[\r\n]", capsys.readouterr().err)  # also bars of progress
            (message,) = (line for line in printed if "pretrain.py: error: " in line)
            assert str(checkpoint) in message, (file, where)
        (checkpoint / file).write_bytes(content)
    (checkpoint / "model.safetensors").rename(checkpoint / "pytorch_model.bin")
    assert commands["pretrain"]([*argv, "--resume"]) == 2
    assert "pickles (pytorch_model.bin) can run code" in capsys.readouterr().err


@pytest.mark.parametrize("suffix", ["json", "yaml"])
def test_options_that_are_cut_off(suffix: str, commands: Any, capsys: pytest.CaptureFixture[str]) -> None:
    content = b'{"model": ["model"], "text": ["text.txt"], "task": "causal-lm"}'
    for where, cut in CUTS.items():
        Path(f"options.{suffix}").write_bytes(cut(content))
        assert commands["evaluate"]([f"options.{suffix}"]) == 2, where
        assert f"'options.{suffix}' cannot be read: " in capsys.readouterr().err, where


@pytest.mark.parametrize(("kind", "name"), [(RunRecord, "run.json"), (ComparisonRecord, "comparison.json")])
def test_records_that_are_cut_off(kind: Any, name: str) -> None:
    for cut in CUTS.values():
        Path(name).write_bytes(cut(b'{"title": "A run", "data": [], "costs": []}'))
        with pytest.raises(ValueError, match=rf"{name} is not the record of a "):
            kind.load(".")
