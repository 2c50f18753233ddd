# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Text that conforms: JSON schemas, regular expressions and grammars for `generate()`, always complete and valid."""

from .constraint import Constraint
from .processor import ConstraintLogitsProcessor
from .structured import Structured, generate_structured

__all__ = ["Constraint", "ConstraintLogitsProcessor", "Structured", "generate_structured"]
