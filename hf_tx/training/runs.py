# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""What the trainings of the commands have in common: where they save, how they end, and what they leave behind."""

import importlib.util
import math
import shlex
import shutil
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

import torch
from transformers import PreTrainedTokenizerBase, TrainingArguments
from transformers.integrations import is_deepspeed_zero3_enabled
from transformers.trainer_utils import HubStrategy, SchedulerType, get_last_checkpoint
from transformers.utils import logging

from ..analysis.plots import plot_losses
from ..common.checkpoint_files import check_files
from ..common.options import check_names, flag
from ..evaluation.directions import greater_is_better
from ..hub import DataRecord, Result, RunRecord, license_of, open_repository, push_folder, read_data_card, write_card
from ..objectives import Objective
from .data import DataArguments
from .interruption import StopOnInterrupt
from .trainer import UNFINISHED, NonFiniteLoss, TxTrainer

logger = logging.get_logger(__name__)

_PLOT = "loss.png"
#: What the Trainer adds to measures.
_TIMES = ("runtime", "_per_second", "_preparation_time")
#: What it adds of the training.
_STATE = ("epoch", "num_input_tokens_seen")
# Options of which transformers takes any number, and fails late or does nothing.
_RANGES: tuple[tuple[tuple[str, ...], Callable[[float], bool], str], ...] = (
    (
        ("per_device_train_batch_size", "per_device_eval_batch_size", "gradient_accumulation_steps"),
        lambda value: value >= 1,
        "at least 1",
    ),
    (("max_steps",), lambda value: value >= 1 or value == -1, "at least 1, or -1 where epochs decide"),
    (("save_steps", "eval_steps", "logging_steps"), lambda value: value > 0, "above 0; `no` as its strategy stops it"),
    (("num_train_epochs",), lambda value: 0 < value < math.inf, "a number above 0"),
    (
        ("learning_rate", "weight_decay", "warmup_steps", "dataloader_num_workers"),
        lambda value: 0 <= value < math.inf,
        "a number of at least 0",
    ),
    (("adam_beta1", "adam_beta2", "label_smoothing_factor"), lambda value: 0 <= value < 1, "from 0 to below 1"),
)
_LIMIT = "It has learnt from the data named below, with whatever is biased, dated or wrong in it."


@dataclass
class RunOptions(TrainingArguments):
    """The options of the Trainer, with the defaults that all runs have."""

    warmup_steps: float = field(default=0.1, metadata={"help": "Steps, or share of the steps, of linear warmup."})
    logging_steps: float = field(default=0.05, metadata={"help": "Steps between two logs."})
    eval_strategy: str = field(default="steps", metadata={"help": "When to evaluate the held-out loss."})  # type: ignore
    eval_steps: float | None = field(default=0.25, metadata={"help": "Steps between two evaluations."})
    save_steps: float = field(default=0.25, metadata={"help": "Steps between two checkpoints."})
    save_total_limit: int | None = field(default=2, metadata={"help": "Maximum number of checkpoints to keep."})
    include_num_input_tokens_seen: Literal["all", "non_padding", "no"] = field(
        default="non_padding", metadata={"help": "Which tokens of the inputs are counted."}
    )
    report_to: None | str | list[str] = field(default="none", metadata={"help": "Where to log to."})
    hub_strategy: str = field(default="end", metadata={"help": "When to push: only at the end."})  # type: ignore
    remove_unused_columns: bool = field(
        default=False, metadata={"help": "Whether to remove columns that the model does not read."}
    )

    def __post_init__(self) -> None:
        # Without being told, it takes several processes without an accelerator for several single ones.
        self.use_cpu = self.use_cpu or not torch.accelerator.is_available()
        self.dataloader_pin_memory = self.dataloader_pin_memory and not self.use_cpu
        for names, fits, rule in _RANGES:
            for name in names:
                value = getattr(self, name)
                if value is not None and not fits(value):
                    raise ValueError(f"--{name} {value}: must be {rule}.")
        given = self.greater_is_better
        super().__post_init__()
        if self.hub_strategy != HubStrategy.END or self.hub_always_push:
            strategy = HubStrategy(self.hub_strategy).value
            raise ValueError(
                f"--hub_strategy {strategy}, --hub_always_push {self.hub_always_push}: a run "
                "pushes its result alone, at its end; leave them out."
            )
        pushes = [f"--{name}" for name in ("hub_model_id", "hub_revision") if getattr(self, name) is not None]
        if pushes and not self.push_to_hub:
            raise ValueError(f"{', '.join(pushes)}: is an option of --push_to_hub; give it, or leave it out.")
        if self.metric_for_best_model is not None:
            # Transformers goes by whether the name ends in `loss`.
            known = greater_is_better(self.metric_for_best_model, given)
            self.greater_is_better = self.greater_is_better if known is None else known

    @contextmanager
    def main_process_first(self, local: bool | None = None, desc: str = "work") -> Iterator[None]:
        """Let one process do something before the others; see transformers' method of this name.

        Args:
            local: whether that is one of each machine. Default: where each machine saves (`save_on_each_node`);
                otherwise they are taken to share their folders.
            desc: what is done.
        """
        with super().main_process_first(self.save_on_each_node if local is None else local, desc):
            yield


@dataclass
class RunArguments(DataArguments):
    """Where a run saves, and what its card says. See [`DataArguments`]."""

    output: str = field(default="", metadata={"help": "Folder to save to. Default: one in runs/."})
    resume: bool = field(default=False, metadata={"help": "Resume from the last checkpoint in the output folder."})
    attn_implementation: str | None = field(default=None, metadata={"help": "Attention backend."})
    title: str | None = field(
        default=None, metadata={"help": "Name of the model in its card. Default: name of the folder."}
    )
    data_name: str | None = field(
        default=None, metadata={"help": "Name of the data in the card. Default: from the card of the data."}
    )
    data_license: str | None = field(
        default=None, metadata={"help": "License of the data. Default: from the card of the data."}
    )
    data_source: str | None = field(
        default=None, metadata={"help": "Source of the data. Default: from the card of the data."}
    )
    license: str = field(default="apache-2.0", metadata={"help": "License of the weights, for the card."})

    @property
    def scratch(self) -> Path:
        """A folder for what is needed during the run."""
        return Path(self.output, UNFINISHED + "_run")

    @contextmanager
    def preparing(self, options: TrainingArguments) -> Iterator[None]:
        """Point the Trainer to the output folder, find the checkpoint to go on from, and, if what follows fails, leave
        nothing behind that was not there before.

        Raises:
            FileExistsError: the folder holds something, and the run is not to go on from it.
            FileNotFoundError: it is to go on, and there is no checkpoint.
            OSError: the folder cannot be made.
            ValueError: the Trainer has been given another folder.
        """
        if not _can_plot():
            logger.warning('the losses are not plotted without matplotlib; pip install "hf_tx[plots]" brings it.')
        if options.use_cpu and options.deepspeed:
            from deepspeed import init_distributed

            # Accelerate does it for accelerators only, and ZeRO-3 would partition the model for one process.
            init_distributed("gloo", auto_mpi_discovery=False)
        if options.output_dir not in ("trainer_output", self.output):  # the first is what transformers calls it
            raise ValueError(f"--output_dir {options.output_dir}: give it as --output.")
        options.output_dir = self.output
        folder = Path(self.output)
        if folder.exists() and not folder.is_dir():
            raise FileExistsError(f"--output {self.output}: is a file, not a folder.")
        if self.resume:
            last = get_last_checkpoint(self.output) if folder.is_dir() else None
            if last is None:
                raise FileNotFoundError(
                    f"--resume: there is no checkpoint in {self.output}; a run that broke off before its first one "
                    "begins anew without --resume."
                )
            check_files(last)
            options.resume_from_checkpoint = last
        self._made = next(
            (path for path in [*reversed(self.scratch.parents), self.scratch] if not path.exists()), None
        )
        with options.main_process_first(desc="the folder"):
            if options.should_save:
                if not self.resume and folder.is_dir():
                    if any(not path.name.startswith(UNFINISHED) for path in folder.iterdir()):
                        raise FileExistsError(
                            f"--output {self.output}: is not empty; choose another, or resume from its "
                            "last checkpoint (--resume)."
                        )
                    for path in folder.iterdir():  # what a run has left that was killed before its first checkpoint
                        shutil.rmtree(path)
                try:
                    self.scratch.mkdir(parents=True, exist_ok=True)
                except OSError as error:
                    self.discard(options)
                    raise OSError(f"--output {self.output}: cannot be written to: {error}.") from error
        try:
            yield
        except BaseException:
            self.discard(options)
            raise

    def discard(self, options: TrainingArguments) -> None:
        """Remove what `preparing` has made."""
        if self._made is not None and options.should_save:
            shutil.rmtree(self._made, ignore_errors=True)

    def prepare_push(self, options: TrainingArguments, model: Any) -> None:
        """Make the repository on the Hub, so that a wrong token, or a repository that is not as the options say, shows
        before the training. What is pushed is the result, once it is whole and has been checked; not what is on the
        way.

        Raises:
            ValueError, HfHubHTTPError: see [`push_folder`].
        """
        self.repository = None
        if options.push_to_hub:
            name = options.hub_model_id or Path(self.output).resolve().name
            self.repository = name
            options.push_to_hub = False
            if options.should_save:
                self.repository = open_repository(
                    name,
                    private=options.hub_private_repo,
                    token=options.hub_token,
                    revision=options.hub_revision,
                    model=(model.config.model_type, type(model).__name__),
                )


def check_best(options: TrainingArguments, measured: Iterable[str]) -> None:
    """Raise ValueError if the best model is to be that of a measure that there is not: transformers would look for it
    when the first steps are done."""
    name, known = options.metric_for_best_model, list(dict.fromkeys(["loss", *measured]))
    if name is not None and name.removeprefix("eval_") not in known:
        raise ValueError(f"--metric_for_best_model {name}: must be one of {', '.join(known)}.")


def make_objective(
    kind: type[Objective],
    tokenizer: PreTrainedTokenizerBase,
    max_length: int,
    seed: int,
    options: Mapping[str, Any],
) -> Objective:
    """Make an objective with what `--objective-options` says.

    Raises:
        ValueError: it has no such option, or refuses.
    """
    known = [each.name for each in fields(kind) if each.name not in ("tokenizer", "max_length", "seed")]
    check_names("--objective-options", kind.name, options, known)
    return kind(tokenizer, max_length, seed=seed, **options)


def try_model(auto_class: Any, config: Any, **options: Any) -> None:
    """Build a model without weights, so that what is wrong with it shows before the data is read.

    Args:
        auto_class: transformers' Auto class.
        config: of the model.
        **options: of `from_config`.

    Raises:
        ValueError: there is no such model.
    """
    if not is_deepspeed_zero3_enabled():  # it would draw the weights, and share them among the processes
        with torch.device("meta"):
            auto_class.from_config(config, **options)


class Run(ABC):
    """A training that is ready to begin: all that can go wrong before the first step has gone right.

    Args:
        arguments: where it saves, and what its card says.
        trainer: holds the model, the data and the options.
        tokenizer: of the model.
        found_by: the options that find the held-out data again; see [`Splits`].
    """

    def __init__(
        self,
        arguments: RunArguments,
        trainer: TxTrainer,
        tokenizer: PreTrainedTokenizerBase,
        found_by: Mapping[str, Any],
    ) -> None:
        self.arguments, self.trainer, self.tokenizer, self.found_by = arguments, trainer, tokenizer, found_by
        cards = [read_data_card(name) for name in arguments.text or arguments.dataset]
        #: What the card of the data says of it.
        self.data_card = cards[0] if all(card == cards[0] for card in cards) else {}
        #: The model, whatever the Trainer wraps it in.
        self.model: Any = getattr(trainer.model, "saved_model", trainer.model)

    # ---------------------------------------------------------------------------------------------- what a run says
    @property
    @abstractmethod
    def pipeline_tag(self) -> str:
        """The Hub's name of what the model does."""

    @property
    @abstractmethod
    def summary(self) -> str:
        """The model in a sentence."""

    @abstractmethod
    def model_facts(self) -> dict[str, Any]:
        """What a card says of the model."""

    @abstractmethod
    def training_facts(self) -> dict[str, Any]:
        """What a card says of the training, beside what all do."""

    def begin(self) -> None:
        """Measure what the trained model is to be compared with; called on all processes."""
        return

    @abstractmethod
    def measure(self) -> list[Result]:
        """Measure the trained model; called on all processes."""

    @property
    @abstractmethod
    def uses(self) -> list[str]:
        """What the model is meant for."""

    @property
    def limits(self) -> list[str]:
        """What the model is not meant for."""
        return [_LIMIT]

    @property
    def base_model(self) -> str | None:
        """The name on the Hub of what the training began with."""
        return None

    @property
    def data_name(self) -> str:
        """The data in a word."""
        arguments = self.arguments
        names = " ".join(Path(name).name for name in arguments.text or arguments.dataset)
        return arguments.data_name or self.data_card.get("pretty_name") or names

    @property
    def data(self) -> list[DataRecord]:
        """What it was trained and measured on."""
        arguments, rows = self.arguments, self.trainer.train_dataset
        size = f"{len(rows):,} rows" if hasattr(rows, "__len__") else "a stream"  # type: ignore[arg-type]
        license = arguments.data_license or license_of(self.data_card)
        source = arguments.data_source or self.data_card.get("source", "")
        return [DataRecord(self.data_name, license, source, size)]

    def result(
        self, metric: str, value: float, command: str, baseline: float | None = None, baseline_name: str = ""
    ) -> Result:
        """Return a number that was measured on the held-out data, with what measures it again."""
        return Result(metric, float(value), self.data_name, "held-out", command, baseline, baseline_name)

    def measured_by(self, found_by: Mapping[str, Any] | None = None, **options: Any) -> str:
        """Return the command that measures the saved model again.

        Args:
            found_by: the options that find the data. Default: those of the held-out data.
            **options: of `hf-tx evaluate`, beside those that name the model and find the data.
        """
        arguments, training = self.arguments, self.trainer.args
        options = {
            "model": arguments.repository or arguments.output,
            **options,
            **(self.found_by if found_by is None else found_by),
            "columns": arguments.columns,
            "batch_size": training.per_device_eval_batch_size,
            "mixed_precision": "bf16" if training.bf16 else "fp16" if training.fp16 else None,
            "attn_implementation": arguments.attn_implementation,
        }
        parts = ["hf-tx", "evaluate"]
        for name, value in options.items():
            if value is not None and value is not False and value != []:
                values = [] if value is True else value if isinstance(value, list) else [value]
                parts += [flag(name), *map(str, values)]
        return shlex.join(parts)

    # ------------------------------------------------------------------------------------------------------ the work
    def run(self, command: str) -> RunRecord:
        """Train, measure, save, write the card, and push if that is asked for.

        Ctrl-C ends training after the current step: what was learnt is measured and saved, with a checkpoint to go on
        from, but not pushed.

        Args:
            command: what runs this again, for the card.

        Returns:
            What a card says.

        Raises:
            ValueError: what was saved is not what a repository must hold; nothing is pushed then.
            OSError: the folder cannot be written any more.
            KeyboardInterrupt: Ctrl-C was pressed.
            FloatingPointError: the training diverges; see also [`NonFiniteLoss`].
        """
        trainer, folder = self.trainer, Path(self.arguments.output)
        stop = StopOnInterrupt()
        trainer.add_callback(stop)
        try:
            self.begin()
            started = time.monotonic()
            with stop:
                trainer.train(resume_from_checkpoint=trainer.args.resume_from_checkpoint)
        except NonFiniteLoss:  # its batch is kept
            raise
        except BaseException:
            if not trainer.state.global_step:
                self.arguments.discard(trainer.args)
            raise
        seconds = time.monotonic() - started
        results = self.measure()
        if not all(math.isfinite(result.value) for result in results if result.metric == "loss"):
            raise FloatingPointError(
                f"the held-out loss is not finite after step {trainer.state.global_step}: the training diverged. "
                "The model is not saved; lower --learning_rate."
            )
        trainer.save_model(self.arguments.output)
        record = self._record(command, seconds, results)
        if trainer.args.should_save:
            if record.plots:
                plot_losses(trainer.state.log_history, folder / _PLOT)
            write_card(folder, record)
            shutil.rmtree(self.arguments.scratch, ignore_errors=True)
            if self.arguments.repository is not None and not stop.interrupted:
                push_folder(
                    folder,
                    self.arguments.repository,
                    private=trainer.args.hub_private_repo,
                    token=trainer.args.hub_token,
                    revision=trainer.args.hub_revision,
                )
            print(self._table(record), flush=True)
        if stop.interrupted:
            raise KeyboardInterrupt("interrupted; what was learnt until then is saved, and --resume goes on from it")
        return record

    def _record(self, command: str, seconds: float, results: list[Result]) -> RunRecord:
        arguments, trainer = self.arguments, self.trainer
        options = trainer.args
        training = {
            **self.training_facts(),
            "steps": trainer.state.global_step,
            **self._tokens_seen(),
            "rows of a step": trainer.get_total_train_batch_size(options),
            "learning rate": options.learning_rate,
            "schedule": SchedulerType(options.lr_scheduler_type).value,
            "weight decay": options.weight_decay,
            "precision": "bf16" if options.bf16 else "fp16" if options.fp16 else "fp32",
            "seed": options.seed,
            "processes": options.world_size,
        }
        return RunRecord(
            title=arguments.title or Path(arguments.output).resolve().name,
            summary=self.summary,
            pipeline_tag=self.pipeline_tag,
            command=command,
            model=self.model_facts(),
            data=self.data,
            training=training,
            results=results,
            seconds=round(seconds, 1),
            uses=self.uses,
            limits=self.limits,
            language=self.data_card.get("language", []),
            base_model=self.base_model,
            license=arguments.license,
            plots={_PLOT: "the losses by step"} if _can_plot() else {},
        )

    def _tokens_seen(self) -> dict[str, int]:
        """Return how many tokens of inputs the model has learnt from, padding left out unless it is asked for."""
        counted = self.trainer.args.include_num_input_tokens_seen != "no"
        return {"input tokens": self.trainer.state.num_input_tokens_seen} if counted else {}

    def _table(self, record: RunRecord) -> str:
        width = max(len(result.metric) for result in record.results)
        lines = [f"\n{record.summary}\n"]
        for result in record.results:
            beside = "" if result.baseline is None else f"   {result.baseline:10.4f}  {result.baseline_name}"
            lines.append(f"{result.metric:{width}}  {result.value:10.4f}{beside}")
        seen = "".join(f" and {count:,} {name}" for name, count in self._tokens_seen().items())
        steps = f"{self.trainer.state.global_step} steps{seen} in {record.seconds:.0f} s"
        lines.append(f"\n{steps}; saved to {self.arguments.output}")
        return "\n".join(lines)


def _can_plot() -> bool:
    return importlib.util.find_spec("matplotlib") is not None


def measures_of(trainer: Any) -> dict[str, Any]:
    """Return what a trainer measures on its held-out rows, without what it says of itself. The loss is that of the
    labels, also where training smooths them."""
    smoother, trainer.label_smoother = trainer.label_smoother, None
    try:
        found = {name.removeprefix("eval_"): value for name, value in trainer.evaluate().items()}
    finally:
        trainer.label_smoother = smoother
    return {name: value for name, value in found.items() if name not in _STATE and not name.endswith(_TIMES)}
