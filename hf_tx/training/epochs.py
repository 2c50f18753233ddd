# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Telling an objective which epoch it is."""

from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from ..objectives import Objective


class SetEpoch(TrainerCallback):
    """Lets an objective draw anew in every epoch, and as before in one that is resumed.

    The Trainer tells the epoch to samplers and to datasets, but not to data collators.

    Args:
        objective: the data collator of the Trainer.
    """

    def __init__(self, objective: Objective) -> None:
        self.objective = objective
        self._next = 0

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Find out with which epoch training begins, or goes on."""
        self._next = int(state.epoch or 0)

    def on_epoch_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Tell it to the objective."""
        self.objective.set_epoch(self._next)
        self._next += 1
