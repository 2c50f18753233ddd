# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""An `evaluate` module: `hf_tx.evaluation.token_classification_metrics`."""

from typing import Any

import datasets
import evaluate

from hf_tx.evaluation.task_metrics import libraries, token_classification_metrics

_INPUTS = """
Args:
    predictions: the tags of each text, such as O, B-PER, I-PER.
    references: the right tags.
    scheme: the scheme that tags must keep (IOB1, IOB2, IOE2, IOBES, BILOU). Default: as conlleval.
Returns:
    overall_precision, overall_recall, overall_f1, overall_accuracy, and per_class: precision, recall, f1, support.
"""


class TokenClassification(evaluate.Metric):
    def _info(self) -> evaluate.MetricInfo:
        tags = datasets.List(datasets.Value("string"))
        return evaluate.MetricInfo(
            description="Precision, recall and F1 of whole entities, such as names, by seqeval.",
            citation="",
            inputs_description=_INPUTS,
            features=datasets.Features({"predictions": tags, "references": tags}),
        )

    def _download_and_prepare(self, dl_manager: Any) -> None:
        libraries("token_classification")

    def _compute(
        self, predictions: list[list[str]], references: list[list[str]], scheme: str | None = None
    ) -> dict[str, Any]:
        return token_classification_metrics(predictions, references, scheme)
