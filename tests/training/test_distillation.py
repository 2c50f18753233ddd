# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
import copy
from functools import partial

import pytest
import torch
from tiny_models import FAMILIES, assert_close, build, tokens
from torch import nn
from transformers import TrainingArguments, default_data_collator

from hf_tx.training import DistillationTrainer, logits_loss, transfer_errors, transfer_loss

IGNORE, PAD = -100, 0


def pair(family, mixers="sliding,full", **fields):
    """A teacher of full attention, and a student that differs in its first layer."""
    return build(family, head="lm", mixers="full", **fields), build(family, head="lm", mixers=mixers, **fields)


def batch_of(family):
    """Rows that are padded, and where they count: in layers that are not causal, and in those that are."""
    ids, mask = tokens(2, 9), torch.tensor([[1] * 9, [1] * 6 + [0] * 3])
    labels = ids.masked_fill(mask == 0, IGNORE)
    real = [(0, t) for t in range(9)] + [(1, t) for t in range(6)]
    if family == "decoder":
        # A position predicts the token after it.
        predicting = [(0, t) for t in range(8)] + [(1, t) for t in range(5)]
        return {"input_ids": ids, "attention_mask": mask, "labels": labels}, real, predicting
    if family == "encoder":
        labels = torch.full_like(ids, IGNORE)
        labels[0, 3], labels[1, 2] = 5, 7
        return {"input_ids": ids, "attention_mask": mask, "labels": labels}, real, [(0, 3), (1, 2)]
    target = tokens(2, 7, seed=1)
    target[0, 4:] = IGNORE
    predicting = [(0, t) for t in range(4)] + [(1, t) for t in range(7)]
    return {"input_ids": ids, "attention_mask": mask, "labels": target}, real, predicting


def alone(stack, idx, states, **inputs):
    """Outputs of one layer of a stack that reads the given states."""
    stack = copy.deepcopy(stack)
    for of_layers in (stack, stack.plan):
        of_layers.layers = of_layers.layers[idx : idx + 1]
    stack.norm = nn.Identity()
    return stack(inputs_embeds=states, **inputs).last_hidden_state


def relative_error(mine, theirs, positions):
    distance = sum(((mine[at] - theirs[at]) ** 2).sum() for at in positions)
    return distance / sum((theirs[at] ** 2).sum() for at in positions)


@pytest.mark.parametrize("changed", [0, 1])
@pytest.mark.parametrize("family", FAMILIES)
@torch.no_grad()
def test_transfer_errors_are_those_of_layers_alone_that_read_what_the_teacher_reads(family, changed):
    teacher, student = pair(family, ["sliding,full", "full,sliding"][changed])
    inputs, real, predicting = batch_of(family)
    source = {"input_ids": inputs["input_ids"], "attention_mask": inputs["attention_mask"]}
    stacks = [(teacher.base_model, student.base_model, source, {"attention_mask": source["attention_mask"]})]
    counted = [predicting if family == "decoder" else real]
    if family == "encoder_decoder":
        encoder, decoder = teacher.model.encoder, teacher.model.decoder
        encoded = {"encoder_hidden_states": encoder(**source).last_hidden_state}
        encoded["encoder_attention_mask"] = source["attention_mask"]
        read = {"input_ids": teacher.prepare_decoder_input_ids_from_labels(inputs["labels"]), **encoded}
        stacks = [
            (encoder, student.model.encoder, *stacks[0][2:]),
            (decoder, student.model.decoder, read, encoded),
        ]
        counted.append(predicting)
    expected = []
    for (theirs, mine, read, more), positions in zip(stacks, counted, strict=True):
        for idx, states in enumerate(theirs(**read, output_hidden_states=True).hidden_states[:-1]):
            outputs = [alone(stack, idx, states, **more) for stack in (mine, theirs)]
            expected.append(relative_error(*outputs, positions))
    found = transfer_errors(student, teacher, inputs)
    assert_close(found, torch.stack(expected))
    # Only one layer of each stack differs.
    assert (found[changed::2] > 1e-3).all()
    assert (found[1 - changed :: 2] < 1e-10).all()
    assert_close(transfer_loss(student, teacher, inputs), found.mean())
    assert_close(transfer_loss(student, teacher, inputs, [0]), found[0])


@pytest.mark.parametrize("family", FAMILIES)
@torch.no_grad()
def test_logits_loss_is_the_sum_over_targets(family):
    teacher, student = pair(family)
    inputs, _, predicting = batch_of(family)
    mine, theirs = (model(**inputs).logits for model in (student, teacher))
    labels = inputs["labels"] if family != "decoder" else nn.functional.pad(inputs["labels"][:, 1:], (0, 1))
    divergence = cross_entropy = 0.0
    for at in predicting:
        p, q = (logits[at].div(3.0).softmax(-1) for logits in (theirs, mine))
        divergence += (p * (p / q).log()).sum() / len(predicting)
        cross_entropy -= mine[at].softmax(-1)[labels[at]].log() / len(predicting)
    expected = 0.75 * 9.0 * divergence + 0.25 * cross_entropy
    assert_close(logits_loss(student, teacher, inputs, temperature=3.0, labels_weight=0.25), expected, 1e-4)
    assert_close(logits_loss(student, teacher, inputs, labels_weight=1.0), student(**inputs).loss, 1e-4)
    assert logits_loss(teacher, teacher, inputs).abs() < 1e-6


@pytest.mark.parametrize("loss", [transfer_loss, logits_loss])
@pytest.mark.parametrize("family", FAMILIES)
def test_what_stands_at_padding_does_not_count(family, loss):
    teacher, student = pair(family)
    inputs, *_ = batch_of(family)
    other = {**inputs, "input_ids": torch.where(inputs["attention_mask"] == 0, 60, inputs["input_ids"])}
    found = []
    for batch in (inputs, other):
        student.zero_grad()
        value = loss(student, teacher, batch)
        value.backward()
        found.append([value.detach(), student.base_model.get_parameter(_first_weight(student)).grad])
    assert found[0][1].abs().max() > 1e-4
    for mine, theirs in zip(*found, strict=True):
        assert_close(mine, theirs, 1e-5)


def _first_weight(model):
    names = [name for name, _ in model.base_model.named_parameters()]
    return next(name for name in names if name.endswith("layers.0.mixer.v_proj.weight"))


@pytest.mark.parametrize("loss", [transfer_loss, logits_loss])
@torch.no_grad()
def test_packed_documents_count_as_if_they_stood_alone(loss):
    """Neither the end of a document nor padding that has no mask counts, and no document sees another."""
    teacher, student = pair("decoder")
    first, second = tokens(5, seed=1), tokens(7, seed=2)
    packed = torch.cat([first, second, torch.full((4,), PAD)])[None]
    positions = torch.cat([torch.arange(n) for n in (5, 7, 4)])[None]
    labels = packed.masked_fill(packed == PAD, IGNORE)
    apart = torch.full((2, 7), PAD)
    apart[0, :5], apart[1] = first, second
    mask = torch.tensor([[1] * 5 + [0] * 2, [1] * 7])
    found = loss(student, teacher, {"input_ids": packed, "position_ids": positions, "labels": labels})
    rows = {"input_ids": apart, "attention_mask": mask, "labels": apart.masked_fill(mask == 0, IGNORE)}
    assert_close(found, loss(student, teacher, rows))


@torch.no_grad()
def test_packed_rows_of_an_encoder_are_padded_without_a_mask():
    teacher, student = pair("encoder")
    text = tokens(1, 7)
    packed = nn.functional.pad(text, (0, 4), value=PAD)
    positions = torch.cat([torch.arange(7), torch.arange(4)])[None]
    labels = torch.full_like(packed, IGNORE)
    labels[0, 2] = 9
    found = transfer_errors(student, teacher, {"input_ids": packed, "position_ids": positions, "labels": labels})
    assert_close(found, transfer_errors(student, teacher, {"input_ids": text, "labels": labels[:, :7]}))


def test_gradients_reach_the_layers_that_are_learnt_and_nothing_else():
    teacher, student = pair("decoder", "sliding,full")
    transfer_loss(student, teacher, batch_of("decoder")[0], [0]).backward()
    reached = {name for name, weight in student.named_parameters() if weight.grad is not None and weight.grad.any()}
    assert reached == {name for name, _ in student.named_parameters() if ".layers.0." in name}
    assert all(weight.grad is None for weight in teacher.parameters())


def test_a_batch_without_targets_is_no_division_by_zero():
    teacher, student = pair("encoder")
    inputs, *_ = batch_of("encoder")
    loss = logits_loss(student, teacher, {**inputs, "labels": torch.full_like(inputs["labels"], IGNORE)})
    assert loss == 0


def test_layers_without_a_counterpart_are_refused():
    teacher, student = build("decoder", head="lm", num_hidden_layers=3), build("decoder", head="lm")
    with pytest.raises(ValueError, match="the student has 2 layers and the teacher 3: .* Keep num_hidden_layers"):
        transfer_errors(student, teacher, batch_of("decoder")[0])


@pytest.mark.parametrize("rows_at_once", [1, 2])
@pytest.mark.parametrize("loss", [transfer_loss, partial(logits_loss, temperature=2.0)])
def test_the_trainer_learns_the_objective_and_leaves_the_teacher_alone(tmp_path, loss, rows_at_once):
    teacher, student = pair("decoder")
    before = copy.deepcopy(teacher.state_dict())
    rows = [{"input_ids": row, "labels": row} for row in tokens(4, 8).tolist()]
    batch = default_data_collator(rows)
    expected = loss(student, teacher, batch).item()
    arguments = TrainingArguments(
        str(tmp_path),
        max_steps=8,
        learning_rate=1e-2,
        per_device_train_batch_size=rows_at_once,
        gradient_accumulation_steps=4 // rows_at_once,
        logging_steps=1,
        report_to="none",
        save_strategy="no",
        remove_unused_columns=False,
        use_cpu=True,
    )
    trainer = DistillationTrainer(student, arguments, teacher=teacher, objective=loss, train_dataset=rows)
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    # Rows have as many targets; errors are relative to the hidden states of the batch, which differ a little.
    assert losses[0] == pytest.approx(expected, rel=0.05 if loss is transfer_loss else 1e-4)
    assert losses[-1] < 0.7 * losses[0]
    assert all(torch.equal(value, before[name]) for name, value in teacher.state_dict().items())
    assert not teacher.training
