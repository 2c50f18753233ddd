# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Named checks that prove mixers, norms, feed-forward layers, position schemes, attention backends and models right.
README.md says how to use them."""

from .backend_checks import check_backend
from .checks import Check, CheckResult, parametrize_with_checks, run_checks
from .cross_checks import check_cross_mixer
from .feed_forward_checks import check_feed_forward
from .mixer_checks import check_mixer
from .model_checks import check_model
from .norm_checks import check_norm
from .position_checks import check_position

__all__ = [
    "Check",
    "CheckResult",
    "check_backend",
    "check_cross_mixer",
    "check_feed_forward",
    "check_mixer",
    "check_model",
    "check_norm",
    "check_position",
    "parametrize_with_checks",
    "run_checks",
]
