# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""The backends on a GPU, and the kernels that are real only there."""

import pytest
import torch
from tiny_models import assert_close, build, padded, tokens
from transformers.utils import is_flash_attn_2_available

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
]
ROWS = [tokens(length, seed=length) for length in (5, 19, 33)]


def result(model, batch, mask):
    """Return the last states at real tokens and the gradients, on the CPU."""
    model.zero_grad()
    last = model(input_ids=batch, attention_mask=mask, use_cache=False).last_hidden_state[mask.bool()]
    last.float().square().sum().backward()
    return last.detach().cpu().float(), {key: weight.grad.cpu().float() for key, weight in model.named_parameters()}


@pytest.mark.parametrize("backend", ["tiled", "banded"])
@pytest.mark.parametrize("feature", [{}, dict(position_type="relative", attention_sinks=True)])
def test_equals_eager_on_the_cpu(backend, feature, monkeypatch):
    monkeypatch.setattr(torch.backends.cuda.matmul, "allow_tf32", False)
    settings = dict(mixers="sliding", sliding_window=4, **feature)
    batch, mask = padded(ROWS, "left")
    expected = result(build("decoder", "eager", **settings), batch, mask)
    actual = result(build("decoder", backend, **settings).cuda(), batch.cuda(), mask.cuda())
    assert_close(actual[0], expected[0], 1e-4)
    for key, gradient in expected[1].items():
        assert_close(actual[1][key], gradient, 1e-3)


@pytest.mark.parametrize("backend", ["tiled", "banded"])
@pytest.mark.parametrize("cache", ["dynamic", "static"])
def test_generation(backend, cache):
    batch, mask = (x.cuda() for x in padded(ROWS, "left"))
    arguments = dict(attention_mask=mask, max_new_tokens=6, do_sample=False, eos_token_id=None)
    settings = dict(mixers="sliding,full", sliding_window=4)
    expected = build("decoder", "eager", "lm", **settings).cuda().generate(batch, **arguments)
    model = build("decoder", backend, "lm", **settings).cuda()
    assert torch.equal(model.generate(batch, cache_implementation=cache, **arguments), expected)


@pytest.mark.skipif(not is_flash_attn_2_available(), reason="needs the flash-attn package")
@pytest.mark.parametrize("mixer", ["full", "sliding"])
def test_the_flash_package(mixer):
    settings = dict(mixers=mixer, dtype=torch.bfloat16) | (dict(sliding_window=4) if mixer == "sliding" else {})
    batch, mask = (x.cuda() for x in padded(ROWS, "left"))
    expected = result(build("decoder", "eager", **settings).cuda(), batch, mask)
    actual = result(build("decoder", "flash_attention_2", **settings).cuda(), batch, mask)
    assert_close(actual[0], expected[0], 8 * torch.finfo(torch.bfloat16).eps)
