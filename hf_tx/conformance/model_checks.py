# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""The checks of what a model computes. They know nothing of hf_tx: any `PreTrainedModel` of tokens will do."""

import dataclasses
import functools
from collections.abc import Collection, Iterable
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedConfig

from .checks import Check, CheckTable, Skip
from .model_subject import LENGTH, ModelSubject, model_subject
from .saving_checks import SAVING_CHECKS
from .tools import (
    FORWARD,
    assert_beams,
    assert_close,
    assert_finite,
    assert_gradients_close,
    backends,
    expect,
    plain_flex,
    unless_refused,
)
from .training_checks import TRAINING_CHECKS, model_gradients

MODEL_CHECKS = CheckTable()


# ------------------------------------------------------------------------------------------------ what a position sees
@MODEL_CHECKS.add
def rows_are_independent(subject: ModelSubject) -> None:
    """A row of a batch is as it is alone."""
    model = subject.build()
    batch = subject.tokens(3, LENGTH)
    together = subject.states(model, batch)
    for idx in range(len(batch)):
        assert_close(together[idx], subject.states(model, batch[idx : idx + 1])[0], f"row {idx}")


def _padding(subject: ModelSubject, side: str, garbage: bool) -> None:
    subject.needs_argument("attention_mask")
    model = subject.build()
    for sizes in ([LENGTH, 4], [subject.long - 2, subject.long // 2]):
        _pad(subject, model, sizes, side, None if garbage else subject.pad)


def _pad(subject: ModelSubject, model: Any, sizes: list[int], side: str, pad: int | None) -> None:
    rows, batch, mask, columns = subject.padded(sizes, side, pad=pad)
    target = subject.tokens(2, 5, seed=3)
    if subject.seq2seq:
        actual = subject.states(model, target, input_ids=batch, attention_mask=mask)
    else:
        actual = subject.states(model, batch, mask)
    for idx, row in enumerate(rows):
        what = f"{side} padding, a row of {len(row)}"
        if subject.seq2seq:
            alone = subject.states(model, target[idx : idx + 1], input_ids=row[None])[0]
            assert_close(actual[idx], alone, what)
            continue
        alone = subject.states(model, row[None], torch.ones_like(row)[None])[0]
        assert_close(actual[idx, columns[idx]] if subject.per_token else actual[idx], alone, what)


@MODEL_CHECKS.add
def left_padding(subject: ModelSubject) -> None:
    """Rows padded on the left are as they are alone in a model that generates or is causal otherwise; whatever tokens
    the pads hold, if there is an output for every token."""
    subject.need(subject.causal is True, "the model is not causal: see left_padding_of_encoders")
    _padding(subject, "left", garbage=subject.per_token)


@MODEL_CHECKS.add
def right_padding(subject: ModelSubject) -> None:
    """Rows padded on the right are as they are alone; whatever tokens the pads hold, if there is an output for every
    token."""
    _padding(subject, "right", garbage=subject.per_token)


@MODEL_CHECKS.add_optional
def left_padding_of_encoders(subject: ModelSubject) -> None:
    """Rows padded on the left are as they are alone in an encoder: positions do not count pads, and nothing is read
    from the first place."""
    subject.need(subject.causal is not True, "the model is causal: see left_padding")
    _padding(subject, "left", garbage=subject.per_token)


@MODEL_CHECKS.add_optional
def pads_of_any_token(subject: ModelSubject) -> None:
    """A model with one output for a row finds the end of the row by the mask, not by the id of the pads."""
    subject.need(not subject.per_token and not subject.seq2seq, "the output is one for every token")
    _padding(subject, "right", garbage=True)


@MODEL_CHECKS.add
def direction(subject: ModelSubject) -> None:
    """A change of a token moves no output before it in a causal model, and the first output in one that is not."""
    subject.need(subject.per_token, "the output is not one for every token")
    subject.need(subject.causal is not None or subject.seq2seq, "nothing says whether the model is causal")
    model = subject.build()
    _direction(subject, model, subject.tokens(1, LENGTH), range(1, LENGTH))
    if subject.causal is not False:
        _direction(subject, model, subject.tokens(1, subject.long), (subject.long // 2, subject.long - 1))


def _direction(subject: ModelSubject, model: Any, row: torch.Tensor, places: Iterable[int]) -> None:
    before = subject.states(model, row)
    for at in places:
        changed = row.clone()
        changed[:, at:] = subject.tokens(1, row.shape[1] - at, seed=at + 1)
        after = subject.states(model, changed)
        if subject.causal is False:
            moved = ((after - before)[:, 0].abs().max() / before.abs().max()).item()
            expect(moved > 1e-3, f"the first output moves by {moved:.0e} only when tokens from {at} on change")
        else:
            assert_close(after[:, :at], before[:, :at], f"outputs before a change at {at}")


def _packed(subject: ModelSubject, with_mask: bool, with_cache: bool) -> None:
    subject.needs_argument("position_ids")
    subject.need(subject.causal is True and subject.per_token, "the model is not causal")
    model = subject.build()
    for sizes in ((5, 6), (subject.long // 3, 1, subject.long // 2)):
        rows = [subject.tokens(size, seed=size) for size in sizes]
        packed = torch.cat(rows)[None]
        positions = torch.cat([torch.arange(len(row)) for row in rows])[None]
        expected = torch.cat([subject.states(model, row[None])[0] for row in rows])
        mask = torch.ones_like(packed) if with_mask else None
        cache = subject.cache(model) if with_cache else {}
        actual = subject.states(model, packed, mask, position_ids=positions, **cache)[0]
        what = f"{'a' if with_mask else 'no'} mask, {'a' if with_cache else 'no'} cache"
        assert_close(actual, expected, f"documents of {sizes}, {what}")


@MODEL_CHECKS.add
def packed_rows(subject: ModelSubject) -> None:
    """Documents whose positions begin again at 0 are as they are alone, without a mask and a cache."""
    _packed(subject, with_mask=False, with_cache=False)


@MODEL_CHECKS.add_optional
def packed_rows_with_mask_or_cache(subject: ModelSubject) -> None:
    """Documents whose positions begin again at 0 are as they are alone, with a mask and a cache too."""
    for with_mask, with_cache in ((True, False), (False, True), (True, True)):
        _packed(subject, with_mask, with_cache)


@MODEL_CHECKS.add
def rope_scaling(subject: ModelSubject) -> None:
    """Every kind of `rope_type` changes the outputs, and `linear` turns positions by as much less as its factor."""
    subject.needs_argument("position_ids")
    subject.need(bool(getattr(subject.config, "rope_parameters", None)), "the model does not rotate")
    limits: dict[str, Any] = {"max_position_embeddings": 64}
    plain = subject.build(rope_parameters=_rescaled(subject.config, {"rope_type": "default"}), **limits)
    pairs = next((len(buffer) for name, buffer in plain.named_buffers() if name.endswith("inv_freq")), 0)
    subject.need(pairs > 1, "the model has no frequencies that a scaling could tell apart")
    ids, places = subject.tokens(1, LENGTH), torch.arange(LENGTH)[None]
    far, mask = places * 12, torch.ones_like(ids)  # without a mask, positions with gaps are those of documents
    usual = subject.states(plain, ids, mask, position_ids=far)
    long = {"original_max_position_embeddings": 16}
    kinds: dict[str, dict[str, Any]] = {
        "linear": {},
        "dynamic": {},
        "yarn": long,
        "longrope": {"short_factor": [1.5] * pairs, "long_factor": [3.0] * pairs} | long,
        "llama3": {"low_freq_factor": 1.0, "high_freq_factor": 4.0} | long,
    }
    for kind, fields in kinds.items():
        scaled = {"rope_type": kind, "factor": 4.0} | fields
        model = unless_refused(
            functools.partial(subject.build, rope_parameters=_rescaled(subject.config, scaled), **limits)
        )
        if model is None:
            continue
        actual = subject.states(model, ids, mask, position_ids=far)
        moved = ((actual - usual).abs().max() / usual.abs().max()).item()
        expect(moved > 1e-3, f"rope_type={kind!r} moves the outputs by {moved:.0e} only")
        if kind == "linear":
            expected = subject.states(plain, ids, mask, position_ids=places)
            actual = subject.states(model, ids, mask, position_ids=places * 4)
            assert_close(actual, expected, "rope_type='linear' with a factor of 4, at positions four times as far")


#: Fields of rope parameters that belong to no scaling.
_UNSCALED = ("rope_theta", "partial_rotary_factor", "mrope_section", "mrope_interleaved")


def _rescaled(config: Any, scaled: dict[str, Any]) -> dict[str, Any]:
    """Return the rope parameters of a config, or of all its kinds of layers, scaled otherwise."""

    def one(part: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in part.items() if name in _UNSCALED} | scaled

    given = config.rope_parameters
    if any(isinstance(part, dict) for part in given.values()):
        return {name: one(part) if part else part for name, part in given.items()}
    return one(given)


@MODEL_CHECKS.add
def row_of_pads(subject: ModelSubject) -> None:
    """A row of pads only gives finite outputs and gradients, and leaves the other rows alone; or it is refused."""
    subject.needs_argument("attention_mask")
    model = subject.build()
    batch = subject.tokens(2, LENGTH)
    mask = torch.ones_like(batch)
    mask[0] = 0
    target = subject.tokens(2, 5, seed=3)
    try:
        if subject.seq2seq:
            actual = subject.run(model, target, input_ids=batch, attention_mask=mask)
        else:
            actual = subject.run(model, batch, mask)
    except ValueError as error:
        raise Skip(f"refused: {error}") from error
    if subject.seq2seq:
        alone = subject.states(model, target[1:], input_ids=batch[1:])
    else:
        alone = subject.states(model, batch[1:], mask[1:])
    assert_finite(actual, "outputs")
    assert_close(actual[1], alone[0], "the other row")
    actual.float().sin().sum().backward()
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            assert_finite(parameter.grad, f"gradient of {name}")


@MODEL_CHECKS.add
def embeddings_as_inputs(subject: ModelSubject) -> None:
    """The embeddings of tokens, given instead of them, give the same."""
    subject.needs_argument("inputs_embeds")
    subject.need(subject.per_token, "the output is not one for every token")
    model = subject.build()
    ids = subject.tokens(2, LENGTH)
    expected = subject.states(model, ids)
    with torch.no_grad():
        if subject.seq2seq:
            source = subject.inputs(ids)["input_ids"]
            outputs = subject.call(model, ids, inputs_embeds=model.get_input_embeddings()(source))
        else:
            outputs = subject.call(model, None, inputs_embeds=model.get_input_embeddings()(ids))
    assert_close(subject.main(outputs), expected, "outputs of embeddings")


# -------------------------------------------------------------------------------------------------------------- cache
def _in_calls(subject: ModelSubject, model: Any, batch: torch.Tensor, mask: Any, ends: list[int]) -> torch.Tensor:
    cache = subject.cache(model)
    parts = [
        subject.states(model, batch[:, begin:end], None if mask is None else mask[:, :end], **cache)
        for begin, end in zip([0, *ends], ends, strict=False)
    ]
    return torch.cat(parts, dim=1)


@MODEL_CHECKS.add
def split_with_cache(subject: ModelSubject) -> None:
    """A text in two calls with a cache, split at any place, is as in one."""
    subject.needs_cache()
    model = subject.build()
    for length, places in ((LENGTH, range(1, LENGTH)), (subject.long, (subject.long // 3, subject.long - 1))):
        batch = subject.tokens(2, length)
        expected = subject.states(model, batch)
        for at in places:
            actual = _in_calls(subject, model, batch, None, [at, length])
            assert_close(actual, expected, f"{length} tokens, split at {at}")


def _prefill(subject: ModelSubject, through_pads: bool) -> None:
    subject.needs_cache()
    subject.need(not subject.seq2seq, "the decoder of an encoder-decoder is not padded on the left")
    model = subject.build()
    for sizes, chunks in (([LENGTH, 4], (1, 2, 3)), ([min(40, subject.long - 2), 9], (1,))):
        _, batch, mask, _ = subject.padded(sizes, "left")
        real, length = mask.bool(), batch.shape[1]
        expected = subject.states(model, batch, mask)[real]
        for size in chunks if not through_pads else (1,):
            # Single steps begin where every row has a token.
            first = length - min(sizes) if size == 1 and not through_pads else size
            ends = [*range(first, length, size), length]
            actual = _in_calls(subject, model, batch, mask, ends)[real]
            assert_close(actual, expected, f"{length} tokens, {first} first, then chunks of {size}")


@MODEL_CHECKS.add
def prefill_in_chunks(subject: ModelSubject) -> None:
    """A left-padded batch in chunks, and in single steps after its pads, is as in one call."""
    _prefill(subject, through_pads=False)


@MODEL_CHECKS.add_optional
def pads_in_single_steps(subject: ModelSubject) -> None:
    """A left-padded batch is as in one call when its pads come in calls of one token, too: transformers takes such a
    token for a real one in recurrent layers."""
    _prefill(subject, through_pads=True)


@MODEL_CHECKS.add
def generates_as_forward(subject: ModelSubject) -> None:
    """`generate()` on a padded batch has the logits of calls without a cache, and all beams, texts and scores, of a
    search without one. The batch is padded on the left, the source of an encoder-decoder on the right."""
    subject.need(subject.generates, "the model does not generate")
    model = subject.build()
    rows, batch, mask, _ = subject.padded([6, 3], "right" if subject.seq2seq else "left")
    start = model.generation_config.decoder_start_token_id or 0
    first = 1 if subject.seq2seq else batch.shape[1]
    begin = {"decoder_start_token_id": start} if subject.seq2seq else {}
    ends = model.generation_config.eos_token_id
    # Tokens that a generation config forces are no matter of the model.
    model.generation_config.forced_bos_token_id = model.generation_config.forced_eos_token_id = None

    def logits_of(row: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
        """What follows the text, from its end on."""
        if subject.seq2seq:
            text = torch.cat((row.new_tensor([start]), new))[None]
            return subject.states(model, text, input_ids=row[None])[0]
        text = torch.cat((row, new))[None]
        return subject.states(model, text, torch.ones_like(text))[0, len(row) - 1 :]

    for beams, steps in ((1, min(36, subject.long - 10)), (3, 4)):
        if steps < 1:
            continue
        out = model.generate(
            batch,
            **begin,
            attention_mask=mask,
            max_new_tokens=steps,
            min_new_tokens=steps,
            do_sample=False,
            num_beams=beams,
            num_return_sequences=beams,
            return_dict_in_generate=True,
            output_scores=True,
            output_logits=True,
        )
        for idx, row in enumerate(rows):
            if beams == 1:
                logits = logits_of(row, out.sequences[idx, first : first + steps - 1])
                assert_close(torch.stack(out.logits)[:, idx], logits, f"logits of row {idx}")
                continue

            def scores_of(text: tuple[int, ...], row: torch.Tensor = row) -> torch.Tensor:
                scores = logits_of(row, row.new_tensor(text))[-1].log_softmax(-1)
                if ends is not None:  # min_new_tokens forbids the end
                    scores[ends] = float("-inf")
                return scores

            assert_beams(out, idx, first, scores_of, beams, steps)


@MODEL_CHECKS.add
def attention_backends(subject: ModelSubject) -> None:
    """Every attention backend gives what `eager` gives, forward and gradient, padded and not, or is refused before the
    first step."""
    model = _without_kinks(subject.build())
    masked = "attention_mask" in subject.parameters and not subject.seq2seq and subject.per_token
    tried = 0
    for name in backends():
        other = unless_refused(functools.partial(subject.build, name))
        if name == "eager" or other is None:
            continue
        _without_kinks(other)
        for length in (LENGTH, subject.long):
            ids = subject.tokens(2, length)
            actual = unless_refused(functools.partial(subject.states, other.eval(), ids))
            if actual is None:
                continue
            tried += 1
            assert_close(actual, subject.states(model, ids), f"{name}, length {length}")
            if masked:
                _, batch, mask, _ = subject.padded([length - 2, length // 2], "left")
                with plain_flex():
                    actual = subject.states(other, batch, mask)[mask.bool()]
                expected = subject.states(model, batch, mask)[mask.bool()]
                assert_close(actual, expected, f"{name}, length {length}, padded")
            if name == "flex_attention" and ids.device.type == "cpu":
                continue  # it has no backward pass there
            grads = unless_refused(functools.partial(model_gradients, subject, other, ids))
            if grads is not None:
                assert_gradients_close(grads, model_gradients(subject, model, ids), f"{name}, length {length}")
    if not tried:
        raise Skip("the model has no other backend")


def _without_kinks(model: Any) -> Any:
    """Put something smooth into the place of every ReLU. At its kink, rounding decides whether a unit has a gradient:
    in thousands of units, two backends that are equal but for rounding differ by a whole unit."""
    for module in list(model.modules()):
        for name, child in module.named_children():
            if isinstance(child, nn.ReLU):
                setattr(module, name, nn.SiLU())
    return model


@MODEL_CHECKS.add_slow
def compiles(subject: ModelSubject) -> None:
    """`torch.compile` traces the model as one graph, with equal outputs; or the class says that it cannot."""
    model = subject.build()
    subject.need(model._can_compile_fullgraph, "the model does not say that it compiles")
    batch = subject.tokens(2, LENGTH)
    torch._dynamo.reset()
    actual = subject.states(torch.compile(model, fullgraph=True, backend="eager"), batch)
    assert_close(actual, subject.states(model, batch), "outputs", FORWARD)


def check_model(
    model: Any,
    config: PreTrainedConfig | None = None,
    *,
    causal: bool | None = None,
    trust_remote_code: bool = False,
    offers: Collection[str] = (),
) -> list[Check]:
    """Return the checks of any model of tokens on transformers, of hf_tx or not; nothing runs yet.

    Models are built from class and config, with large random weights of their own: give a config of a few tiny layers.

    Args:
        model: a subclass of `PreTrainedModel`; or a model, of which class and config are taken; or the folder of one.
        config: of the models that are built. Default: that of the model or folder; for a class, a tiny one.
        causal: whether positions see only those before them. Default: as the model says.
        trust_remote_code: whether code that comes with a folder may run.
        offers: names of optional checks - of what transformers does not promise - that the model keeps. They fail if
            it does not; others are reported as not offered.

    Raises:
        ValueError: it is no model of tokens, its class cannot be found, or `offers` names no optional check.
    """
    subject = model_subject(model, config, causal, trust_remote_code)
    label = f"model {subject.kind.__name__}"
    tables = (MODEL_CHECKS, TRAINING_CHECKS, SAVING_CHECKS)
    checks = [check for table in tables for check in table.of(label, subject)]
    optional = [check.name for check in checks if check.optional]
    if unknown := set(offers) - set(optional):
        raise ValueError(f"offers names {sorted(unknown)}; the optional checks are {', '.join(optional)}.")
    return [dataclasses.replace(check, optional=check.optional and check.name not in offers) for check in checks]
