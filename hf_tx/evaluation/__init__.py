# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Evaluation: perplexity and bits per byte of language models, and metrics of tasks."""

from .language_models import causal_windows, continuation_windows, masked_windows, score_causal_lm, score_targets
from .loading import load_metric, load_model
from .results import TextResult, rank
from .scores import Score
from .task_metrics import (
    classification_metrics,
    question_answering_metrics,
    seq2seq_metrics,
    token_classification_metrics,
)
from .texts import evaluate_texts
from .unigram import UnigramModel

__all__ = [
    "Score",
    "TextResult",
    "UnigramModel",
    "causal_windows",
    "classification_metrics",
    "continuation_windows",
    "evaluate_texts",
    "load_metric",
    "load_model",
    "masked_windows",
    "question_answering_metrics",
    "rank",
    "score_causal_lm",
    "score_targets",
    "seq2seq_metrics",
    "token_classification_metrics",
]
