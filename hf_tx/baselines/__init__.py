# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""What a model has to beat: methods that were there before, on the same rows."""

from .words import classify_by_words

__all__ = ["classify_by_words"]
