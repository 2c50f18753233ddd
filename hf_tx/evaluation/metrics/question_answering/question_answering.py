# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""An `evaluate` module: `hf_tx.evaluation.question_answering_metrics`."""

from typing import Any

import datasets
import evaluate

from hf_tx.evaluation import question_answering_metrics

_INPUTS = """
Args:
    predictions: id, prediction_text ("" for no answer), and, if known, no_answer_probability.
    references: id, and answers with a list of text, which is empty where there is no answer.
    no_answer_threshold: a prediction of which the no_answer_probability is higher is no answer.
Returns:
    exact_match, f1, total; where some questions have no answer, also HasAns_* and NoAns_*.
"""


class QuestionAnswering(evaluate.Metric):
    def _info(self) -> evaluate.MetricInfo:
        text = datasets.Value("string")
        prediction = {"id": text, "prediction_text": text, "no_answer_probability": datasets.Value("float64")}
        reference = {"id": text, "answers": {"text": datasets.List(text)}}
        return evaluate.MetricInfo(
            description="Exact match and F1 of answers, as the official script of SQuAD 2.0.",
            citation="",
            inputs_description=_INPUTS,
            features=datasets.Features({"predictions": prediction, "references": reference}),
        )

    def add_batch(self, *, predictions: list[dict[str, Any]], references: list[dict[str, Any]]) -> None:
        """Add answers and what they should be."""
        # A column may be absent here, which transformers does not allow; and references may have more, as in SQuAD.
        given = [{"no_answer_probability": 0.0, **row, "id": str(row["id"])} for row in predictions]
        right = [{"id": str(row["id"]), "answers": {"text": row["answers"]["text"]}} for row in references]
        super().add_batch(predictions=given, references=right)

    def add(self, *, prediction: dict[str, Any], reference: dict[str, Any]) -> None:
        """Add one answer and what it should be."""
        self.add_batch(predictions=[prediction], references=[reference])

    def _compute(
        self, predictions: list[dict[str, Any]], references: list[dict[str, Any]], no_answer_threshold: float = 1.0
    ) -> dict[str, float]:
        return question_answering_metrics(predictions, references, no_answer_threshold)
