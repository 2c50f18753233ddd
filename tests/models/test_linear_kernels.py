# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Kernels of another package for the linear mixers: when they are called, with what, and that they agree."""

import pytest
import torch
from tiny_models import LINEAR, assert_close, build, tokens

from hf_tx.conformance.references import naive_recurrence
from hf_tx.models import linear_kernels

EXPECTED = {
    "linear": ("none", False),
    "retention": ("head", False),
    "gated_linear": ("feature", False),
    "delta": ("none", True),
    "gated_delta": ("head", True),
}


@pytest.fixture
def recorded(monkeypatch):
    """Kernels with the signature of the package that compute the definition, on a device that is taken for CUDA."""
    calls = []

    def kernel(decay, delta):
        def run(q, k, v, g=None, beta=None, scale=None, initial_state=None, output_final_state=False):
            calls.append((decay, delta))
            assert scale == 1.0
            assert output_final_state
            assert q.dtype == k.dtype == v.dtype == torch.bfloat16
            assert q.is_contiguous()
            by_head = [part.transpose(1, 2).float() for part in (q, k, v)]
            if g is not None:
                assert g.dtype == torch.float32
                assert g.shape == (q.shape if decay == "feature" else q.shape[:3])
                g = (g if decay == "feature" else g[..., None]).transpose(1, 2)
            if beta is not None:
                assert beta.shape == q.shape[:3]
                beta = beta.transpose(1, 2)[..., None].float()
            outputs, state = naive_recurrence(*by_head, log_decay=g, beta=beta, state=initial_state)
            return outputs.transpose(1, 2).to(q.dtype), state

        return run

    monkeypatch.setattr(linear_kernels, "_on_cuda", lambda tensor: True)
    monkeypatch.setattr(linear_kernels, "is_flash_linear_attention_available", lambda: True)
    monkeypatch.setattr(linear_kernels, "_kernel", kernel)
    return calls


@pytest.mark.parametrize("family", ["decoder", "encoder"])
@pytest.mark.parametrize("mixer", LINEAR)
def test_the_right_kernel_gets_the_right_inputs(mixer, family, recorded, monkeypatch):
    model = build(family, mixers=mixer, dtype=torch.bfloat16)
    batch, mask = tokens(2, 9), torch.ones(2, 9, dtype=torch.long)
    mask[0, :3] = 0
    with torch.no_grad():
        actual = model(batch, attention_mask=mask).last_hidden_state.float()[mask.bool()]
        assert recorded == [EXPECTED[mixer]] * (2 if family == "decoder" else 4)
        monkeypatch.undo()
        expected = model(batch, attention_mask=mask).last_hidden_state.float()[mask.bool()]
    assert len(recorded) == (2 if family == "decoder" else 4)
    assert_close(actual, expected, 0.05)  # bfloat16


def test_packed_rows_and_single_steps_and_full_precision_need_no_kernel(recorded):
    model = build("decoder", mixers="gated_delta", dtype=torch.bfloat16)
    with torch.no_grad():
        model(tokens(1, 6), position_ids=torch.tensor([[0, 1, 2, 0, 1, 2]]))
        model(tokens(1, 1))
        build("decoder", mixers="gated_delta")(tokens(1, 6))
        assert recorded == []
        model(tokens(1, 6))
    assert len(recorded) == 2


@pytest.mark.gpu
@pytest.mark.parametrize("mixer", LINEAR)
def test_the_kernels_of_the_package_agree(mixer, monkeypatch):
    pytest.importorskip("fla")
    model = build("decoder", mixers=mixer, dtype=torch.bfloat16).cuda()
    batch = tokens(2, 40).cuda()
    actual = model(batch).last_hidden_state
    actual.float().sum().backward()
    gradients = {name: parameter.grad.clone() for name, parameter in model.named_parameters()}
    model.zero_grad()
    monkeypatch.setattr(linear_kernels, "is_flash_linear_attention_available", lambda: False)
    expected = model(batch).last_hidden_state
    expected.float().sum().backward()
    assert_close(actual.float().cpu(), expected.float().cpu(), 0.05)
    for name, parameter in model.named_parameters():
        assert_close(gradients[name].float().cpu(), parameter.grad.float().cpu(), 0.1)
