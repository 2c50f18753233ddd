# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""What a model costs, told from its config, and how far its gradients reach."""

from .cost import Estimate, estimate
from .gradients import gradient_by_distance
from .parameters import ParameterCount, match_parameters, parameter_count

__all__ = ["Estimate", "ParameterCount", "estimate", "gradient_by_distance", "match_parameters", "parameter_count"]
