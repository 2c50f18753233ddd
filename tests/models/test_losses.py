# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Losses: the chunked and the sparse one equal the plain one, none holds more logits than it should, and all of them
divide by `num_items_in_batch`."""

from collections.abc import Callable
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from huggingface_hub.errors import StrictDataclassError
from tiny_models import FAMILIES, VOCABULARY, assert_close, build, config_of, enlarge, padded, tokens
from torch import nn
from torch.nn.functional import cross_entropy

import hf_tx
from hf_tx.models import losses

IGNORE = -100
CHUNK = 4  # positions
HEAD_SETTINGS = {
    "tied": {},
    "untied": dict(tie_word_embeddings=False),
    "bias": dict(lm_head_bias=True),
    "softcap": dict(final_logit_softcapping=2.0),
    "scale": dict(logit_scale=0.3),
    "scale_and_softcap": dict(logit_scale=3.0, final_logit_softcapping=4.0, tie_word_embeddings=False),
}
ONE_A_SETTING = [(family, name) for family in FAMILIES for name in HEAD_SETTINGS]


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(losses, "_CHUNK_ELEMENTS", CHUNK * VOCABULARY)


def language_model(family: str, **settings: Any) -> Any:
    """Build a model with a language-model head, in training mode and without dropout."""
    tied = settings.pop("tie_word_embeddings", True)
    model = build(family, head="lm", **settings) if tied else untied(family, **settings)
    return model.train()


def untied(family: str, **settings: Any) -> Any:
    config = config_of(family, **settings)
    config.tie_word_embeddings = False
    classes = {
        "decoder": hf_tx.TxDecoderForCausalLM,
        "encoder": hf_tx.TxEncoderForMaskedLM,
        "encoder_decoder": hf_tx.TxEncoderDecoderForConditionalGeneration,
    }
    model = enlarge(classes[family](config))
    assert model.lm_head.weight is not model.get_input_embeddings().weight
    return model


def inputs_for(family: str) -> dict[str, torch.Tensor]:
    """Return a batch whose rows have very unequal numbers of labels: about 10, 5, 3 and 1."""
    batch, mask = padded([tokens(size, seed=size) for size in (11, 6, 4, 2)], "right")
    labels = batch.masked_fill(mask == 0, IGNORE)
    if family == "encoder":
        labels[:, ::3] = IGNORE
    if family == "encoder_decoder":
        source, source_mask = padded([tokens(size, seed=20 + size) for size in (3, 5, 4, 7)], "right")
        return dict(input_ids=source, attention_mask=source_mask, labels=labels)
    return dict(input_ids=batch, attention_mask=mask, labels=labels)


def targets_of(family: str, labels: torch.Tensor) -> torch.Tensor:
    return torch.cat((labels[:, 1:], torch.full_like(labels[:, :1], IGNORE)), 1) if family == "decoder" else labels


@contextmanager
def head_rows(model: Any) -> Any:
    """Record how many rows every call of the head computes."""
    rows: list[int] = []
    hook = model.lm_head.register_forward_hook(lambda module, args, output: rows.append(output[..., 0].numel()))
    try:
        yield rows
    finally:
        hook.remove()


def loss_and_gradients(model: Any, **inputs: Any) -> tuple[Any, dict[str, torch.Tensor]]:
    model.zero_grad(set_to_none=True)
    outputs = model(**inputs)
    outputs.loss.backward()
    return outputs, {name: weight.grad.clone() for name, weight in model.named_parameters()}


def assert_same_gradients(
    actual: dict[str, torch.Tensor], expected: dict[str, torch.Tensor], tolerance: float = 1e-5
) -> None:
    assert actual.keys() == expected.keys()
    largest = max(value.abs().max().item() for value in expected.values())
    assert largest > 0
    for name, value in expected.items():
        scale = max(value.abs().max().item(), 1e-2 * largest)
        error = (actual[name] - value).abs().max().item() / scale
        assert error <= tolerance, f"{name}: differs by {error:.1e}"


def plain_loss(model: Any, family: str, inputs: dict[str, Any], num_items: Any = None) -> torch.Tensor:
    """The definition: mean, or sum over the number of items, of the cross-entropy of all labelled positions."""
    with torch.no_grad():
        logits = model.eval()(**{**inputs, "labels": None, **decoder_input(model, family, inputs)}).logits
    model.train()
    targets = targets_of(family, inputs["labels"])
    total = cross_entropy(logits.float().flatten(0, 1), targets.flatten(), reduction="sum")
    return total / ((targets != IGNORE).sum() if num_items is None else num_items)


def decoder_input(model: Any, family: str, inputs: dict[str, Any]) -> dict[str, Any]:
    if family != "encoder_decoder":
        return {}
    return dict(decoder_input_ids=model.prepare_decoder_input_ids_from_labels(inputs["labels"]))


# The value and its gradient.
@pytest.mark.parametrize(
    "num_items", [None, 7, torch.tensor(7), torch.tensor(7.0)], ids=["none", "int", "long", "float"]
)
@pytest.mark.parametrize("implementation", ["full", "chunked"])
@pytest.mark.parametrize("family", FAMILIES)
def test_loss_is_the_sum_over_the_targets_divided_by_items(family: str, implementation: str, num_items: Any) -> None:
    model = language_model(family)
    model.loss_implementation = implementation
    inputs = inputs_for(family)
    expected = plain_loss(model, family, inputs, num_items)
    for training in (True, False):
        actual = model.train(training)(**inputs, num_items_in_batch=num_items).loss
        assert actual.shape == ()
        assert_close(actual, expected, 1e-5)


@pytest.mark.parametrize(("family", "setting"), ONE_A_SETTING)
def test_chunked_equals_full_in_loss_and_all_gradients(family: str, setting: str) -> None:
    model = language_model(family, **HEAD_SETTINGS[setting])
    inputs = inputs_for(family)
    for num_items in (None, 7):
        # What a masked language model computes by default in training is sparse; the reference holds all logits.
        expected, wanted = loss_and_gradients(model, **inputs, num_items_in_batch=num_items, skip_logits=False)
        assert expected.logits is not None
        for implementation in ("full", "chunked"):
            model.loss_implementation = implementation
            actual, found = loss_and_gradients(model, **inputs, num_items_in_batch=num_items)
            assert_close(actual.loss, expected.loss, 1e-6)
            assert_same_gradients(found, wanted)
        model.loss_implementation = "full"


@pytest.mark.parametrize("family", FAMILIES)
def test_chunked_equals_full_in_bfloat16(family: str) -> None:
    model = language_model(family, dtype=torch.bfloat16)
    inputs = inputs_for(family)
    expected, wanted = loss_and_gradients(model, **inputs, skip_logits=False)
    model.loss_implementation = "chunked"
    actual, found = loss_and_gradients(model, **inputs)
    # The same logits enter a sum in float32, so the loss is nearly exact. The gradient of the head is summed over
    # chunks in bfloat16, where every step rounds to 8 bits (2^-9 of the value).
    assert actual.loss.dtype == torch.float32
    assert_close(actual.loss, expected.loss, 1e-5)
    assert_same_gradients(found, wanted, tolerance=2**-6)


@pytest.mark.parametrize("implementation", ["full", "chunked"])
@pytest.mark.parametrize("family", FAMILIES)
def test_without_any_label_the_loss_is_that_of_the_library(family: str, implementation: str) -> None:
    model = language_model(family)
    model.loss_implementation = implementation
    inputs = inputs_for(family)
    inputs |= decoder_input(model, family, inputs) | dict(labels=torch.full_like(inputs["labels"], IGNORE))
    # A mean over nothing is not a number, which nobody should take for a loss of zero.
    assert model(**inputs).loss.isnan()
    # A share of a larger batch without labels of its own adds nothing, and every weight has a gradient.
    outputs, gradients = loss_and_gradients(model, **inputs, num_items_in_batch=5)
    assert outputs.loss.item() == 0
    assert all(gradient.abs().max() == 0 for gradient in gradients.values())


@pytest.mark.parametrize("setting", HEAD_SETTINGS)
def test_logits_are_scaled_then_capped(setting: str) -> None:
    settings = HEAD_SETTINGS[setting]
    model = language_model("decoder", **settings).eval()
    inputs = inputs_for("decoder")
    states = model.model(**{key: inputs[key] for key in ("input_ids", "attention_mask")}).last_hidden_state
    expected = nn.functional.linear(states, model.lm_head.weight, model.lm_head.bias)
    expected = expected * settings.get("logit_scale", 1.0)
    if cap := settings.get("final_logit_softcapping"):
        expected = cap * torch.tanh(expected / cap)
    assert_close(model(**inputs).logits, expected)


# How much is computed.
@pytest.mark.parametrize("setting", ["tied", "untied"])
@pytest.mark.parametrize("family", FAMILIES)
def test_chunked_never_holds_more_than_a_chunk_of_logits(family: str, setting: str) -> None:
    model = language_model(family, **HEAD_SETTINGS[setting])
    model.loss_implementation = "chunked"
    inputs = inputs_for(family)
    labelled = (targets_of(family, inputs["labels"]) != IGNORE).sum().item()
    with head_rows(model) as rows:
        outputs = model(**inputs)
        assert outputs.logits is None
        assert sum(rows) == labelled
        outputs.loss.backward()
    assert max(rows) == CHUNK
    assert sum(rows) == 2 * labelled, "once forward, once again for the backward pass"


def test_masked_lm_computes_the_head_at_labelled_positions_only() -> None:
    model = language_model("encoder")
    inputs = inputs_for("encoder")
    labelled = (inputs["labels"] != IGNORE).sum().item()
    with head_rows(model) as rows:
        assert model(**inputs).logits is None
    assert rows == [labelled]
    with head_rows(model) as rows:
        assert model.eval()(**inputs).logits.shape == (*inputs["input_ids"].shape, VOCABULARY)
    assert rows == [inputs["input_ids"].numel()]


@pytest.mark.parametrize("family", FAMILIES)
def test_evaluation_with_a_chunked_loss_gives_all_logits(family: str) -> None:
    model = language_model(family).eval()
    inputs = inputs_for(family)
    expected = model(**inputs)
    model.loss_implementation = "chunked"
    actual = model(**inputs)
    assert torch.equal(actual.logits, expected.logits)
    assert_close(actual.loss, expected.loss, 1e-6)


@pytest.mark.parametrize("skip_logits", [None, False, True])
@pytest.mark.parametrize("with_labels", [True, False], ids=["labels", "no_labels"])
@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
@pytest.mark.parametrize("implementation", ["full", "chunked"])
@pytest.mark.parametrize("family", FAMILIES)
def test_logits_are_left_out_exactly_when_documented(
    family: str, implementation: str, training: bool, with_labels: bool, skip_logits: bool | None
) -> None:
    model = language_model(family).train(training)
    model.loss_implementation = implementation
    inputs = inputs_for(family)
    if not with_labels:
        inputs |= decoder_input(model, family, inputs) | dict(labels=None)
    if skip_logits and not with_labels:
        with pytest.raises(ValueError, match="skip_logits = True needs labels"):
            model(**inputs, skip_logits=True)
        return
    outputs = model(**inputs, skip_logits=skip_logits)
    by_default = training and with_labels and (implementation == "chunked" or family == "encoder")
    left_out = by_default if skip_logits is None else skip_logits
    assert (outputs.logits is None) == left_out
    if not left_out:
        length = inputs.get("decoder_input_ids", inputs["labels"] if with_labels else inputs["input_ids"]).shape[1]
        assert outputs.logits.shape == (4, length, VOCABULARY)
    assert (outputs.loss is not None) == with_labels
    if with_labels:
        assert_close(outputs.loss.detach(), plain_loss(model, family, inputs), 1e-5)


def test_a_wrong_loss_implementation_is_refused() -> None:
    model = language_model("decoder")
    with pytest.raises(ValueError, match="loss_implementation = 'chunk': must be one of full, chunked"):
        model.loss_implementation = "chunk"
    with pytest.raises(ValueError, match="loss_implementation"):
        hf_tx.TxDecoderForCausalLM(config_of("decoder"), loss_implementation="liger")


# Other targets.
KEPT = {
    "int": 3,
    "1d": torch.tensor([1, 4, 5]),
    "2d_int": torch.tensor([[0, 1], [2, 4], [1, 2], [0, 3]]),
    "2d_bool": torch.tensor([[k in row for k in range(11)] for row in ([0, 1, 7], [4], [], [0])]),
}


@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
@pytest.mark.parametrize("implementation", ["full", "chunked"])
@pytest.mark.parametrize("kept", KEPT)
@pytest.mark.parametrize("family", ["decoder", "encoder_decoder"])
def test_logits_to_keep_restricts_logits_and_loss(family: str, kept: str, implementation: str, training: bool) -> None:
    chunked = implementation == "chunked" and training
    model = language_model(family)
    inputs = inputs_for(family)
    positions = KEPT[kept]
    every = model.eval()(**inputs).logits
    targets = targets_of(family, inputs["labels"])
    index = torch.arange(11)
    if kept == "int":
        mask = (index >= 11 - positions).expand(4, -1)
    elif kept == "1d":
        mask = torch.isin(index, positions).expand(4, -1)
    elif kept == "2d_int":
        mask = torch.zeros(4, 11, dtype=torch.bool).scatter(1, positions, True)
    else:
        mask = positions

    model.loss_implementation = implementation
    outputs = model.train(training)(**inputs, logits_to_keep=positions)
    assert_close(outputs.loss, cross_entropy(every[mask], targets[mask]), 1e-5)
    assert (outputs.logits is None) == chunked
    if not chunked:
        assert_close(outputs.logits.reshape(-1, VOCABULARY), every[mask])


@pytest.mark.parametrize("implementation", ["full", "chunked"])
@pytest.mark.parametrize("with_labels", [True, False], ids=["labels", "no_labels"])
def test_shift_labels_are_the_targets(implementation: str, with_labels: bool) -> None:
    model = language_model("decoder")
    model.loss_implementation = implementation
    inputs = inputs_for("decoder")
    labels = inputs.pop("labels")
    targets = tokens(*labels.shape, seed=9).masked_fill(labels == IGNORE, IGNORE)
    logits = model.eval()(**inputs).logits
    expected = cross_entropy(logits.flatten(0, 1), targets.flatten())
    if with_labels:
        inputs["labels"] = labels
    for training in (True, False):
        assert_close(model.train(training)(**inputs, shift_labels=targets).loss, expected, 1e-5)
    halved = model(**inputs, shift_labels=targets, num_items_in_batch=2 * (targets != IGNORE).sum()).loss
    assert_close(2 * halved, expected, 1e-5)


def test_a_replaced_loss_reads_all_logits_or_is_refused() -> None:
    def counts(logits: torch.Tensor, labels: torch.Tensor, vocab_size: int, **kwargs: Any) -> torch.Tensor:
        assert vocab_size == logits.shape[-1] == VOCABULARY
        seen.update(kwargs, shape=tuple(logits.shape))
        return logits.sum()

    for family in FAMILIES:
        seen: dict[str, Any] = {}
        model = language_model(family)
        inputs = inputs_for(family)
        model.loss_function = counts
        outputs = model(**inputs, num_items_in_batch=7)
        assert seen["shape"] == (*inputs["labels"].shape, VOCABULARY)
        assert seen["num_items_in_batch"] == 7
        assert_close(outputs.loss, outputs.logits.sum())
        model.loss_implementation = "chunked"
        for refused in ({}, dict(skip_logits=True)):
            with pytest.raises(ValueError, match="a replaced loss_function"):
                model(**inputs, **refused)
        model(**inputs, skip_logits=False)
        assert model.eval()(**inputs).logits is not None


def test_a_replaced_loss_is_given_labels_as_the_library_gives_them() -> None:
    def shifts(logits: torch.Tensor, labels: torch.Tensor, vocab_size: int, **kwargs: Any) -> torch.Tensor:
        return cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())

    model = language_model("decoder")
    inputs = inputs_for("decoder")
    expected = model(**inputs).loss
    model.loss_function = shifts
    assert_close(model(**inputs).loss, expected, 1e-5)


# Packing.
DOCUMENTS = [5, 2, 4]
PACKED = {
    "position_ids": dict(position_ids=torch.cat([torch.arange(size) for size in DOCUMENTS])[None]),
    "seq_idx": dict(seq_idx=torch.repeat_interleave(torch.arange(3), torch.tensor(DOCUMENTS))[None].int()),
}
PACKED["both"] = PACKED["position_ids"] | PACKED["seq_idx"]


@pytest.mark.parametrize("implementation", ["full", "chunked"])
@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize("packed", PACKED)
def test_packed_documents_have_the_summed_loss_of_separate_ones(packed: str, rows: int, implementation: str) -> None:
    model = language_model("decoder")
    model.loss_implementation = implementation
    documents = [[tokens(1, size, seed=10 * row + size) for size in DOCUMENTS] for row in range(rows)]
    alone, wanted = 0.0, {}
    for document in sum(documents, []):
        outputs, gradients = loss_and_gradients(model, input_ids=document, labels=document, num_items_in_batch=1)
        alone += outputs.loss.detach()
        wanted = {name: wanted.get(name, 0) + value for name, value in gradients.items()}
    batch = torch.cat([torch.cat(row, 1) for row in documents])
    where = {key: value.expand(rows, -1) for key, value in PACKED[packed].items()}
    outputs, found = loss_and_gradients(model, input_ids=batch, labels=batch, num_items_in_batch=1, **where)
    assert_close(outputs.loss, alone, 1e-5)
    assert_same_gradients(found, wanted)
    # The mean is over as many targets: the first token of a document is none.
    assert_close(model(input_ids=batch, labels=batch, **where).loss * (sum(DOCUMENTS) - 3) * rows, alone, 1e-5)
    # One row of positions serves all rows.
    shared = {key: value[:1] for key, value in where.items() if key == "position_ids"}
    assert_close(model(input_ids=batch, labels=batch, num_items_in_batch=1, **where | shared).loss, alone, 1e-5)


def test_packed_masked_language_models_have_the_summed_loss_of_separate_ones() -> None:
    model = language_model("encoder")
    documents = [tokens(1, size, seed=size) for size in DOCUMENTS]
    alone = sum(model(input_ids=document, labels=document, num_items_in_batch=1).loss for document in documents)
    batch = torch.cat(documents, 1)
    for where in PACKED.values():  # the first token of a document is a target as any other
        assert_close(model(input_ids=batch, labels=batch, num_items_in_batch=1, **where).loss, alone, 1e-5)


@pytest.mark.parametrize("packed", PACKED)
def test_shift_labels_of_packed_documents_are_taken_as_they_are(packed: str) -> None:
    model = language_model("decoder")
    batch = tokens(1, sum(DOCUMENTS))
    across = torch.cat((batch[:, 1:], torch.full((1, 1), IGNORE)), 1)  # targets that cross the borders
    logits = model(input_ids=batch, **PACKED[packed]).logits
    expected = cross_entropy(logits.flatten(0, 1), across.flatten())
    actual = model(input_ids=batch, labels=batch, shift_labels=across, **PACKED[packed]).loss
    assert_close(actual, expected, 1e-5)


@pytest.mark.parametrize("side", ["left", "right"])
def test_positions_that_say_what_the_mask_says_do_not_change_the_loss(side: str) -> None:
    model = language_model("decoder")
    rows = [tokens(size, seed=size) for size in (8, 5, 3)]
    alone = sum(model(input_ids=row[None], labels=row[None], num_items_in_batch=1).loss for row in rows)
    batch, mask = padded(rows, side)
    labels = batch.masked_fill(mask == 0, IGNORE)
    inputs = dict(input_ids=batch, attention_mask=mask, labels=labels, num_items_in_batch=1)
    position_ids = (mask.cumsum(-1) - 1).clamp(min=0)
    assert_close(model(**inputs, position_ids=position_ids).loss, alone, 1e-5)
    assert_close(model(**inputs).loss, alone, 1e-5)


# Gradient accumulation.
def classifier(family: str, kind: str, **settings: Any) -> Any:
    config = config_of(family, **{key: value for key, value in settings.items() if key not in _OF_THE_MODEL})
    for key in _OF_THE_MODEL & settings.keys():
        setattr(config, key, settings[key])
    prefix = {"decoder": "TxDecoder", "encoder": "TxEncoder", "encoder_decoder": "TxEncoderDecoder"}[family]
    return enlarge(getattr(hf_tx, prefix + kind)(config)).train()


_OF_THE_MODEL = {"num_labels", "problem_type"}
INTEGERS = torch.tensor([2, 0, 1, 2])
FLOATS = torch.tensor([[0.5, -1.0, 2.0], [1.5, 0.0, 1.0], [0.1, 0.2, 0.3], [-2.0, 1.0, 0.0]])


def _sequence(family: str, problem: str | None, labels: torch.Tensor) -> Callable[[], tuple[Any, dict[str, Any]]]:
    def make() -> tuple[Any, dict[str, Any]]:
        model = classifier(family, "ForSequenceClassification", num_labels=3, problem_type=problem)
        inputs = inputs_for(family)
        return model, inputs | dict(labels=labels)

    return make


def _tokens(family: str) -> tuple[Any, dict[str, Any]]:
    inputs = inputs_for(family)
    labels = inputs["labels"]
    inputs["labels"] = labels.where(labels == IGNORE, labels % 3)
    return classifier(family, "ForTokenClassification", num_labels=3), inputs


def _choices() -> tuple[Any, dict[str, Any]]:
    inputs = {key: value for key, value in inputs_for("encoder").items() if key != "labels"}
    several = {key: torch.stack((value, value.roll(1, 0), value.roll(2, 0)), 1) for key, value in inputs.items()}
    return classifier("encoder", "ForMultipleChoice"), several | dict(labels=INTEGERS)


def _language(family: str, implementation: str) -> tuple[Any, dict[str, Any]]:
    model = language_model(family)
    model.loss_implementation = implementation
    return model, inputs_for(family)


HEADS: dict[str, Callable[[], tuple[Any, dict[str, Any]]]] = {
    **{
        f"{family}_lm_{implementation}": lambda family=family, implementation=implementation: _language(
            family, implementation
        )
        for family in FAMILIES
        for implementation in ("full", "chunked")
    },
    **{f"{family}_classes": _sequence(family, None, INTEGERS) for family in FAMILIES},
    "encoder_regression": _sequence("encoder", "regression", FLOATS),
    "decoder_several_labels": _sequence("decoder", "multi_label_classification", (FLOATS > 0.3).float()),
    "encoder_tokens": lambda: _tokens("encoder"),
    "decoder_tokens": lambda: _tokens("decoder"),
    "encoder_choices": _choices,
}


def count(model: Any, labels: torch.Tensor) -> torch.Tensor:
    """Count targets as Trainer does."""
    return (labels[..., 1:] if isinstance(model, hf_tx.TxDecoderForCausalLM) else labels).ne(IGNORE).sum()


@pytest.mark.parametrize("name", HEADS)
def test_accumulated_gradients_equal_those_of_one_batch(name: str) -> None:
    model, inputs = HEADS[name]()
    whole, wanted = loss_and_gradients(model, **inputs)
    items = count(model, inputs["labels"])
    for size in (4, 2, 1):
        total, found = 0.0, {}
        for start in range(0, 4, size):
            part = {key: value[start : start + size] for key, value in inputs.items()}
            outputs, gradients = loss_and_gradients(model, **part, num_items_in_batch=items)
            total += outputs.loss.detach()
            found = {key: found.get(key, 0) + value for key, value in gradients.items()}
        assert_close(total, whole.loss, 1e-5)
        assert_same_gradients(found, wanted)


# Classification.
def test_values_of_the_problem_types() -> None:
    torch.manual_seed(0)
    logits = torch.randn(4, 3)
    loss = losses.classification_loss
    squares = sum((a - b) ** 2 for a, b in zip(logits.flatten().tolist(), FLOATS.flatten().tolist(), strict=True))
    assert loss(logits, FLOATS, "regression").item() == pytest.approx(squares / 12, rel=1e-5)
    assert loss(logits[:, :1], FLOATS[:, 0], None).item() == pytest.approx(
        nn.functional.mse_loss(logits[:, 0], FLOATS[:, 0]).item(), rel=1e-5
    )
    assert loss(logits[:, :1], FLOATS[:, :1], None).item() == loss(logits[:, :1], FLOATS[:, 0], None).item()
    assert loss(logits[:, :1], INTEGERS, None).item() == pytest.approx(
        nn.functional.mse_loss(logits[:, 0], INTEGERS.float()).item(), rel=1e-5
    )
    chosen = -logits.log_softmax(-1)[torch.arange(4), INTEGERS].mean()
    for labels in (INTEGERS, INTEGERS[:, None], INTEGERS.int().long()):
        assert loss(logits, labels, None).item() == pytest.approx(chosen.item(), rel=1e-5)
        assert loss(logits, labels, "single_label_classification").item() == pytest.approx(chosen.item(), rel=1e-5)
    flags = FLOATS > 0.3
    p = logits.sigmoid()
    several = -(flags * p.log() + ~flags * (1 - p).log()).mean()
    for labels in (flags, flags.float()):
        assert loss(logits, labels, None).item() == pytest.approx(several.item(), rel=1e-5)
    for labels in (flags, flags.float(), flags.long()):
        actual = loss(logits, labels, "multi_label_classification")
        assert actual.item() == pytest.approx(several.item(), rel=1e-5)


@pytest.mark.parametrize(
    ("problem", "labels"),
    [
        ("regression", FLOATS[:, :2]),
        ("regression", FLOATS[:, 0]),
        ("regression", FLOATS.T),
        ("multi_label_classification", INTEGERS),
        ("multi_label_classification", FLOATS[:2]),
        ("multi_label_classification", (FLOATS > 0).float().flatten()),
        ("single_label_classification", (FLOATS > 0).long()),
        ("single_label_classification", INTEGERS[:3]),
    ],
)
def test_labels_of_a_wrong_shape_are_refused(problem: str, labels: torch.Tensor) -> None:
    logits = torch.randn(4, 3)
    with pytest.raises(ValueError, match=r"labels of shape|batch_size"):
        losses.classification_loss(logits, labels, problem)


@pytest.mark.parametrize("family", FAMILIES)
def test_an_unknown_problem_type_is_refused(family: str) -> None:
    with pytest.raises(StrictDataclassError, match="problem_type = 'regresion'.*Did you mean 'regression'"):
        classifier(family, "ForSequenceClassification", num_labels=3, problem_type="regresion")


@pytest.mark.parametrize("family", FAMILIES)
def test_the_problem_type_is_inferred_anew_for_every_call(family: str) -> None:
    model = classifier(family, "ForSequenceClassification", num_labels=3)
    inputs = inputs_for(family)
    for labels, problem in ((INTEGERS, "single_label_classification"), (FLOATS, "multi_label_classification")) * 2:
        outputs = model(**inputs | dict(labels=labels))
        assert_close(outputs.loss, losses.classification_loss(outputs.logits, labels, problem))
        assert model.config.problem_type is None
