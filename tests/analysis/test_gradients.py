# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Gradients against distance, where the answer is known."""

import pytest
import tiny_models
import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

from hf_tx.analysis import gradient_by_distance

TEXT = torch.arange(3, 15)[None].repeat(2, 1)


class LinearRecurrence(nn.Module):
    """h_t = radius * Q h_{t-1} + x_t with an orthogonal Q: the Jacobian at distance d is (radius * Q)^d."""

    def __init__(self, radius: float, size: int = 6) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.embed = nn.Embedding(20, size)
        self.matrix = radius * torch.linalg.qr(torch.randn(size, size, generator=generator))[0]

    def get_input_embeddings(self) -> nn.Module:
        return self.embed

    def forward(self, inputs_embeds: torch.Tensor) -> torch.Tensor:
        states = [inputs_embeds[:, 0]]
        for inputs in inputs_embeds[:, 1:].unbind(1):
            states.append(states[-1] @ self.matrix.T + inputs)
        return torch.stack(states, 1)


@pytest.mark.parametrize("radius", [0.5, 1.0, 1.5])
def test_known_jacobians(radius):
    norms = gradient_by_distance(LinearRecurrence(radius), TEXT, probes=None)
    torch.testing.assert_close(norms, 6**0.5 * radius ** torch.arange(12.0))


@pytest.mark.parametrize("radius", [0.5, 1.5])
def test_probes_keep_the_ratio(radius):
    """An orthogonal matrix keeps the length of every vector, so that one probe is enough."""
    norms = gradient_by_distance(LinearRecurrence(radius), TEXT, probes=1)
    torch.testing.assert_close(norms[1:] / norms[:-1], torch.full((11,), radius))


def test_saturated_network_vanishes():
    """tanh has slopes of at most 1, so the Jacobian shrinks at least as fast as the matrix."""
    torch.manual_seed(0)
    model = LinearRecurrence(0.8)
    norms = gradient_by_distance(model, TEXT, probes=None)
    linear = model.forward
    model.forward = lambda inputs_embeds: torch.tanh(linear(inputs_embeds))
    assert (gradient_by_distance(model, TEXT, probes=None) < norms).all()


def test_probes_estimate_the_exact_norm():
    model = tiny_models.shared("decoder")
    exact = gradient_by_distance(model, TEXT, probes=None)
    errors = [(gradient_by_distance(model, TEXT, probes=count) / exact - 1).abs().max() for count in (64, 1024)]
    assert errors[1] < errors[0] < 0.5
    assert errors[1] < 0.1  # 1 / sqrt(2 * 1024 * effective rank), with room


@pytest.mark.parametrize("layers", [1, 2])
def test_exactly_zero_beyond_the_window(layers):
    model = tiny_models.build("decoder", mixers="sliding", num_hidden_layers=layers, sliding_window=3)
    norms = gradient_by_distance(model, TEXT)
    reach = layers * 2
    assert (norms[: reach + 1] > 1e-6).all()
    assert (norms[reach + 1 :] == 0).all()


def test_full_attention_reaches_the_beginning():
    assert (gradient_by_distance(tiny_models.shared("decoder"), TEXT) > 1e-6).all()


def test_position_in_the_text():
    model = tiny_models.shared("decoder")
    inside = gradient_by_distance(model, TEXT, position=4, probes=None)
    assert inside.shape == (5,)
    torch.testing.assert_close(inside, gradient_by_distance(model, TEXT[:, :5], probes=None))
    torch.testing.assert_close(inside, gradient_by_distance(model, TEXT, position=-8, probes=None))


def test_loss_of_a_target():
    model = tiny_models.shared("decoder", head="lm")
    target = torch.tensor([7, 9])
    embeddings = model.get_input_embeddings()(TEXT).detach().requires_grad_()
    logits = model(inputs_embeds=embeddings).logits[:, -1]
    loss = nn.functional.cross_entropy(logits, target, reduction="sum")
    (gradient,) = torch.autograd.grad(loss, embeddings)
    expected = gradient.norm(dim=-1).square().mean(0).sqrt().flip(0)
    torch.testing.assert_close(gradient_by_distance(model, TEXT, target=target), expected)


def test_nothing_is_left_behind():
    model = tiny_models.build("decoder", head="lm", hidden_dropout=0.5).train()
    norms = [gradient_by_distance(model, TEXT) for _ in range(2)]
    assert torch.equal(*norms)
    assert model.training
    assert all(parameter.grad is None for parameter in model.parameters())


def test_padding_is_outside():
    """The same text behind pads has the same gradients, and none reaches a pad."""
    model = tiny_models.shared("decoder")
    batch, mask = tiny_models.padded([TEXT[0]], "left", extra=3)
    norms = gradient_by_distance(model, batch, attention_mask=mask, probes=None)
    torch.testing.assert_close(norms[:12], gradient_by_distance(model, TEXT[:1], probes=None))
    assert (norms[12:] == 0).all()


def test_encoder_decoder_and_library_models():
    pair = tiny_models.shared("encoder_decoder", head="lm")
    assert (gradient_by_distance(pair, TEXT, source_ids=TEXT) > 1e-6).all()
    with pytest.raises(ValueError, match="source_ids"):
        gradient_by_distance(pair, TEXT)
    torch.manual_seed(0)
    llama = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=20, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2,
            intermediate_size=16, initializer_range=0.5,
        )
    )  # fmt: skip
    assert (gradient_by_distance(llama, TEXT) > 1e-6).all()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"position": 12}, "position = 12"),
        ({"position": -13}, "position = -13"),
        ({"probes": 0}, "probes = 0"),
        ({"target": torch.tensor([1])}, r"target has the shape \(1,\)"),
    ],
)
def test_refusals(wrong, message):
    with pytest.raises(ValueError, match=message):
        gradient_by_distance(tiny_models.shared("decoder"), TEXT, **wrong)


def test_models_that_do_not_fit():
    model = LinearRecurrence(1.0)
    model.forward = lambda input_ids: input_ids
    with pytest.raises(ValueError, match="forward must accept inputs_embeds"):
        gradient_by_distance(model, TEXT)
    model.forward = lambda inputs_embeds: inputs_embeds[:, -1]
    with pytest.raises(ValueError, match="one output per token"):
        gradient_by_distance(model, TEXT)
