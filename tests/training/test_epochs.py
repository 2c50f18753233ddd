# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
import pytest
from datasets import Dataset
from objective_data import make, make_texts
from tiny_models import build
from transformers import Trainer, TrainingArguments

from hf_tx.training import SetEpoch

STEPS = 9


class Watched:
    """A collator that keeps what it has made, of rows that training sees."""

    def __init__(self, objective):
        self.objective = objective
        self.made = []

    def __call__(self, rows):
        batch = self.objective(rows)
        self.made.append(tuple(batch["labels"].flatten().tolist()))
        return batch


def train(folder, dataset, resume=None, callback=True):
    objective = make("masked-lm")
    collate = Watched(objective)
    settings = TrainingArguments(
        str(folder), max_steps=STEPS, per_device_train_batch_size=4, save_steps=5, report_to="none", use_cpu=True
    )
    callbacks = [SetEpoch(objective)] if callback else []
    model = build("encoder", "sdpa", "lm", vocab_size=len(objective.tokenizer))
    trainer = Trainer(model, settings, train_dataset=dataset, data_collator=collate, callbacks=callbacks)
    trainer.train(resume_from_checkpoint=resume)
    return collate.made, {name: value.clone() for name, value in model.state_dict().items()}


@pytest.fixture(scope="module")
def rows():
    rows = make("masked-lm").prepare(Dataset.from_dict({"text": make_texts(20)}))
    assert len(rows) >= 16
    return rows.select(range(16))  # an epoch of four steps


def test_every_epoch_draws_anew(rows, tmp_path):
    stream = rows.to_iterable_dataset()  # in the order of the rows, so that batches return
    made, _ = train(tmp_path, stream)
    assert len(set(made[:STEPS])) == STEPS
    without, _ = train(tmp_path, stream, callback=False)
    assert without[4:8] == without[:4], "without the callback every epoch is the same"


def test_a_resumed_run_draws_what_the_whole_run_draws(rows, tmp_path):
    whole, weights = train(tmp_path, rows)
    resumed, again = train(tmp_path, rows, resume=str(tmp_path / "checkpoint-5"))
    assert len(resumed) >= 4
    assert resumed == whole[5:]
    assert all(value.equal(weights[name]) for name, value in again.items())
