# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Model cards, what a repository on the Hub must hold, and its way there."""

from .cards import DataRecord, Result, RunRecord, write_card
from .data_cards import license_of, read_data_card
from .push import push_folder
from .repository import Problem, check_repository

__all__ = [
    "DataRecord",
    "Problem",
    "Result",
    "RunRecord",
    "check_repository",
    "license_of",
    "push_folder",
    "read_data_card",
    "write_card",
]
