# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""`hf-tx check`: the table, and the exit codes."""

from pathlib import Path

import pytest
from transformers import LlamaConfig, LlamaForCausalLM

from hf_tx.cli import main


def test_a_mixer_that_is_right(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "mixer", "chunked", "--fast", "--settings", '{"options": {"chunk_size": 3}}']) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["check", "result", "seconds", "message"]
    table = {line.split()[0]: line.split()[1] for line in lines[1:-1]}
    assert table["reference_forward"] == "ok"
    assert "compilation" not in table
    assert lines[-1] == f"mixer chunked: {len(table)} ok"


def test_norms_and_feed_forward_layers(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "norm", "dyt", "--fast", "--settings", '{"options": {"alpha": 2.0}}']) == 0
    assert "equals_reference" in capsys.readouterr().out
    assert main(["check", "feed-forward", "mlp", "--fast"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[-1] == f"feed-forward mlp: {len(out) - 2} ok"


def test_an_expected_failure_that_passes_is_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "position", "none", "--expect", "order_matters=it has none"]) == 1
    out = capsys.readouterr().out
    assert "failed" in next(line for line in out.splitlines() if line.startswith("order_matters"))
    assert out.splitlines()[-1].endswith("1 failed")


def _llama(folder: Path) -> str:
    config = LlamaConfig(vocab_size=40, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, eos_token_id=1)
    LlamaForCausalLM(config).save_pretrained(folder)
    return str(folder)


def test_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "model", _llama(tmp_path), "--fast"]) == 0
    out = capsys.readouterr().out
    found = [line.split()[0] for line in out.splitlines()[:-1] if " not offered " in line]
    assert found == ["packed_rows_with_mask_or_cache"]
    assert "1 not offered" in out.splitlines()[-1]


def test_what_a_model_claims_is_a_failure_where_it_does_not_hold(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    claim = ["--offers", "packed_rows_with_mask_or_cache"]
    assert main(["check", "model", _llama(tmp_path), "--fast", *claim]) == 1
    assert capsys.readouterr().out.splitlines()[-1].endswith("1 failed")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["mixer", "ful"], "unknown mixer 'ful'. Did you mean 'full'?"),
        (["cross_mixer", "ful"], "unknown cross_mixer 'ful'"),
        (["cross-mixer", "ful"], "unknown cross_mixer 'ful'"),
        (["norm", "rms"], "unknown norm_type 'rms'. Did you mean 'rmsnorm'?"),
        (["feed-forward", "ml"], "unknown ffn_type 'ml'. Did you mean 'mlp'?"),
        (["feed_forward", "mlp", "--settings", "3"], "must be a JSON object"),
        (["backend", "eagr"], "unknown backend 'eagr'"),
        (["position", "rop"], "unknown position_type 'rop'"),
        (["model", "no/such/folder"], "is no folder"),
        (["model", "transformers:NoSuchModel"], "NoSuchModel"),
        (["model", "no_such_module:Model"], "no_such_module"),
        (["model", "transformers:LlamaForCausalLM", "--offers", "packed"], "the optional checks are"),
        (["mixer", "full", "--settings", "{"], "--settings { is not JSON"),
        (["mixer", "full", "--settings", "3"], "must be a JSON object"),
        (["mixer", "full", "--expect", "causality"], "must have the form CHECK=REASON"),
        (["mixer", "full", "--expect", "causalty=x"], "'causalty', which is not one of the checks"),
    ],
)
def test_bad_input(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", *arguments]) == 2
    assert words in capsys.readouterr().err
