# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""From documents of tokens to the examples that a model is trained on."""

from .continuation import continuation_pairs
from .packing import pack_documents, pack_for_causal_lm

__all__ = ["continuation_pairs", "pack_documents", "pack_for_causal_lm"]
