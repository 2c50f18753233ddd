# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""The checks of how a model trains, of its precisions, and of what it records. They know nothing of hf_tx."""

from typing import Any

import torch
from torch import nn

from .checks import CheckTable
from .model_subject import LENGTH, ModelSubject
from .tools import assert_close, assert_finite, assert_gradients_close, expect, normal

TRAINING_CHECKS = CheckTable()


def model_gradients(subject: ModelSubject, model: Any, *call: Any) -> dict[str, torch.Tensor]:
    """Return the gradients of a random weighting of all outputs, by `backward()`."""
    model.zero_grad()
    outputs = subject.tensors(subject.call(model, *call))
    total = sum((out.float() * normal(*out.shape, seed=5 + idx)).sum() for idx, out in enumerate(outputs))
    total.backward()  # type: ignore[union-attr]
    return {
        name: torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        for name, parameter in model.named_parameters()
        if parameter.requires_grad
    }


# ----------------------------------------------------------------------------------------------------------- training
@TRAINING_CHECKS.add
def all_parameters_train(subject: ModelSubject) -> None:
    """Every parameter gets a gradient that is finite and not zero."""
    for name, grad in model_gradients(subject, subject.build(), subject.tokens(2, LENGTH)).items():
        assert_finite(grad, f"gradient of {name}")
        expect(grad.abs().amax() > 0, f"{name} gets no gradient")


def _loss_inputs(subject: ModelSubject) -> tuple[Any, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return a model with a head of tokens, tokens, labels of which some are -100, and the logits."""
    subject.needs_argument("labels")
    model = subject.build()
    subject.need(subject.per_token, "the output is not one for every token")
    ids, labels = subject.tokens(2, LENGTH), subject.tokens(2, LENGTH, seed=1)
    logits = subject.states(model, ids)
    subject.need(logits.shape[-1] == subject.vocabulary, "the head does not predict tokens")
    labels[0, 5:] = -100
    return model, ids, labels, logits


def _loss(subject: ModelSubject, model: Any, ids: torch.Tensor, **inputs: Any) -> torch.Tensor:
    with torch.no_grad():
        return subject.call(model, ids, **inputs).loss


def _cross_entropy(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """The sum over all labels but those of -100."""
    return nn.functional.cross_entropy(logits.flatten(0, 1).float(), labels.flatten(), reduction="sum")


@TRAINING_CHECKS.add
def language_loss(subject: ModelSubject) -> None:
    """The loss is the mean cross-entropy of the labels, shifted in a causal model, without those of -100."""
    model, ids, labels, logits = _loss_inputs(subject)
    loss = _loss(subject, model, ids, labels=labels)
    if subject.causal:
        logits, labels = logits[:, :-1], labels[:, 1:]
    assert_close(loss, _cross_entropy(logits, labels) / (labels != -100).sum(), "loss")


@TRAINING_CHECKS.add
def loss_of_accumulated_batches(subject: ModelSubject) -> None:
    """The loss is divided by `num_items_in_batch` where `forward()` takes what it does not know: Trainer relies on it,
    and divides no more itself."""
    model, ids, labels, logits = _loss_inputs(subject)
    accepts = getattr(model, "accepts_loss_kwargs", None)
    subject.need(subject.has_keywords if accepts is None else accepts, "Trainer does not pass num_items_in_batch")
    loss = _loss(subject, model, ids, labels=labels, num_items_in_batch=torch.tensor(100))
    if subject.causal:
        logits, labels = logits[:, :-1], labels[:, 1:]
    assert_close(loss, _cross_entropy(logits, labels) / 100, "loss with num_items_in_batch = 100")


@TRAINING_CHECKS.add
def shifted_labels(subject: ModelSubject) -> None:
    """Labels that are given shifted (`shift_labels`) are not shifted again: sequence parallelism relies on it."""
    subject.need(subject.causal is True, "the model shifts no labels")
    subject.need(subject.has_keywords, "forward() takes no shift_labels")
    model, ids, labels, logits = _loss_inputs(subject)
    shifted = subject.tokens(2, LENGTH, seed=2)
    shifted[1, 6:] = -100
    loss = _loss(subject, model, ids, labels=labels, shift_labels=shifted)
    assert_close(loss, _cross_entropy(logits, shifted) / (shifted != -100).sum(), "loss of shift_labels")


@TRAINING_CHECKS.add
def activation_checkpointing(subject: ModelSubject) -> None:
    """Recomputing the layers in the backward pass changes no gradient."""
    model = subject.build().train()
    subject.need(model.supports_gradient_checkpointing, "the model does not support gradient checkpointing")
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0  # dropout of the two passes cannot be compared across transformers' versions
    batch = subject.tokens(2, LENGTH)
    torch.manual_seed(1)
    expected = {name: grad.clone() for name, grad in model_gradients(subject, model, batch).items()}
    for reentrant in (False, True):
        model.activation_checkpointing_enable({"use_reentrant": reentrant})
        torch.manual_seed(1)
        assert_gradients_close(model_gradients(subject, model, batch), expected, f"use_reentrant={reentrant}")


@TRAINING_CHECKS.add
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


def _with_large_embeddings(subject: ModelSubject, dtype: torch.dtype) -> torch.Tensor:
    model = subject.build()
    with torch.no_grad():
        model.get_input_embeddings().weight.mul_(1000.0)
    out = subject.states(model.to(dtype), subject.tokens(2, LENGTH))
    assert_finite(out, str(dtype))
    return out


@TRAINING_CHECKS.add
def large_embeddings(subject: ModelSubject) -> None:
    """Embeddings a thousand times as large give finite outputs, in float32 and bfloat16."""
    for dtype in (torch.float32, torch.bfloat16):
        _with_large_embeddings(subject, dtype)


@TRAINING_CHECKS.add_optional
def double_precision(subject: ModelSubject) -> None:
    """The model computes in float64, in which some operations of torch have no kernel."""
    out = _with_large_embeddings(subject, torch.float64)
    expect(out.dtype == torch.float64, f"outputs are {out.dtype}")


@TRAINING_CHECKS.add
def half_precision(subject: ModelSubject) -> None:
    """Outputs and gradients are finite in bfloat16 and float16, with padding."""
    for dtype in (torch.bfloat16, torch.float16):
        model = subject.build().to(dtype)
        side = "left" if subject.causal else "right"
        _, batch, mask, _ = subject.padded([LENGTH, 4], side, pad=subject.pad)
        others = {} if not subject.seq2seq else {"input_ids": batch, "attention_mask": mask}
        ids = subject.tokens(2, 5, seed=3) if subject.seq2seq else batch
        masked = "attention_mask" in subject.parameters and not subject.seq2seq
        outputs = subject.run(model, ids, mask if masked else None, **others)
        assert_finite(outputs, f"{dtype}, outputs")
        outputs.float().sin().sum().backward()
        for name, parameter in model.named_parameters():
            if parameter.grad is not None:
                assert_finite(parameter.grad, f"{dtype}, gradient of {name}")


# ----------------------------------------------------------------------------------------------------------- recorded
@TRAINING_CHECKS.add
def recorded_outputs(subject: ModelSubject) -> None:
    """Hidden states that are recorded are those that enter the layers, and the last ones; attention weights are those
    of the layers in their order, sum to at most one, and hidden keys have none."""
    subject.need(not subject.seq2seq, "the states of two stacks cannot be told apart")
    model = subject.build()
    layers = _layers(model, subject.config.get_text_config().num_hidden_layers)
    subject.need(layers is not None, "no list of as many modules as there are layers")
    entered: list[torch.Tensor] = []
    weights: list[torch.Tensor] = []

    def enters(_: Any, inputs: Any, keywords: Any) -> None:
        entered.append(inputs[0] if inputs else keywords["hidden_states"])

    def attends(_: Any, __: Any, out: Any) -> None:
        found = out[1] if isinstance(out, tuple) and len(out) > 1 else None
        # A module around another one returns the same.
        if isinstance(found, torch.Tensor) and found.ndim == 4 and not (weights and found is weights[-1]):
            weights.append(found)

    hooks = [layer.register_forward_pre_hook(enters, with_kwargs=True) for layer in layers]
    for module in model.modules():
        if "attention" in type(module).__name__.lower():
            hooks.append(module.register_forward_hook(attends))
    batch = subject.tokens(2, LENGTH)
    with torch.no_grad():
        out = subject.call(model, batch, output_hidden_states=True, output_attentions=True)
        plain = subject.call(model.base_model, batch)
    for hook in hooks:
        hook.remove()
    recorded: Any = getattr(out, "hidden_states", None)
    expect(recorded, "output_hidden_states=True gives none")
    number = len(layers)
    expect(len(recorded) == number + 1, f"{len(recorded)} hidden states of {number} layers")
    shifted = number > 1 and recorded[0].shape == entered[1].shape and torch.equal(recorded[0], entered[1])
    expect(not shifted, "the embeddings are missing from hidden_states: they begin behind the first layer")
    for idx, expected in enumerate([*entered[:number], plain[0]]):
        assert_close(recorded[idx], expected, f"hidden state {idx}")
    given, seen = (
        [each for each in getattr(out, "attentions", None) or () if each is not None],
        weights[: len(weights)],
    )
    subject.need(bool(seen), "the model has no attention weights")
    expect(len(given) <= len(seen), f"{len(given)} attention weights; the layers returned {len(seen)}")
    for idx, (actual, expected) in enumerate(zip(given, seen, strict=False)):
        assert_close(actual, expected, f"attention weights {idx}")
        expect(bool((actual.sum(-1) <= 1 + 1e-3).all()), f"attention weights {idx}: a sum is more than one")
        if subject.causal:
            expect(bool((actual.triu(1) == 0).all()), f"attention weights {idx}: later keys have a share")


def _layers(model: Any, number: int) -> Any:
    lists = (module for module in model.modules() if isinstance(module, nn.ModuleList) and len(module) == number)
    return next(lists, None)
