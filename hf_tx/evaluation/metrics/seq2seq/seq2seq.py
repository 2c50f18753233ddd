# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""An `evaluate` module: `hf_tx.evaluation.seq2seq_metrics`."""

from typing import Any

import datasets
import evaluate

from hf_tx.evaluation.task_metrics import libraries, seq2seq_metrics

_INPUTS = """
Args:
    predictions: the texts.
    references: the right text for each, or several.
    use_stemmer: whether ROUGE takes English words of one stem as equal.
Returns:
    rouge1, rouge2, rougeL, rougeLsum (0 to 1); bleu, chrf (0 to 100) and their signatures.
"""


class Seq2Seq(evaluate.Metric):
    def _info(self) -> evaluate.MetricInfo:
        text = datasets.Value("string")
        return evaluate.MetricInfo(
            description="ROUGE, BLEU and chrF of written texts, by rouge_score and sacrebleu.",
            citation="",
            inputs_description=_INPUTS,
            features=[
                datasets.Features({"predictions": text, "references": kind}) for kind in (text, datasets.List(text))
            ],
        )

    def _download_and_prepare(self, dl_manager: Any) -> None:
        libraries("seq2seq")

    def _compute(self, predictions: list[str], references: list[Any], use_stemmer: bool = False) -> dict[str, Any]:
        return seq2seq_metrics(predictions, references, use_stemmer)
