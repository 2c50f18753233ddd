# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""A run goes on from its own checkpoint, or not at all."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from transformers import TrainerCallback, TrainerState, TrainingArguments
from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_callback import ExportableState

# What a save adds to a config, or the Trainer changes in it.
_OF_A_SAVE = {"architectures", "auto_map", "dtype", "hf_tx_version", "transformers_version", "use_cache"}


class Drawn(TrainerCallback, ExportableState):
    """Keeps in each checkpoint what a run draws from: its seed, and a hash of the rows that it holds out. With others,
    it would learn from what it is measured on.

    Args:
        seed: of the run.
        held_out: the hash.
    """

    def __init__(self, seed: int, held_out: str) -> None:
        self.seed, self.held_out = seed, held_out

    @classmethod
    def of(cls, seed: int, held_out: Iterable[Mapping[str, Any]]) -> "Drawn":
        """Return that of a run which holds out these rows."""
        found = hashlib.sha256()
        for row in held_out:
            found.update(json.dumps(row, sort_keys=True, default=str).encode())
        return cls(seed, found.hexdigest())

    def state(self) -> dict[str, Any]:
        """What the library writes into the state of the Trainer."""
        return {"args": {"seed": self.seed, "held_out": self.held_out}, "attributes": {}}


def check_resumed(options: TrainingArguments, config: Any, drawn: Drawn) -> None:
    """Refuse to go on from more steps than are wanted, with other rows or another seed, or from the checkpoint of a
    model with other settings, whose sizes may be the same.

    Raises:
        ValueError: with what is another.
    """
    if options.resume_from_checkpoint is None:
        return
    state_file, config_file = (
        Path(options.resume_from_checkpoint, name) for name in (TRAINER_STATE_NAME, "config.json")
    )
    where = state_file.parent
    if state_file.is_file():
        state = TrainerState.load_from_json(str(state_file))
        if 0 < options.max_steps < state.global_step:
            raise ValueError(f"--max-steps {options.max_steps}: {where} has done {state.global_step} steps already.")
        began: Any = (state.stateful_callbacks or {}).get(Drawn.__name__, drawn.state())
        if began["args"]["seed"] != drawn.seed:
            raise ValueError(f"--seed {drawn.seed}: the run of {where} began with --seed {began['args']['seed']}.")
        if began["args"]["held_out"] != drawn.held_out:
            raise ValueError(
                f"--resume: the rows held out are not those of the run of {where}; give the data and the options that "
                "it began with."
            )
    if not config_file.is_file():  # adapters have none
        return
    there, here = json.loads(config_file.read_text("utf-8")), json.loads(config.to_json_string())
    for name in sorted((there.keys() | here.keys()) - _OF_A_SAVE):
        if there.get(name) != here.get(name):
            raise ValueError(
                f"--resume: {where} is of another model: {name} = {there.get(name)} there, and {here.get(name)} here; "
                "give the options that the run began with."
            )
