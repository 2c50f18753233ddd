# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Options that a task alone has: `--task-options` of `hf-tx finetune` and `hf-tx evaluate`."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from ...common.options import check_names


@dataclass(frozen=True, kw_only=True)
class TaskOptions:
    """No options; tasks that have some add them by [`option`].

    Raises:
        ValueError: a value that is out of range.
    """

    def __post_init__(self) -> None:
        for each in fields(self):
            value, rule = getattr(self, each.name), each.metadata
            if value is None and each.default is None:
                continue
            known, least = rule["choices"], rule["least"]
            if known is not None and value not in known:
                raise ValueError(f"--task-options: {each.name} = {value!r} must be one of {', '.join(known)}.")
            if least is not None and (type(value) is not int or value < least):
                raise ValueError(
                    f"--task-options: {each.name} = {value!r} must be a whole number of at least {least}."
                )


def option(
    default: Any,
    help: str,
    *,
    choices: tuple[str, ...] | None = None,
    least: int | None = None,
    of_training: bool = False,
) -> Any:
    """Return a field of [`TaskOptions`].

    Args:
        default: the value where none is given. None: it follows from something else.
        help: what it is.
        choices: the values that there are.
        least: the least whole number.
        of_training: whether a model that is only measured has no use for it.
    """
    rule = {"help": help, "choices": choices, "least": least, "of_training": of_training}
    return field(default=default, metadata=rule)


def check_task_options(kind: Any, given: Mapping[str, Any], measured_only: bool = False) -> None:
    """Raise ValueError for options that a task does not have, or not when a model is only measured, and for values
    that are out of range.

    Args:
        kind: the class of the task.
        given: the options by name.
        measured_only: whether nothing is trained.
    """
    known = [each.name for each in fields(kind.options_class) if not (measured_only and each.metadata["of_training"])]
    check_names("--task-options", kind.name, given, known)
    kind.options_class(**given)
