# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""The checks of a cross mixer, inside tiny encoder-decoders with large random weights, against its reference."""

import contextlib
import functools
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from transformers.cache_utils import DynamicCache, EncoderDecoderCache

from ..models.configuration_encoder_decoder import TxEncoderDecoderConfig
from ..models.mixers import CROSS_MIXERS, CrossMixer
from ..models.modeling_encoder_decoder import TxEncoderDecoderModel
from ..plugins import resolve_reference
from .checks import Check, CheckTable, Skip
from .mixer_subject import LENGTH, SIZES
from .references import CROSS_REFERENCES
from .tools import (
    assert_close,
    assert_finite,
    assert_gradients_close,
    backends,
    build_large,
    expect,
    gradients,
    padded_columns,
    place,
    registered_while_run,
    tokens,
    unless_refused,
)

CROSS_CHECKS = CheckTable()
#: Tokens of the source, and of a long one.
SOURCE, LONG_SOURCE = 9, 300


@dataclass(frozen=True)
class CrossSubject:
    """A cross mixer under its name, with its reference."""

    name: str
    reference: Callable[..., torch.Tensor]

    def build(self, backend: str = "eager", **changes: Any) -> Any:
        """Return an encoder-decoder. The self-attention of its decoder is a recurrent network, of which no backend
        and no mask is part. Equal arguments give equal weights, whatever the backend."""
        kind: Any = TxEncoderDecoderConfig
        config = kind(
            encoder={**SIZES, "type_vocab_size": 0, **changes},
            decoder={**SIZES, "mixers": "gru", "cross_mixer": self.name, **changes},
            decoder_start_token_id=0,
            attn_implementation={"": backend, "encoder": "eager", "decoder": backend},
        )
        return build_large(TxEncoderDecoderModel, config)

    @contextlib.contextmanager
    def by_reference(self, model: Any) -> Iterator[None]:
        """Let the layers of the decoder compute their cross mixers by the reference."""

        def forward(module: Any, hidden_states: torch.Tensor, **inputs: Any) -> tuple[torch.Tensor, None]:
            return self.reference(module, hidden_states, inputs["source_states"]), None

        for layer in model.decoder.layers:
            layer.cross_mixer.forward = functools.partial(forward, layer.cross_mixer)
        try:
            yield
        finally:
            for layer in model.decoder.layers:
                del layer.cross_mixer.forward

    def expected(self, model: Any, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """Return what the reference gives for one pair of texts. *Shape:* `(length, hidden_size)`."""
        with self.by_reference(model):
            return states(model, source[None], target[None])[0]


def states(model: Any, source: torch.Tensor | None, target: torch.Tensor, **inputs: Any) -> torch.Tensor:
    """Return the last states of the decoder, without gradients."""
    with torch.no_grad():
        return run(model, source, target, **inputs)


def run(model: Any, source: torch.Tensor | None, target: torch.Tensor, **inputs: Any) -> torch.Tensor:
    """Return the last states of the decoder."""
    inputs.setdefault("use_cache", "cache" in inputs)
    return model(input_ids=source, decoder_input_ids=target, **inputs).last_hidden_state


def _padded_source(side: str, longest: int = SOURCE) -> tuple[list[torch.Tensor], torch.Tensor, torch.Tensor]:
    sizes = [longest, longest // 2]
    rows = [tokens(size, seed=20 + size) for size in sizes]
    batch, mask = place(rows, padded_columns(sizes, side, longest + 1), longest + 1)
    return rows, batch, mask


@CROSS_CHECKS.add
def cross_reference_forward(subject: CrossSubject) -> None:
    """The states equal those of the reference, at odd lengths."""
    model = subject.build()
    for length, source_length in ((1, 1), (LENGTH, SOURCE), (3, 17), (5, LONG_SOURCE)):
        source, target = tokens(source_length, seed=1), tokens(length)
        actual = states(model, source[None], target[None])[0]
        assert_close(actual, subject.expected(model, source, target), f"length {length}, source {source_length}")


@CROSS_CHECKS.add
def cross_reference_gradient(subject: CrossSubject) -> None:
    """The gradients of all parameters, those of the encoder included, equal those of the reference."""
    model = subject.build()
    for length in (SOURCE, LONG_SOURCE):
        source, target = tokens(1, length, seed=1), tokens(1, LENGTH)
        with subject.by_reference(model):
            expected = gradients(model, run(model, source, target))
        actual = gradients(model, run(model, source, target))
        assert_gradients_close(actual, expected, f"a source of {length}")
        for name, grad in actual.items():
            if ".cross_mixer." in name:
                expect(grad.abs().amax() > 0, f"{name} gets no gradient")


@CROSS_CHECKS.add
def source_padding(subject: CrossSubject) -> None:
    """Padding of the source on either side changes nothing, whatever tokens the pads hold."""
    model = subject.build()
    target = tokens(2, LENGTH)
    for side, longest in itertools.product(("left", "right"), (SOURCE, LONG_SOURCE)):
        rows, batch, mask = _padded_source(side, longest)
        actual = states(model, batch, target, attention_mask=mask)
        for idx, row in enumerate(rows):
            expected = subject.expected(model, row, target[idx])
            assert_close(actual[idx], expected, f"{side} padding, a source of {len(row)}")


@CROSS_CHECKS.add
def source_from_cache(subject: CrossSubject) -> None:
    """With a cache the source is read once: later calls, of reordered rows too, are as without a cache."""
    model = subject.build()
    _, batch, mask = _padded_source("left")
    target = tokens(2, LENGTH)
    expected = states(model, batch, target, attention_mask=mask)
    for at in range(1, LENGTH):
        cache = EncoderDecoderCache(
            DynamicCache(config=model.config.decoder), DynamicCache(config=model.config.decoder)
        )
        with torch.no_grad():
            encoded = model.encoder(input_ids=batch, attention_mask=mask)
        parts = []
        for part in (target[:, :at], target[:, at:]):
            outputs = states(model, None, part, encoder_outputs=encoded, attention_mask=mask, cache=cache)
            parts.append(outputs)
        assert_close(torch.cat(parts, dim=1), expected, f"split at {at}")
    order = torch.tensor([1, 0])
    cache = EncoderDecoderCache(DynamicCache(config=model.config.decoder), DynamicCache(config=model.config.decoder))
    states(model, batch, target[:, :4], attention_mask=mask, cache=cache)
    cache.reorder_cache(order)  # type: ignore[arg-type]
    with torch.no_grad():
        encoded = model.encoder(input_ids=batch[order], attention_mask=mask[order])
    actual = states(
        model,
        None,
        target[order, 4:],
        encoder_outputs=encoded,
        attention_mask=mask[order],
        cache=cache,
    )
    assert_close(actual, expected[order, 4:], "reordered rows")


@CROSS_CHECKS.add
def cross_backends_agree(subject: CrossSubject) -> None:
    """Every attention backend equals `eager`, with a padded source, or refuses before it starts."""
    if not CROSS_MIXERS.get(subject.name).uses_backend:
        raise Skip("the cross mixer takes no attention backend")
    model = subject.build()
    _, batch, mask = _padded_source("left", LONG_SOURCE)
    target = tokens(2, LENGTH)
    expected = states(model, batch, target, attention_mask=mask)
    for name in backends():
        other = unless_refused(functools.partial(subject.build, name))
        if other is None:
            continue
        call = functools.partial(states, other, batch, target, attention_mask=mask)
        actual = unless_refused(call, other.decoder.layers[0])
        if actual is not None:
            assert_close(actual, expected, name)


@CROSS_CHECKS.add
def fully_masked_source(subject: CrossSubject) -> None:
    """A source of pads only gives finite states and gradients, in all precisions, and leaves the other rows alone."""
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        model = subject.build().to(dtype)
        source, target = tokens(2, SOURCE, seed=1), tokens(2, LENGTH)
        mask = torch.ones_like(source)
        mask[0] = 0
        actual = run(model, source, target, attention_mask=mask)
        assert_finite(actual, f"{dtype}, states")
        if dtype == torch.float32:
            assert_close(actual[1], states(model, source[1:], target[1:])[0], "the other row")
        for name, grad in gradients(model, actual).items():
            assert_finite(grad, f"{dtype}, gradient of {name}")


@CROSS_CHECKS.add
def large_source(subject: CrossSubject) -> None:
    """Inputs a thousand times as large give finite states and gradients, in float64, float32 and bfloat16."""
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        model = subject.build(norm_type="none", ffn_type="none", embedding_scale=1000.0).to(dtype)
        _, batch, mask = _padded_source("right")
        actual = run(model, batch, tokens(2, LENGTH), attention_mask=mask)
        assert_finite(actual, f"{dtype}, states")
        for name, grad in gradients(model, actual).items():
            assert_finite(grad, f"{dtype}, gradient of {name}")


def check_cross_mixer(
    name_or_spec: str | CrossMixer, *, reference: Callable[..., torch.Tensor] | None = None
) -> list[Check]:
    """Return the checks of a mixer between a decoder and its encoder; nothing runs yet.

    Args:
        name_or_spec: a name of the registry; or a [`CrossMixer`] that is not registered, for which the name `cross` is
            registered while a check runs.
        reference: see `hf_tx.conformance.references`. Default: that of a built-in cross mixer, or the one that the
            cross mixer declares.

    Raises:
        ValueError: the name is unknown, or there is no reference.
        ImportError: the cross mixer belongs to a plug-in that cannot be used.
    """
    given = name_or_spec if isinstance(name_or_spec, CrossMixer) else None
    name = name_or_spec if isinstance(name_or_spec, str) else "cross"
    spec = given or CROSS_MIXERS.get(name)
    reference = reference or (CROSS_REFERENCES.get(name) if given is None else None) or resolve_reference(spec)
    if reference is None:
        raise ValueError(f"cross mixer {name!r} has no reference to compare with; give reference=.")
    checks = CROSS_CHECKS.of(f"cross_mixer {name}", CrossSubject(name, reference))
    return checks if given is None else registered_while_run(checks, CROSS_MIXERS, name, given)
