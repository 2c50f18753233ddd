# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Checkpoints in and out: one file a family, with one config table and one weight table that serve both directions."""

from .convert import from_hf, to_hf
from .families import FAMILIES
from .fields import NotExpressible

__all__ = ["FAMILIES", "NotExpressible", "from_hf", "to_hf"]
