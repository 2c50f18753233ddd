# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""The checks of what a model computes. They know nothing of hf_tx: any `PreTrainedModel` of tokens will do."""

import functools
import inspect
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedConfig

from .checks import Check, CheckTable, Skip
from .model_subject import LENGTH, ModelSubject, model_subject
from .saving_checks import SAVING_CHECKS
from .tools import (
    FORWARD,
    assert_close,
    assert_finite,
    assert_gradients_close,
    backends,
    expect,
    normal,
    plain_flex,
    unless_refused,
)

MODEL_CHECKS = CheckTable()


def _gradients(subject: ModelSubject, model: Any, *call: Any) -> dict[str, torch.Tensor]:
    """The gradients of a random weighting of all outputs, by `backward()`."""
    model.zero_grad()
    outputs = subject.tensors(subject.call(model, *call))
    total = sum((out.float() * normal(*out.shape, seed=5 + idx)).sum() for idx, out in enumerate(outputs))
    total.backward()  # type: ignore[union-attr]
    return {
        name: torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        for name, parameter in model.named_parameters()
        if parameter.requires_grad
    }


# ------------------------------------------------------------------------------------------------ what a position sees
@MODEL_CHECKS.add
def rows_are_independent(subject: ModelSubject) -> None:
    """A row of a batch is as it is alone."""
    model = subject.build()
    batch = subject.tokens(3, LENGTH)
    together = subject.states(model, batch)
    for idx in range(len(batch)):
        assert_close(together[idx], subject.states(model, batch[idx : idx + 1])[0], f"row {idx}")


def _padding(subject: ModelSubject, side: str) -> None:
    subject.needs_argument("attention_mask")
    model = subject.build()
    rows, batch, mask, columns = subject.padded([LENGTH, 4], side)
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
    """Rows padded on the left are as they are alone, whatever tokens the pads hold."""
    _padding(subject, "left")


@MODEL_CHECKS.add
def right_padding(subject: ModelSubject) -> None:
    """Rows padded on the right are as they are alone, whatever tokens the pads hold."""
    _padding(subject, "right")


@MODEL_CHECKS.add
def direction(subject: ModelSubject) -> None:
    """A change of a token moves no output before it in a causal model, and the first output in one that is not."""
    subject.need(subject.per_token, "the output is not one for every token")
    subject.need(subject.causal is not None or subject.seq2seq, "nothing says whether the model is causal")
    model = subject.build()
    row = subject.tokens(1, LENGTH)
    before = subject.states(model, row)
    for at in range(1, LENGTH):
        changed = row.clone()
        changed[:, at:] = subject.tokens(1, LENGTH - at, seed=at + 1)
        after = subject.states(model, changed)
        if subject.causal is False:
            moved = ((after - before)[:, 0].abs().max() / before.abs().max()).item()
            expect(moved > 1e-3, f"the first output moves by {moved:.0e} only when tokens from {at} on change")
        else:
            assert_close(after[:, :at], before[:, :at], f"outputs before a change at {at}")


@MODEL_CHECKS.add
def packed_rows(subject: ModelSubject) -> None:
    """Documents whose positions begin again at 0 are as they are alone, with and without a mask and a cache."""
    subject.needs_argument("position_ids")
    subject.need(subject.causal is True and subject.per_token, "the model is not causal")
    model = subject.build()
    rows = [subject.tokens(size, seed=size) for size in (5, 6)]
    packed = torch.cat(rows)[None]
    positions = torch.cat([torch.arange(len(row)) for row in rows])[None]
    expected = torch.cat([subject.states(model, row[None])[0] for row in rows])
    for what, mask in (("no mask", None), ("a mask", torch.ones_like(packed))):
        for cache in ({}, subject.cache(model)):
            actual = subject.states(model, packed, mask, position_ids=positions, **cache)[0]
            assert_close(actual, expected, f"{what}, {'a cache' if cache else 'no cache'}")


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
    batch = subject.tokens(2, LENGTH)
    expected = subject.states(model, batch)
    for at in range(1, LENGTH):
        assert_close(_in_calls(subject, model, batch, None, [at, LENGTH]), expected, f"split at {at}")


@MODEL_CHECKS.add
def prefill_in_chunks(subject: ModelSubject) -> None:
    """A left-padded batch in chunks, down to single steps, is as in one call."""
    subject.needs_cache()
    subject.need(not subject.seq2seq, "the decoder of an encoder-decoder is not padded on the left")
    model = subject.build()
    _, batch, mask, _ = subject.padded([LENGTH, 4], "left")
    real = mask.bool()
    expected = subject.states(model, batch, mask)[real]
    for size in (1, 2, 3):
        ends = [*range(size, batch.shape[1], size), batch.shape[1]]
        assert_close(_in_calls(subject, model, batch, mask, ends)[real], expected, f"chunks of {size}")


@MODEL_CHECKS.add
def generates_as_forward(subject: ModelSubject) -> None:
    """`generate()` on a left-padded batch has the logits, and the scores of beams, of calls without a cache."""
    subject.need(subject.generates, "the model does not generate")
    model = subject.build()
    rows, batch, mask, _ = subject.padded([6, 3], "left")
    first = 1 if subject.seq2seq else batch.shape[1]
    begin = {"decoder_start_token_id": model.generation_config.decoder_start_token_id or 0} if subject.seq2seq else {}
    for beams in (1, 3):
        out = model.generate(
            batch,
            **begin,
            attention_mask=mask,
            max_new_tokens=4,
            min_new_tokens=4,
            do_sample=False,
            num_beams=beams,
            return_dict_in_generate=True,
            output_scores=True,
            output_logits=True,
        )
        for idx, row in enumerate(rows):
            new = out.sequences[idx, first:]
            if subject.seq2seq:
                text = out.sequences[idx : idx + 1, :-1]
                logits = subject.states(model, text, input_ids=row[None])[0]
            else:
                text = torch.cat((row, new))[None, :-1]
                logits = subject.states(model, text, torch.ones_like(text))[0, len(row) - 1 :]
            if beams == 1:
                assert_close(torch.stack(out.logits)[:, idx], logits, f"logits of row {idx}")
            else:
                chosen = logits.log_softmax(-1).gather(-1, new[:, None]).sum() / len(new)
                assert_close(out.sequences_scores[idx], chosen, f"score of the best beam of row {idx}")


# ----------------------------------------------------------------------------------------------------------- training
@MODEL_CHECKS.add
def all_parameters_train(subject: ModelSubject) -> None:
    """Every parameter gets a gradient that is finite and not zero."""
    for name, grad in _gradients(subject, subject.build(), subject.tokens(2, LENGTH)).items():
        assert_finite(grad, f"gradient of {name}")
        expect(grad.abs().amax() > 0, f"{name} gets no gradient")


@MODEL_CHECKS.add
def language_loss(subject: ModelSubject) -> None:
    """The loss is the cross-entropy of the labels, shifted in a causal model, without those of -100, and divided by
    `num_items_in_batch` where `forward()` takes what it does not know."""
    subject.needs_argument("labels")
    model = subject.build()
    subject.need(subject.per_token, "the output is not one for every token")
    ids = subject.tokens(2, LENGTH)
    logits = subject.states(model, ids)
    subject.need(logits.shape[-1] == subject.vocabulary, "the head does not predict tokens")
    labels = subject.tokens(2, LENGTH, seed=1)
    labels[0, 5:] = -100
    others = {"labels": labels}
    with torch.no_grad():
        loss = subject.call(model, ids, **others).loss
    if subject.causal:
        logits, labels = logits[:, :-1], labels[:, 1:]
    total = nn.functional.cross_entropy(logits.flatten(0, 1).float(), labels.flatten(), reduction="sum")
    assert_close(loss, total / (labels != -100).sum(), "loss")
    takes = inspect.signature(type(model).forward).parameters.values()
    accepts = getattr(model, "accepts_loss_kwargs", None)
    if accepts is None:  # as Trainer decides
        accepts = any(parameter.kind is parameter.VAR_KEYWORD for parameter in takes)
    if accepts:
        with torch.no_grad():
            loss = subject.call(model, ids, **others, num_items_in_batch=torch.tensor(100)).loss
        assert_close(loss, total / 100, "loss with num_items_in_batch = 100, which Trainer takes for honoured")


@MODEL_CHECKS.add
def activation_checkpointing(subject: ModelSubject) -> None:
    """Recomputing the layers in the backward pass changes no gradient."""
    model = subject.build().train()
    subject.need(model.supports_gradient_checkpointing, "the model does not support gradient checkpointing")
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0  # dropout of the two passes cannot be compared across the library's versions
    batch = subject.tokens(2, LENGTH)
    torch.manual_seed(1)
    expected = {name: grad.clone() for name, grad in _gradients(subject, model, batch).items()}
    for reentrant in (False, True):
        model.activation_checkpointing_enable({"use_reentrant": reentrant})
        torch.manual_seed(1)
        assert_gradients_close(_gradients(subject, model, batch), expected, f"use_reentrant={reentrant}")


@MODEL_CHECKS.add
def deterministic_in_eval(subject: ModelSubject) -> None:
    """Nothing is dropped outside of training, with every dropout of the config at a half."""
    names = [
        name
        for name, value in vars(subject.config).items()
        if isinstance(value, float | int) and not isinstance(value, bool) and ("drop" in name)
    ]
    subject.need(bool(names), "the config has no dropout")
    half: dict[str, Any] = dict.fromkeys(names, 0.5)
    none: dict[str, Any] = dict.fromkeys(names, 0.0)
    model = subject.build(**half)
    batch = subject.tokens(2, LENGTH)
    first = subject.states(model, batch)
    torch.manual_seed(7)
    assert_close(subject.states(model, batch), first, "a second call")
    assert_close(first, subject.states(subject.build(**none), batch), "a model without dropout")


@MODEL_CHECKS.add
def large_embeddings(subject: ModelSubject) -> None:
    """Embeddings a thousand times as large give finite outputs, in float64, float32 and bfloat16."""
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        model = subject.build()
        with torch.no_grad():
            model.get_input_embeddings().weight.mul_(1000.0)
        out = subject.states(model.to(dtype), subject.tokens(2, LENGTH))
        assert_finite(out, str(dtype))


@MODEL_CHECKS.add
def attention_backends(subject: ModelSubject) -> None:
    """Every attention backend gives what `eager` gives, padded and not, or is refused before the first step."""
    model = subject.build()
    ids = subject.tokens(2, LENGTH)
    expected = subject.states(model, ids)
    masked = "attention_mask" in subject.parameters and not subject.seq2seq and subject.per_token
    _, batch, mask, _ = subject.padded([LENGTH, 4], "left")
    padded = subject.states(model, batch, mask)[mask.bool()] if masked else None
    tried = 0
    for name in backends():
        other = unless_refused(functools.partial(subject.build, name))
        if name == "eager" or other is None:
            continue
        with plain_flex():
            actual = unless_refused(functools.partial(subject.states, other, ids))
        if actual is None:
            continue
        tried += 1
        assert_close(actual, expected, name)
        if padded is not None:
            with plain_flex():
                assert_close(subject.states(other, batch, mask)[mask.bool()], padded, f"{name}, padded")
    if not tried:
        raise Skip("the model has no other backend")


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
) -> list[Check]:
    """Return the checks of any model of tokens on transformers, of hf_tx or not; nothing runs yet.

    Models are built from class and config, with large random weights of their own: give a config of a few tiny layers.

    Args:
        model: a subclass of `PreTrainedModel`; or a model, of which class and config are taken; or the folder of one.
        config: of the models that are built. Default: that of the model or folder; for a class, a tiny one.
        causal: whether positions see only those before them. Default: as the model says.
        trust_remote_code: whether code that comes with a folder may run.

    Raises:
        ValueError: it is no model of tokens, or its class cannot be found.
    """
    subject = model_subject(model, config, causal, trust_remote_code)
    label = f"model {subject.kind.__name__}"
    return [*MODEL_CHECKS.of(label, subject), *SAVING_CHECKS.of(label, subject)]
