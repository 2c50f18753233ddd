# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""The backends in compiled models: one graph, and the same numbers."""

import pytest
import torch
from tiny_models import assert_close, build, padded, states, tokens

from hf_tx.backends import banded, tiled


@pytest.fixture(autouse=True)
def _fresh(monkeypatch):
    monkeypatch.setattr(tiled, "_TILE_ROWS", 16)  # a graph holds every tile
    monkeypatch.setattr(tiled, "_LEAST_COLUMNS", 16)
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


CASES = [
    ("tiled", dict(mixers="full", position_type="relative", attn_logit_softcapping=1.5)),
    ("banded", dict(mixers="sliding", sliding_window=4)),
    ("banded", dict(mixers="global_local", sliding_window=3, mixer_options={"global_local": {"random_blocks": 1}})),
    ("banded", dict(mixers="sliding,full", sliding_window=4)),
    ("banded", dict(mixers="chunked", mixer_options={"chunked": {"chunk_size": 5}}, attention_sinks=True)),
]


@pytest.mark.parametrize(("backend", "settings"), CASES)
@pytest.mark.parametrize("with_padding", [False, True])
def test_one_graph(backend, settings, with_padding):
    model, eager = build("decoder", backend, **settings), build("decoder", "eager", **settings)
    batch, mask = padded([tokens(9, seed=1), tokens(30, seed=2)], "left")
    inputs = dict(use_cache=False) | (dict(attention_mask=mask) if with_padding else {})
    real = mask.bool() if with_padding else torch.ones_like(mask).bool()
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    with torch.no_grad():
        actual = compiled(input_ids=batch, **inputs).last_hidden_state
    assert_close(actual[real], states(eager, batch, **inputs)[real])


def test_a_graph_with_layers_without_a_band_says_so(monkeypatch):
    said = []
    monkeypatch.setattr(banded.logger, "warning_once", said.append)
    model = build("decoder", "banded", mixers="sliding,full", num_hidden_layers=2, sliding_window=4)
    with torch.no_grad():
        torch.compile(model, fullgraph=True, backend="eager")(input_ids=tokens(2, 30), use_cache=False)
    assert len(said) == 1
    assert "computed in full by 'sdpa'" in said[0]


@pytest.mark.parametrize(("backend", "settings"), CASES[:2])
def test_training(backend, settings):
    model, eager = build("decoder", backend, **settings), build("decoder", "eager", **settings)
    compiled = torch.compile(model, backend="aot_eager")
    for run in (compiled, eager):
        run(input_ids=tokens(2, 19), use_cache=False).last_hidden_state.square().sum().backward()
    expected = dict(eager.named_parameters())
    for name, weight in model.named_parameters():
        assert_close(weight.grad, expected[name].grad, 1e-4)
