# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""The benchmark measures what it says: both sides compute the same, and reports hold what was measured."""

import json
import sys

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

import hf_tx
from hf_tx import cli
from hf_tx.analysis import benchmark


@pytest.fixture
def small(monkeypatch):
    for name, value in dict(
        WINDOW=8, VOCABULARY=50, LAYERS=2, HEADS=2, KV_HEADS=1, HEAD_DIM=8, INTERMEDIATE=12
    ).items():
        monkeypatch.setattr(benchmark, name, value)


def main(*arguments):
    return cli.main(["benchmark", *map(str, arguments)])


def test_both_sides_of_long_are_the_same_model(small):
    peer, ours = benchmark.language_model("peer", "sdpa", 40), benchmark.language_model("hf_tx", "banded", 40)
    count = lambda model: sum(weight.numel() for weight in model.parameters())  # noqa: E731
    assert count(peer) == count(ours)
    assert peer.config.sliding_window == ours.config.sliding_window == 8
    assert peer.config.tie_word_embeddings
    assert ours.config.tie_word_embeddings
    names = {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "embed_tokens"}
    shapes = [
        sorted(
            (key.split(".")[-2], tuple(w.shape)) for key, w in model.named_parameters() if key.split(".")[-2] in names
        )
        for model in (peer, ours)
    ]
    assert shapes[0] == shapes[1]


@pytest.mark.parametrize("mechanism", benchmark.ALONE)
def test_both_sides_of_alone_compute_the_same(mechanism, small, monkeypatch):
    found = []
    backward = torch.Tensor.backward
    monkeypatch.setattr(torch.Tensor, "backward", lambda loss: found.append(loss.item()) or backward(loss))
    for backend in benchmark.ALONE[mechanism]:
        benchmark.function_step(mechanism, backend, 40)()
    assert found[0] == pytest.approx(found[1], rel=1e-4)


def test_sides_alternate():
    calls = []
    times = benchmark.compare({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, 2)
    assert calls == ["a", "b", "b", "a", "a", "b"]
    assert {name: len(values) for name, values in times.items()} == {"a": 2, "b": 2}


def test_a_process_measures_its_own_peak():
    small, large = (
        benchmark.measure(benchmark.Case("mixer", "full", backend, 2048, repeats=1, threads=1))
        for backend in ("tiled", "eager")
    )
    assert large.megabytes > small.megabytes + 2 * 4 * 2048**2 * 4 / 1024**2  # two matrices of scores a head
    assert small.seconds > 0


def test_a_process_trains_the_model_of_a_config(tmp_path):
    config = hf_tx.TxDecoderConfig(
        vocab_size=300,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        ffn_type="mlp",
        intermediate_size=2**19,
    )
    config.save_pretrained(tmp_path, include_code=False)
    cost = benchmark.measure(benchmark.Case("config", "large", "sdpa", 8, repeats=1, folder=str(tmp_path), rows=2))
    assert cost.megabytes > 4 * 2 * 16 * 2**19 * 4 / 1024**2  # weights, gradients and two moments
    assert cost.seconds > 0


def test_decoding_goes_on_where_it_ended():
    config = hf_tx.TxDecoderConfig(
        vocab_size=50, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, mixers="full,gru"
    )
    model = hf_tx.TxDecoderForCausalLM(config)
    seen = []
    model.register_forward_pre_hook(lambda module, args, kwargs: seen.append(kwargs["input_ids"]), with_kwargs=True)
    steps = benchmark.decoding_steps(model, 6, 3)
    steps()
    steps()
    prompt, *tokens = seen
    expected = model.generate(prompt, max_new_tokens=6, do_sample=False, eos_token_id=None)
    assert torch.equal(torch.cat([prompt, *tokens], dim=1), expected)


def test_a_process_that_fails_says_why():
    with pytest.raises(RuntimeError, match="full by nosuch at 8 tokens: ValueError: .*nosuch"):
        benchmark.measure(benchmark.Case("mixer", "full", "nosuch", 8))


def test_the_report_of_attention(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(
        benchmark, "measure", lambda case: benchmark.Cost(case, case.length**2 / 1e6, float(case.length))
    )
    plots = []
    monkeypatch.setattr(benchmark, "plot", lambda rows, path: plots.append(path))
    arguments = ["--mixers", "sliding", "full", "lstm", "--backends", "sdpa", "banded", "--lengths", 64, 128]
    assert main("attention", *arguments, "--output", tmp_path / "out") == 0
    rows = json.loads((tmp_path / "out.json").read_text())
    assert [row["name"] for row in rows] == ["sliding by sdpa", "sliding by banded", "full by sdpa", "lstm"]
    for row in rows:
        assert row["exponent of seconds"] == pytest.approx(2.0)
        assert row["exponent of megabytes"] == pytest.approx(1.0)
        assert row["lengths"] == [64, 128]
    assert plots == [f"{tmp_path / 'out'}.png"]
    printed = capsys.readouterr()
    assert "sliding by banded" in printed.out
    assert "left out" in printed.err
    assert "no layer has one" in printed.err


def test_the_report_of_long(small, monkeypatch, tmp_path):
    monkeypatch.setattr(
        benchmark, "measure", lambda case: benchmark.Cost(case, 1.0, 30.0 if case.name == "peer" else 10)
    )
    assert main("long", "--lengths", 24, "--rounds", 1, "--output", tmp_path / "out") == 0
    (row,) = json.loads((tmp_path / "out.json").read_text())
    assert row["times less memory"] == 3.0
    assert row["times faster"] == pytest.approx(row["peer seconds"] / row["hf_tx seconds"])


def test_a_plot_without_matplotlib_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r'pip install "hf_tx\[plots\]"'):
        benchmark.plot([], tmp_path / "x.png")


def test_a_plot(tmp_path):
    pytest.importorskip("matplotlib")
    rows = [dict(name="a", lengths=[1, 2], seconds=[1.0, 2.0], megabytes=[1.0, 2.0])]
    rows[0] |= {"exponent of seconds": 1.0, "exponent of megabytes": 1.0}
    benchmark.plot(rows, tmp_path / "x.png")
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")


def test_all_sides_of_load_load_the_same(tmp_path):
    config = LlamaConfig(
        hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2, vocab_size=50
    )
    LlamaForCausalLM(config).save_pretrained(tmp_path)
    tokens = torch.arange(5)[None]
    peer, ours, views = (benchmark.loading(side, str(tmp_path))() for side in ("peer", "hf_tx", "views"))
    assert type(peer) is LlamaForCausalLM
    for model in (ours, views):
        torch.testing.assert_close(model(tokens).logits, peer(tokens).logits)


def test_loads_alternate_in_processes_of_their_own(monkeypatch):
    measured = []

    def measure(case):
        measured.append(case.name)
        return benchmark.Cost(case, {"peer": 1.0, "hf_tx": 2.0, "views": 4.0}[case.name], 10.0)

    monkeypatch.setattr(benchmark, "measure", measure)
    ours, views = benchmark.run_load("folder", rounds=2)
    assert measured == ["views", "hf_tx", "peer", "peer", "hf_tx", "views"]
    assert (ours["times faster"], views["times faster"]) == (0.5, 0.25)


def test_a_folder_that_is_none(tmp_path, capsys):
    assert main("load", tmp_path / "nothing") == 2
    error = capsys.readouterr().err
    says = f"{tmp_path / 'nothing'} is not the folder of a checkpoint: it has no config.json."
    assert error == f"hf-tx benchmark: error: {says}\n"
