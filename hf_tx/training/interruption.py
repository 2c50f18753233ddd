# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Ctrl-C that ends training instead of breaking it off."""

import signal
from types import FrameType
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_utils import SaveStrategy


class StopOnInterrupt(TrainerCallback):
    """Ends training after the step in which Ctrl-C was pressed, so that the weights can be saved.

    It is a callback of the Trainer and a context manager, which catches the signal only while it is open. Pressed
    again, Ctrl-C raises KeyboardInterrupt at once. Only the main thread can catch signals.

    Example:

    ```python
    >>> stop = StopOnInterrupt()  # Trainer(model, ..., callbacks=[stop])
    >>> with stop:
    ...     signal.raise_signal(signal.SIGINT)  # trainer.train(), and Ctrl-C
    >>> stop.interrupted
    True

    ```
    """

    def __init__(self) -> None:
        #: Whether Ctrl-C was pressed.
        self.interrupted = False
        self._previous: Any = None

    def __enter__(self) -> "StopOnInterrupt":
        self._previous = signal.signal(signal.SIGINT, self._interrupt)
        return self

    def __exit__(self, *_error: object) -> None:
        signal.signal(signal.SIGINT, self._previous)

    def _interrupt(self, _signal: int, _frame: FrameType | None) -> None:
        if self.interrupted:
            raise KeyboardInterrupt
        self.interrupted = True

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> TrainerControl:
        """Ask the Trainer to stop if Ctrl-C was pressed, and to save a checkpoint if it saves any."""
        if self.interrupted:
            control.should_training_stop = True
            control.should_save = args.save_strategy != SaveStrategy.NO
        return control
