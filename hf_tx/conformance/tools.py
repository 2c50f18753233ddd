# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""What the checks of all kinds share: weights and tokens that show errors, and comparisons."""

import contextlib
import dataclasses
import math
import warnings
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import torch
from torch import nn
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.utils.generic import is_flash_attention_requested

from ..models.registry import Registry
from .checks import Check

T = TypeVar("T")

#: Largest difference, as a share of the largest value, by which two orders of the same float32 sums may differ.
FORWARD = 2e-5
#: The same for gradients, which pass through the sums of two directions.
GRADIENT = 1e-4


def build_large(kind: Callable[..., Any], config: Any, **arguments: Any) -> Any:
    """Build a model in eval mode, with weights so large that an error shows. Equal arguments give equal weights."""
    torch.manual_seed(0)
    return enlarge(kind(config, **arguments)).eval()


def enlarge(model: nn.Module) -> nn.Module:
    """Draw all weights anew: matrices keep the size of what passes through them; norms, biases and gates, whose scale
    is their own, move away from what they begin with."""
    generator = torch.Generator().manual_seed(0)
    embeddings = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}
    transposed = {id(module.weight) for module in model.modules() if type(module).__name__ == "Conv1D"}
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator, device="cpu").to(parameter.device)
            if parameter.ndim < 2:
                parameter.add_(noise * 0.3)
            elif id(parameter) in embeddings:
                parameter.copy_(noise)
            else:
                parameter.copy_(noise / math.sqrt(parameter.shape[0 if id(parameter) in transposed else -1]))
    return model


def tokens(*shape: int, vocabulary: int = 61, first: int = 3, seed: int = 0) -> torch.Tensor:
    """Draw tokens from `first` on. *Shape:* as given, int64."""
    generator = torch.Generator().manual_seed(1000 + seed)
    return torch.randint(first, vocabulary, shape, generator=generator, device="cpu").to(torch.get_default_device())


def normal(*shape: int, seed: int) -> torch.Tensor:
    """Draw normal numbers, the same on every device. *Shape:* as given, float32."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, device="cpu").to(torch.get_default_device())


def place(rows: list[torch.Tensor], columns: list[torch.Tensor], length: int, seed: int = 77) -> Any:
    """Put rows into a batch whose other places hold garbage.

    Args:
        rows: tokens. *Shape:* each `(n,)`.
        columns: where they go. *Shape:* each `(n,)`.
        length: of the batch.
        seed: of the garbage.

    Returns:
        Tokens and mask. *Shape:* both `(batch, length)`, int64.
    """
    batch = tokens(len(rows), length, seed=seed)
    mask = torch.zeros(len(rows), length, dtype=torch.long)
    for idx, (row, where) in enumerate(zip(rows, columns, strict=True)):
        batch[idx, where], mask[idx, where] = row, 1
    return batch, mask


def padded_columns(lengths: list[int], side: str, length: int) -> list[torch.Tensor]:
    """Return where rows of these lengths stand, padded on the `left`, the `right`, or the `interior`, where a pad
    follows every second token."""
    if side == "left":
        return [torch.arange(length - size, length) for size in lengths]
    if side == "right":
        return [torch.arange(size) for size in lengths]
    return [torch.arange(size) + torch.arange(size) // 2 for size in lengths]


def assert_close(actual: torch.Tensor, expected: torch.Tensor, what: str, tolerance: float = FORWARD) -> None:
    """Compare relative to the largest value: single ones may cancel to nearly zero.

    Raises:
        AssertionError: the shapes or values differ, or a value is not finite; the message begins with `what`.
    """
    if actual.shape != expected.shape:
        raise AssertionError(f"{what}: shape {tuple(actual.shape)}, not {tuple(expected.shape)}")
    if not actual.numel():
        return
    assert_finite(actual, what)
    scale = expected.abs().amax().clamp(min=1e-3)
    error = ((actual - expected).abs().amax() / scale).item()
    if not error <= tolerance:
        raise AssertionError(f"{what}: differs by {error:.1e} of the largest value, more than {tolerance:.0e}")


def assert_finite(values: torch.Tensor, what: str) -> None:
    """Raise AssertionError where a value is not finite."""
    if not bool(torch.isfinite(values).all()):
        raise AssertionError(f"{what}: not finite")


def expect(condition: Any, message: str) -> None:
    """Raise AssertionError with the message unless the condition holds: `assert` vanishes under `python -O`."""
    if not condition:
        raise AssertionError(message)


def gradients(model: nn.Module, states: torch.Tensor, seed: int = 5) -> dict[str, torch.Tensor]:
    """Return the gradient of every parameter, of a random weighting of the states; zeros where there is none."""
    weight = normal(*states.shape, seed=seed).to(states.dtype)
    names, parameters = zip(*(pair for pair in model.named_parameters() if pair[1].requires_grad), strict=True)
    grads = torch.autograd.grad((states * weight).sum(), parameters, allow_unused=True)
    return {
        name: torch.zeros_like(parameter) if grad is None else grad
        for name, parameter, grad in zip(names, parameters, grads, strict=True)
    }


def assert_gradients_close(actual: dict[str, torch.Tensor], expected: dict[str, torch.Tensor], what: str) -> None:
    """Compare gradients by parameter, each relative to its own largest value."""
    largest = max(grad.abs().amax().item() for grad in expected.values())
    for name, grad in expected.items():
        # A gradient that is zero but for rounding is compared with those of the other parameters.
        scale = max(grad.abs().amax().item(), 1e-2 * largest)
        assert_finite(actual[name], f"{what}: gradient of {name}")
        error = (actual[name] - grad).abs().amax().item() / scale
        if not error <= GRADIENT:
            raise AssertionError(f"{what}: gradient of {name} differs by {error:.1e} of its largest value")


def beam_search(
    scores_of: Callable[[tuple[int, ...]], torch.Tensor], beams: int, steps: int
) -> list[tuple[tuple[int, ...], float]]:
    """Search for the best continuations as beam search is defined.

    Args:
        scores_of: returns the logarithms of the probabilities of the tokens behind a text. *Shape:* `(vocabulary,)`.
        beams: how many texts are kept after every token.
        steps: tokens of a continuation.

    Returns:
        The texts that are kept in the end, each with the sum of its scores, the best first.
    """
    found: list[tuple[tuple[int, ...], float]] = [((), 0.0)]
    for _ in range(steps):
        grown = [
            ((*text, token), total + score)
            for text, total in found
            for token, score in enumerate(scores_of(text).tolist())
        ]
        found = sorted(grown, key=lambda each: -each[1])[:beams]
    return found


def assert_beams(
    out: Any, idx: int, first: int, scores_of: Callable[[tuple[int, ...]], torch.Tensor], beams: int, steps: int
) -> None:
    """Compare all beams that `generate()` returns for a row, texts and scores, with those of `beam_search`.

    Args:
        out: what `generate()` returned, all beams of a row behind each other.
        idx: the row.
        first: where the new tokens begin.
        scores_of: see `beam_search`.
        beams: how many there are.
        steps: new tokens.
    """
    for beam, (text, total) in enumerate(beam_search(scores_of, beams, steps)):
        at = idx * beams + beam
        what = f"row {idx}, beam {beam}"
        made = tuple(out.sequences[at, first : first + steps].tolist())
        expect(made == text, f"{what}: the text is {made}; a search without a cache finds {text}")
        assert_close(out.sequences_scores[at], torch.tensor(total / steps), f"{what}: score")


def backends() -> list[str]:
    """Return the attention backends that run on every device: those with a mask function, but the flash kernels."""
    names = dict.fromkeys(["eager", *ALL_ATTENTION_FUNCTIONS.valid_keys()])
    return [
        name
        for name in names
        if name in ALL_MASK_ATTENTION_FUNCTIONS
        and not is_flash_attention_requested(requested_attention_implementation=name)
    ]


def unless_refused(call: Callable[[], T], layer: nn.Module | None = None) -> T | None:
    """Return what a call returns, or None when it is refused by a ValueError.

    Args:
        call: takes no arguments.
        layer: must not have run before a refusal: what is refused is refused before the first step.
    """
    ran: list[bool] = []
    hook = layer.register_forward_pre_hook(lambda *_: ran.append(True)) if layer is not None else None
    try:
        with plain_flex():
            return call()
    except ValueError as error:
        if ran:
            raise AssertionError(f"refused only after its first layer had run: {error}") from error
        return None
    finally:
        if hook is not None:
            hook.remove()


@contextlib.contextmanager
def plain_flex() -> Iterator[None]:
    """Run flex_attention as plain operations: compiling it takes seconds a shape."""
    with torch.compiler.set_stance("force_eager"), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="flex_attention called without torch.compile")
        warnings.filterwarnings("ignore", message="_compile flag on create_block_mask")
        yield


@contextlib.contextmanager
def registered(registry: Registry[T], name: str, value: T) -> Iterator[None]:
    """Let a registry know a name for a while."""
    registry.register(name, value, origin="hf_tx.conformance")
    try:
        yield
    finally:
        del registry._entries[name]


def registered_while_run(checks: list[Check], registry: Registry[T], name: str, value: T) -> list[Check]:
    """Return checks during which a registry knows a name."""

    def bound(check: Check) -> Callable[[], None]:
        def function() -> None:
            with registered(registry, name, value):
                check.function()

        return function

    return [dataclasses.replace(check, function=bound(check)) for check in checks]


def meta_tensors(model: nn.Module) -> list[str]:
    """Return the names of what lies on the meta device: parameters, buffers, and tensors kept as attributes."""
    found = [name for name, tensor in [*model.named_parameters(), *model.named_buffers()] if tensor.is_meta]
    for prefix, module in model.named_modules():
        for name, value in vars(module).items():
            values = (
                value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else [value]
            )
            if name not in ("_parameters", "_buffers", "_modules") and any(
                isinstance(item, torch.Tensor) and item.is_meta for item in values
            ):
                found.append(f"{prefix}.{name}".lstrip("."))
    return found
