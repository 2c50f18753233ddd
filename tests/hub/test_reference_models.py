# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""The cards in model_cards/ are what hf_tx.hub writes from their records, and the README's table is made of them."""

import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from huggingface_hub import ModelCard
from scripts.scripts import loaded

from hf_tx.cli.arguments import parse_options
from hf_tx.hub import ComparisonRecord, DataRecord, Result, RunRecord, write_card, write_comparison
from hf_tx.training.comparison import ComparisonArguments
from hf_tx.training.finetuning import FinetuningArguments, FinetuningOptions
from hf_tx.training.pretraining import PretrainingArguments, PretrainingOptions

ROOT = Path(__file__).parents[2]
OPTIONS: dict[str, Any] = {
    "pretrain": (PretrainingArguments, PretrainingOptions),
    "finetune": (FinetuningArguments, FinetuningOptions),
}


@pytest.fixture(scope="module")
def script() -> Iterator[ModuleType]:
    with loaded("reference_models") as module:
        yield module


def check(folder: Path, scratch: Path, parent: Path = ROOT) -> None:
    """Assert that a card is right: one that was changed by hand, or whose command does not run, is not."""
    record = RunRecord.load(folder)
    scratch.mkdir(parents=True)
    for plot in record.plots:
        shutil.copyfile(folder / plot, scratch / plot)
    write_card(scratch, record)
    for name in ("README.md", "run.json"):
        assert (folder / name).read_bytes() == (scratch / name).read_bytes(), f"{folder / name}: was changed by hand"
    left = {path.name for path in folder.iterdir()} - {"README.md", "run.json", *record.plots}
    assert not left, f"{folder}: {left} belong to no card"
    card = ModelCard.load(folder / "README.md").data
    assert (card.library_name, card.pipeline_tag, card.model_name) == (
        "transformers",
        record.pipeline_tag,
        record.title,
    )
    assert [found.metric_value for found in card.eval_results] == [result.value for result in record.results]
    program, command, settings = shlex.split(record.command)
    assert program == "hf-tx"
    arguments, _ = parse_options(OPTIONS[command], [str(parent / settings)])
    assert arguments.output == f"runs/{folder.name}"
    assert settings == f"scripts/reference/{folder.name}.yaml"


@pytest.fixture
def card(tmp_path: Path) -> Path:
    """A card of the decoder, as a run would leave it."""
    folder = tmp_path / "runs" / "decoder"
    folder.mkdir(parents=True)
    (folder / "loss.png").write_bytes(b"png")
    record = RunRecord(
        title="A decoder",
        summary="It goes on.",
        pipeline_tag="text-generation",
        command="hf-tx pretrain scripts/reference/decoder.yaml",
        model={"parameters": 1234567},
        data=[DataRecord("Addresses", "public domain")],
        training={"steps": 600},
        results=[
            Result("loss", 4.5, "Addresses"),
            Result("bits_per_byte", 1.98654, "Addresses", baseline=2.617, baseline_name="unigram model"),
            Result("bits_per_byte", 2.5, "Moby Dick", "another domain"),
        ],
        seconds=171.0,
        plots={"loss.png": "the losses by step"},
    )
    write_card(folder, record)
    (folder / "model.safetensors").write_bytes(b"weights")
    return folder


def test_the_committed_cards_are_those_of_their_records(script: ModuleType, tmp_path: Path) -> None:
    """If this fails: `python scripts/reference_models.py` after the runs."""
    for name in script.MODELS:
        if (script.CARDS / name).is_dir():
            check(script.CARDS / name, tmp_path / name)
    readme = script.README.read_text("utf-8")
    assert script.with_table(readme) == readme


def test_the_comparison_is_what_its_record_says(script: ModuleType, tmp_path: Path) -> None:
    folder = ROOT / "model_cards" / "mixers"
    settings = ROOT / "scripts" / "reference" / "mixers.yaml"
    record, arguments = ComparisonRecord.load(folder), parse_options(ComparisonArguments, [str(settings)])
    assert record.command == f"hf-tx compare {settings.relative_to(ROOT)}"
    assert (record.mixers, arguments.output) == (arguments.mixers, "runs/mixers")
    run = tmp_path / "runs" / "mixers"
    run.mkdir(parents=True)
    record.save(run)
    with pytest.raises(FileNotFoundError, match="holds no README.md, which a run writes at its end"):
        script.collect(run, tmp_path)  # it was broken off
    write_comparison(run, record)
    made = script.collect(run, tmp_path)
    for path in folder.iterdir():
        if path.suffix != ".png":
            assert path.read_bytes() == (made / path.name).read_bytes(), f"{path}: was changed by hand"
    assert {path.name for path in folder.iterdir()} == {path.name for path in made.iterdir()}


def test_the_settings_are_those_of_the_models(script: ModuleType) -> None:
    folder = ROOT / "scripts" / "reference"
    assert {path.stem for path in folder.iterdir()} == {*script.MODELS, script.COMPARISON}
    for path in (folder / f"{name}.yaml" for name in script.MODELS):
        (command,) = {line for line in path.read_text("utf-8").splitlines() if "hf-tx " in line}
        name = command.split()[-2]
        assert command.split()[-1] == f"scripts/reference/{path.name}"
        arguments, _ = parse_options(OPTIONS[name], [str(path)])
        assert arguments.output == f"runs/{path.stem}"
        if name == "finetune":
            assert Path(arguments.model).name in script.MODELS[: script.MODELS.index(path.stem)]


def test_a_card_is_taken_without_the_weights(script: ModuleType, card: Path, tmp_path: Path) -> None:
    folder = script.collect(card, tmp_path / "cards")
    assert sorted(path.name for path in folder.iterdir()) == ["README.md", "loss.png", "run.json"]
    check(folder, tmp_path / "scratch")
    (row, other) = script.table(tmp_path / "cards").splitlines()[2:]
    assert row == (
        "| [decoder](model_cards/decoder/README.md) | 1.2 M | 2.9 min | bits per byte, Addresses (held-out) | 1.987 "
        "| 2.617 (unigram model) |"
    )
    assert other == "|  |  |  | bits per byte, Moby Dick (another domain) | 2.500 |  |"


@pytest.mark.parametrize(
    "change",
    [
        lambda folder: _replace(folder / "README.md", "1.987", "1.887"),
        lambda folder: _replace(folder / "run.json", "1.98654", "1.88654"),
        lambda folder: _replace(folder / "run.json", "decoder.yaml", "encoder.yaml"),
        lambda folder: (folder / "loss.png").unlink(),
        lambda folder: (folder / "model.safetensors").write_bytes(b"weights"),
    ],
    ids=["card", "record", "command", "plot", "weights"],
)
def test_a_card_that_was_changed_by_hand_shows(script: ModuleType, card: Path, tmp_path: Path, change: Any) -> None:
    folder = script.collect(card, tmp_path / "cards")
    change(folder)
    with pytest.raises((AssertionError, FileNotFoundError)):
        check(folder, tmp_path / "scratch")


def test_a_number_in_the_table_is_that_of_the_cards(script: ModuleType, card: Path, tmp_path: Path) -> None:
    script.collect(card, tmp_path / "cards")
    readme = script.with_table(f"# Readme\n{script.BEGIN}old\n{script.END}after\n", tmp_path / "cards")
    assert readme.startswith("# Readme\n")
    assert readme.endswith("after\n")
    assert "old" not in readme
    assert script.with_table(readme, tmp_path / "cards") == readme
    assert script.with_table(readme.replace("1.987", "1.887"), tmp_path / "cards") == readme
    with pytest.raises(ValueError, match="has no place for the table"):
        script.with_table("# Readme", tmp_path / "cards")


def test_what_has_not_run_is_refused(
    script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(script, "README", tmp_path / "README.md")
    for names, message in (("decoder", "holds no run.json"), ("lstm", "lstm: is no reference model; they are dec")):
        assert script.main(["--names", names, "--runs", str(tmp_path)]) == 2
        assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def _replace(path: Path, old: str, new: str) -> None:
    text = path.read_text("utf-8")
    assert old in text
    path.write_text(text.replace(old, new), "utf-8")
