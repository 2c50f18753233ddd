# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Checkpoints in and out: one file a family, with one config table and one weight table that serve both directions.
And changes of what came in: longer texts, other uses, tied weights."""

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
