# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Classical baselines, trained on the same rows as a model."""

from .words import classify_by_words

__all__ = ["classify_by_words"]
