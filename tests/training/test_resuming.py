# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""A run that goes on is the whole run, or is refused: rows, batches, learning rates, streams."""

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from tiny_models import config_of, enlarge, tokens
from transformers import Seq2SeqTrainingArguments, Trainer, TrainingArguments

import hf_tx
from hf_tx.training import TxTrainer
from hf_tx.training.finetuning import FinetuningArguments
from hf_tx.training.pretraining import PretrainingArguments
from hf_tx.training.resuming import _MAY_CHANGE


class Watched(TxTrainer):
    """A trainer that keeps the rows of each batch that it has learnt from."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.batches: list[list[list[int]]] = []

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> torch.Tensor:
        self.batches.append(inputs["input_ids"].tolist())
        return super().training_step(model, inputs, num_items_in_batch)

    @property
    def rows(self) -> list[list[int]]:
        return sum(self.batches, [])


def collate(rows: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    ids = torch.tensor([row["input_ids"] for row in rows])
    return {"input_ids": ids, "labels": ids}


def data() -> Dataset:
    return Dataset.from_list(
        [{"number": number, "input_ids": tokens(8, seed=number).tolist()} for number in range(22)]
    )


def trainer_of(folder: Path, rows: Any, model: Any = None, **options: Any) -> Watched:
    settings: dict[str, Any] = dict(
        max_steps=8,
        save_steps=5,
        per_device_train_batch_size=4,
        learning_rate=1e-2,
        logging_steps=1,
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
        remove_unused_columns=False,
    )
    arguments = TrainingArguments(str(folder), **(settings | options))
    model = model or enlarge(hf_tx.TxDecoderForCausalLM(config_of("decoder")))
    return Watched(model, arguments, train_dataset=rows, data_collator=collate)


def learning_rates(trainer: Any) -> list[float]:
    return [entry["learning_rate"] for entry in trainer.state.log_history if "learning_rate" in entry]


def both(folder: Path, rows: Any, **changes: Any) -> tuple[Watched, Watched]:
    """Return the whole run, and the same run broken off after its fifth step and gone on with."""
    whole, after = trainer_of(folder, rows), trainer_of(folder, rows, **changes)
    whole.train()
    after.train(resume_from_checkpoint=str(folder / "checkpoint-5"))
    return whole, after


def assert_same_weights(first: Any, second: Any, tolerance: float = 0.0) -> None:
    for (name, weight), other in zip(
        first.model.state_dict().items(), second.model.state_dict().values(), strict=True
    ):
        torch.testing.assert_close(other, weight, rtol=tolerance, atol=tolerance, msg=name)


# ------------------------------------------------------------------------------------------------------------- batches
def test_a_step_of_as_many_rows_in_other_batches_is_the_same_step(tmp_path: Path) -> None:
    """Steps of four rows, and the last one of a pass of two."""
    whole, after = both(tmp_path, data(), per_device_train_batch_size=2, gradient_accumulation_steps=2)
    assert [len(batch) for batch in after.batches] == [2, 2, 2, 2, 2]
    assert after.rows == whole.rows[20:]
    assert learning_rates(after) == learning_rates(whole)
    assert_same_weights(whole, after, 1e-4)  # sums of floats in another order


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        (
            "lm",
            {"per_device_train_batch_size": 8},
            "--per_device_train_batch_size 8: .* would have 8 rows instead of 4",
        ),
        ("lm", {"gradient_accumulation_steps": 2}, "--gradient_accumulation_steps 2: .* would have 8 rows"),
        ("dropout", {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 2}, "is not the sum of theirs"),
    ],
)
def test_a_step_of_other_rows_is_refused(model: str, options: dict[str, Any], message: str, tmp_path: Path) -> None:
    config = config_of("decoder", **({"hidden_dropout": 0.2} if model == "dropout" else {}))
    trainer_of(tmp_path, data(), hf_tx.TxDecoderForCausalLM(config)).train()
    again = trainer_of(tmp_path, data(), hf_tx.TxDecoderForCausalLM(config), **options)
    with pytest.raises(ValueError, match=message):
        again.train(resume_from_checkpoint=str(tmp_path / "checkpoint-5"))
    assert again.state.global_step == 0


def test_a_mean_over_parts_does_not_add_up(tmp_path: Path) -> None:
    """One row beside two: the mean of means is not the mean, where the Trainer counts no targets."""
    model = enlarge(hf_tx.TxEncoderForQuestionAnswering(config_of("encoder")))

    def with_answers(rows: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
        places = torch.tensor([row["number"] % 8 for row in rows])
        return {
            "input_ids": torch.tensor([row["input_ids"] for row in rows]),
            "start_positions": places,
            "end_positions": places,
        }

    trainer = trainer_of(tmp_path, data(), model)
    trainer.data_collator = with_answers
    assert not trainer.adds_up()


# ----------------------------------------------------------------------------------------------------------- schedules
@pytest.mark.parametrize("options", [{"max_steps": 9}, {"max_steps": -1, "num_train_epochs": 2}])
def test_more_steps_of_a_schedule_that_ends_are_refused(options: dict[str, Any], tmp_path: Path) -> None:
    trainer_of(tmp_path, data()).train()
    again = trainer_of(tmp_path, data(), **options)
    with pytest.raises(ValueError, match=r"its schedule \(linear\) depend on the number of steps"):
        again.train(resume_from_checkpoint=str(tmp_path / "checkpoint-5"))


def test_more_steps_of_a_schedule_without_end_are_those_of_the_longer_run(tmp_path: Path) -> None:
    constant = {"lr_scheduler_type": "constant_with_warmup", "warmup_steps": 3}
    whole = trainer_of(tmp_path / "whole", data(), **constant, max_steps=9)
    whole.train()
    trainer_of(tmp_path, data(), **constant, max_steps=5).train()
    after = trainer_of(tmp_path, data(), **constant, max_steps=9)
    after.train(resume_from_checkpoint=str(tmp_path / "checkpoint-5"))
    assert after.rows == whole.rows[20:]
    assert learning_rates(after) == learning_rates(whole)
    assert_same_weights(whole, after)
    shares = {"lr_scheduler_type": "constant_with_warmup", "warmup_steps": 0.5}
    trainer_of(tmp_path / "share", data(), **shares, max_steps=5).train()
    again = trainer_of(tmp_path / "share", data(), **shares, max_steps=9)
    with pytest.raises(ValueError, match=r"--warmup_steps 0.5 is a share of all steps"):
        again.train(resume_from_checkpoint=str(tmp_path / "share" / "checkpoint-5"))


# ------------------------------------------------------------------------------------------------------------- options
@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkpoint of a run that ends at it."""
    folder = tmp_path_factory.mktemp("begun")
    trainer_of(folder, data(), max_steps=5).train()
    return folder / "checkpoint-5"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("learning_rate", 1e-3),
        ("lr_scheduler_type", "cosine"),
        ("warmup_steps", 2),
        ("weight_decay", 0.1),
        ("max_grad_norm", 2.0),
        ("seed", 3),
        ("data_seed", 3),
        ("bf16", True),
        ("label_smoothing_factor", 0.1),
        ("train_sampling_strategy", "sequential"),
        ("ignore_data_skip", True),
        ("eval_on_start", True),
    ],
)
def test_another_option_is_refused_by_its_name(name: str, value: Any, begun: Path, tmp_path: Path) -> None:
    again = trainer_of(tmp_path, data(), max_steps=5, **{name: value})
    with pytest.raises(ValueError, match=rf"--{name} {value}: the run of .* began with --{name} "):
        again.train(resume_from_checkpoint=str(begun))


def test_how_it_is_logged_and_saved_may_change_and_is_heeded(tmp_path: Path) -> None:
    whole, after = both(tmp_path, data(), logging_steps=3, save_steps=7, save_total_limit=9)
    assert_same_weights(whole, after)
    assert [entry["step"] for entry in after.state.log_history if "loss" in entry][-1] == 6
    assert Path(tmp_path, "checkpoint-7").is_dir()


def test_what_may_change_are_options_that_there_are() -> None:
    known = {each.name for each in fields(Seq2SeqTrainingArguments)}
    scripts: set[str] = set()
    for kind in (FinetuningArguments, PretrainingArguments):
        scripts |= {each.name for each in fields(kind)}
    assert known | scripts >= _MAY_CHANGE


def test_a_checkpoint_that_says_nothing_of_its_run_is_refused(tmp_path: Path) -> None:
    trainer = trainer_of(tmp_path, data(), max_steps=5)
    Trainer(trainer.model, trainer.args, train_dataset=trainer.train_dataset, data_collator=collate).train()
    again = trainer_of(tmp_path, data(), max_steps=5)
    with pytest.raises(ValueError, match="does not say with which options its run began"):
        again.train(resume_from_checkpoint=True)


# ------------------------------------------------------------------------------------------------------------- streams
@pytest.mark.parametrize("shuffled", [False, True])
@pytest.mark.parametrize("save", [9, 6])  # in the second pass, and at the end of the first
def test_a_stream_goes_on_at_its_row(shuffled: bool, save: int, tmp_path: Path) -> None:
    stream = data().to_iterable_dataset()
    if shuffled:
        stream = stream.shuffle(seed=5, buffer_size=8)
    options = dict(max_steps=14, save_steps=save, save_total_limit=9)
    whole = trainer_of(tmp_path, stream, **options)
    whole.train()
    # Passes of 22 rows: five steps of four and one of two.
    assert (whole.rows[22:44] != whole.rows[:22]) == shuffled
    assert sorted(whole.rows[22:44]) == sorted(whole.rows[:22])
    after = trainer_of(tmp_path, stream, **options)
    after.train(resume_from_checkpoint=str(tmp_path / f"checkpoint-{save}"))
    assert after.batches == whole.batches[save:]
    assert after.state.global_step == 14
    assert after.state.epoch == whole.state.epoch
    assert_same_weights(whole, after)


def test_a_stream_of_another_length_is_refused(tmp_path: Path) -> None:
    stream = data().to_iterable_dataset()
    constant = {"lr_scheduler_type": "constant"}
    trainer_of(tmp_path, stream, max_steps=5, **constant).train()
    again = trainer_of(tmp_path, stream, max_steps=8, **constant)
    with pytest.raises(ValueError, match="the place in a stream is kept as a share of the steps"):
        again.train(resume_from_checkpoint=True)
