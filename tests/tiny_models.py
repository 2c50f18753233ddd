# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Tiny models of all families with weights so large that an error shows, and what the tests of them share."""

import contextlib
import functools
import heapq
import itertools
import math
import random
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
from torch import nn

import hf_tx
from hf_tx.models.mixers import MIXERS
from hf_tx.models.norms import NORMS, RMSNorm
from hf_tx.models.positions import POSITIONS

VOCABULARY = 61
# Some sizes differ on purpose: heads * head_dim is not hidden_size, and three heads share a key head.
SIZES = dict(
    vocab_size=VOCABULARY,
    hidden_size=24,
    num_hidden_layers=2,
    num_attention_heads=6,
    num_key_value_heads=2,
    head_dim=8,
    intermediate_size=20,
    max_position_embeddings=64,
    relative_attention_num_buckets=8,
    relative_attention_max_distance=10,
)
TOKENS = dict(pad_token_id=0, bos_token_id=1, eos_token_id=2)
PLACES = ("pre", "post", "residual_post", "sandwich")
BACKENDS = ("eager", "sdpa", "flex_attention")
FAMILIES = ("decoder", "encoder", "encoder_decoder")
#: What is registered, by what tests tell apart. Norms and positions that are nothing are left out.
ATTENTION = [name for name in MIXERS if MIXERS.get(name).is_attention]
RECURRENT = [name for name in MIXERS if MIXERS.get(name).takes_start]
LINEAR = [name for name in MIXERS if name not in (*ATTENTION, *RECURRENT)]
NORM_TYPES = [name for name in NORMS if name != "none"]
POSITION_TYPES = [name for name in POSITIONS if name != "none"]
OF_SCORES = [name for name in POSITION_TYPES if not POSITIONS.get(name).has_embedding]
BIASES = [name for name in OF_SCORES if POSITIONS.get(name).has_bias]
#: Window of the sliding layers: shorter than the texts of the tests.
WINDOW = 4
#: Options that make a difference within the texts of the tests.
MIXER_OPTIONS: dict[str, dict[str, Any]] = {
    "chunked": dict(chunk_size=3),
    "dilated": dict(dilation=2),
    "global_local": dict(global_positions=[1, 4], random_blocks=1, block_size=2),
}

_CLASSES: dict[tuple[str, str], Any] = {
    ("decoder", "base"): hf_tx.TxDecoderModel,
    ("decoder", "lm"): hf_tx.TxDecoderForCausalLM,
    ("encoder", "base"): hf_tx.TxEncoderModel,
    ("encoder", "lm"): hf_tx.TxEncoderForMaskedLM,
    ("encoder_decoder", "base"): hf_tx.TxEncoderDecoderModel,
    ("encoder_decoder", "lm"): hf_tx.TxEncoderDecoderForConditionalGeneration,
}


def config_of(family: str, encoder: dict[str, Any] | None = None, **settings: Any) -> Any:
    """Build a config. `settings` go to every stack of the family, `encoder` changes them for the encoder of an
    encoder-decoder; an `attn_implementation` among them is the model's.
    """
    used = str(settings.get("mixers", ""))
    if any(name in used for name in ("sliding", "dilated", "global_local")):
        settings.setdefault("sliding_window", WINDOW)
    options = {name: value for name, value in MIXER_OPTIONS.items() if name in used.split(",")}
    if options:
        settings.setdefault("mixer_options", options)
    backend = {"attn_implementation": settings.pop("attn_implementation", None)}
    if family == "decoder":
        return hf_tx.TxDecoderConfig(**{**SIZES, **TOKENS, **settings}, **backend)
    if family == "encoder":
        return hf_tx.TxEncoderConfig(**{**SIZES, **TOKENS, "type_vocab_size": 0, **settings}, **backend)
    own = {key: settings[key] for key in ("share_embeddings", "tie_word_embeddings") if key in settings}
    settings.pop("share_embeddings", None)
    return hf_tx.TxEncoderDecoderConfig(
        encoder={**SIZES, "type_vocab_size": 0, **settings, **(encoder or {})},
        decoder={**SIZES, **settings},
        **TOKENS,
        decoder_start_token_id=0,
        **own,
        **backend,
    )


def enlarge(model: nn.Module, seed: int = 0) -> nn.Module:
    """Draw all weights anew: matrices keep the size of what passes through them, norms and biases are not neutral."""
    generator = torch.Generator().manual_seed(seed)

    def normal(weight: torch.Tensor, scale: float, mean: float = 0.0) -> None:
        weight.data = (torch.randn(weight.shape, generator=generator) * scale + mean).to(weight.dtype)

    for name, module in model.named_modules():
        if isinstance(module, nn.Linear):
            normal(module.weight, 1.5 / math.sqrt(module.in_features))
        elif isinstance(module, nn.Embedding):
            normal(module.weight, 1.0)
        elif isinstance(module, nn.LayerNorm) and module.weight is not None:
            normal(module.weight, 0.3, 1.0)
        elif isinstance(module, RMSNorm) and module.weight is not None:
            normal(module.weight, 0.3, 0.0 if module.unit_offset else 1.0)
        if isinstance(getattr(module, "bias", None), nn.Parameter):
            normal(module.bias, 0.5)
        if hasattr(module, "init_parameters") and not isinstance(module, RMSNorm):  # it has parameters of its own
            for parameter in module.parameters(recurse=False):
                if name.endswith("norm"):  # which begin where their scale is
                    normal(parameter, 0.3, parameter.mean().item())
                    continue
                normal(parameter, 0.5 if parameter.ndim == 1 else 1.0 / math.sqrt(parameter.shape[-1]))
    return model


def build(
    family: str, backend: str = "eager", head: str = "base", seed: int = 0, dtype: Any = None, **settings: Any
) -> Any:
    """Build a model in eval mode. Equal arguments give equal weights, whatever the backend."""
    model = _CLASSES[family, head](config_of(family, attn_implementation=backend, **settings))
    return enlarge(model, seed).to(dtype or torch.float32).eval()


@functools.cache
def _shared(family: str, backend: str, head: str, settings: tuple[tuple[str, Any], ...]) -> Any:
    return build(family, backend, head, **dict(settings))


def shared(family: str, backend: str = "eager", head: str = "base", **settings: Any) -> Any:
    """Return a model that other tests use as well: for tests that do not change it."""
    return _shared(family, backend, head, tuple(sorted(settings.items())))


def tokens(*shape: int, seed: int = 0) -> torch.Tensor:
    """Draw tokens that are neither special nor padding, and differ within a row as long as there are enough."""
    generator = torch.Generator().manual_seed(1000 + seed)
    if shape[-1] > VOCABULARY - 3:
        return torch.randint(3, VOCABULARY, shape, generator=generator)
    return torch.rand(*shape[:-1], VOCABULARY - 3, generator=generator).argsort(-1)[..., : shape[-1]] + 3


def padded(rows: Sequence[torch.Tensor], side: str, extra: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Pad rows with *random* tokens, so that what a pad holds shows where it leaks. Returns tokens and mask."""
    length = max(len(row) for row in rows) + extra
    batch = tokens(len(rows), length, seed=77)
    mask = torch.zeros(len(rows), length, dtype=torch.long)
    for idx, row in enumerate(rows):
        where = slice(length - len(row), length) if side == "left" else slice(0, len(row))
        batch[idx, where], mask[idx, where] = row, 1
    return batch, mask


def states(model: Any, input_ids: torch.Tensor | None = None, **inputs: Any) -> torch.Tensor:
    """Return the last hidden states of a base model; an encoder-decoder reads a fixed source unless one is given."""
    if model.config.is_encoder_decoder:
        inputs = {_DECODER_NAMES.get(key, key): value for key, value in inputs.items()}
        inputs.setdefault("input_ids", tokens(1, 7, seed=5).expand(len(input_ids), -1))
        inputs["decoder_input_ids"] = input_ids
    else:
        inputs["input_ids"] = input_ids
    with torch.no_grad():
        return model(**inputs).last_hidden_state


_DECODER_NAMES = {
    "attention_mask": "decoder_attention_mask",
    "position_ids": "decoder_position_ids",
    "source": "input_ids",
    "source_mask": "attention_mask",
}


def assert_close(actual: torch.Tensor, expected: torch.Tensor, tolerance: float = 2e-5, least: float = 1e-3) -> None:
    """Compare relative to the scale of what is expected: single values may cancel to nearly zero. All of them may: the
    scale is at least `least`, which says of what size the terms are."""
    assert actual.shape == expected.shape, (tuple(actual.shape), tuple(expected.shape))
    assert torch.isfinite(actual).all(), "not finite"
    scale = expected.abs().amax().clamp(min=least)
    error = ((actual - expected).abs().amax() / scale).item()
    assert error <= tolerance, f"differs by {error:.2e} of the largest value"


def assert_differ(first: torch.Tensor, second: torch.Tensor, least: float = 1e-3) -> None:
    """Check that two results differ clearly at every position (the last dimension holds features)."""
    scale = second.abs().amax()
    moved = ((first - second).abs().amax(-1) / scale).amin().item()
    assert moved >= least, f"some position moves by {moved:.1e} of the largest value only"


def pairwise(
    axes: dict[str, Sequence[Any]],
    together: Sequence[str] = (),
    valid: Callable[[dict[str, Any]], bool] = lambda case: True,
) -> list[Any]:
    """Return the full product of the axes as pytest parameters, in which a small set that has every pair of values
    runs always, and the rest is marked slow.

    Args:
        axes: the values of every axis by its name.
        together: axes of which the set has every combination, not only every pair.
        valid: says whether a combination exists.
    """
    product = [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]
    product = [case for case in product if valid(case)]

    def parts(case: dict[str, Any]) -> set[Any]:
        found: set[Any] = set(itertools.combinations(case.items(), 2))
        return found | {tuple((name, case[name]) for name in together)}

    # Greedy: always take the combination that brings most of what is missing. What one brings only shrinks, so it is
    # counted again only when it comes first.
    order = [(case, parts(case)) for case in product]
    random.Random(0).shuffle(order)
    missing = set().union(*(found for _, found in order))
    heap = [(-len(found), idx) for idx, (_, found) in enumerate(order)]
    heapq.heapify(heap)
    chosen = set()
    while missing:
        idx = heap[0][1]
        case, found = order[idx]
        gain = len(found & missing)
        if heap[0][0] != -gain:
            heapq.heapreplace(heap, (-gain, idx))
            continue
        heapq.heappop(heap)
        missing -= found
        chosen.add(id(case))
    return [
        pytest.param(
            *case.values(),
            id="-".join(str(value) for value in case.values()),
            marks=[] if id(case) in chosen else [pytest.mark.slow],
        )
        for case in product
    ]


@contextlib.contextmanager
def uncompiled() -> Iterator[None]:
    """Run flex_attention as plain operations: compiling it takes seconds a shape."""
    with torch.compiler.set_stance("force_eager"), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="flex_attention called without torch.compile")
        warnings.filterwarnings("ignore", message="_compile flag on create_block_mask")
        yield
