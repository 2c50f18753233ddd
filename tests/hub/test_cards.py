# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""A card says what the run recorded, and the Hub can read it."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import ModelCard

from hf_tx.hub import DataRecord, Result, RunRecord, check_repository, write_card


def record(**changes: Any) -> RunRecord:
    fields: dict[str, Any] = dict(
        title="small-decoder",
        summary="A decoder of addresses.",
        pipeline_tag="text-generation",
        command="hf-tx pretrain --family decoder --text addresses",
        model={"class": "TxDecoderForCausalLM", "parameters": 1234567},
        data=[DataRecord("Addresses", "public domain", "https://example.org", "249 documents")],
        training={"steps": 600, "learning rate": 0.001},
        results=[
            Result("bits_per_byte", 1.98654, "Addresses", command="evaluate A", baseline=2.617, baseline_name="u")
        ],
        seconds=171.0,
        uses=["Trying mixers."],
        limits=["It knows no facts."],
        hardware="2 CPU cores",
        versions={"hf_tx": "0.1.0"},
    )
    return RunRecord(**fields | changes)


def test_a_card_holds_all_of_the_record(tmp_path: Path) -> None:
    text = write_card(tmp_path, record()).read_text("utf-8")
    for line in (
        "# small-decoder",
        "A decoder of addresses.",
        "- Trying mixers.",
        "- It knows no facts.",
        "| parameters | 1,234,567 |",
        "| Addresses | public domain | 249 documents | https://example.org |",
        "hf-tx pretrain --family decoder --text addresses",
        "| learning rate | 0.001 |",
        "| time | 2.85 minutes |",
        "| hardware | 2 CPU cores |",
        "| Addresses, held-out | bits_per_byte | 1.987 | 2.617 (u) |",
        "evaluate A",
    ):
        assert line in text.splitlines(), line


def test_its_front_matter_is_that_of_the_hub(tmp_path: Path) -> None:
    data = ModelCard.load(write_card(tmp_path, record(base_model="owner/name"))).data
    assert (data.license, data.library_name, data.pipeline_tag) == ("apache-2.0", "transformers", "text-generation")
    assert data.base_model == "owner/name"
    assert data.eval_results[0].metric_value == 1.98654
    (tmp_path / "config.json").write_text(json.dumps({"architectures": ["Nothing"]}))
    assert [problem.rule for problem in check_repository(tmp_path)] == ["weights"]


def test_lists_without_items_have_no_heading(tmp_path: Path) -> None:
    text = write_card(tmp_path, record(uses=[], limits=[], results=[])).read_text("utf-8")
    assert "Intended use" not in text
    assert "Limits" not in text


def test_a_record_comes_back(tmp_path: Path) -> None:
    (tmp_path / "loss.png").write_bytes(b"png")
    written = record(plots={"loss.png": "loss by step"})
    assert "![loss by step](loss.png)" in write_card(tmp_path, written).read_text("utf-8")
    assert RunRecord.load(tmp_path) == written
    assert {each.name for each in dataclasses.fields(RunRecord)} == json.loads(
        (tmp_path / "run.json").read_text("utf-8")
    ).keys()


def test_what_is_no_record_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="has no file loss.png, which the record of the run names"):
        write_card(tmp_path, record(plots={"loss.png": "loss"}))
    assert not list(tmp_path.iterdir())
    record().save(tmp_path)
    stored = json.loads((tmp_path / "run.json").read_text("utf-8"))
    for changes, message in (
        (dict(colour=1), "has unknown fields: colour"),
        (dict(data=[{}]), "not the record of a"),
    ):
        (tmp_path / "run.json").write_text(json.dumps(stored | changes))
        with pytest.raises(ValueError, match=message):
            RunRecord.load(tmp_path)
