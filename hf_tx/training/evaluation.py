# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Measuring models on texts and rows, side by side: what `hf-tx evaluate` does."""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, cast

import torch
import transformers
from accelerate import PartialState
from transformers import AutoConfig

from ..common.checkpoint_files import check_files
from ..common.columns import tell_unread
from ..common.loading import loading
from ..common.options import flag, json_option
from ..common.whole import write_json
from ..evaluation import TextResult, evaluate_texts, load_model, rank
from ..evaluation.loading import AUTO_CLASSES, of_known_kind
from ..evaluation.results import TEXT_TASKS, TextTask
from ..models.version import __version__
from ..objectives import OBJECTIVES
from .data import SourceArguments, check_columns, load_measured
from .finetuning import RowArguments
from .measuring import measure_objective, measure_task
from .tasks import TASKS, check_task_options

# Options of loading a model.
_LOADING = ("trust_remote_code", "dtype", "attn_implementation")
_TASKS = tuple(f"--task {name}" for name in TASKS)
# Options that not everything has, with what has them.
_OPTIONS = {
    "objective_options": tuple(f"--objective {name}" for name in OBJECTIVES),
    "context_length": (*(f"--task {name}" for name in TEXT_TASKS), *(f"--objective {name}" for name in OBJECTIVES)),
    "stride": tuple(f"--task {name}" for name, kind in TEXT_TASKS.items() if kind.moves_on),
    "label_column": (*(f"--task {name}" for name, kind in TEXT_TASKS.items() if kind.pairs), *_TASKS),
    "max_length": _TASKS,
    "task_options": _TASKS,
    **{
        name: tuple(f"--task {task}" for task, kind in TASKS.items() if name in kind.honours)
        for name in ("generation_max_length", "generation_num_beams")
    },
}


@dataclass
class EvaluationArguments(RowArguments, SourceArguments):
    """Which models are measured on what. See [`run_evaluation`]."""

    model: list[str] = field(
        kw_only=True, metadata={"action": "extend", "help": "Models with a tokenizer: folders, or names on the Hub."}
    )
    task: str | None = field(
        default=None,
        metadata={
            "help": f"Task: language modeling ({', '.join(TEXT_TASKS)}), or a task of "
            f"`hf-tx finetune` ({', '.join(TASKS)}). Default: {next(iter(TEXT_TASKS))}."
        },
    )
    objective: str | None = field(
        default=None,
        metadata={
            "help": "Instead of a task: evaluate the loss of an objective of `hf-tx pretrain` "
            f"({', '.join(OBJECTIVES)})."
        },
    )
    objective_options: str | None = field(
        default=None, metadata={"help": 'Options of the objective, such as \'{"masking": "span"}\'.'}
    )
    split: str | None = field(
        default=None, metadata={"help": "Split. Default: test, or the only one; with --held-out, train."}
    )
    held_out: float | None = field(
        default=None,
        metadata={
            "help": "Evaluate only the share that `hf-tx pretrain` and `hf-tx finetune` hold out. Default: all data."
        },
    )
    held_out_first: int | None = field(
        default=None,
        metadata={
            "help": "Evaluate only the first rows, or characters of text files, that a run with --streaming holds out."
        },
    )
    seed: int = field(
        default=42, metadata={"help": "Seed of the held-out rows, and of the random choices of an objective."}
    )
    context_length: int | None = field(default=None, metadata={"help": "Maximum number of tokens of a context."})
    stride: int | None = field(
        default=None, metadata={"help": "Stride of the windows in tokens. Default: half of the context."}
    )
    generation_max_length: int | None = field(
        default=None,
        metadata={"help": "seq2seq: maximum number of generated tokens. Default: maximum length of a target."},
    )
    generation_num_beams: int | None = field(default=None, metadata={"help": "seq2seq: number of beams."})
    batch_size: int = field(
        default=8,
        metadata={
            "help": "Number of windows or rows per batch.",
            "aliases": ["per_device_eval_batch_size"],
        },
    )
    attn_implementation: str | None = field(default=None, metadata={"help": "Attention backend."})
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = field(
        default="auto", metadata={"help": "Floating point type of the weights; auto: that of the checkpoint."}
    )
    mixed_precision: Literal["bf16", "fp16"] | None = field(
        default=None, metadata={"help": "Use mixed precision, as a training with --bf16 or --fp16."}
    )
    trust_remote_code: bool = field(default=False, metadata={"help": "Run code from the repository of a model."})
    output: str | None = field(default=None, metadata={"help": "JSON file to write the results to.", "aliases": []})
    overwrite: bool = field(default=False, metadata={"help": "Replace an existing output file."})

    def __post_init__(self) -> None:
        if self.task is not None and self.objective is not None:
            raise ValueError("give either --task or --objective: a task is measured in its own way")
        if self.objective is None:
            self.task = self.task or next(iter(TEXT_TASKS))
        for option, value, known in (
            ("--task", self.task, (*TEXT_TASKS, *TASKS)),
            ("--objective", self.objective, OBJECTIVES),
        ):
            if value is not None and value not in known:
                raise ValueError(f"{option} {value}: must be one of {', '.join(known)}")
        super().__post_init__()
        if self.text and (self.split or self.dataset_config):
            raise ValueError("--split and --dataset-config are those of a --dataset: leave them out with --text")
        if self.held_out is not None and not 0 < self.held_out <= 0.5:
            raise ValueError(f"--held-out {self.held_out}: must be above 0 and at most 0.5")
        if self.held_out is not None and self.held_out_first is not None:
            raise ValueError("--held-out, --held-out-first: give one of them; a run holds out in one way")
        for name, value in self.given(*_OPTIONS, "batch_size", "max_eval_samples", "held_out_first").items():
            option, fits = f"{flag(name)} {value}", _OPTIONS.get(name)
            if fits is not None and self.what not in fits:
                raise ValueError(f"{option}: is an option of {' and '.join(fits)}; leave it out with {self.what}")
            if isinstance(value, int) and value < 1:
                raise ValueError(f"{option}: must be at least 1")
        if self.task in TASKS:
            check_task_options(TASKS[self.task], json_option(self, "task_options"), measured_only=True)

    @property
    def what(self) -> str:
        """The option that says what is measured."""
        return f"--task {self.task}" if self.objective is None else f"--objective {self.objective}"

    def given(self, *names: str) -> dict[str, Any]:
        """Return options that are given."""
        return {name: value for name in names if (value := getattr(self, name)) is not None}


def run_evaluation(arguments: EvaluationArguments) -> None:
    """Evaluate the models, print the table, and write the results.

    Raises:
        ValueError, OSError, ImportError: an option, the data or a model does not serve.
    """
    _check(arguments)
    names = ("text", "dataset", "dataset_config", "split", "held_out", "held_out_first", "seed", "max_eval_samples")
    rows = load_measured(**arguments.given(*names))
    _check_models(arguments)
    measure: Callable[..., Any] = _score_texts if arguments.task in TEXT_TASKS else _measure_rows
    results, seconds = [], {}
    for name in arguments.model:
        started = time.monotonic()
        results.append(measure(arguments, name, rows))
        seconds[name] = round(time.monotonic() - started, 1)
    state = PartialState()
    if not state.is_main_process:
        return
    if arguments.task in TEXT_TASKS:
        print(_summary(results))
        found = [result.as_dict() for result in rank(results)]
    else:
        numbers = [name for name, value in results[0].items() if isinstance(value, int | float)]
        print(_table(results, [name for name in numbers if all(name in result for result in results)]))
        found = results
    if arguments.output:
        versions = {"hf_tx": __version__, "transformers": transformers.__version__, "torch": torch.__version__}
        how = {"seconds": seconds, "processes": state.num_processes, "arguments": asdict(arguments)}
        content = {"results": found, **how, "versions": versions}
        write_json(arguments.output, content)
        print(f"saved to {Path(arguments.output).resolve()}")


def _texts_of(arguments: EvaluationArguments, rows: Any) -> Sequence[Any]:
    """Return the texts to predict, or pairs of source and target.

    Raises:
        ValueError: there is no such column.
    """
    pairs = TEXT_TASKS[str(arguments.task)].pairs
    columns = list(arguments.columns or ["source" if pairs else "text"])
    if len(columns) > 1:
        raise ValueError(f"--columns {' '.join(columns)}: --task {arguments.task} reads one")
    columns += [arguments.label_column or "target"] if pairs else []
    check_columns(rows, columns)
    tell_unread(rows.column_names, columns)
    return list(zip(*(rows[column] for column in columns), strict=True)) if pairs else rows[columns[0]]


def _check(arguments: EvaluationArguments) -> None:
    """Refuse what can be refused before anything is loaded.

    Raises:
        ValueError, OSError: with the option, its value and the rule.
    """
    if arguments.output:
        output = Path(arguments.output).resolve()
        if output.is_dir() or not output.parent.is_dir():
            raise ValueError(f"--output {arguments.output}: must be a file in a folder that exists")
        if output.exists() and not arguments.overwrite:
            raise ValueError(f"--output {arguments.output}: exists; name another file, or give --overwrite")
    if len(set(arguments.model)) < len(arguments.model):
        raise ValueError(f"--model {' '.join(arguments.model)}: a model is given twice")


def _auto_class_of(arguments: EvaluationArguments) -> Any:
    """Return the class that loads what is measured."""
    if arguments.objective is not None:
        return OBJECTIVES[arguments.objective].auto_class
    task = str(arguments.task)
    return TASKS[task].auto_class if task in TASKS else AUTO_CLASSES[task]


def _check_models(arguments: EvaluationArguments) -> None:
    """Refuse a model that is not there, or is not for the task, before the first is evaluated.

    Raises:
        ValueError, OSError: with its name.
    """
    for name in arguments.model:
        # A misspelt name or a model of another kind must not show after an hour with the models before it.
        check_files(name)
        with loading("--model", name):
            config = AutoConfig.from_pretrained(name, trust_remote_code=arguments.trust_remote_code)
        with of_known_kind(name, str(arguments.objective or arguments.task)), torch.device("meta"):
            _auto_class_of(arguments).from_config(config, trust_remote_code=arguments.trust_remote_code)


def _measure_rows(arguments: EvaluationArguments, name: str, rows: Any) -> dict[str, Any]:
    """Measure one model by an objective, or for what it was fine-tuned for; called on all processes.

    Raises:
        ValueError, OSError, ImportError: the model, its tokenizer, an option or the data do not serve.
    """
    shared = arguments.given(*_LOADING, "columns", "batch_size", "mixed_precision")
    if arguments.objective is not None:
        shared |= arguments.given("context_length", "seed")
        objective_options = json_option(arguments, "objective_options")
        found = measure_objective(name, arguments.objective, rows, objective_options=objective_options, **shared)
    else:
        shared |= arguments.given("label_column", "max_length", "generation_max_length", "generation_num_beams")
        task_options = json_option(arguments, "task_options")
        found = measure_task(name, str(arguments.task), rows, task_options=task_options, **shared)
    return {"name": name, **found}


def _score_texts(arguments: EvaluationArguments, name: str, rows: Any) -> TextResult:
    """Measure how one model predicts texts; called on all processes.

    Raises:
        ValueError, OSError, ImportError: the model, its tokenizer, an option or the data do not serve.
    """
    task = cast(TextTask, arguments.task)
    # Without being told, it takes several processes without GPUs for several single ones.
    state = PartialState(cpu=not torch.accelerator.is_available())
    texts = _texts_of(arguments, rows)
    model, tokenizer = load_model(name, task, device=str(state.device), **arguments.given(*_LOADING))
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16, None: None}[arguments.mixed_precision]
    with torch.autocast(state.device.type, dtype, enabled=dtype is not None):
        return evaluate_texts(
            model,
            tokenizer,
            texts,
            task=task,
            context_length=arguments.context_length,
            stride=arguments.stride,
            batch_size=arguments.batch_size,
            name=name,
            description=name,
            state=state,
        )


def _table(rows: list[dict[str, Any]], columns: Sequence[str]) -> str:
    """Return measures as a table."""
    cells = [["model", *(column.replace("_", " ") for column in columns)]]
    for row in rows:
        values = [row[column] for column in columns]
        cells.append(
            [row["name"], *(f"{value:.4f}" if isinstance(value, float) else f"{value:,}" for value in values)]
        )
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join(
        "  ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])]).rstrip() for line in cells
    )


def _summary(results: list[TextResult]) -> str:
    """Return the table of language models, the best first, and what must be known to read it."""
    ranked = rank(results)
    kind = TEXT_TASKS[ranked[0].task].prefix
    columns = [f"{kind}bits_per_byte", f"{kind}perplexity", "accuracy", "tokens", "bytes", "unknown_tokens"]
    notes = []
    try:
        rank(results, by="perplexity")
    except ValueError as error:
        columns.remove(f"{kind}perplexity")
        notes.append(f"perplexity is not shown: {error}")
    notes += [
        f"{result.name}: the tokenizer does not keep all of the text, so that the model had less to predict"
        for result in ranked
        if not result.lossless
    ]
    return "\n".join([_table([result.as_dict() for result in ranked], columns), *notes])
