# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""The checks of an attention backend: with every feature it equals `eager`, or it refuses before it starts."""

import functools
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from transformers import BertConfig, BertModel, LlamaConfig, LlamaModel, MistralConfig, MistralModel
from transformers.cache_utils import DynamicCache, StaticCache
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from ..models.configuration_decoder import TxDecoderConfig
from ..models.configuration_encoder import TxEncoderConfig
from ..models.modeling_decoder import TxDecoderModel
from ..models.modeling_encoder import TxEncoderModel
from ..models.registry import nearest
from .checks import Check, CheckTable, Skip
from .cross_checks import CrossSubject
from .cross_checks import states as crossed
from .mixer_subject import LENGTH, SIZES, label, run, states
from .references import CROSS_REFERENCES
from .tools import (
    assert_close,
    assert_finite,
    assert_gradients_close,
    build_large,
    expect,
    gradients,
    normal,
    padded_columns,
    place,
    plain_flex,
    tokens,
    unless_refused,
)

BACKEND_CHECKS = CheckTable()
Inputs = tuple[torch.Tensor, dict[str, Any]]

#: What a layer can ask of a backend, as config fields.
FEATURES: dict[str, dict[str, Any]] = {
    "softcap": dict(attn_logit_softcapping=2.0),
    "sinks": dict(attention_sinks=True),
    "scale": dict(attention_scale=0.9),
    "alibi": dict(position_type="alibi"),
    "relative": dict(position_type="relative", relative_attention_num_buckets=8),
    "chunked": dict(mixers="chunked", sliding_window=None, mixer_options={"chunked": {"chunk_size": 4}}),
    "dilated": dict(mixers="dilated", sliding_window=3),
    "global_local": dict(
        mixers="global_local", sliding_window=3, mixer_options={"global_local": {"global_positions": [0, 2]}}
    ),
    "random blocks": dict(
        mixers="global_local",
        sliding_window=2,
        mixer_options={"global_local": {"random_blocks": 1, "block_size": 2}},
    ),
    "window of 1": dict(mixers="sliding", sliding_window=1),
    "window of 4": dict(mixers="sliding", sliding_window=4),
    "window past the text": dict(mixers="sliding", sliding_window=40),
}


@dataclass(frozen=True)
class BackendSubject:
    """A backend under the name of its attention implementation."""

    name: str

    @functools.cached_property
    def base(self) -> dict[str, Any]:
        """The plainest layers that it serves: all keys, or those of a window."""
        for fields in (dict(mixers="full"), dict(mixers="sliding", sliding_window=5)):
            if unless_refused(functools.partial(_build, True, self.name, **fields)) is not None:
                return fields
        raise AssertionError("the backend serves neither full nor sliding attention")

    def pair(self, causal: bool, **fields: Any) -> tuple[Any, Any]:
        """Return two stacks of equal weights, by `eager` and by the backend, or skip what it refuses to build."""
        fields = {**self.base, "num_key_value_heads": 6, **fields}
        other = unless_refused(functools.partial(_build, causal, self.name, **fields))
        if other is None:
            raise Skip("refused when the model is built")
        return _build(causal, "eager", **fields), other

    def compare(self, causal: bool, what: str, *cases: Inputs, train: bool = True, **fields: Any) -> None:
        """Compare forward and gradient with those of `eager`."""
        model, other = self.pair(causal, **fields)
        for batch, inputs in cases:
            # What queries that are no tokens return is nobody's business.
            real = inputs.get("attention_mask", torch.ones_like(batch))
            real = torch.ones_like(batch).bool() if real.ndim == 4 else real.bool()
            where = f"{label(causal)}, {what}, length {batch.shape[1]}"
            with plain_flex():
                actual = unless_refused(functools.partial(states, other.eval(), batch, **inputs), other.layers[0])
            if actual is None:
                continue
            assert_close(actual[real], states(model, batch, **inputs)[real], where)
            if train:
                trained = unless_refused(functools.partial(_train, other, batch, inputs, real), other.layers[0])
                if trained is not None:
                    assert_gradients_close(trained, _train(model, batch, inputs, real), where)


def _build(causal: bool, backend: str, **fields: Any) -> Any:
    config: Any = TxDecoderConfig if causal else TxEncoderConfig
    kind = TxDecoderModel if causal else TxEncoderModel
    family = {} if causal else {"type_vocab_size": 0}
    return build_large(kind, config(**{**SIZES, **family, **fields}, attn_implementation=backend))


def _train(model: Any, batch: torch.Tensor, inputs: dict[str, Any], real: torch.Tensor) -> dict[str, torch.Tensor]:
    return gradients(model, run(model.train(), batch, **inputs)[real])


def _padded(side: str, seed: int = 77) -> Inputs:
    length = 2 * LENGTH if side == "interior" else LENGTH + 2
    sizes = [LENGTH, 4]
    rows = [tokens(size, seed=size) for size in sizes]
    batch, mask = place(rows, padded_columns(sizes, side, length), length, seed=seed)
    return batch, {"attention_mask": mask}


@BACKEND_CHECKS.add
def registered_with_mask(subject: BackendSubject) -> None:
    """The backend has a mask function of the same name: without one it would get no mask at all."""
    expect(subject.name == "eager" or subject.name in ALL_ATTENTION_FUNCTIONS.valid_keys(), "no attention function")
    expect(subject.name in ALL_MASK_ATTENTION_FUNCTIONS, "no mask function, so padding would be ignored")


@BACKEND_CHECKS.add
def plain_attention(subject: BackendSubject) -> None:
    """Without any feature it equals `eager`, forward and gradient, at odd lengths."""
    for causal in (True, False):
        cases: list[Inputs] = [(tokens(2, length), {}) for length in (1, 7, 17)]
        subject.compare(causal, "plain", *cases)
        subject.compare(causal, "plain", (tokens(1, 301), {}), train=False, max_position_embeddings=512)


@BACKEND_CHECKS.add
def shared_heads(subject: BackendSubject) -> None:
    """Query heads that share key heads use the right ones."""
    for causal in (True, False):
        for shared in (1, 2, 3):
            subject.compare(causal, f"{shared} key heads", (tokens(2, LENGTH), {}), num_key_value_heads=shared)


@BACKEND_CHECKS.add
def masked_padding(subject: BackendSubject) -> None:
    """Padding on the left, on the right and inside of a text equals `eager`, whatever tokens the pads hold."""
    for causal in (True, False):
        for side in ("left", "right", "interior"):
            subject.compare(causal, f"{side} padding", _padded(side), _padded(side, seed=78))


def _feature(subject: BackendSubject, *names: str, causal: tuple[bool, ...] = (True, False)) -> None:
    refused = []
    for name in names:
        for direction in causal:
            try:
                subject.compare(direction, name, (tokens(2, LENGTH), {}), _padded("left"), **FEATURES[name])
            except Skip:
                refused.append(name)
    if len(refused) == len(names) * len(causal):
        raise Skip("refused when the model is built")


@BACKEND_CHECKS.add
def windows(subject: BackendSubject) -> None:
    """A window has as many keys as `eager` sees, from one to more than there are."""
    _feature(subject, "window of 1", "window of 4", "window past the text")


@BACKEND_CHECKS.add
def patterns(subject: BackendSubject) -> None:
    """Chunks, dilated windows, global positions and random blocks equal `eager`, or are refused."""
    _feature(subject, "chunked", "dilated", "global_local", "random blocks")


@BACKEND_CHECKS.add
def softcap(subject: BackendSubject) -> None:
    """A softcap bounds the scores, or is refused."""
    _feature(subject, "softcap")


@BACKEND_CHECKS.add
def sinks(subject: BackendSubject) -> None:
    """Attention sinks take their share and get their gradient, or are refused."""
    _feature(subject, "sinks")


@BACKEND_CHECKS.add
def scale(subject: BackendSubject) -> None:
    """The factor of the scores is the one that is given."""
    _feature(subject, "scale")


@BACKEND_CHECKS.add
def position_bias(subject: BackendSubject) -> None:
    """Fixed and learned biases of the positions are added and get their gradient, or are refused."""
    _feature(subject, "alibi", "relative")


@BACKEND_CHECKS.add
def packed_documents(subject: BackendSubject) -> None:
    """Documents packed in one row do not see each other, with and without a mask, or are refused."""
    sizes = (5, 1, 7)
    row = torch.cat([tokens(size, seed=size) for size in sizes])[None]
    position_ids = torch.cat([torch.arange(size) for size in sizes])[None]
    for causal in (True, False):
        packed: Inputs = (row, {"position_ids": position_ids})
        masked: Inputs = (row, {"position_ids": position_ids, "attention_mask": torch.ones_like(row)})
        subject.compare(causal, "packed", packed, masked)


def _in_calls(model: Any, case: Inputs, cache: Any, ends: list[int]) -> torch.Tensor:
    batch, mask = case[0], case[1]["attention_mask"]
    parts = [
        states(model, batch[:, begin:end], attention_mask=mask[:, :end], cache=cache)
        for begin, end in zip([0, *ends], ends, strict=False)
    ]
    return torch.cat(parts, dim=1)


@BACKEND_CHECKS.add
def growing_cache(subject: BackendSubject) -> None:
    """A padded batch in several calls with a cache equals `eager` in one."""
    model, other = subject.pair(True)
    case = _padded("left")
    real = case[1]["attention_mask"].bool()
    length = case[0].shape[1]
    expected = states(model, case[0], **case[1])[real]
    for ends in ([1, length], [5, 8, length], list(range(1, length + 1))):
        call = functools.partial(_in_calls, other, case, DynamicCache(config=other.config), ends)
        actual = unless_refused(call, other.layers[0])
        if actual is None:
            raise Skip("refused before the first layer")
        assert_close(actual[real], expected, f"calls that end at {ends}")


@BACKEND_CHECKS.add
def fixed_cache(subject: BackendSubject) -> None:
    """A static cache, whose slots are not all filled, gives what `eager` gives without."""
    model, other = subject.pair(True)
    case = _padded("left")
    real = case[1]["attention_mask"].bool()
    length = case[0].shape[1]
    cache = StaticCache(config=other.config, max_cache_len=length + 6)
    call = functools.partial(_in_calls, other, case, cache, [5, 8, *range(9, length + 1)])
    actual = unless_refused(call, other.layers[0])
    if actual is None:
        raise Skip("refused before the first layer")
    assert_close(actual[real], states(model, case[0], **case[1])[real], "static cache")


@BACKEND_CHECKS.add
def given_masks(subject: BackendSubject) -> None:
    """A mask of the caller for all pairs, bool or added to the scores, replaces all others, or is refused."""
    size = (2, 1, LENGTH, LENGTH)
    seen = (normal(*size, seed=3) > -0.3) | torch.eye(LENGTH).bool()
    added = normal(*size, seed=4).masked_fill(~seen, torch.finfo(torch.float32).min)
    for causal in (True, False):
        for mask in (seen, added):
            case: Inputs = (tokens(2, LENGTH), {"attention_mask": mask})
            subject.compare(causal, f"a mask of {mask.dtype}", case, train=False)


@BACKEND_CHECKS.add
def cross_attention(subject: BackendSubject) -> None:
    """A decoder sees all of its encoder's states but the pads, when there are as many as its own and when not."""
    cross = CrossSubject("full", CROSS_REFERENCES["full"])
    other = unless_refused(functools.partial(cross.build, subject.name))
    if other is None:
        raise Skip("refused when the model is built")
    model, (source, inputs) = cross.build(), _padded("left")
    for length in (1, LENGTH, source.shape[1]):
        target = tokens(2, length)
        for given in ({}, inputs):
            call = functools.partial(crossed, other, source, target, **given)
            actual = unless_refused(call, other.decoder.layers[0])
            if actual is not None:
                assert_close(actual, crossed(model, source, target, **given), f"{length} queries, {list(given)}")


@BACKEND_CHECKS.add
def no_dropout_in_eval(subject: BackendSubject) -> None:
    """Nothing is dropped outside of training."""
    subject.compare(True, "a dropout of 0.5 in eval", (tokens(2, LENGTH), {}), train=False, attention_dropout=0.5)


@BACKEND_CHECKS.add
def dropout_in_training(subject: BackendSubject) -> None:
    """Dropout depends on the seed alone, drops for the gradient what it dropped forward, or is refused."""
    _, other = subject.pair(True, attention_dropout=0.5)
    other = other.double().train()
    batch = tokens(2, LENGTH)

    def call(seed: int) -> torch.Tensor:
        torch.manual_seed(seed)
        return run(other, batch).sin().sum()

    first = unless_refused(functools.partial(call, 1), other.layers[0])
    if first is None:
        raise Skip("refused before the first layer")
    expect(torch.equal(first, call(1)), "two calls with one seed differ")
    expect(not torch.equal(first, call(2)), "nothing is dropped in training")
    parameters = [layer.mixer.v_proj.weight for layer in other.layers]
    grads = torch.autograd.grad(first, parameters)
    step = [torch.randn(parameter.shape, dtype=torch.double) for parameter in parameters]
    slope = sum((grad * part).sum() for grad, part in zip(grads, step, strict=True))
    ends = []
    with torch.no_grad():
        for sign in (1, -2):  # ahead by one step, then behind by one
            for parameter, part in zip(parameters, step, strict=True):
                parameter.add_(part, alpha=sign * 1e-3)
            ends.append(call(1))
    measured = (ends[0] - ends[1]) / 2e-3
    # A softmax in float32 and the third derivative leave less than a hundredth; a wrong mask is wrong by a half.
    assert_close(slope[None], measured[None], "slope by gradient and by difference", 1e-2)  # type: ignore[index]


@BACKEND_CHECKS.add
def nothing_to_see(subject: BackendSubject) -> None:
    """A row of pads only gives finite states and gradients, and leaves the other rows alone."""
    for causal in (True, False):
        model, other = subject.pair(causal)
        batch = tokens(2, LENGTH)
        mask = torch.ones_like(batch)
        mask[0] = 0

        actual = unless_refused(functools.partial(states, other, batch, attention_mask=mask), other.layers[0])
        if actual is None:
            continue
        assert_finite(actual, f"{label(causal)}, states")
        assert_close(actual[1], states(model, batch[1:])[0], f"{label(causal)}, the other row")

        def train(other: Any = other, batch: Any = batch, mask: Any = mask) -> dict[str, torch.Tensor]:
            return gradients(other, run(other.train(), batch, attention_mask=mask))

        for name, grad in (unless_refused(train, other.layers[0]) or {}).items():
            assert_finite(grad, f"{label(causal)}, gradient of {name}")


@BACKEND_CHECKS.add
def large_scores(subject: BackendSubject) -> None:
    """Scores of thousands give finite states, in float64, float32 and bfloat16."""
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        for causal in (True, False):
            _, other = subject.pair(causal, attention_scale=1000.0)
            batch, inputs = _padded("left")
            actual = unless_refused(functools.partial(states, other.to(dtype), batch, **inputs), other.layers[0])
            if actual is not None:
                expect(actual.dtype == dtype, f"{label(causal)}, {dtype}: states are {actual.dtype}")
                assert_finite(actual, f"{label(causal)}, {dtype}: states")


@BACKEND_CHECKS.add
def low_precision(subject: BackendSubject) -> None:
    """In bfloat16 it is as near to float32 as `eager` is, but for a factor of two."""
    for causal in (True, False):
        model, other = subject.pair(causal)
        batch, inputs = _padded("left")
        real = inputs["attention_mask"].bool()
        expected = states(model, batch, **inputs)[real]
        rounded = states(model.to(torch.bfloat16), batch, **inputs)[real].float()
        call = functools.partial(states, other.to(torch.bfloat16), batch, **inputs)
        actual = unless_refused(call, other.layers[0])
        if actual is not None:
            own, of_eager = ((one - expected).abs().mean().item() for one in (actual[real].float(), rounded))
            expect(own <= 2 * of_eager, f"{label(causal)}: off by {own:.1e} on average, eager by {of_eager:.1e}")


@BACKEND_CHECKS.add
def refusals(subject: BackendSubject) -> None:
    """What is refused when a model is built is refused by a switch as well, with the layer and who can, and the model
    keeps the backend that it had."""
    for name, fields in FEATURES.items():
        for causal in (True, False):
            fields = {**subject.base, **fields}
            model = _build(causal, "eager", **fields)
            built = unless_refused(functools.partial(_build, causal, subject.name, **fields))
            try:
                model.set_attn_implementation(subject.name)
            except ValueError as error:
                expect(built is None, f"{name}: refused by a switch, and not when a model is built")
                expect("layer" in str(error) and "use one of" in str(error), f"{name}: says too little: {error}")
                backend = model.config._attn_implementation
                expect(backend == "eager", f"{name}: after the refusal the backend is {backend!r}")
            else:
                expect(built is not None, f"{name}: refused when a model is built, and not by a switch")


_LIBRARY: dict[str, Any] = dict(
    vocab_size=61, hidden_size=24, num_hidden_layers=2, num_attention_heads=6, intermediate_size=20
)


@BACKEND_CHECKS.add
def models_of_the_library(subject: BackendSubject) -> None:
    """In Llama, Mistral and BERT it equals `eager`, with padding and a cache, or is refused."""
    models: list[tuple[type, Any]] = [
        (LlamaModel, LlamaConfig(**_LIBRARY, num_key_value_heads=2)),
        (MistralModel, MistralConfig(**_LIBRARY, num_key_value_heads=2, sliding_window=4, head_dim=4)),
        (BertModel, BertConfig(**_LIBRARY)),
    ]
    refused = 0
    for kind, config in models:
        model = build_large(kind, config, **({"add_pooling_layer": False} if kind is BertModel else {}))
        batch, inputs = _padded("left")
        real = inputs["attention_mask"].bool()
        model.set_attn_implementation("eager")
        expected = _library_states(model, batch, inputs["attention_mask"])[real]
        if unless_refused(lambda: [model.set_attn_implementation(subject.name)]) is None:  # noqa: B023
            refused += 1
            continue
        call = functools.partial(_library_states, model, batch, inputs["attention_mask"])
        layers: nn.ModuleList = model.encoder.layer if kind is BertModel else model.layers
        actual = unless_refused(call, layers[0])
        if actual is None:
            refused += 1
        else:
            assert_close(actual[real], expected, kind.__name__)
    if refused == len(models):
        raise Skip("refused by all of them")


def _library_states(model: Any, batch: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    with torch.no_grad():
        if isinstance(model, BertModel):
            return model(batch, attention_mask=mask, position_ids=positions).last_hidden_state
        cache = DynamicCache(config=model.config)
        parts = [
            model(batch[:, a:b], attention_mask=mask[:, :b], position_ids=positions[:, a:b], cache=cache)
            for a, b in ((0, 6), (6, 9), (9, batch.shape[1]))
        ]
        return torch.cat([part.last_hidden_state for part in parts], dim=1)


def check_backend(name: str) -> list[Check]:
    """Return the checks of an attention backend; nothing runs yet.

    Args:
        name: an attention implementation of transformers' tables, where hf_tx and plug-ins register theirs. Those of
            flash attention need a GPU.

    Raises:
        ValueError: the name is unknown.
    """
    known = ["eager", *ALL_ATTENTION_FUNCTIONS.valid_keys()]
    if name not in known:
        raise ValueError(f"unknown backend {name!r}.{nearest(name, known)} Known: {', '.join(sorted(known))}.")
    return BACKEND_CHECKS.of(f"backend {name}", BackendSubject(name))
