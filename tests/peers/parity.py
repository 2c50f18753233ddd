# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Builds the two sides of a comparison with the same weights, and compares what they compute."""

import math
from typing import Any

import torch
from peers.tables import Peer
from torch import nn
from transformers.pytorch_utils import Conv1D

import hf_tx
from hf_tx.conversion.convert import plan_of


def randomise(model: nn.Module, seed: int = 0) -> None:
    """Draw all weights so large that every one of them shows in the output."""
    generator = torch.Generator().manual_seed(seed)
    convs = {id(module.weight) for module in model.modules() if isinstance(module, Conv1D)}
    for name, weight in model.named_parameters():
        if not weight.requires_grad:  # a table of sinusoids
            continue
        noise = torch.randn(weight.shape, generator=generator)
        if weight.ndim > 1:
            fan_in = weight.shape[0 if id(weight) in convs else -1]
            weight.data = noise * (1.5 / math.sqrt(fan_in))
        else:
            weight.data = 0.3 * noise + (0.0 if "bias" in name else weight.data)
    for name, buffer in model.named_buffers():
        if name.endswith("final_logits_bias"):
            buffer.copy_(torch.randn(buffer.shape, generator=generator))


def build(peer: Peer, backend: str = "eager") -> Any:
    """Build their model with random weights, in eval mode."""
    config = peer.config()
    config._attn_implementation = backend
    theirs = peer.theirs(config)
    peer.adapt(theirs)
    randomise(theirs)
    return theirs.eval()


def pair(peer: Peer, backend: str = "eager") -> tuple[Any, Any]:
    """Build their model with random weights, and ours with the same, both in eval mode and with the same backend."""
    theirs = build(peer, backend)
    return theirs, hf_tx.from_hf(theirs)


def gradients(theirs: nn.Module, ours: nn.Module) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    """Return the gradients of both, ours first, by the name of our weight."""
    source = dict(theirs.named_parameters(remove_duplicate=False))
    expected = plan_of(ours).to_ours({name: weight.grad for name, weight in source.items()})
    found = {name: weight.grad for name, weight in ours.named_parameters() if name in expected}
    assert {name for name, _ in ours.named_parameters()} - set(found) <= {"lm_head.bias"}  # a buffer of BART
    return {name: (gradient, expected[name]) for name, gradient in found.items()}


def assert_close(
    actual: torch.Tensor, expected: torch.Tensor, what: str, tolerance: float = 1e-5, scale: float | None = None
) -> None:
    """Compare relative to `scale`, by default the largest value that is expected."""
    assert actual.shape == expected.shape, (what, tuple(actual.shape), tuple(expected.shape))
    error = (actual - expected).abs().max().item()
    scale = expected.abs().max().item() if scale is None else scale
    assert error <= tolerance * scale, f"{what}: differs by {error / scale:.1e} of {scale:.2e}"


def batch(lengths: list[int], side: str, pad: int, vocabulary: int, seed: int = 0) -> dict[str, torch.Tensor]:
    """Draw rows of tokens, padded on one side. The first real token of a row has no label: what stands before it is
    not part of the text."""
    generator = torch.Generator().manual_seed(seed)
    shape = (len(lengths), max(lengths))
    index = torch.arange(shape[1])[None]
    length = torch.tensor(lengths)[:, None]
    mask = ((index < length) if side == "right" else (index >= shape[1] - length)).long()
    tokens = torch.where(mask.bool(), torch.randint(3, vocabulary, shape, generator=generator), pad)
    position_ids = (mask.cumsum(-1) - 1).clamp(min=0)
    labels = tokens.masked_fill((mask == 0) | (position_ids == 0), -100)
    return dict(input_ids=tokens, attention_mask=mask, position_ids=position_ids, labels=labels)
