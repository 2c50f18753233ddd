# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""The commands of the README, in their order, from raw text to a model that others load from the Hub."""

import csv
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from child_process import environment
from hub.server import TOKEN, USER, Hub, running_hub
from scripts.scripts import FOLDER, results_of
from transformers import AutoTokenizer

import hf_tx

SECTION = "## Train, evaluate and share\n"
#: What the test adds to the commands: small sizes, and a file for what is found.
SIZES = "--hidden-size 32 --num-hidden-layers 1 --num-attention-heads 2 --context-length 32"
STEPS = "--max-steps 6 --learning-rate 0.01"
ADDED = {
    "train-tokenizer": "--vocab-size 200",
    "pretrain": f"{SIZES} {STEPS}",
    "finetune": STEPS,
    "evaluate": "--output found.json",
}
LOAD = """
import json, torch
with torch.no_grad():
    ids = torch.tensor([json.load(open("ids.json"))])
    logits = classify.model(ids).logits.tolist()
json.dump(logits, open("logits.json", "w"))
"""
#: Runs the commands, and writes what each of them prints.
COMMANDS = """
import contextlib, io, json, sys
from hf_tx.cli import main
printed = {}
for words in json.loads(sys.argv[1]):
    with contextlib.redirect_stdout(io.StringIO()) as output:
        assert main(words) == 0, words
    printed[words[0]] = output.getvalue()
json.dump(printed, open("printed.json", "w"))
"""
BLOCK = "import sys, remote_code; sys.meta_path.insert(0, remote_code.Block())\n"


def section() -> tuple[list[str], str]:
    """The commands, and the code that loads what they have pushed."""
    readme = FOLDER.parent / "README.md"
    text = readme.read_text("utf-8").partition(SECTION)[2].partition("\n## ")[0]
    (commands,), (code,) = (
        re.findall(rf"^```{language}[^\n]*\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)
        for language in ("bash", "python")
    )
    return commands.splitlines(), code


def run(words: list[str], folder: Path, hub: Hub, home: str = "home") -> str:
    """Run python in a process whose Hub is that of the test, and return what it prints."""
    own = {"HF_ENDPOINT": hub.endpoint, "HF_TOKEN": TOKEN, "HF_HUB_OFFLINE": "0", "HF_HUB_DISABLE_XET": "1"}
    env = environment(**own, HF_HOME=home)
    done = subprocess.run([sys.executable, *words], cwd=folder, env=env, capture_output=True, text=True)
    assert done.returncode == 0, f"{shlex.join(words)}\n{done.stderr[-3000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Hub, dict[str, str]]]:
    """What the commands leave behind: a folder, a Hub, and what each of them printed."""
    folder = tmp_path_factory.mktemp("sequence")
    lines = [f"The {what} was {how}, and so was the {other}." for what in THINGS for how in WORDS for other in THINGS]
    (folder / "my-text.txt").write_text("\n".join(lines), "utf-8")
    with open(folder / "reviews.csv", "w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["text", "label"])
        rows.writerows([line, next(label for word, label in WORDS.items() if word in line)] for line in lines)
    commands = []
    for command in section()[0]:
        program, *words = shlex.split(command)
        assert program == "hf-tx"
        commands.append([*words, *shlex.split(ADDED.get(words[0], ""))])
    with running_hub() as hub:
        run(["-c", COMMANDS, json.dumps(commands)], folder, hub)
        printed = json.loads((folder / "printed.json").read_text("utf-8"))
        yield folder, hub, printed


THINGS = ("food", "room", "view", "staff", "bread", "garden")
WORDS = {"good": "positive", "lovely": "positive", "bad": "negative", "awful": "negative"}


def test_every_step_says_what_it_has_made(done: Any) -> None:
    folder, hub, printed = done
    assert list(printed) == [*ADDED, "check", "push"]
    for script, output in zip(ADDED, ("my-tokenizer", "my-encoder", "my-classifier", "found.json"), strict=True):
        assert re.search(rf"saved to +\S*{output}", printed[script]), printed[script]
    assert (
        printed["check"] == "my-classifier: no problems in files, weights, code and card; no secrets and no pickles.\n"
    )
    assert printed["push"].startswith(f"{hub.endpoint}/{USER}/my-classifier/commit/")


def test_a_step_takes_what_the_one_before_has_made(done: Any) -> None:
    folder, _, _ = done
    vocabularies = [
        AutoTokenizer.from_pretrained(folder / name).get_vocab()
        for name in ("my-tokenizer", "my-encoder", "my-classifier")
    ]
    assert vocabularies[0] == vocabularies[1] == vocabularies[2]
    encoder, classifier = (
        json.loads((folder / name / "config.json").read_text("utf-8")) for name in ("my-encoder", "my-classifier")
    )
    assert encoder["hidden_size"] == classifier["hidden_size"] == 32
    assert sorted(classifier["label2id"]) == ["negative", "positive"]


def test_the_evaluation_finds_the_numbers_of_the_card(done: Any) -> None:
    folder, _, _ = done
    (found,) = json.loads((folder / "found.json").read_text("utf-8"))["results"]
    card = (folder / "my-classifier" / "README.md").read_text("utf-8")
    results = results_of(folder / "my-classifier")
    assert {"accuracy", "f1_macro", "loss"} <= results.keys()
    for metric, result in results.items():
        assert found[metric] == pytest.approx(result["value"], rel=1e-6), metric
        assert f"| {metric} | {result['value']:.4g} |" in card
        assert result["command"] in card


@pytest.mark.parametrize("with_hf_tx", [True, False])
def test_it_is_loaded_elsewhere_by_its_name(with_hf_tx: bool, done: Any, tmp_path: Path) -> None:
    folder, hub, _ = done
    ((name, repository),) = hub.repositories.items()
    assert not [file for file in repository.files if file.startswith(("checkpoint", "_")) or file.endswith(".bin")]
    code = section()[1].replace("my-name/my-classifier", name)
    if with_hf_tx:
        code = "import hf_tx\n" + code.replace(", trust_remote_code=True", "")
    tokenizer = AutoTokenizer.from_pretrained(folder / "my-classifier")
    ids = tokenizer("All of it was good.")["input_ids"]
    (tmp_path / "ids.json").write_text(json.dumps(ids))
    printed = run(["-c", ("" if with_hf_tx else BLOCK) + code + LOAD], tmp_path, hub)
    assert re.match(r"\[\{'label': '(positive|negative)', 'score': 0\.\d+\}\]\n", printed)
    local = hf_tx.TxEncoderForSequenceClassification.from_pretrained(folder / "my-classifier").eval()
    with torch.no_grad():
        assert json.loads((tmp_path / "logits.json").read_text()) == local(torch.tensor([ids])).logits.tolist()
