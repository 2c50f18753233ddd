# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Each measure knows which way is better: what is right is the best of all."""

from typing import Any

import pytest
from transformers import TrainingArguments

from hf_tx.evaluation import (
    classification_metrics,
    question_answering_metrics,
    seq2seq_metrics,
    token_classification_metrics,
)
from hf_tx.evaluation.directions import GREATER_IS_BETTER, MEASURES, greater_is_better, ranked
from hf_tx.evaluation.task_metrics import regression_metrics
from hf_tx.training.finetuning import FinetuningOptions
from hf_tx.training.pretraining import PretrainingOptions


def answers_measured(texts: list[str], right: list[list[str]]) -> dict[str, float]:
    predictions = [{"id": number, "prediction_text": text} for number, text in enumerate(texts)]
    return question_answering_metrics(
        predictions, [{"id": number, "answers": {"text": each}} for number, each in enumerate(right)]
    )


@pytest.mark.parametrize(
    ("kind", "measure", "right", "wrong", "references"),
    [
        ("classification", classification_metrics, [0, 1, 2], [1, 1, 0], [0, 1, 2]),
        ("regression", regression_metrics, [0.5, 2.0, 3.0], [1.0, 0.0, 3.0], [0.5, 2.0, 3.0]),
        ("entities", token_classification_metrics, [["B-A", "O"]], [["O", "B-A"]], [["B-A", "O"]]),
        ("answers", answers_measured, ["the mill", ""], ["a river", "Oslo"], [["mill"], []]),
        ("seq2seq", seq2seq_metrics, ["It is cold in Oslo ."], ["It was Rome ."], ["It is cold in Oslo ."]),
    ],
)
def test_what_is_right_is_the_best(kind: str, measure: Any, right: Any, wrong: Any, references: Any) -> None:
    best, worse = measure(right, references), measure(wrong, references)
    for name, greater in MEASURES[kind].items():
        assert (best[name] > worse[name]) == greater, name
        assert ranked([worse, best], name, lambda found, name=name: found[name])[0] is best
    assert {name for name, value in best.items() if isinstance(value, float)} == set(MEASURES[kind])


def test_options_take_the_direction_of_the_measure() -> None:
    for name, greater in GREATER_IS_BETTER.items():
        for kind in (FinetuningOptions, PretrainingOptions):
            for metric in (name, f"eval_{name}"):
                assert kind(metric_for_best_model=metric).greater_is_better is greater
        with pytest.raises(ValueError, match=f"metric_for_best_model = {name}: a .* value is better"):
            FinetuningOptions(metric_for_best_model=name, greater_is_better=not greater)
    assert FinetuningOptions(load_best_model_at_end=True).greater_is_better is False
    assert FinetuningOptions(metric_for_best_model="mse", greater_is_better=False).greater_is_better is False
    # Of a measure that is not ours, what is given holds, or what transformers guesses.
    assert FinetuningOptions(metric_for_best_model="mine", greater_is_better=False).greater_is_better is False
    assert FinetuningOptions(metric_for_best_model="mine").greater_is_better is True
    assert TrainingArguments(metric_for_best_model="mse").greater_is_better is True  # hence all of this
    assert greater_is_better("mine") is None
