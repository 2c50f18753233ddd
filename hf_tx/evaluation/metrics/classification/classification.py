# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""An `evaluate` module: `hf_tx.evaluation.classification_metrics`."""

from typing import Any

import datasets
import evaluate

from hf_tx.evaluation.task_metrics import classification_metrics, libraries

_INPUTS = """
Args:
    predictions: the number of a class for each example; or, where several may be right, 0 or 1 for each class.
    references: the right ones.
    label_names: names of the classes.
Returns:
    accuracy, f1_macro, f1_micro, mcc, and per_class: precision, recall, f1, support.
"""


class Classification(evaluate.Metric):
    def _info(self) -> evaluate.MetricInfo:
        number = datasets.Value("int64")
        return evaluate.MetricInfo(
            description="Accuracy, F1 (macro, micro, of each class) and Matthews correlation of predicted classes.",
            citation="",
            inputs_description=_INPUTS,
            features=[
                datasets.Features({"predictions": kind, "references": kind})
                for kind in (number, datasets.List(number))
            ],
        )

    def _download_and_prepare(self, dl_manager: Any) -> None:
        libraries("classification")

    def _compute(
        self, predictions: list[Any], references: list[Any], label_names: list[str] | None = None
    ) -> dict[str, Any]:
        return classification_metrics(predictions, references, label_names)
