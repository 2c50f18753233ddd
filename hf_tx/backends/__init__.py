# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Exact attention in less time or memory, on any device, for any model of transformers: `tiled` and `banded`.

`import hf_tx` registers them, with the mask functions that belong to them, in transformers' own tables, so that their
names serve `from_pretrained(..., attn_implementation="banded")` and `set_attn_implementation("tiled")`.
`register_engine` declares that another name is that of a serving engine, which masks its requests itself.
"""

from ..models.backend_rules import register_engine
from .banded import banded_attention
from .mask_rule import MaskRule, mask_rule
from .registration import register
from .tiled import tiled_attention

__all__ = ["MaskRule", "banded_attention", "mask_rule", "register", "register_engine", "tiled_attention"]
