# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""The checks of a position scheme: by itself, and in tiny stacks of full attention with large random weights."""

import copy
import functools
import itertools
import tempfile
from dataclasses import dataclass
from typing import Any

import torch
from transformers.cache_utils import DynamicCache

from ..models.configuration_decoder import TxDecoderConfig
from ..models.configuration_encoder import TxEncoderConfig
from ..models.modeling_decoder import TxDecoderModel
from ..models.modeling_encoder import TxEncoderModel
from ..models.positions import POSITIONS, Position, PositionScheme, apply_rotary
from ..plugins import resolve_reference
from .checks import Check, CheckTable, Skip
from .mixer_subject import LENGTH, SIZES, label, run, states
from .position_references import POSITION_REFERENCES, PositionReference
from .tools import (
    assert_close,
    assert_finite,
    assert_gradients_close,
    backends,
    build_large,
    expect,
    gradients,
    meta_tensors,
    padded_columns,
    place,
    registered_while_run,
    tokens,
    unless_refused,
)

POSITION_CHECKS = CheckTable()


@dataclass(frozen=True)
class PositionSubject:
    """A position scheme under its name, with its reference if there is one."""

    name: str
    reference: PositionReference | None

    @property
    def settings(self) -> tuple[dict[str, Any], ...]:
        """Config fields, one dict for each setting in which the scheme is checked."""
        return self.reference.settings if self.reference is not None else ({},)

    def build(self, causal: bool, setting: int = 0, backend: str = "eager", **changes: Any) -> Any:
        """Return a stack. Equal arguments give equal weights, whatever the backend."""
        config: Any = TxDecoderConfig if causal else TxEncoderConfig
        kind = TxDecoderModel if causal else TxEncoderModel
        fields = {**SIZES, "position_type": self.name, **self.settings[setting], **changes}
        if not causal:
            fields["type_vocab_size"] = 0
        return build_large(kind, config(**fields, attn_implementation=backend))

    def scheme(self, model: Any) -> PositionScheme:
        """Return the scheme of a stack."""
        return model.positions[self.name]


@POSITION_CHECKS.add
def position_reference(subject: PositionSubject) -> None:
    """What the scheme adds, turns or penalises equals the reference, position by position."""
    if subject.reference is None:
        raise Skip("the scheme has no reference; give reference= to check_position")
    for setting in range(len(subject.settings)):
        for causal in (True, False):
            model = subject.build(causal, setting)
            # First as far as a scheme was trained, then past all limits of its scaling.
            for places in ([0, 1, 2, 5, 17, 30], [0, 1, 40, 127, 200, 300]):
                if max(places) < model.config.max_position_embeddings or subject.reference.embed is None:
                    _compare(subject.reference, subject.scheme(model), model.config, torch.tensor([places]), causal)


def _compare(reference: PositionReference, scheme: Any, config: Any, places: torch.Tensor, causal: bool) -> None:
    size = config.sum_size
    inputs = torch.randn(1, places.shape[1], size)
    added = [
        torch.zeros(size) if reference.embed is None else reference.embed(config, scheme, int(at), size)
        for at in places[0]
    ]
    with torch.no_grad():
        assert_close(scheme.embed(inputs, places) - inputs, torch.stack(added)[None], f"{label(causal)}: embed")

        heads = torch.randn(1, 3, places.shape[1], config.head_dim)
        rotation = scheme.rotate(inputs, places, "full_attention")
        expect((rotation is None) == (reference.rotate is None), f"{label(causal)}: rotate returns {type(rotation)}")
        if reference.rotate is not None and rotation is not None:
            length = int(places.max()) + 1
            turned = [reference.rotate(config, heads[0, :, i], int(at), length) for i, at in enumerate(places[0])]
            actual = apply_rotary(heads, rotation[0], rotation[1], config.rope_interleaved)[0]
            assert_close(actual, torch.stack(turned, dim=1), f"{label(causal)}: rotate")

        distance = torch.tensor([*range(-40, 41), -300, -127, 127, 300])[None]
        bias = scheme.bias(distance, causal, torch.float32)
        expect((bias is None) == (reference.bias is None), f"{label(causal)}: bias returns {type(bias)}")
        expect(scheme.has_bias == (reference.bias is not None), f"{label(causal)}: has_bias = {scheme.has_bias}")
        if reference.bias is not None and bias is not None:
            rows = [
                [float(reference.bias(config, scheme, head, int(far), causal)) for far in distance[0]]
                for head in range(config.num_attention_heads)
            ]
            assert_close(bias[0, :, 0], torch.tensor(rows), f"{label(causal)}: bias")


@POSITION_CHECKS.add
def order_matters(subject: PositionSubject) -> None:
    """A bidirectional stack notices when two tokens change places; without positions it does not."""
    model = subject.build(False)
    row = tokens(1, LENGTH)
    row[0, 2], row[0, 6] = 7, 8
    swapped = row.clone()
    swapped[0, 2], swapped[0, 6] = 8, 7
    before, after = states(model, row)[:, 0], states(model, swapped)[:, 0]
    moved = ((before - after).abs().max() / before.abs().max()).item()
    if subject.name == "none":
        assert_close(after, before, "a stack without positions, after two tokens changed places")
    else:
        expect(moved > 1e-3, f"the first state moves by {moved:.0e} only when two later tokens change places")


@POSITION_CHECKS.add
def position_padding(subject: PositionSubject) -> None:
    """Padding on either side moves no position."""
    sizes = [LENGTH, 4]
    rows = [tokens(size, seed=size) for size in sizes]
    for causal in (True, False):
        model = subject.build(causal)
        for side in ("left", "right"):
            columns = padded_columns(sizes, side, LENGTH + 3)
            batch, mask = place(rows, columns, LENGTH + 3)
            actual = states(model, batch, attention_mask=mask)
            for idx, row in enumerate(rows):
                what = f"{label(causal)}, {side} padding, a row of {len(row)}"
                assert_close(actual[idx, columns[idx]], states(model, row[None])[0], what)


@POSITION_CHECKS.add
def position_packing(subject: PositionSubject) -> None:
    """Documents packed in one row have positions of their own."""
    for causal, sizes in itertools.product((True, False), ((5, 7), (64, 1, 135))):
        rows = [tokens(size, seed=size) for size in sizes]
        positions = torch.cat([torch.arange(len(row)) for row in rows])[None]
        model = subject.build(causal)
        expected = torch.cat([states(model, row[None])[0] for row in rows])
        assert_close(states(model, torch.cat(rows)[None], position_ids=positions)[0], expected, label(causal))


@POSITION_CHECKS.add
def position_cache(subject: PositionSubject) -> None:
    """With a cache, positions go on where they were, split at any place, and in a padded batch step by step."""
    model = subject.build(True)
    rows = [tokens(size, seed=size) for size in (LENGTH, 4)]
    batch, mask = place(rows, padded_columns([LENGTH, 4], "left", LENGTH), LENGTH)
    expected = states(model, batch, attention_mask=mask)[mask.bool()]
    for ends in (*([at, LENGTH] for at in range(1, LENGTH)), list(range(1, LENGTH + 1))):
        cache = DynamicCache(config=model.config)
        parts = [
            states(model, batch[:, begin:end], attention_mask=mask[:, :end], cache=cache)
            for begin, end in zip([0, *ends], ends, strict=False)
        ]
        assert_close(torch.cat(parts, dim=1)[mask.bool()], expected, f"calls that end at {ends}")


@POSITION_CHECKS.add
def position_backends(subject: PositionSubject) -> None:
    """Every attention backend equals `eager` with this scheme, forward and gradient, or refuses before it starts."""
    for causal, (longest, other_row) in itertools.product((True, False), ((LENGTH, 4), (300, 130))):
        rows = [tokens(size, seed=size) for size in (longest, other_row)]
        batch, mask = place(rows, padded_columns([longest, other_row], "left", longest), longest)
        model = subject.build(causal)
        expected = states(model, batch, attention_mask=mask)[mask.bool()]
        for name in backends():
            other = unless_refused(functools.partial(subject.build, causal, 0, name))
            if other is None:
                continue
            actual = unless_refused(functools.partial(states, other, batch, attention_mask=mask), other.layers[0])
            if actual is not None:
                assert_close(actual[mask.bool()], expected, f"{name}, {label(causal)}")

            def train(other: Any = other, batch: Any = batch, mask: Any = mask) -> dict[str, torch.Tensor]:
                return gradients(other, run(other.train(), batch, attention_mask=mask)[mask.bool()])

            trained = unless_refused(train, other.layers[0])
            if trained is not None:
                wanted = gradients(model, run(model, batch, attention_mask=mask)[mask.bool()])
                assert_gradients_close(trained, wanted, f"{name}, {label(causal)}")


@POSITION_CHECKS.add
def position_precision(subject: PositionSubject) -> None:
    """A model in bfloat16 has the rotations, tables and penalties of one in float32, rounded at most at the end."""
    places = torch.tensor([[0, 1, 255, 256, 257, 4095, 8191]])
    model = subject.build(True, max_position_embeddings=8192)
    scheme = subject.scheme(model)
    low = copy.deepcopy(model).to(torch.bfloat16)
    inputs = torch.zeros(1, places.shape[1], SIZES["hidden_size"])
    exact, rounded = (one.rotate(inputs, places, "full_attention") for one in (scheme, subject.scheme(low)))
    for first, second in zip(exact or (), rounded or (), strict=True):
        assert_close(second, first, "rotation")
    if not any(True for _ in scheme.parameters()):  # those of a model in bfloat16 are rounded themselves
        assert_close(subject.scheme(low).embed(inputs, places), scheme.embed(inputs, places), "embedding")
        if scheme.has_bias:
            penalties = [one.bias(-places, True, torch.float32) for one in (subject.scheme(low), scheme)]
            assert_close(penalties[0], penalties[1], "bias")  # type: ignore[arg-type]
    with torch.no_grad():
        assert_finite(low(tokens(1, 300)).last_hidden_state, "states in bfloat16")


@POSITION_CHECKS.add
def past_the_end(subject: PositionSubject) -> None:
    """A text longer than `max_position_embeddings` gives finite states, or is refused before the first layer."""
    for causal in (True, False):
        model = subject.build(causal, max_position_embeddings=8)
        actual = unless_refused(functools.partial(states, model, tokens(1, 9)), model.layers[0])
        if actual is not None:
            assert_finite(actual, f"{label(causal)}, states")


@POSITION_CHECKS.add
def position_gradients(subject: PositionSubject) -> None:
    """Every parameter of the scheme gets a gradient."""
    for causal in (True, False):
        model = subject.build(causal)
        for name, grad in gradients(model, run(model, tokens(2, LENGTH))).items():
            if name.startswith("positions."):
                assert_finite(grad, f"{label(causal)}: gradient of {name}")
                expect(grad.abs().amax() > 0, f"{label(causal)}: {name} gets no gradient")


@POSITION_CHECKS.add
def position_buffers(subject: PositionSubject) -> None:
    """A load leaves buffers as they are built, and nothing on the meta device."""
    for setting in range(len(subject.settings)):
        for causal in (True, False):
            model = subject.build(causal, setting)
            with tempfile.TemporaryDirectory() as folder:
                model.save_pretrained(folder, include_code=False)
                loaded = type(model).from_pretrained(folder, attn_implementation="eager").eval()
            left = meta_tensors(loaded)
            expect(not left, f"{label(causal)}: on the meta device after a load: {', '.join(left)}")
            buffers = dict(loaded.named_buffers())
            for name, buffer in model.named_buffers():
                expect(torch.equal(buffer, buffers[name]), f"{label(causal)}: {name} changes by a load")
            row = tokens(1, LENGTH)
            assert_close(states(loaded, row), states(model, row), f"{label(causal)}: states after a load")


def check_position(
    name_or_class: str | Position | type[PositionScheme], *, reference: PositionReference | None = None
) -> list[Check]:
    """Return the checks of a position scheme; nothing runs yet.

    Args:
        name_or_class: a name of the registry; or a [`Position`], or its class, that is not registered, for which the
            name `position` is registered while a check runs.
        reference: what it is compared with. Default: that of a built-in scheme, or the one that the scheme declares.

    Raises:
        ValueError: the name is unknown.
        ImportError: the scheme belongs to a plug-in that cannot be used.
    """
    if isinstance(name_or_class, type):
        name_or_class = Position(name_or_class)
    given = name_or_class if isinstance(name_or_class, Position) else None
    name = name_or_class if isinstance(name_or_class, str) else "position"
    spec = given or POSITIONS.get(name)
    if reference is None and given is None:
        reference = POSITION_REFERENCES.get(name)
    if reference is None and spec.reference is not None:
        reference = PositionReference(**resolve_reference(spec))
    checks = POSITION_CHECKS.of(f"position {name}", PositionSubject(name, reference))
    return checks if given is None else registered_while_run(checks, POSITIONS, name, given)
