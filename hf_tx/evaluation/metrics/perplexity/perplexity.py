# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""An `evaluate` module: what `hf_tx.evaluation.evaluate_texts` makes of texts."""

from typing import Any

import datasets
import evaluate

from hf_tx.evaluation import evaluate_texts, load_model

_DESCRIPTION = """
Perplexity and bits per byte of texts under a causal language model. Every token is scored exactly once; every window
begins with the bos token (eos where there is none), which is never scored.
"""
_INPUTS = """
Args:
    predictions: the texts.
    model_id: folder or Hub id of the model and its tokenizer.
    batch_size: windows that go through the model together.
    max_length: tokens of a window. Default: as many as model and tokenizer allow, at most 1024.
    stride: by how many tokens a window moves on. Default: half a window.
    device: where to compute. Default: a GPU if there is one.
Returns:
    perplexities: of each text. mean_perplexity: their mean. perplexity, bits_per_byte: of all tokens. tokens, bytes,
    unknown_tokens: what was counted.
"""


class Perplexity(evaluate.Metric):
    def _info(self) -> evaluate.MetricInfo:
        return evaluate.MetricInfo(
            description=_DESCRIPTION,
            citation="",
            inputs_description=_INPUTS,
            features=datasets.Features({"predictions": datasets.Value("string")}),
        )

    def _compute(
        self,
        predictions: list[str],
        model_id: str,
        batch_size: int = 16,
        max_length: int | None = None,
        stride: int | None = None,
        device: str | None = None,
    ) -> dict[str, Any]:
        model, tokenizer = load_model(model_id, "causal-lm", device=device)
        return evaluate_texts(
            model,
            tokenizer,
            predictions,
            task="causal-lm",
            context_length=max_length,
            stride=stride,
            batch_size=batch_size,
        ).as_metric()
