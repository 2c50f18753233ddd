# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Makes the backends known to the library, and what they compute to the models."""

from ..models.backend_rules import PATTERN, POSITION_BIAS, SINKS, SOFTCAP, register_backend
from .banded import banded_attention
from .mask_rule import mask_rule
from .tiled import tiled_attention


def register() -> None:
    """Register `tiled` and `banded`, attention and mask together."""
    computes = (SOFTCAP, POSITION_BIAS, SINKS, PATTERN)
    register_backend("tiled", tiled_attention, mask_rule, computes=computes, by_distance=True, dense_masks=True)
    register_backend("banded", banded_attention, mask_rule, computes=computes, by_distance=True, needs_band=True)
