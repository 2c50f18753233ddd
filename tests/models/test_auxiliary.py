# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Auxiliary losses of parts: each counts once and has its gradient, however the loss is computed."""

import concurrent.futures
import copy
import os
from unittest.mock import patch

import pytest
import torch
import torch.distributed as dist
from tiny_models import FAMILIES, assert_close, build, shared, tokens
from torch import nn

from hf_tx.models.auxiliary import AuxiliaryLosses

NAMES = ("decay", "size")


@pytest.fixture(autouse=True)
def penalised():
    """Feed-forward layers that add half of the sum of their squared output biases, and the mean square of what they
    return. The gradient of the first with respect to a bias is the bias."""
    kind = type(shared("decoder", mlp_bias=True).layers[0].mlp)
    forward = kind.forward

    def penalising(self, hidden_states, losses=None):
        output = forward(self, hidden_states)
        if losses is not None:
            losses.add("decay", 0.5 * self.down_proj.bias.square().sum())
            losses.add("size", 0.1 * output.square().mean())
        return output

    with patch.object(kind, "forward", penalising), patch.object(kind, "auxiliary_losses", NAMES, create=True):
        yield


def model_of(family="decoder", head="lm", **settings):
    return build(family, "sdpa", head, mlp_bias=True, **settings).train()


def batch_of(family="decoder", rows=4):
    batch = tokens(rows, 6, seed=3)
    return dict(input_ids=batch, labels=batch)


def biases(model):
    return [module.down_proj.bias for module in model.modules() if hasattr(module, "down_proj")]


def gradients(model, *calls):
    model.zero_grad()
    for call in calls:
        model(**call).loss.backward()
    return {name: weight.grad.clone() for name, weight in model.named_parameters() if weight.grad is not None}


@pytest.mark.parametrize("family", FAMILIES)
def test_the_loss_includes_the_terms_in_training_and_outputs_name_them(family):
    model = model_of(family)
    output = model(**batch_of())
    assert tuple(output.aux_losses) == NAMES
    decay = sum(0.5 * bias.square().sum() for bias in biases(model))
    assert_close(output.aux_losses["decay"], decay)
    assert output.aux_losses["size"] > 0
    evaluated = model.eval()(**batch_of())
    assert_close(evaluated.aux_losses["decay"], decay)
    assert_close(output.loss, evaluated.loss + sum(output.aux_losses.values()))
    assert (
        model(input_ids=batch_of()["input_ids"], decoder_input_ids=tokens(4, 3)).loss is None
        if (family == "encoder_decoder")
        else model(batch_of()["input_ids"]).loss is None
    )


def test_a_model_without_terms_names_none():
    model = build("decoder", "sdpa", "lm", ffn_type="none")
    assert "aux_losses" not in model(tokens(1, 4))


@pytest.mark.parametrize("kept", ["parallel_residual", "post", "sandwich"])
def test_terms_have_their_gradient(kept):
    settings = dict(parallel_residual=True) if kept == "parallel_residual" else dict(norm_position=kept)
    model = model_of(**settings)
    found = gradients(model, batch_of())
    with torch.enable_grad():
        evaluated = model.eval()(**batch_of())
        model.zero_grad()
        (evaluated.loss + evaluated.aux_losses["size"]).backward()
    for name, bias in model.named_parameters():
        if name.endswith("down_proj.bias"):
            assert_close(found[name] - bias.grad, bias.detach())
        else:
            assert_close(found[name], bias.grad)


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
def test_layers_that_are_computed_again_count_once(family, reentrant):
    plain, model = model_of(family), model_of(family)
    model.gradient_checkpointing_enable({"use_reentrant": reentrant})
    assert torch.equal(model(**batch_of()).loss, plain(**batch_of()).loss)
    expected = gradients(plain, batch_of())
    for name, gradient in gradients(model, batch_of()).items():
        assert_close(gradient, expected[name])


@pytest.mark.parametrize("head", ["full", "chunked", "skipped"])
def test_accumulated_gradients_equal_those_of_one_batch(head):
    model = model_of()
    model.loss_implementation = "full" if head == "full" else "chunked"
    flags = dict(skip_logits=True) if head == "skipped" else {}
    whole = batch_of()
    items = (whole["labels"][:, 1:] != -100).sum()
    found = []
    for size in (4, 2, 1):
        parts = zip(*(whole[name].split(size) for name in ("input_ids", "labels")), strict=True)
        calls = [dict(input_ids=ids, labels=labels, num_items_in_batch=items, **flags) for ids, labels in parts]
        found.append(gradients(model, *calls))
    found.append(gradients(model, dict(**whole, **flags)))  # divided by its own number of labels
    for name, gradient in found[0].items():
        for other in found[1:]:
            assert_close(other[name], gradient, 1e-5)


def test_the_trainer_accumulates_them(tmp_path):
    from transformers import Trainer, TrainingArguments

    rows = [dict(input_ids=row, labels=row) for row in tokens(4, 6, seed=3)]
    weights = []
    for size in (4, 2, 1):
        arguments = TrainingArguments(
            tmp_path,
            per_device_train_batch_size=size,
            gradient_accumulation_steps=4 // size,
            max_steps=1,
            learning_rate=0.1,
            lr_scheduler_type="constant",
            max_grad_norm=0.0,
            optim="sgd",
            report_to=[],
            save_strategy="no",
            disable_tqdm=True,
            use_cpu=True,
        )
        model = model_of()
        Trainer(model, arguments, train_dataset=rows).train()
        weights.append(dict(model.named_parameters()))
    untrained = dict(model_of().named_parameters())
    for name, weight in weights[0].items():
        moved = weight - untrained[name]
        for other in weights[1:]:
            assert_close(other[name] - untrained[name], moved, 1e-4)


def test_a_training_step_with_terms_is_one_graph():
    model = model_of()
    expected = gradients(model, batch_of())
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    model.zero_grad()
    output = compiled(**batch_of())
    assert tuple(output.aux_losses) == NAMES
    output.loss.backward()
    for name, weight in model.named_parameters():
        if weight.grad is not None:
            assert_close(weight.grad, expected[name])


def test_a_layer_that_is_dropped_adds_nothing():
    model = model_of()
    expected = model(**batch_of()).aux_losses["decay"]
    model.model.layerdrop = 0.5
    torch.manual_seed(0)
    seen = {round(model(**batch_of()).aux_losses["decay"].item() / expected.item(), 3) for _ in range(20)}
    assert 0.0 in seen
    assert 1.0 in seen


def test_calls_of_several_threads_keep_their_terms_apart():
    model = model_of()
    batches = [tokens(1, length, seed=length) for length in range(3, 11)]
    expected = [model(batch, labels=batch).aux_losses["size"].item() for batch in batches]
    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        for _ in range(3):
            found = threads.map(lambda batch: model(batch, labels=batch).aux_losses["size"].item(), batches)
            assert list(found) == expected


@pytest.mark.parametrize("family", ["decoder", "encoder"])
def test_a_norm_may_have_terms(family):
    with patch.object(nn.LayerNorm, "auxiliary_losses", ("gain",), create=True):
        forward = nn.LayerNorm.forward

        def gained(self, hidden_states, losses=None):
            if losses is not None:
                losses.add("gain", self.weight.square().sum())
            return forward(self, hidden_states)

        with patch.object(nn.LayerNorm, "forward", gained):
            model = build(family, "sdpa", mlp_bias=True, norm_type="layernorm", final_norm=True)
            terms = model(tokens(2, 5)).aux_losses
    norms = [module for module in model.modules() if isinstance(module, nn.LayerNorm)]
    assert len(norms) >= 5
    assert_close(terms["gain"], sum(norm.weight.square().sum() for norm in norms))


def test_a_term_that_is_not_declared_or_no_number_is_refused():
    losses = AuxiliaryLosses(NAMES)
    with pytest.raises(ValueError, match="loss 'balance' is not declared: auxiliary_losses = \\('decay', 'size'\\)"):
        losses.add("balance", torch.ones(()))
    with pytest.raises(ValueError, match="loss 'size' has the shape \\(3,\\); it must be a single number"):
        losses.add("size", torch.ones(3))


def test_heads_that_classify_include_them():
    import hf_tx

    config = model_of().config
    for kind, labels in (
        (hf_tx.TxDecoderForSequenceClassification, torch.tensor([0, 1, 1, 0])),
        (hf_tx.TxDecoderForTokenClassification, torch.ones(4, 6, dtype=torch.long)),
    ):
        model = kind(copy.deepcopy(config)).train()
        call = dict(input_ids=tokens(4, 6), attention_mask=torch.ones(4, 6).long())
        output = model(**call, labels=labels)
        assert_close(output.loss, model.eval()(**call, labels=labels).loss + sum(output.aux_losses.values()))
        model.train()
        items = torch.tensor(2 * labels.numel())
        assert_close(2 * model(**call, labels=labels, num_items_in_batch=items).loss, output.loss)


def _process(rank, port, results):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=2)
    context = penalised.__wrapped__() if hasattr(penalised, "__wrapped__") else penalised._get_wrapped_function()()
    next(context)
    model = nn.parallel.DistributedDataParallel(model_of())
    whole = batch_of()
    call = {name: part.chunk(2)[rank] for name, part in whole.items()}
    items = (whole["labels"][:, 1:] != -100).sum()
    (model(**call, num_items_in_batch=items).loss * dist.get_world_size()).backward()  # as the Trainer does
    if rank == 0:
        results.update({name: weight.grad for name, weight in model.module.named_parameters()})
    dist.barrier()
    dist.destroy_process_group()


@pytest.mark.distributed
def test_two_processes_equal_one():
    import socket

    import torch.multiprocessing as processes
    from models import test_auxiliary  # by a name that the processes find, too

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with processes.Manager() as manager:
        results = manager.dict()
        processes.spawn(test_auxiliary._process, (port, results), nprocs=2)
        found = dict(results)
    expected = gradients(model_of(), batch_of())
    assert set(found) == set(expected)
    for name, gradient in expected.items():
        assert_close(found[name], gradient, 1e-5)
