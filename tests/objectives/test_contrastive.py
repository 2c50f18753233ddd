# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
import math
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from datasets import Dataset
from objective_data import make, make_texts
from tiny_models import assert_close, build
from torch import nn
from transformers import Trainer, TrainingArguments

import hf_tx
from hf_tx.objectives import InfoNCE, SentenceEmbedder


def vectors(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def pairs(count=6, columns=("anchor", "positive")):
    texts = make_texts(count * len(columns))
    return Dataset.from_dict({name: texts[number :: len(columns)] for number, name in enumerate(columns)})


@pytest.mark.parametrize("texts", [1, 3])
def test_the_loss_by_hand(texts):
    anchors, others = vectors(4, 5), vectors(4, texts, 5, seed=1)
    total = 0.0
    for row in range(4):
        similar = {
            (other, text): math.exp(nn.functional.cosine_similarity(anchors[row], others[other, text], dim=0) / 0.1)
            for other in range(4)
            for text in range(texts)
        }
        total -= math.log(similar[row, 0] / sum(similar.values()))
    assert_close(InfoNCE(0.1)(anchors, others), torch.tensor(total / 4))


def test_the_right_texts_have_no_loss_and_length_does_not_matter():
    anchors = torch.eye(4)
    assert InfoNCE(0.01)(anchors, anchors[:, None]) < 1e-6
    assert InfoNCE(0.01)(anchors, anchors.roll(1, 0)[:, None]) > 50
    others = vectors(4, 1, 4)
    assert_close(InfoNCE()(anchors * 7, others), InfoNCE()(anchors, others * 3))


@pytest.mark.parametrize("pooling", ["mean", "first"])
@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_is_not_pooled(pooling, side):
    objective = make("contrastive", pooling=pooling)
    model = build("encoder", "sdpa", vocab_size=len(objective.tokenizer))
    embedder = objective.trainable(model)
    short, long = [2, 7, 8, 3], [2, 9, 10, 11, 12, 13, 3]
    before = objective.tokenizer.padding_side
    objective.tokenizer.padding_side = side
    try:
        batch = objective([{"input_ids": [short, long]}, {"input_ids": [long, short]}])
    finally:
        objective.tokenizer.padding_side = before
    embeddings = embedder(**batch).embeddings
    assert batch["input_ids"].shape == (2, 2, 7)
    for text, place in ((short, (0, 0)), (long, (1, 0))):
        states = model(input_ids=torch.tensor([text])).last_hidden_state[0]
        assert_close(embeddings[place], states.mean(0) if pooling == "mean" else states[0])
    assert_close(embeddings[0, 0], embeddings[1, 1])


def test_more_columns_are_hard_negatives():
    objective = make("contrastive")
    names = ("anchor", "positive", "hard", "harder")
    rows = list(objective.prepare(pairs(3, names), names))
    batch = objective(rows)
    assert batch["input_ids"].shape[:2] == (3, 4)
    embedder = objective.trainable(build("encoder", "sdpa", vocab_size=len(objective.tokenizer)))
    output = embedder(**batch)
    assert_close(output.loss, InfoNCE()(output.embeddings[:, 0], output.embeddings[:, 1:]))
    assert "loss" not in embedder(**batch, return_loss=False)


def test_long_texts_are_cut():
    rows = make("contrastive", 8).prepare(pairs())
    assert max(len(text) for row in rows for text in row["input_ids"]) == 8


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ([2, 3], "row 1 of a batch must have a list of texts, each a list of tokens, as input_ids"),
        ([[2, 3]], "row 1 of a batch has 1 texts, and row 0 2"),
        ([[2, 3], [2, 3], [2, 3]], "row 1 of a batch has 3 texts, and row 0 2"),
        ([[2, 3], []], r"texts of \[2, 0\] tokens: each must have at least one and at most max_length = 32"),
        ([[2, 3], [5] * 33], r"texts of \[2, 33\] tokens"),
    ],
)
def test_wrong_rows_are_refused(row, message):
    with pytest.raises(ValueError, match=message):
        make("contrastive")([{"input_ids": [[2, 3], [2, 4]]}, {"input_ids": row}])


@pytest.mark.parametrize("options", [{"temperature": 0.0}, {"pooling": "max"}])
def test_wrong_options_are_refused(options):
    (name, value), *_ = options.items()
    with pytest.raises(ValueError, match=f"{name} = {value!r}"):
        make("contrastive", **options)


def test_the_trainer_trains_and_evaluates_it(tmp_path):
    objective = make("contrastive", temperature=0.5)
    rows = objective.prepare(pairs(16))
    model = build("encoder", "sdpa", vocab_size=len(objective.tokenizer))
    settings = TrainingArguments(
        str(tmp_path), max_steps=20, per_device_train_batch_size=8, learning_rate=3e-3, report_to="none", use_cpu=True
    )
    trainer = Trainer(
        objective.trainable(model), settings, train_dataset=rows, eval_dataset=rows, data_collator=objective
    )
    before = trainer.evaluate()["eval_loss"]
    trainer.train()
    assert trainer.evaluate()["eval_loss"] < before - 0.1


ONE_OF_TWO = """
import sys
import torch
from torch import distributed, nn
import hf_tx
from hf_tx.objectives import InfoNCE

folder, rank = sys.argv[1], int(sys.argv[2])
distributed.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2)
assert distributed.get_world_size() == 2
anchors, texts, weight = torch.load(f"{folder}/given.pt")
layer = nn.Linear(5, 4, bias=False)
layer.weight.data = weight
mine = slice(3 * rank, 3 * rank + 3)
loss = InfoNCE(0.1)(layer(anchors[mine]), layer(texts[mine]))
loss.backward()
gradient = layer.weight.grad / 2
distributed.all_reduce(gradient)  # as DDP does
torch.save((loss.detach(), gradient), f"{folder}/{rank}.pt")
distributed.destroy_process_group()
"""


@pytest.mark.distributed
def test_two_processes_have_the_loss_and_gradients_of_one(tmp_path):
    given = anchors, texts, weight = vectors(6, 5), vectors(6, 2, 5, seed=1), vectors(4, 5, seed=2)
    torch.save(given, tmp_path / "given.pt")
    layer = nn.Linear(5, 4, bias=False)
    layer.weight.data = weight
    expected = InfoNCE(0.1)(layer(anchors), layer(texts))
    expected.backward()
    script = f"import sys; sys.path.insert(0, {str(Path(hf_tx.__file__).parents[1])!r})\n{ONE_OF_TWO}"
    command = [sys.executable, "-c", script, str(tmp_path)]
    children = [subprocess.Popen([*command, str(rank)], stderr=subprocess.PIPE, text=True) for rank in range(2)]
    try:
        for child in children:
            _, errors = child.communicate(timeout=120)
            assert child.returncode == 0, errors
    finally:
        for child in children:
            child.kill()
    found = [torch.load(tmp_path / f"{rank}.pt") for rank in range(2)]
    for loss, gradient in found:
        assert_close(loss, expected.detach())
        assert_close(gradient, layer.weight.grad)


def test_no_weights_but_those_of_the_encoder():
    model = build("encoder", "sdpa")
    assert len(list(SentenceEmbedder(model).parameters())) == len(list(model.parameters()))
