# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Writes model cards, checks model repositories, and pushes them to the Hub."""

from .cards import DataRecord, Result, RunRecord, write_card
from .comparison import ComparisonRecord, MixerCost, Training, Trial, quality_table, write_comparison
from .data_cards import license_of, read_data_card
from .push import open_repository, push_folder
from .repository import Problem, check_repository

__all__ = [
    "ComparisonRecord",
    "DataRecord",
    "MixerCost",
    "Problem",
    "Result",
    "RunRecord",
    "Training",
    "Trial",
    "check_repository",
    "license_of",
    "open_repository",
    "push_folder",
    "quality_table",
    "read_data_card",
    "write_card",
    "write_comparison",
]
