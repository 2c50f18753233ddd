# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""How good a model is: language models by perplexity and bits per byte, the others by the metrics of their task."""

from .language_models import causal_windows, masked_windows, score_causal_lm, score_targets
from .results import TextResult, rank
from .scores import Score
from .texts import evaluate_texts
from .unigram import UnigramModel

__all__ = [
    "Score",
    "TextResult",
    "UnigramModel",
    "causal_windows",
    "evaluate_texts",
    "masked_windows",
    "rank",
    "score_causal_lm",
    "score_targets",
]
