# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Options of the Trainer that nothing would heed are refused, and those that are declared are heeded."""

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_models import config_of, enlarge, tokens
from torch.nn.functional import cross_entropy
from transformers import Seq2SeqTrainingArguments, TrainingArguments, default_data_collator

import hf_tx
from hf_tx.objectives import OBJECTIVES
from hf_tx.training import TxTrainer
from hf_tx.training.finetuning import FinetuningOptions
from hf_tx.training.honouring import _OF_NONE, _OF_SOME, check_honoured
from hf_tx.training.pretraining import PretrainingOptions
from hf_tx.training.tasks import TASKS


def test_the_options_are_the_librarys_and_its_defaults_ask_for_nothing(tmp_path: Path) -> None:
    assert {*_OF_SOME, *_OF_NONE} <= {each.name for each in fields(Seq2SeqTrainingArguments)}
    for kind in (FinetuningOptions, PretrainingOptions):
        check_honoured(kind(output_dir=str(tmp_path)), "nothing", ())


def test_what_is_declared_are_options_that_not_all_honour() -> None:
    for kind in (*TASKS.values(), *OBJECTIVES.values()):
        assert set(kind.honours) <= set(_OF_SOME), kind


def trainer_of(model: Any, rows: list[dict[str, Any]], folder: Path) -> TxTrainer:
    settings = TrainingArguments(str(folder), label_smoothing_factor=0.2, report_to="none", use_cpu=True)
    return TxTrainer(model, settings, train_dataset=rows, data_collator=default_data_collator)


def test_labels_of_a_decoder_are_smoothed_without_its_inputs(tmp_path: Path) -> None:
    model = enlarge(hf_tx.TxEncoderDecoderForConditionalGeneration(config_of("encoder_decoder"))).eval()
    rows = [
        {"input_ids": tokens(7, seed=seed).tolist(), "labels": tokens(5, seed=seed + 9).tolist()} for seed in (0, 1)
    ]
    batch = default_data_collator(rows)
    loss = trainer_of(model, rows, tmp_path).compute_loss(model, dict(batch))
    logits = model(**batch).logits
    expected = cross_entropy(logits.flatten(0, 1), batch["labels"].flatten(), label_smoothing=0.2)
    torch.testing.assert_close(loss, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("labels", [{"labels": 0.5}, {"start_positions": 1, "end_positions": 2}])
def test_what_is_no_class_is_not_smoothed(labels: dict[str, Any], tmp_path: Path) -> None:
    kind = hf_tx.TxEncoderForSequenceClassification if "labels" in labels else hf_tx.TxEncoderForQuestionAnswering
    rows = [{"input_ids": tokens(7, seed=seed).tolist(), **labels} for seed in (0, 1)]
    config = config_of("encoder", num_labels=1) if "labels" in labels else config_of("encoder")
    with pytest.raises(ValueError, match="--label_smoothing_factor 0.2: the batch has no labels that are classes"):
        trainer_of(kind(config), rows, tmp_path).train()
