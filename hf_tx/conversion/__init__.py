# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Converts checkpoints from and to transformers, with one file per family: a config table and a weight table for both
directions. Also changes loaded models: a longer context, warm starts, tied weights."""

from .context import extend_context
from .convert import from_hf, to_hf
from .families import FAMILIES
from .fields import NotExpressible
from .tying import tie_embeddings, untie_embeddings
from .warm_start import warm_start_decoder, warm_start_encoder_decoder

__all__ = [
    "FAMILIES",
    "NotExpressible",
    "extend_context",
    "from_hf",
    "tie_embeddings",
    "to_hf",
    "untie_embeddings",
    "warm_start_decoder",
    "warm_start_encoder_decoder",
]
