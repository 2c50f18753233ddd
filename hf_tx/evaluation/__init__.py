# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""How well a model predicts a text: perplexity, bits per byte, masked tokens, and a unigram model to compare with."""

from .language_models import causal_windows, score_causal_lm, score_targets
from .scores import Score
from .unigram import UnigramModel

__all__ = ["Score", "UnigramModel", "causal_windows", "score_causal_lm", "score_targets"]
