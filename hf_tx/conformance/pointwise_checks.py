# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""The checks of what maps every position on its own: norms and feed-forward layers, by themselves and in a tiny
encoder with large random weights, against their reference."""

import copy
import functools
import itertools
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassError
from torch import nn

from ..models.configuration_encoder import TxEncoderConfig
from ..models.modeling_encoder import TxEncoderModel
from ..models.parts import Part, PartRegistry
from ..plugins import resolve_reference
from .checks import Check, CheckTable, Skip
from .mixer_subject import LENGTH, SIZES, states
from .references import Reference
from .tools import (
    assert_close,
    assert_finite,
    assert_gradients_close,
    build_large,
    expect,
    meta_tensors,
    normal,
    registered_while_run,
    tokens,
)

POINTWISE_CHECKS = CheckTable()
HALVES = (torch.bfloat16, torch.float16)
#: Shapes before the features: a position, a text, a batch, heads.
SHAPES = ((), (1,), (2, LENGTH), (2, 3, 5))


@dataclass(frozen=True)
class PointwiseSubject:
    """A norm or a feed-forward layer under its name, with its reference.

    Attributes:
        name: its name.
        registry: where it has that name.
        place: the attribute of a layer that holds it.
        reference: what it must equal.
    """

    name: str
    registry: PartRegistry[Any]
    place: str
    reference: Reference

    def config(self, setting: int = 0, **changes: Any) -> Any:
        """Return the config of an encoder with the part, in one of the settings of its reference."""
        fields = {**self.reference.settings[setting], **changes}
        if options := fields.pop("options", None):
            fields[self.registry.options_field] = {self.name: options}
        kind: Any = TxEncoderConfig
        return kind(**{**SIZES, "type_vocab_size": 0, self.registry.kind: self.name, **fields})

    def build(self, setting: int = 0, **changes: Any) -> Any:
        """Return an encoder. Equal arguments give equal weights."""
        if self.registry.get(self.name).module is None:
            raise Skip("there is nothing to check: a stack with it leaves this part out")
        return build_large(TxEncoderModel, self.config(setting, **changes))

    def module(self, setting: int = 0) -> nn.Module:
        """Return the part of the first layer."""
        return getattr(self.build(setting).layers[0], self.place)

    def each(self) -> Iterator[tuple[str, nn.Module]]:
        """Yield, for every setting, what to call it and the part."""
        for setting in range(len(self.reference.settings)):
            yield f"setting {setting}", self.module(setting)

    def expected(self, module: nn.Module, inputs: torch.Tensor) -> torch.Tensor:
        """Return what the reference gives."""
        return self.reference.function(module, inputs)


def inputs_of(*shape: int, size: int = SIZES["hidden_size"], scale: float = 1.0, seed: int = 3) -> torch.Tensor:
    """Draw inputs. *Shape:* `(*shape, size)`, float32."""
    return normal(*shape, size, seed=seed) * scale


def forward_and_gradients(
    function: Callable[[torch.Tensor], torch.Tensor], module: nn.Module, inputs: torch.Tensor
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Return what a function gives, and the gradients of a random weighting of it, by the name of the parameter."""
    leaf = inputs.clone().requires_grad_()
    outputs = function(leaf)
    named = {"its input": leaf, **dict(module.named_parameters())}
    weight = normal(*outputs.shape, seed=5).to(outputs.dtype)
    grads = torch.autograd.grad((outputs * weight).sum(), list(named.values()), allow_unused=True)
    pairs = zip(named.items(), grads, strict=True)
    return outputs.detach(), {name: torch.zeros_like(of) if grad is None else grad for (name, of), grad in pairs}


# ---------------------------------------------------------------------------------------------------------- reference
@POINTWISE_CHECKS.add
@torch.no_grad()
def equals_reference(subject: PointwiseSubject) -> None:
    """The output equals that of the reference, for inputs of any shape and of several sizes."""
    for what, module in subject.each():
        for shape, scale in itertools.product(SHAPES, (0.1, 1.0, 30.0)):
            inputs = inputs_of(*shape, scale=scale)
            assert_close(module(inputs), subject.expected(module, inputs), f"{what}, shape {shape}, times {scale}")


@POINTWISE_CHECKS.add
def gradients_equal_reference(subject: PointwiseSubject) -> None:
    """The gradients of the input and of all parameters equal those of the reference."""
    for what, module in subject.each():
        inputs = inputs_of(2, LENGTH)
        _, actual = forward_and_gradients(module, module, inputs)
        _, expected = forward_and_gradients(functools.partial(subject.expected, module), module, inputs)
        assert_gradients_close(actual, expected, what)


@POINTWISE_CHECKS.add
def all_parameters_learn(subject: PointwiseSubject) -> None:
    """Every parameter gets a gradient that is finite and not zero."""
    for what, module in subject.each():
        for name, grad in forward_and_gradients(module, module, inputs_of(2, LENGTH))[1].items():
            assert_finite(grad, f"{what}: gradient of {name}")
            expect(grad.abs().amax() > 0, f"{what}: {name} gets no gradient")


@POINTWISE_CHECKS.add
@torch.no_grad()
def position_wise(subject: PointwiseSubject) -> None:
    """A change at one position of one row changes nothing anywhere else, and a position is as it is alone."""
    for (what, module), training in itertools.product(subject.each(), (False, True)):
        module.train(training)
        inputs = inputs_of(3, LENGTH)
        changed = inputs.clone()
        changed[0, 4] = 5 * inputs_of(seed=4)
        outputs = []
        for each in (inputs, changed):
            torch.manual_seed(0)  # of its dropout
            outputs.append(module(each))
        before, after = outputs
        elsewhere = torch.ones(3, LENGTH, dtype=torch.bool)
        elsewhere[0, 4] = False
        what = f"{what}, {'training' if training else 'evaluation'}"
        assert_close(after[elsewhere], before[elsewhere], f"{what}: positions that were not changed")
        if not training:
            assert_close(module(inputs[1:, 3:4])[0, 0], before[1, 3], f"{what}: a position alone")


# ---------------------------------------------------------------------------------------------------------- precision
@POINTWISE_CHECKS.add
def dtype_kept(subject: PointwiseSubject) -> None:
    """The output has the dtype of the input, and is finite, as its gradients are, in all of them."""
    for what, module in subject.each():
        for dtype in (torch.float64, torch.float32, *HALVES):
            cast = copy.deepcopy(module).to(dtype)
            outputs, grads = forward_and_gradients(cast, cast, inputs_of(2, LENGTH).to(dtype))
            expect(outputs.dtype == dtype, f"{what}: {dtype} comes out as {outputs.dtype}")
            for name, values in {"output": outputs, **grads}.items():
                assert_finite(values, f"{what}, {dtype}: {name}")


@POINTWISE_CHECKS.add
def low_precision(subject: PointwiseSubject) -> None:
    """In bfloat16 and float16, output and gradients are as near to float32 as those of the reference, but for a factor
    of two and a rounding."""
    for (what, module), dtype in itertools.product(subject.each(), HALVES):
        compare_precision(subject, module, inputs_of(2, LENGTH), dtype, f"{what}, {dtype}")


def compare_precision(
    subject: PointwiseSubject, module: nn.Module, inputs: torch.Tensor, dtype: torch.dtype, what: str
) -> None:
    """Compare the errors of a part and of its reference in one dtype."""
    half, inputs = copy.deepcopy(module).to(dtype), inputs.to(dtype)
    full = copy.deepcopy(half).float()

    def flat(function: Callable[[torch.Tensor], torch.Tensor], of: nn.Module, x: torch.Tensor) -> list[torch.Tensor]:
        outputs, grads = forward_and_gradients(function, of, x)
        return [outputs.float().flatten(), torch.cat([grad.float().flatten() for grad in grads.values()])]

    exact = flat(lambda x: subject.expected(full, x), full, inputs.float())
    by_reference = flat(lambda x: subject.expected(half, x), half, inputs)
    own = flat(half, half, inputs)
    for name, one, other, true in zip(("output", "gradients"), own, by_reference, exact, strict=True):
        error, allowed = (((each - true).norm() / true.norm()).item() for each in (one, other))
        bound = 2 * allowed + torch.finfo(dtype).eps
        expect(error <= bound, f"{what}, {name}: off by {error:.1e} of the norm, the reference by {allowed:.1e}")


@POINTWISE_CHECKS.add
def large_inputs(subject: PointwiseSubject) -> None:
    """Inputs a thousand times as large give finite outputs and gradients, in float64, float32 and bfloat16."""
    for (what, module), dtype in itertools.product(subject.each(), (torch.float64, torch.float32, torch.bfloat16)):
        cast = copy.deepcopy(module).to(dtype)
        outputs, grads = forward_and_gradients(cast, cast, inputs_of(2, LENGTH, scale=1000.0).to(dtype))
        for name, values in {"output": outputs, **grads}.items():
            assert_finite(values, f"{what}, {dtype}: {name}")


# ------------------------------------------------------------------------------------------------- config and weights
@POINTWISE_CHECKS.add
def options_come_back(subject: PointwiseSubject) -> None:
    """A saved config comes back with the same part and options."""
    for setting in range(len(subject.reference.settings)):
        config = subject.config(setting)
        with tempfile.TemporaryDirectory() as folder:
            config.save_pretrained(folder, include_code=False)
            loaded = type(config).from_pretrained(folder)
        for field in (subject.registry.kind, subject.registry.options_field):
            before, after = getattr(config, field), getattr(loaded, field)
            expect(before == after, f"setting {setting}: {field} = {before!r} comes back as {after!r}")


@POINTWISE_CHECKS.add
def unknown_option_refused(subject: PointwiseSubject) -> None:
    """An option that the part does not have is refused with its name."""
    try:
        subject.config(options={"nonsense": 1})
    except (ValueError, StrictDataclassError) as error:
        expect(subject.name in str(error), f"the refusal does not name the part: {error}")
    else:
        raise AssertionError("an option that the part does not have is accepted")


@POINTWISE_CHECKS.add
def initial_values(subject: PointwiseSubject) -> None:
    """What is built on the meta device has, once initialised, the values of what is built at once, for equal draws."""
    for setting in range(len(subject.reference.settings)):
        subject.module(setting)
        config = subject.config(setting)
        built = TxEncoderModel(config)
        with torch.device("meta"):
            empty = TxEncoderModel(config)
        empty.to_empty(device=torch.get_default_device())
        values = []
        for model in (built, empty):
            for module in model.modules():
                module._is_hf_initialized = False  # type: ignore[assignment]
            torch.manual_seed(1)
            model.initialize_weights()
            values.append(_of_part(subject, model))
        expect(values[0].keys() == values[1].keys(), f"names differ: {values[0].keys() ^ values[1].keys()}")
        for name, value in values[0].items():
            other = values[1][name]
            expect(torch.equal(value, other), f"setting {setting}: {name} differs from that of a model built at once")


def _of_part(subject: PointwiseSubject, model: Any) -> dict[str, torch.Tensor]:
    """Return the parameters and buffers of the part in the layers."""
    tensors = dict([*model.named_parameters(), *model.named_buffers()])
    return {name: tensor for name, tensor in tensors.items() if f".{subject.place}." in name}


@POINTWISE_CHECKS.add
def partial_checkpoint(subject: PointwiseSubject) -> None:
    """A load keeps what the checkpoint has, to the bit, and draws what it lacks, whichever parameter that is."""
    model = subject.build()
    state = model.state_dict()
    mark = f"layers.0.{subject.place}."
    for own in [name.removeprefix(mark) for name in state if name.startswith(mark)]:
        kept = {name: value for name, value in state.items() if not name.endswith(f".{subject.place}.{own}")}
        given = {name: value.clone() for name, value in kept.items()}  # the model may take the memory over
        loaded = type(model).from_pretrained(None, config=subject.config(), state_dict=given).state_dict()
        for name, value in loaded.items():
            assert_finite(value, f"{name} after a load without {own}")
            expect(name not in kept or torch.equal(value, kept[name]), f"{name} changes by a load without {own}")


@POINTWISE_CHECKS.add
def save_and_load(subject: PointwiseSubject) -> None:
    """A saved model comes back with the same parameters and buffers, gives the same, and leaves nothing on meta."""
    for setting in range(len(subject.reference.settings)):
        model = subject.build(setting)
        with tempfile.TemporaryDirectory() as folder:
            model.save_pretrained(folder, include_code=False)
            loaded = type(model).from_pretrained(folder).eval()
        left = meta_tensors(loaded)
        expect(not left, f"on the meta device after a load: {', '.join(left)}")
        before, after = _of_part(subject, model), _of_part(subject, loaded)
        expect(before.keys() == after.keys(), f"names differ: {before.keys() ^ after.keys()}")
        for name, tensor in before.items():
            expect(torch.equal(tensor, after[name]), f"setting {setting}: {name} changes by a load")
        batch = tokens(2, LENGTH)
        assert_close(states(loaded, batch), states(model, batch), f"setting {setting}: states after a load")


@POINTWISE_CHECKS.add_slow
def one_graph(subject: PointwiseSubject) -> None:
    """`torch.compile(fullgraph=True)` traces the part as one graph, which gives the same."""
    for what, module in subject.each():
        torch._dynamo.reset()
        compiled, inputs = torch.compile(module, fullgraph=True, backend="eager"), inputs_of(2, LENGTH)
        with torch.no_grad():
            assert_close(compiled(inputs), module(inputs), what)


def pointwise_checks(
    tables: tuple[CheckTable, ...],
    registry: PartRegistry[Any],
    place: str,
    name_or_part: str | Part,
    known: dict[str, Reference],
    reference: Callable[..., torch.Tensor] | None,
    settings: tuple[dict[str, Any], ...] | None,
) -> list[Check]:
    """Return the checks of a part; see `check_norm`."""
    kind = registry.kind.removesuffix("_type").replace("ffn", "feed-forward")
    name, part = (kind, name_or_part) if isinstance(name_or_part, Part) else (name_or_part, registry.get(name_or_part))
    found = None if isinstance(name_or_part, Part) else known.get(name)
    function = reference or (found.function if found is not None else resolve_reference(part))
    if function is None:
        raise ValueError(f"{kind} {name!r} has no reference to compare with; give reference=.")
    default = found.settings if found is not None else ({},)
    subject = PointwiseSubject(name, registry, place, Reference(function, settings or default))
    checks = [check for table in tables for check in table.of(f"{kind} {name}", subject)]
    return registered_while_run(checks, registry, name, part) if isinstance(name_or_part, Part) else checks
