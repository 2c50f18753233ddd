# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""What a model costs, told from its config."""

from .parameters import ParameterCount, parameter_count

__all__ = ["ParameterCount", "parameter_count"]
