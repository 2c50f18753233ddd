# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""A run goes on from its own checkpoint, or not at all."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, fields
from itertools import islice
from pathlib import Path
from typing import Any

from torch.utils.data import IterableDataset
from transformers import TrainerState, TrainingArguments
from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_utils import has_length
from transformers.utils import logging

from ..common.options import flag

logger = logging.get_logger(__name__)

# Options that a run may go on with another value of: where it saves, and how it is logged, saved, pushed and measured.
# Any other is refused, so that a new one is until it is known to change nothing. When a run is measured is not among
# them: iterating over the rows to measure on draws from the generator that dropout draws from.
_MAY_CHANGE = {
    "output_dir", "resume_from_checkpoint", "do_train", "do_eval", "do_predict", "local_rank", "ddp_timeout",
    "skip_memory_metrics", "dataloader_pin_memory", "dataloader_prefetch_factor",
    "logging_strategy", "logging_steps", "logging_first_step", "logging_nan_inf_filter", "log_on_each_node",
    "log_level", "log_level_replica", "disable_tqdm", "report_to", "run_name", "project", "trackio_space_id",
    "trackio_bucket_id", "trackio_static_space_id",
    "save_strategy", "save_steps", "save_total_limit", "save_only_model", "save_on_each_node", "enable_jit_checkpoint",
    "push_to_hub", "hub_token", "hub_private_repo", "hub_model_id", "hub_strategy", "hub_always_push", "hub_revision",
    "per_device_eval_batch_size", "prediction_loss_only", "eval_do_concat_batches", "eval_use_gather_object",
    "eval_accumulation_steps", "include_for_metrics", "batch_eval_metrics",
    "output", "resume", "title", "data_name", "data_license", "data_source", "license", "other_text", "samples",
    "prompt", "max_new_tokens", "trust_remote_code",
    # Names of what is compared by what it holds: the rows, the config, and the weights that are not in a checkpoint.
    "text", "dataset", "eval_text", "eval_dataset", "tokenizer", "model",
}  # fmt: skip
# Where the state of the Trainer in a checkpoint keeps it, beside those of callbacks.
_KEY = "Began"
_OF_A_STEP = ("per_device_train_batch_size", "gradient_accumulation_steps")
_LENGTHS = ("max_steps", "num_train_epochs")
# Schedules whose learning rate in a step does not depend on how many steps there are.
_OPEN_SCHEDULES = ("constant", "constant_with_warmup", "inverse_sqrt")
# Rows of a stream that tell it from another.
_FIRST_ROWS = 100
# What a save adds to a config, or the Trainer changes in it.
_OF_A_SAVE = {"architectures", "auto_map", "dtype", "hf_tx_version", "transformers_version", "use_cache"}


class Began:
    """What a run began with, which each checkpoint keeps: its options, and hashes of the rows that it learns from and
    of those that it holds out; with others, it would learn from what it is measured on.

    Args:
        options: of the Trainer.
    """

    def __init__(self, options: TrainingArguments) -> None:
        self._options = options
        self._arguments: Any = None
        self._rows: dict[str, str] = {}

    def add(self, arguments: Any, **rows: Iterable[Mapping[str, Any]]) -> None:
        """Keep more of a run.

        Args:
            arguments: its options beside those of the Trainer, a dataclass.
            **rows: what it reads, and does not save. Of a stream, the first rows are compared.
        """
        self._arguments = arguments
        self._rows = {name: _hash(found) for name, found in rows.items()}

    def options(self) -> dict[str, Any]:
        """Return the options that must stay as they are, as JSON has them."""
        given = {each.name: getattr(self._options, each.name) for each in fields(self._options) if each.init}
        given |= {} if self._arguments is None else asdict(self._arguments)
        given["processes"] = self._options.world_size * max(1, self._options.n_gpu)
        return {name: _plain(value) for name, value in given.items() if name not in _MAY_CHANGE}

    def keep(self, state: TrainerState) -> None:
        """Write it into the state that a checkpoint holds."""
        assert isinstance(state.stateful_callbacks, dict)
        state.stateful_callbacks[_KEY] = {"args": {}, "attributes": {"options": self.options(), "rows": self._rows}}

    def check(self, state: TrainerState, where: Path) -> dict[str, tuple[Any, Any]]:
        """Compare a run with the one that a checkpoint is of.

        Returns:
            The options that have other values, by name: the value there, and the one here.

        Raises:
            ValueError: the checkpoint does not say what its run began with.
        """
        callbacks: Any = state.stateful_callbacks or {}
        kept = callbacks.get(_KEY)
        if kept is None:
            raise ValueError(
                f"--resume: {where} does not say with which options its run began, as it was saved by another Trainer "
                "or by another version of hf_tx: it cannot be known whether this would be the same run."
            )
        there, here = kept["attributes"]["options"], self.options()
        names = sorted(there.keys() | here.keys(), key=[*here, *there].index)
        found = {name: (there.get(name), here.get(name)) for name in names}
        return {name: (before, now) for name, (before, now) in found.items() if before != now}

    def check_rows(self, state: TrainerState, where: Path) -> None:
        """Refuse other rows than those that the run of a checkpoint read.

        Raises:
            ValueError: they are others.
        """
        kept: Any = state.stateful_callbacks
        for name, found in kept[_KEY]["attributes"]["rows"].items():
            if self._rows.get(name, found) != found:
                raise ValueError(
                    f"--resume: the {name.replace('_', ' ')} are not those of the run of {where}: the data, the "
                    "tokenizer or the model that it began with has changed since; give what it began with."
                )


def check_resumed(trainer: Any, checkpoint: str | Path, config: Any = None) -> None:
    """Refuse to go on from a checkpoint of another run: with other options, other rows, or a model with other
    settings, whose sizes may be the same.

    A step of as many rows may be divided into other batches where that changes nothing, and the run be longer or
    shorter where its learning rates are the same; both are told.

    Args:
        trainer: of the run that is to go on, a `TxTrainer`.
        checkpoint: its folder.
        config: of the model. None: it is not compared.

    Raises:
        ValueError: with what is another.
    """
    where = Path(checkpoint)
    state_file = where / TRAINER_STATE_NAME
    if not state_file.is_file():
        raise ValueError(f"--resume: {where} holds no {TRAINER_STATE_NAME}: it is not a checkpoint of a training run.")
    state, options = TrainerState.load_from_json(str(state_file)), trainer.args
    if 0 < options.max_steps < state.global_step:
        raise ValueError(f"--max-steps {options.max_steps}: {where} has done {state.global_step} steps already.")
    changed = trainer.began.check(state, where)
    for names, refusal in ((_OF_A_STEP, _other_batches), (_LENGTHS, _another_length)):
        of_these = [name for name in names if name in changed]
        reason = refusal(trainer, changed) if of_these else None
        if reason is not None:
            _refuse(of_these[0], changed, where, reason)
        for name in of_these:
            before, now = changed.pop(name)
            logger.warning_once(f"{flag_of(name)} {now}: continues {where}, which began with {before}.")
    for name in changed:
        _refuse(name, changed, where, "give the options that it began with")
    trainer.began.check_rows(state, where)
    if config is not None and (where / "config.json").is_file():  # adapters have none
        _check_config(config, where)


def _refuse(name: str, changed: Mapping[str, tuple[Any, Any]], where: Path, reason: str) -> None:
    before, now = changed[name]
    option = flag_of(name)
    raise ValueError(f"{option} {now}: the run of {where} began with {option} {before}; {reason}.")


def _other_batches(trainer: Any, changed: Mapping[str, tuple[Any, Any]]) -> str | None:
    """Return why a step would not be the same if its rows were divided into other batches, or None if it would."""
    here = [getattr(trainer.args, name) for name in _OF_A_STEP]
    there = [changed[name][0] if name in changed else value for name, value in zip(_OF_A_STEP, here, strict=True)]
    if here[0] * here[1] != there[0] * there[1]:
        return (
            f"a step would have {here[0] * here[1]} rows instead of {there[0] * there[1]}, so that rows would be left "
            "out or read twice; keep the product of batch size and accumulation"
        )
    if trainer.args.world_size * max(1, trainer.args.n_gpu) > 1:
        return "with several processes or devices, the last rows of an epoch would be divided otherwise"
    if trainer.args.dataloader_drop_last:
        return "with --dataloader_drop_last, other rows would be left out at the end of an epoch"
    if not trainer.adds_up():
        return (
            "the loss of rows together is not the sum of theirs in parts (dropout draws for a batch, and some losses "
            "compare the rows of one)"
        )
    return None


def _another_length(trainer: Any, changed: Mapping[str, tuple[Any, Any]]) -> str | None:
    """Return why the steps of a run of another length would not be the same, or None if they would."""
    options = trainer.args
    name = _plain(options.lr_scheduler_type)
    if name not in _OPEN_SCHEDULES:
        return (
            f"the learning rates of its schedule ({name}) depend on the number of steps. Give the same number; a run "
            f"that can be made longer begins with --lr_scheduler_type {' or '.join(_OPEN_SCHEDULES[:2])}"
        )
    if 0 < options.warmup_steps < 1:
        return (
            f"--warmup_steps {options.warmup_steps} is a share of all steps. Give the same number; a run that can be "
            "made longer begins with a whole number of them"
        )
    if not has_length(trainer.train_dataset):
        return "the place in a stream is kept as a share of the steps"
    return None


def _check_config(config: Any, where: Path) -> None:
    there = json.loads((where / "config.json").read_text("utf-8"))
    here = json.loads(config.to_json_string())
    for name in sorted((there.keys() | here.keys()) - _OF_A_SAVE):
        if there.get(name) != here.get(name):
            raise ValueError(
                f"--resume: {where} is of another model: {name} = {there.get(name)} there, and {here.get(name)} here; "
                "give the options that the run began with."
            )


def flag_of(name: str) -> str:
    """Return how an option is spelt: those of the Trainer with underscores, as transformers does."""
    return f"--{name}" if name in TrainingArguments.__dataclass_fields__ else flag(name)


def _plain(value: Any) -> Any:
    """Return a value as JSON has it; what is written as JSON is read."""
    if isinstance(value, str) and value.lstrip().startswith("{"):
        try:
            return json.loads(value)
        except json.JSONDecodeError:
            return value
    if hasattr(value, "to_dict"):
        value = value.to_dict()
    return json.loads(json.dumps(value, default=str))


def _hash(rows: Iterable[Mapping[str, Any]]) -> str:
    found = hashlib.sha256()
    for row in islice(rows, _FIRST_ROWS if isinstance(rows, IterableDataset) else None):
        found.update(json.dumps(row, sort_keys=True, default=str).encode())
    return found.hexdigest()
