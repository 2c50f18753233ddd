# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""From a model and rows with labels to a model for a task, with its measures and its card."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoConfig,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedTokenizerBase,
    Seq2SeqTrainingArguments,
    set_seed,
)

from ..common.checkpoint_files import check_files
from ..common.loading import loading
from ..common.options import json_option
from ..evaluation.loading import longest_input
from ..hub import Result
from .data import load_splits
from .honouring import check_honoured
from .resuming import check_resumed
from .runs import Run, RunArguments, RunOptions, check_best, measures_of, try_model
from .tasks import TASKS, Task, check_task_options
from .tasks.task import numbers

_DEFAULT_LENGTH = 512


def _described() -> str:
    """Return what the options of the tasks are, for `--help`."""
    own = {
        name: [f"{each.name} ({each.metadata['help']})" for each in fields(kind.options_class)]
        for name, kind in TASKS.items()
    }
    return " ".join(f"Of {name}: {', '.join(listed)}." for name, listed in own.items() if listed)


@dataclass
class RowArguments:
    """How rows are read for a task, whether to learn from them or to measure."""

    label_column: str | None = field(
        default=None, metadata={"help": "Column with the labels. Default: the name of the task."}
    )
    max_length: int | None = field(
        default=None, metadata={"help": "Maximum number of tokens of a row. Default: that of the model, at most 512."}
    )
    task_options: str | None = field(default=None, metadata={"help": f"Options of the task, as JSON. {_described()}"})


@dataclass
class FinetuningArguments(RowArguments, RunArguments):
    """What is trained for which task. The options of training itself are those of the Trainer."""

    model: str = field(kw_only=True, metadata={"help": "Model to fine-tune: a folder, or a name on the Hub."})
    task: str = field(kw_only=True, metadata={"help": f"Task: {', '.join(TASKS)}."})
    lora_r: int = field(
        default=0, metadata={"help": "Train LoRA adapters of this rank, and merge them into the weights at the end."}
    )
    trust_remote_code: bool = field(default=False, metadata={"help": "Run code from the repository of the model."})

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.task not in TASKS:
            raise ValueError(f"--task {self.task}: must be one of {', '.join(TASKS)}.")
        if self.max_length is not None and self.max_length < 1:
            raise ValueError(f"--max-length {self.max_length}: must be at least 1.")
        check_task_options(TASKS[self.task], json_option(self, "task_options"))
        if self.lora_r < 0:
            raise ValueError(f"--lora-r {self.lora_r}: must be at least 1, or 0 to train all weights.")
        self.output = self.output or f"runs/{Path(self.model).name}-{self.task}"


@dataclass
class FinetuningOptions(RunOptions, Seq2SeqTrainingArguments):
    """The options of the Trainer, with the defaults of all runs."""


def prepare_finetuning(arguments: FinetuningArguments, options: FinetuningOptions) -> "Finetuning":
    """Do all that can go wrong before the first step: load tokenizer, data and model, check every row, try one batch,
    and find the repository if the model is to be pushed.

    The model is of the class that transformers' Auto class of the task gives for the checkpoint: one of hf_tx for its
    checkpoints, and transformers' own for others; `hf-tx convert` makes them checkpoints of hf_tx. Its weights are in
    float32 (`bf16` computes in bfloat16).

    Raises:
        ValueError, OSError, ImportError: an option, the model or the data does not serve. Nothing is left behind then.
    """
    with arguments.preparing(options):
        return _prepare(arguments, options)


def _prepare(arguments: FinetuningArguments, options: FinetuningOptions) -> "Finetuning":
    kind = TASKS[arguments.task]
    hub = {"trust_remote_code": arguments.trust_remote_code}
    check_files(arguments.model)
    with loading("--model", arguments.model):
        config = AutoConfig.from_pretrained(arguments.model, **hub)
        tokenizer = AutoTokenizer.from_pretrained(arguments.model, **hub)
    try:
        try_model(kind.auto_class, config, attn_implementation=arguments.attn_implementation, **hub)
    except ValueError as error:
        if "Unrecognized configuration class" not in str(error):
            raise
        raise ValueError(
            f"--model {arguments.model}: is a {config.model_type}, which has no class for {arguments.task}."
        ) from error
    if tokenizer.pad_token_id is None:
        if tokenizer.eos_token is None:
            raise ValueError(f"{arguments.model}: the tokenizer has neither a pad_token nor an eos_token to pad with.")
        tokenizer.pad_token = tokenizer.eos_token
    with options.main_process_first(desc="the data"):
        train, held_out, found_by = load_splits(arguments, options.seed)
        task = kind(
            tokenizer,
            config,
            train,
            held_out,
            max_length=row_length(arguments.max_length, config, tokenizer),
            columns=arguments.columns,
            label_column=arguments.label_column,
            **json_option(arguments, "task_options"),
        )
    check_honoured(options, task.said, task.honours)
    check_best(options, task.measured)
    if options.should_log:
        task.tell_cuts()
    task.prepare_options(options)
    set_seed(options.seed)
    model, new = load_for_task(arguments.model, task, attn_implementation=arguments.attn_implementation, **hub)
    config = model.config
    if arguments.lora_r:
        model = _with_adapters(model, arguments.lora_r, new)
    trainer = task_trainer(task, model, options)
    rows = {"rows_to_learn_from": task.train_rows, "rows_held_out": held_out}
    trainer.began.add(arguments, **rows, **({"frozen_weights": _frozen(model)} if arguments.lora_r else {}))
    if options.resume_from_checkpoint is not None:
        check_resumed(trainer, options.resume_from_checkpoint, config)
    trainer.check_first_batch()
    arguments.prepare_push(options, model.get_base_model() if arguments.lora_r else model)
    return Finetuning(arguments, trainer, tokenizer, found_by, task, new)


class Finetuning(Run):
    """A fine-tuning that is ready to begin; `run()` does the rest. See [`Run`]."""

    arguments: FinetuningArguments

    def __init__(
        self,
        arguments: FinetuningArguments,
        trainer: Any,
        tokenizer: PreTrainedTokenizerBase,
        found_by: Mapping[str, Any],
        task: Task,
        new: list[str],
    ) -> None:
        super().__init__(arguments, trainer, tokenizer, found_by)
        self.for_task, self.new = task, new
        self.trainable = self.model.num_parameters(only_trainable=True)

    @property
    def pipeline_tag(self) -> str:
        """The Hub's name of what the model does."""
        return self.for_task.pipeline_tag

    @property
    def base_model(self) -> str | None:
        """The name on the Hub of what the training began with; that of a folder says nothing to others."""
        return None if Path(self.arguments.model).exists() else self.arguments.model

    @property
    def summary(self) -> str:
        """The model in a sentence."""
        base = self.base_model or Path(self.arguments.model).name
        drawn = f" Drawn at random before: {', '.join(self.new)}." if self.new else ""
        return f"{base}, fine-tuned for {self.arguments.task} on {self.data_name}.{drawn}"

    @property
    def uses(self) -> list[str]:
        """What the model is meant for."""
        return [f"{self.arguments.task.capitalize()} of what is like {self.data_name}."]

    def model_facts(self) -> dict[str, Any]:
        """What a card says of the model."""
        facts: dict[str, Any] = {"class": type(self.model).__name__, "parameters": self.model.num_parameters()}
        labels = self.for_task.config_fields().get("id2label")
        if labels:
            facts["labels"] = ", ".join(labels.values())
        return facts

    def training_facts(self) -> dict[str, Any]:
        """What a card says of the training, beside what all do."""
        facts = self.for_task.facts()
        if self.arguments.lora_r:
            facts |= {"rank of the adapters": self.arguments.lora_r, "parameters trained": self.trainable}
        return facts

    def begin(self) -> None:
        """Measure what the trained model is to be compared with; a sharded model cannot run before its training."""
        baseline = self.for_task.baseline()
        if baseline is None:
            baseline = {} if self.trainer.is_sharded else measures_of(self.trainer)
        self.before = numbers(baseline)

    def measure(self) -> list[Result]:
        """Measure the trained model on the held-out rows, after adapters have become weights."""
        if self.arguments.lora_r:
            self.trainer.model = self.trainer.model_wrapped = self.model = self.model.merge_and_unload()
        beside, name = self.before, self.for_task.baseline_name
        options: Any = self.trainer.args
        command = self.measured_by(
            task=self.for_task.name,
            label_column=self.arguments.label_column,
            max_length=self.for_task.max_length,
            task_options=json.dumps(own) if (own := self.for_task.measuring_options()) else None,
            generation_max_length=options.generation_max_length,
            generation_num_beams=options.generation_num_beams,
            trust_remote_code=self.arguments.trust_remote_code,
        )
        return [
            self.result(metric, value, command, beside.get(metric), name if metric in beside else "")
            for metric, value in measures_of(self.trainer).items()
        ]


def load_for_task(name: str, task: Task, **options: Any) -> tuple[Any, list[str]]:
    """Load a model with the head of a task.

    Args:
        name: a folder, or a name on the Hub.
        task: gives the class, and the fields of the config.
        **options: of `from_pretrained`.

    Returns:
        The model, and the names of the weights that were drawn at random, since the checkpoint does not have them or
        has them for other classes.

    Raises:
        ValueError: the checkpoint holds the weights of another model; the tokenizer has more tokens than the model.
        OSError: there is no checkpoint.
    """
    config = task.config
    for field_name, value in task.config_fields().items():
        setattr(config, field_name, value)
    if config.pad_token_id is None:
        config.pad_token_id = task.tokenizer.pad_token_id
    options |= dict(ignore_mismatched_sizes=True, output_loading_info=True, use_safetensors=True)
    with loading("model", name):
        model, report = task.auto_class.from_pretrained(name, config=config, dtype=torch.float32, **options)
    mismatched = [key if isinstance(key, str) else key[0] for key in report["mismatched_keys"]]
    embeddings = model.get_input_embeddings()
    names = [key for key, weight in model.named_parameters(remove_duplicate=False) if weight is embeddings.weight]
    lost = [key for key in mismatched if key.startswith(f"{model.base_model_prefix}.")]
    lost += [key for key in report["missing_keys"] if key in names]
    if lost:
        raise ValueError(
            f"{name}: holds no weights for {type(model).__name__}, such as {lost[0]}: it is another model."
        )
    if len(task.tokenizer) > embeddings.num_embeddings:
        raise ValueError(
            f"{name}: the tokenizer has {len(task.tokenizer)} tokens, and the model embeddings for "
            f"{embeddings.num_embeddings}: it is not the model's, or tokens were added without "
            "model.resize_token_embeddings."
        )
    return model, sorted({*report["missing_keys"], *mismatched})


def task_trainer(task: Task, model: Any, options: FinetuningOptions, details: bool = False) -> Any:
    """Return the trainer of a model for a task, which measures numbers; with `details`, what is behind them too."""
    return task.trainer_class(
        model,
        options,
        train_dataset=task.train_rows,
        eval_dataset=task.held_out_rows,
        data_collator=task.collator(model),
        processing_class=task.tokenizer,
        compute_metrics=task.measures if details else lambda prediction: numbers(task.measures(prediction)),
        preprocess_logits_for_metrics=task.reduce,
    )


def row_length(
    given: int | None, config: PreTrainedConfig, tokenizer: PreTrainedTokenizerBase, option: str = "--max-length"
) -> int:
    """Return the most tokens of a row: what is given, or what model and tokenizer read, and at most 512.

    Raises:
        ValueError: more than they read.
    """
    longest = longest_input(config, tokenizer)
    if given is not None and longest is not None and given > longest:
        raise ValueError(f"{option} {given}: the model and its tokenizer read at most {longest} tokens.")
    special = tokenizer.num_special_tokens_to_add()
    if given is not None and given <= special:
        raise ValueError(f"{option} {given}: must be above {special}, which are the special tokens of a row.")
    return given or min(longest or _DEFAULT_LENGTH, _DEFAULT_LENGTH)


def _frozen(model: Any) -> Iterator[dict[str, str]]:
    """Yield hashes of the weights that are not trained, which checkpoints of adapters do not hold."""
    for name, weight in model.named_parameters():
        if not weight.requires_grad:
            values = weight.detach().cpu().contiguous().flatten().view(torch.uint8).numpy()
            yield {name: hashlib.sha256(values.data).hexdigest()}


def _with_adapters(model: Any, rank: int, new: list[str]) -> Any:
    """Return the model with LoRA adapters at all linear layers (https://huggingface.co/papers/2106.09685); what is new
    is trained as a whole."""
    from peft import LoraConfig, get_peft_model  # takes seconds to import

    heads = sorted({name.rpartition(".")[0] for name in new}) or None
    config = LoraConfig(r=rank, lora_alpha=2 * rank, target_modules="all-linear", modules_to_save=heads)
    return get_peft_model(model, config)
