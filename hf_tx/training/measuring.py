# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Measuring a saved model by the objective that it has learnt, or for the task that it was fine-tuned for: what
training measures of held-out data, without the training."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from typing import Any

from ..evaluation import load_model
from ..objectives import OBJECTIVES
from .data import check_columns
from .finetuning import FinetuningOptions, row_length, task_trainer
from .runs import make_objective, measures_of
from .tasks import TASKS, check_task_options
from .trainer import TxTrainer


def measure_task(
    name: str,
    task: str,
    rows: Any,
    *,
    columns: Sequence[str] = (),
    label_column: str | None = None,
    max_length: int | None = None,
    task_options: Mapping[str, Any] | None = None,
    generation_max_length: int | None = None,
    generation_num_beams: int | None = None,
    batch_size: int = 8,
    mixed_precision: str | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Measure a model on rows of the task that it was fine-tuned for; called on all processes.

    Args:
        name: a folder, or a name on the Hub.
        task: the name in `TASKS`.
        rows: a dataset of the library `datasets`.
        columns: the columns of texts. Default: what the task calls them.
        label_column: the column of what is right. Default: what the task calls it.
        max_length: the most tokens of a row. Default: what the model reads, and at most 512.
        task_options: those of the task alone.
        generation_max_length: where texts are written, the most tokens of one. Default: those of a target, and one.
        generation_num_beams: where texts are written, with how many beams.
        batch_size: rows that go through the model together, by device.
        mixed_precision: `bf16` or `fp16`, as in a training. Default: the precision of the weights.
        **options: of [`load_model`].

    Returns:
        What the task measures, the loss, `rows`, and how many are not read as a whole: what the task counts in its
        `cuts`, such as `cut_rows`.

    Raises:
        ValueError, OSError, ImportError: the model, an option or a row does not serve.
    """
    kind = TASKS[task]
    check_task_options(kind, task_options or {}, measured_only=True)
    model, tokenizer = load_model(name, task, auto_class=kind.auto_class, device="cpu", **options)
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    prepared = kind(
        tokenizer,
        model.config,
        None,
        rows,
        max_length=row_length(max_length, model.config, tokenizer),
        columns=columns,
        label_column=label_column,
        **(task_options or {}),
    )
    writing = {"generation_max_length": generation_max_length, "generation_num_beams": generation_num_beams}
    with _options(batch_size, mixed_precision, **writing) as settings:
        prepared.prepare_options(settings)
        if settings.should_log:
            prepared.tell_cuts()
        found = measures_of(task_trainer(prepared, model, settings, details=True))
    return {**found, "rows": len(prepared.held_out_rows), **prepared.cut["held-out"]}


def measure_objective(
    name: str,
    objective: str,
    rows: Any,
    *,
    columns: Sequence[str] = (),
    context_length: int | None = None,
    objective_options: Mapping[str, Any] | None = None,
    seed: int = 0,
    batch_size: int = 8,
    mixed_precision: str | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Measure the loss of a model by an objective, on rows that are drawn once; called on all processes.

    Args:
        name: a folder, or a name on the Hub.
        objective: the name in `OBJECTIVES`.
        rows: a dataset of the library `datasets`.
        columns: the columns of texts. Default: what the objective calls them.
        context_length: the most tokens of a row. Default: what the model reads, and at most 512.
        objective_options: those of the objective alone.
        seed: of what is drawn.
        batch_size: rows that go through the model together, by device.
        mixed_precision: `bf16` or `fp16`, as in a training. Default: the precision of the weights.
        **options: of [`load_model`].

    Returns:
        The `loss`.

    Raises:
        ValueError, OSError, ImportError: the model, an option or a row does not serve.
    """
    kind = OBJECTIVES[objective]
    columns = list(columns or kind.columns)
    check_columns(rows, columns)
    model, tokenizer = load_model(name, objective, auto_class=kind.auto_class, device="cpu", **options)
    length = row_length(context_length, model.config, tokenizer, "--context-length")
    collator = make_objective(kind, tokenizer, length, seed, objective_options or {})
    with _options(batch_size, mixed_precision) as settings:
        trainer = TxTrainer(
            collator.trainable(model),
            settings,
            eval_dataset=collator.prepare(rows, columns, fixed=True),
            data_collator=collator,
            processing_class=tokenizer,
        )
        return measures_of(trainer)


@contextmanager
def _options(batch_size: int, mixed_precision: str | None, **options: Any) -> Iterator[FinetuningOptions]:
    """The options of a Trainer that measures and leaves nothing behind."""
    with TemporaryDirectory() as folder:
        yield FinetuningOptions(
            output_dir=folder,
            per_device_eval_batch_size=batch_size,
            bf16=mixed_precision == "bf16",
            fp16=mixed_precision == "fp16",
            **options,
        )
