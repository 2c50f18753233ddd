# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""The checks of an attention backend: with every feature it equals `eager`, or it refuses before it starts."""

import functools
import itertools
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
from .cross_checks import run as run_crossed
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
    tokens,
    unless_refused,
)

BACKEND_CHECKS = CheckTable()
Inputs = tuple[torch.Tensor, dict[str, Any]]

#: Tokens of a long text: more than three tiles of the usual sizes, and no multiple of one.
LONG = 300
#: Documents of a long text: some end where a tile does, one is a single token.
LONG_DOCUMENTS = (128, 1, 63, 64, 44)

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
    # Bands and far keys that cross the borders of tiles.
    "chunks of 90": dict(mixers="chunked", sliding_window=None, mixer_options={"chunked": {"chunk_size": 90}}),
    "dilated past a tile": dict(mixers="dilated", sliding_window=70),
    "global positions far away": dict(
        mixers="global_local", sliding_window=20, mixer_options={"global_local": {"global_positions": [0, 150]}}
    ),
    "random blocks far away": dict(
        mixers="global_local",
        sliding_window=20,
        mixer_options={"global_local": {"random_blocks": 2, "block_size": 16}},
    ),
    "window of 100": dict(mixers="sliding", sliding_window=100),
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
            expected = None
            if train:
                trained = unless_refused(functools.partial(_train, other, batch, inputs, real), other.layers[0])
                if trained is not None:  # one pass gives both
                    expected, grads = _train(model, batch, inputs, real)
                    assert_close(trained[0], expected, f"{where}, in training")
                    assert_gradients_close(trained[1], grads, where)
            # Without gradients a backend may take another path.
            actual = unless_refused(functools.partial(states, other.eval(), batch, **inputs), other.layers[0])
            if actual is not None:
                if expected is None or model.config.attention_dropout:
                    expected = states(model.eval(), batch, **inputs)[real]
                assert_close(actual[real], expected, where)


def _config(causal: bool, backend: str, **fields: Any) -> Any:
    config: Any = TxDecoderConfig if causal else TxEncoderConfig
    family = {} if causal else {"type_vocab_size": 0}
    return config(**{**SIZES, **family, **fields}, attn_implementation=backend)


def _build(causal: bool, backend: str, **fields: Any) -> Any:
    return build_large(TxDecoderModel if causal else TxEncoderModel, _config(causal, backend, **fields))


def _empty(causal: bool, backend: str, **fields: Any) -> Any:
    """Return a model without weights: what is refused is known before there are any."""
    with torch.device("meta"):
        return (TxDecoderModel if causal else TxEncoderModel)(_config(causal, backend, **fields))


def _flat(parts: dict[str, torch.Tensor]) -> torch.Tensor:
    return torch.cat([part.flatten().float() for part in parts.values()])


def _train(
    model: Any, batch: torch.Tensor, inputs: dict[str, Any], real: torch.Tensor
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Return the states of real tokens in training, and the gradients."""
    found = run(model.train(), batch, **inputs)[real]
    return found.detach(), gradients(model, found)


def _padded(side: str, seed: int = 77, longest: int = LENGTH) -> Inputs:
    sizes = [longest, 4 if longest == LENGTH else longest // 2 - 15]
    length = 2 * longest if side == "interior" else longest + 2
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
        subject.compare(causal, "plain", *[(tokens(2, length), {}) for length in (1, 7, 17, LONG + 1)])


@BACKEND_CHECKS.add
def shared_heads(subject: BackendSubject) -> None:
    """Query heads that share key heads use the right ones."""
    for causal in (True, False):
        for shared in (1, 2, 3):
            cases: list[Inputs] = [(tokens(2, LENGTH), {})]
            if shared == 2:
                cases.append((tokens(1, LONG), {}))
            subject.compare(causal, f"{shared} key heads", *cases, num_key_value_heads=shared)


@BACKEND_CHECKS.add
def masked_padding(subject: BackendSubject) -> None:
    """Padding on the left, on the right and inside of a text equals `eager`, whatever tokens the pads hold."""
    for causal in (True, False):
        for side in ("left", "right", "interior"):
            cases = [_padded(side)]
            if side != "interior":
                cases.append(_padded(side, longest=LONG))
            subject.compare(causal, f"{side} padding", *cases)


def _feature(subject: BackendSubject, *names: str, lengths: tuple[int, ...] = (LENGTH, LONG)) -> None:
    refused = []
    for name, causal in itertools.product(names, (True, False)):
        try:
            cases = [_padded("left", longest=length) for length in lengths]
            if LENGTH in lengths:
                cases.append((tokens(2, LENGTH), {}))
            subject.compare(causal, name, *cases, num_hidden_layers=1, **FEATURES[name])
        except Skip:
            refused.append(name)
    if len(refused) == 2 * len(names):
        raise Skip("refused when the model is built")


@BACKEND_CHECKS.add
def windows(subject: BackendSubject) -> None:
    """A window has as many keys as `eager` sees, from one to more than there are."""
    _feature(subject, "window of 1", "window of 4", "window past the text", lengths=(LENGTH,))
    _feature(subject, "window of 100", lengths=(LONG,))


@BACKEND_CHECKS.add
def patterns(subject: BackendSubject) -> None:
    """Chunks, dilated windows, global positions and random blocks equal `eager`, or are refused."""
    near = ("chunked", "dilated", "global_local", "random blocks")
    far = ("chunks of 90", "dilated past a tile", "global positions far away", "random blocks far away")
    refused = []
    for names, length in ((near, LENGTH), (far, LONG)):
        try:
            _feature(subject, *names, lengths=(length,))
        except Skip as skip:
            refused.append(skip)
    if len(refused) == 2:
        raise refused[0]


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
    for sizes in ((5, 1, 7), LONG_DOCUMENTS):
        row = torch.cat([tokens(size, seed=size) for size in sizes])[None]
        position_ids = torch.cat([torch.arange(size) for size in sizes])[None]
        for causal in (True, False):
            packed: Inputs = (row, {"position_ids": position_ids})
            masked: Inputs = (row, {"position_ids": position_ids, "attention_mask": torch.ones_like(row)})
            subject.compare(causal, "packed", packed, *([masked] if sizes is not LONG_DOCUMENTS else []))


def _in_calls(model: Any, case: Inputs, cache: Any, ends: list[int]) -> torch.Tensor:
    batch, mask = case[0], case[1]["attention_mask"]
    parts = [
        states(model, batch[:, begin:end], attention_mask=mask[:, :end], cache=cache)
        for begin, end in zip([0, *ends], ends, strict=False)
    ]
    return torch.cat(parts, dim=1)


@BACKEND_CHECKS.add
def growing_cache(subject: BackendSubject) -> None:
    """A padded batch in several calls with a cache equals `eager` in one: full attention, and within a window."""
    short, long = LENGTH + 2, LONG + 2
    cases = [
        (_padded("left"), ([1, short], [5, 8, short], list(range(1, short + 1)))),
        (_padded("left", longest=LONG), ([100, 230, long], [long - 8, *range(long - 7, long + 1)])),
    ]
    for fields in ({}, dict(mixers="sliding", sliding_window=20)):
        model, other = subject.pair(True, **fields)
        for case, calls in cases:
            real = case[1]["attention_mask"].bool()
            expected = states(model, case[0], **case[1])[real]
            for ends in calls:
                call = functools.partial(_in_calls, other, case, DynamicCache(config=other.config), ends)
                actual = unless_refused(call, other.layers[0])
                if actual is None:
                    raise Skip("refused before the first layer")
                assert_close(actual[real], expected, f"calls that end at {ends}")


@BACKEND_CHECKS.add
def fixed_cache(subject: BackendSubject) -> None:
    """A static cache, whose slots are not all filled, gives what `eager` gives without."""
    for fields in ({}, dict(mixers="sliding", sliding_window=20)):
        model, other = subject.pair(True, **fields)
        for case, first in ((_padded("left"), 5), (_padded("left", longest=LONG), LONG - 8)):
            real = case[1]["attention_mask"].bool()
            length = case[0].shape[1]
            cache = StaticCache(config=other.config, max_cache_len=length + 6)
            call = functools.partial(_in_calls, other, case, cache, [first, *range(first + 3, length + 1)])
            actual = unless_refused(call, other.layers[0])
            if actual is None:
                raise Skip("refused before the first layer")
            assert_close(actual[real], states(model, case[0], **case[1])[real], f"a static cache for {length} tokens")


@BACKEND_CHECKS.add
def given_masks(subject: BackendSubject) -> None:
    """A mask of the caller for all pairs, bool or added to the scores, replaces all others, or is refused."""
    for length in (LENGTH, LONG):
        size = (2, 1, length, length)
        seen = (normal(*size, seed=3) > -0.3) | torch.eye(length).bool()
        added = normal(*size, seed=4).masked_fill(~seen, torch.finfo(torch.float32).min)
        for causal in (True, False):
            for mask in (seen, added):
                case: Inputs = (tokens(2, length), {"attention_mask": mask})
                subject.compare(causal, f"a mask of {mask.dtype}", case, num_hidden_layers=1)


@BACKEND_CHECKS.add
def cross_attention(subject: BackendSubject) -> None:
    """A decoder sees all of its encoder's states but the pads, when there are as many as its own and when not."""
    cross = CrossSubject("full", CROSS_REFERENCES["full"])
    other = unless_refused(functools.partial(cross.build, subject.name))
    if other is None:
        raise Skip("refused when the model is built")
    model = cross.build()
    for (source, inputs), lengths in (
        (_padded("left"), (1, LENGTH, LENGTH + 2)),
        (_padded("left", longest=LONG), (1, LONG)),
    ):
        for length in lengths:
            target = tokens(2, length)
            for given in ({}, inputs):
                what = f"{length} queries of a source of {source.shape[1]}, {list(given)}"
                call = functools.partial(crossed, other.eval(), source, target, **given)
                actual = unless_refused(call, other.decoder.layers[0])
                if actual is None:
                    continue
                assert_close(actual, crossed(model, source, target, **given), what)

                def train(model: Any, source: Any = source, target: Any = target, given: Any = given) -> Any:
                    return gradients(model, run_crossed(model.train(), source, target, **given))

                if length == 1 or not given:
                    continue
                trained = unless_refused(functools.partial(train, other), other.decoder.layers[0])
                if trained is not None:
                    assert_gradients_close(trained, train(model), what)


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


def _share_kept(model: Any, batch: torch.Tensor) -> torch.Tensor:
    """Return which part of the weights of every query of the first layer is left by dropout, over what is expected.
    *Shape:* `(batch, length, heads)`."""
    mixer = model.layers[0].mixer
    with torch.no_grad():
        for name, value in (("q_proj", 0.0), ("v_proj", 1.0)):  # all weights are alike, all values are one
            getattr(mixer, name).weight.zero_()
            getattr(mixer, name).bias.fill_(value)
    seen: list[torch.Tensor] = []
    hook = mixer.o_proj.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].detach()))
    run(model, batch)
    hook.remove()
    return seen[0].unflatten(-1, (-1, mixer.head_dim))[..., 0]


@BACKEND_CHECKS.add
def dropout_is_independent(subject: BackendSubject) -> None:
    """Dropout drops as many weights as it is told to, others in every row and head, and others in every tile."""
    _, other = subject.pair(False, attention_dropout=0.5, attention_bias=True)
    torch.manual_seed(3)
    kept = unless_refused(lambda: _share_kept(other.train(), tokens(2, LONG)), other.layers[0])
    if kept is None:
        raise Skip("refused before the first layer")
    expect(abs(kept.mean() - 1) < 0.05, f"dropout of 0.5 leaves {kept.mean() / 2:.2f} of the weights")
    inside = kept[:, 20:-20].transpose(1, 2).flatten(0, 1)  # the same number of keys in a window
    alike = torch.corrcoef(inside).fill_diagonal_(0).abs().max()
    expect(alike < 0.5, f"two rows or heads drop alike: what is left of their queries correlates by {alike:.2f}")
    for lag in (16, 32, 64, 128):
        first, second = (part.flatten() for part in (inside[:, :-lag], inside[:, lag:]))
        alike = torch.corrcoef(torch.stack((first, second)))[0, 1].abs()
        expect(alike < 0.3, f"queries {lag} apart drop alike: what is left of them correlates by {alike:.2f}")


@BACKEND_CHECKS.add
def nothing_to_see(subject: BackendSubject) -> None:
    """A row of pads only gives finite states and gradients, in all precisions, and leaves the other rows alone."""
    for causal, dtype in itertools.product((True, False), (torch.float32, torch.bfloat16, torch.float16)):
        model, other = subject.pair(causal)
        what, batch = f"{label(causal)}, {dtype}", tokens(2, LENGTH)
        mask = torch.ones_like(batch)
        mask[0] = 0
        other.to(dtype)
        actual = unless_refused(functools.partial(states, other, batch, attention_mask=mask), other.layers[0])
        if actual is None:
            continue
        assert_finite(actual, f"{what}, states")
        if dtype == torch.float32:
            assert_close(actual[1], states(model, batch[1:])[0], f"{what}, the other row")

        def train(other: Any = other, batch: Any = batch, mask: Any = mask) -> dict[str, torch.Tensor]:
            return gradients(other, run(other.train(), batch, attention_mask=mask))

        for name, grad in (unless_refused(train, other.layers[0]) or {}).items():
            assert_finite(grad, f"{what}, gradient of {name}")


@BACKEND_CHECKS.add
def large_scores(subject: BackendSubject) -> None:
    """Scores of thousands give finite states, in float64, float32 and bfloat16; in float16, of hundreds."""
    for dtype in (torch.float64, torch.float32, torch.bfloat16, torch.float16):
        for causal in (True, False):
            _, other = subject.pair(causal, attention_scale=50.0 if dtype == torch.float16 else 1000.0)
            batch, inputs = _padded("left")
            actual = unless_refused(functools.partial(states, other.to(dtype), batch, **inputs), other.layers[0])
            if actual is not None:
                expect(actual.dtype == dtype, f"{label(causal)}, {dtype}: states are {actual.dtype}")
                assert_finite(actual, f"{label(causal)}, {dtype}: states")


@BACKEND_CHECKS.add
def low_precision(subject: BackendSubject) -> None:
    """In bfloat16 and float16 it is as near to float32 as `eager` is, but for a factor of two; gradients too."""
    for causal, dtype in itertools.product((True, False), (torch.bfloat16, torch.float16)):
        cases: list[Inputs] = [_padded("left"), *([(tokens(1, LONG), {})] if causal else [])]
        for batch, inputs in cases:
            model, other = subject.pair(causal)
            real = inputs.get("attention_mask", torch.ones_like(batch)).bool()
            what = f"{label(causal)}, {dtype}, length {batch.shape[1]}"

            def both(one: Any, batch: Any = batch, inputs: Any = inputs, real: Any = real) -> Any:
                return states(one.eval(), batch, **inputs)[real].float(), _flat(_train(one, batch, inputs, real)[1])

            actual = unless_refused(functools.partial(both, other.to(dtype)), other.layers[0])
            if actual is None:
                continue
            exact, rounded = both(model), both(model.to(dtype))
            for part, one, of_eager, true in zip(("states", "gradients"), actual, rounded, exact, strict=True):
                own, allowed = (((each - true).norm() / true.norm()).item() for each in (one, of_eager))
                expect(own <= 2 * allowed, f"{what}: {part} are off by {own:.1e}, those of eager by {allowed:.1e}")


@BACKEND_CHECKS.add
def refusals(subject: BackendSubject) -> None:
    """What is refused when a model is built is refused by a switch as well, with the layer and who can, and the model
    keeps the backend that it had."""
    for name, fields in FEATURES.items():
        for causal in (True, False):
            fields = {**subject.base, "num_hidden_layers": 1, **fields}
            model = _empty(causal, "eager", **fields)
            built = unless_refused(functools.partial(_empty, causal, subject.name, **fields))
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
        for batch, inputs in (_padded("left"), _padded("left", longest=LONG)):
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
                assert_close(actual[real], expected, f"{kind.__name__}, length {batch.shape[1]}")
    if refused == 2 * len(models):
        raise Skip("refused by all of them")


def _library_states(model: Any, batch: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    with torch.no_grad():
        if isinstance(model, BertModel):
            return model(batch, attention_mask=mask, position_ids=positions).last_hidden_state
        cache = DynamicCache(config=model.config)
        parts = [
            model(batch[:, a:b], attention_mask=mask[:, :b], position_ids=positions[:, a:b], cache=cache)
            for a, b in itertools.pairwise((0, 6, 9, batch.shape[1] - 1, batch.shape[1]))
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
