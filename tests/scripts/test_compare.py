# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""A comparison of mixers: equal batches, a report that follows from its record alone, and refusals."""

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from huggingface_hub import ModelCard

from hf_tx.analysis.benchmark import Cost
from hf_tx.hub import ComparisonRecord, write_comparison
from hf_tx.hub.comparison import EQUAL
from hf_tx.training import TxTrainer
from hf_tx.training.comparison import Comparison

NAMES = ("Ann", "Bob", "Eve", "Sue", "Tom")
TEXT = "".join(
    f"{first} told {second} that {first} saw {second}.\n" for first in NAMES for second in NAMES for _ in "ab"
)
TINY: dict[str, Any] = {
    "text": "train",
    "eval_text": "held-out.txt",
    "other_text": "other.txt",
    "mixers": ["full", "sliding,gru"],
    "vocab_size": 300,
    "context_length": 16,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "sliding_window": 4,
    "max_steps": 4,
    "per_device_train_batch_size": 2,
    "learning_rate": [1e-2, 1e-3],
    "trial_steps": 2,
    "rounds": 2,
    "generation_context": 16,
    "disable_tqdm": True,
    "output": "out",
}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("train").mkdir()
    for name in ("one", "two"):
        Path("train", f"{name}.txt").write_text(f"{name}\n{TEXT}", "utf-8")
    Path("held-out.txt").write_text("Zoe told Ann that Zoe saw Bob.\n", "utf-8")
    Path("other.txt").write_text("The river runs past the mill.\n", "utf-8")
    return tmp_path


def argv(**changes: Any) -> list[str]:
    options = {**TINY, **changes}
    return [
        f"--{name}={each}"
        for name, value in options.items()
        for each in (value if isinstance(value, list) else [value])
        if each is not None
    ]


def test_a_comparison(script: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    batches: list[list[Any]] = []
    train, step = TxTrainer.train, TxTrainer.training_step
    monkeypatch.setattr(TxTrainer, "train", lambda self: batches.append([]) or train(self))
    monkeypatch.setattr(
        TxTrainer,
        "training_step",
        lambda self, model, inputs, *more: (
            batches[-1].append(inputs["input_ids"].tolist()) or step(self, model, inputs, *more)
        ),
    )
    assert script.main(argv(seed=[0, 1])) == 0
    record = ComparisonRecord.load("out")

    assert [(each.mixers, each.equal, each.seed) for each in record.trainings] == [
        ("full", ["data", "time"], 0),
        ("full", ["data", "time"], 1),
        ("sliding,gru", ["data"], 0),
        ("sliding,gru", ["data"], 1),
        ("sliding,gru", ["time"], 0),
        ("sliding,gru", ["time"], 1),
    ]
    tried, trained = batches[:4], batches[4:]
    assert tried[0] == tried[1] == tried[2] == tried[3]
    assert [len(each) for each in trained] == [each.steps for each in record.trainings]
    assert trained[0] == trained[2] != trained[1] == trained[3]
    shorter = min(trained[0], trained[4], key=len)
    assert trained[0][: len(shorter)] == trained[4][: len(shorter)]

    full, other = record.costs
    assert abs(other.parameters - full.parameters) <= 0.01 * full.parameters
    ratio = record.step_seconds("full") / record.step_seconds("sliding,gru")
    assert record.of("sliding,gru", "time")[0].steps == max(1, round(4 * ratio))
    assert full.training_megabytes > 0
    # Keys and values of 16 tokens in 2 layers of 16 features; of 3 tokens in one, and a state.
    assert (full.cache_bytes, other.cache_bytes) == (16 * 2 * 2 * 16 * 4, 3 * 2 * 16 * 4 + 16 * 4)
    for mixers in record.mixers:
        (best,) = {each.learning_rate for each in record.trainings if each.mixers == mixers}
        trials = {each.learning_rate: each.bits_per_byte for each in record.trials if each.mixers == mixers}
        assert trials.keys() == {1e-2, 1e-3}
        assert trials[best] == min(trials.values())

    report = Path("out/README.md").read_text("utf-8")
    card = ModelCard.load("out/README.md").data
    assert (card.license, card.language) == ("apache-2.0", None)
    for equal in EQUAL:
        for text in ("in domain", "out of domain"):
            first, second = (each.bits_per_byte[text] for each in record.of("full", equal))
            assert f"{(first + second) / 2:.3f} ± " in report
    assert f"| unigram model |  | {record.baseline['in domain']:.3f} |" in report
    assert report[report.index("| mixers") : report.index("## What they cost")].strip() in capsys.readouterr().out
    assert Path("out/comparison.png").stat().st_size > 10_000
    Path("again").mkdir()
    write_comparison("again", record)
    for name in ("README.md", "comparison.json"):
        assert Path("again", name).read_bytes() == Path("out", name).read_bytes()


def test_what_was_broken_off_goes_on(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    once = argv(language="la", learning_rate=1e-2)
    training, left = Comparison._training, [2]

    def interrupted(*arguments: Any) -> Any:
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1
        return training(*arguments)

    monkeypatch.setattr(Comparison, "_training", interrupted)
    monkeypatch.setattr("hf_tx.training.comparison.measure", lambda case: Cost(case, 1.0, 2.0))  # starts processes
    assert script.main(once) == 130
    assert [path.name for path in Path("out").iterdir()] == ["comparison.json"]
    kept = json.loads(Path("out/comparison.json").read_text("utf-8"))
    assert len(kept["trainings"]) == 2
    assert script.main(once) == 2  # not without --resume

    left[0] = 1
    assert script.main([*argv(learning_rate=1e-2, max_steps=5), "--resume"]) == 2  # another comparison
    assert script.main([*once, "--resume"]) == 0
    whole = json.loads(Path("out/comparison.json").read_text("utf-8"))
    assert whole["trainings"][:2] == kept["trainings"]
    assert whole["costs"] == kept["costs"]
    assert [training["equal"] for training in whole["trainings"]] == [["data", "time"], ["data"], ["time"]]
    assert ModelCard.load("out/README.md").data.language == ["la"]
    assert "the same for all" in Path("out/README.md").read_text("utf-8")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"eval_text": None}, "--eval-text: is missing"),
        ({"other_text": "gone.txt"}, "gone.txt"),
        ({"eval_text": "train/one.txt"}, "--eval-text: a document is in --text too"),
        ({"mixers": "full"}, "--mixers full: give at least two"),
        ({"mixers": ["full", "full"]}, "--mixers full full: a value is given twice"),
        ({"mixers": ["full", "ful"]}, "Did you mean 'full'?"),
        ({"config_changes": '{"ffn_type": "none"}'}, "no intermediate_size results in"),
        ({"config_changes": '{"position_type": "learned"}', "generation_context": 32}, "positions"),
        ({"generation_context": 8}, "--generation-context 8: must be at least 16"),
        ({"max_steps": 0}, "--max-steps 0: must be at least 1"),
        ({"per_device_train_batch_size": 4000}, "too few for a step of 4000 rows"),
        ({"resume": True}, "comparison.json"),
        ({"max_step": 3}, "unknown option --max_step: did you mean --max_steps?"),
    ],
)
def test_a_refusal_is_one_line_and_leaves_nothing_behind(
    script: ModuleType, here: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, Any], message: str
) -> None:
    before = sorted(here.rglob("*"))
    assert script.main(argv(**changes)) == 2
    *_, last = capsys.readouterr().err.strip().splitlines()
    assert last.startswith("compare.py: error: ")
    assert message in last
    assert sorted(here.rglob("*")) == before
