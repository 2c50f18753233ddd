# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Transformers' trainers, made safe: whole checkpoints, a stop at the first loss that is no number, decay of matrices
only."""

import math
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import nn
from torch.utils.data import SequentialSampler
from transformers import Seq2SeqTrainer, Trainer
from transformers.trainer import OPTIMIZER_NAME, SCHEDULER_NAME, TRAINER_STATE_NAME, TRAINING_ARGS_NAME
from transformers.trainer_utils import (
    PREFIX_CHECKPOINT_DIR,
    SchedulerType,
    get_last_checkpoint,
    has_length,
    rotate_checkpoints,
)
from transformers.utils import logging

from ..common.checkpoint_files import check_files
from ..evaluation.directions import greater_is_better
from ..hub.cards import RECORD
from ..hub.push import open_repository
from ..objectives import Objective
from .epochs import SetEpoch
from .resuming import Began, check_resumed
from .wrappers import without_wrappers

logger = logging.get_logger(__name__)
#: Where checkpoints are written until they are whole. Transformers pushes no folder whose name begins so.
UNFINISHED = "_unfinished"


class NonFiniteLoss(FloatingPointError):
    """The loss of a step is NaN or infinite. `step` and `batch`, the path of the saved batch, say where."""

    def __init__(self, loss: float, step: int, batch: Path) -> None:
        super().__init__(
            f"the loss of step {step} is {loss}: training stops before the weights move. The batch is in {batch} "
            "(safetensors.torch.load_file). Usual reasons are a learning rate that is too high, float16 without "
            "loss scaling, and rows in which nothing is to be predicted."
        )
        self.step, self.batch = step, batch


class _Safe(Trainer):
    """What both trainers add."""

    _stages = False

    def __init__(self, model: Any = None, *arguments: Any, **keywords: Any) -> None:
        model = without_wrappers(model)
        self._caches = getattr(getattr(model, "config", None), "use_cache", None)
        self._auxiliary: dict[str, list[torch.Tensor]] = {}
        try:
            super().__init__(model, *arguments, **keywords)
        except RuntimeError as error:
            if "to be installed" not in str(error):
                raise
            raise ImportError(f"--report_to: {error}") from error
        if self.args.metric_for_best_model is not None:
            greater_is_better(self.args.metric_for_best_model, self.args.greater_is_better)
        #: What checkpoints keep of the beginning of the run, and a run that goes on from one must share.
        self.began = Began(self.args)
        if isinstance(self.data_collator, Objective):
            self.add_callback(SetEpoch(self.data_collator))

    @property
    def is_sharded(self) -> bool:
        """Whether each process holds a part of the model, so that all must run it together, and none before the
        training has begun."""
        return self.is_fsdp_enabled or self.is_deepspeed_enabled

    def check_first_batch(self) -> None:
        """Compute the loss of one row, so that what does not fit shows before the training.

        Raises:
            ValueError: the tokens are not the model's, or the model refuses.
        """
        if self.is_sharded:
            return
        rows: Any = self.train_dataset
        row = next(iter(rows))
        batch = self._prepare_inputs(self.data_collator([row]))
        with torch.random.fork_rng(), torch.no_grad():
            try:
                self.model.train()(**batch)  # type: ignore[union-attr]
            except IndexError as error:
                raise ValueError(
                    f"the rows hold a number that the model has no entry for ({error}): is the tokenizer the model's?"
                ) from error

    def _get_eval_sampler(self, eval_dataset: Any) -> Any:
        """Return what keeps the order of the rows, by which measures find the row of a prediction. Transformers groups
        them by length if it does so in training (`train_sampling_strategy`)."""
        one = self.args.world_size <= 1 and eval_dataset is not None and has_length(eval_dataset)
        return SequentialSampler(eval_dataset) if one else None

    # ------------------------------------------------------------------------------------------------------- optimizer
    def get_decay_parameter_names(self, model: nn.Module) -> list[str]:
        """Return the names of what is decayed: matrices. Transformers goes by names, and so decays gains, gates and
        sinks that are not called norm or bias."""
        matrices = {name for name, parameter in model.named_parameters() if parameter.ndim > 1}
        return [name for name in super().get_decay_parameter_names(model) if name in matrices]

    def create_optimizer(self, model: Any = None) -> torch.optim.Optimizer:
        """Make the optimizer as transformers does.

        Raises:
            ValueError: it does not take what it is given.
        """
        try:
            return super().create_optimizer(model)
        except (TypeError, ValueError) as error:
            name = getattr(self.args.optim, "value", self.args.optim)
            raise ValueError(f"--optim {name}, --optim_args {self.args.optim_args}: {error}") from error

    def create_scheduler(self, num_training_steps: int, optimizer: torch.optim.Optimizer | None = None) -> Any:
        """Make the schedule of the learning rate as transformers does. One that goes by a measure knows which way is
        better.

        Raises:
            ValueError: it does not take what it is given.
        """
        given: Any = self.args.lr_scheduler_kwargs
        if self.args.lr_scheduler_type in (SchedulerType.REDUCE_ON_PLATEAU, SchedulerType.GREEDY):
            mode = "max" if self.args.greater_is_better else "min"
            self.args.lr_scheduler_kwargs = {"mode": mode, **(given or {})}
        try:
            return super().create_scheduler(num_training_steps, optimizer)
        except (TypeError, ValueError) as error:
            name = getattr(self.args.lr_scheduler_type, "value", self.args.lr_scheduler_type)
            raise ValueError(f"--lr_scheduler_type {name}, --lr_scheduler_kwargs {given}: {error}") from error
        finally:
            self.args.lr_scheduler_kwargs = given

    # ------------------------------------------------------------------------------------------------------------ loss
    def _run_epoch(self, *arguments: Any, **keywords: Any) -> None:
        """Run transformers' epoch, unless all steps are done: it looks for that after a step only, so that a run that
        is resumed from its last checkpoint would take one more."""
        if self.state.global_step >= self.state.max_steps:
            self.control.should_training_stop = True
            return
        super()._run_epoch(*arguments, **keywords)

    def compute_loss(
        self, model: nn.Module, inputs: dict[str, Any], return_outputs: bool = False, *arguments: Any, **keywords: Any
    ) -> Any:
        """Compute the loss as transformers does, and keep auxiliary losses for the log. Where transformers smooths
        labels, it keeps them from the model, which makes the inputs of a decoder of them; so these are made before.

        Raises:
            ValueError: labels are to be smoothed that are no classes.
        """
        if self.label_smoother is not None:
            labels = inputs.get("labels")
            if labels is None or labels.is_floating_point():
                raise ValueError(
                    f"--label_smoothing_factor {self.args.label_smoothing_factor}: the batch has no labels that are "
                    "classes; leave it out."
                )
        shifted = getattr(self.model, "prepare_decoder_input_ids_from_labels", None)
        if self.label_smoother is not None and shifted is not None and "labels" in inputs:
            inputs = {"decoder_input_ids": shifted(inputs["labels"]), **inputs}
        loss, outputs = super().compute_loss(model, inputs, True, *arguments, **keywords)
        terms = outputs.get("aux_losses") if isinstance(outputs, dict) and model.training else None
        for name, value in (terms or {}).items():
            self._auxiliary.setdefault(name, []).append(value.detach())
        return (loss, outputs) if return_outputs else loss

    def log(self, logs: dict[str, float], *arguments: Any, **keywords: Any) -> None:
        """Log as transformers does, and beside the loss of the steps since the last log the means of their auxiliary
        losses, as `aux_loss_` and their name."""
        if "loss" in logs:
            for name, values in self._auxiliary.items():
                logs[f"aux_loss_{name}"] = self.accelerator.gather(torch.stack(values).mean()).mean().item()
            self._auxiliary = {}
        super().log(logs, *arguments, **keywords)

    def training_step(self, model: nn.Module, inputs: dict[str, Any], num_items_in_batch: Any = None) -> torch.Tensor:
        """Take transformers' step.

        Raises:
            NonFiniteLoss: the loss is NaN or infinite, in this process or another; it is raised in all of them. Its
                batch is saved, and the optimizer has not moved.
        """
        loss = super().training_step(model, inputs, num_items_in_batch)
        losses = self.accelerator.gather(loss).reshape(-1)
        wrong = (~torch.isfinite(losses)).nonzero().flatten().tolist()
        if wrong:
            step = self.state.global_step + 1
            folder = Path(str(self.args.output_dir), f"_nonfinite-step-{step}")  # not pushed either
            if self.args.process_index in wrong:
                folder.mkdir(parents=True, exist_ok=True)
                batch = {name: tensor.cpu().contiguous() for name, tensor in _tensors(inputs)}
                save_file(batch, folder / f"batch-{self.args.process_index}.safetensors")
            self.accelerator.wait_for_everyone()  # a launcher ends all processes when the first has failed
            raise NonFiniteLoss(losses[wrong[0]].item(), step, folder / f"batch-{wrong[0]}.safetensors")
        return loss

    # -------------------------------------------------------------------------------------------------------- resuming
    def adds_up(self) -> bool:
        """Return whether the loss of rows that are read together is that of the same rows in parts, as gradient
        accumulation sums it. It is not where something is drawn for a batch (dropout), where a loss compares the rows
        of a batch, and where it is a mean over parts with different numbers of targets."""
        if self.is_sharded:
            return False  # it cannot run before the training
        dataset: Any = self.train_dataset
        rows = list(islice(iter(dataset), 3))
        sums = []
        with torch.random.fork_rng(), torch.no_grad(), self.compute_loss_context_manager():
            model = self.model.train()  # type: ignore[union-attr]
            for parts in ([rows], [rows[:1], rows[1:]]):
                batches = [self._prepare_inputs(self.data_collator(part)) for part in parts if part]
                count = self._get_num_items_in_batch(batches, self.args.device)
                scaled = self.model_accepts_loss_kwargs and count is not None or self.compute_loss_func is not None
                losses = [self.compute_loss(model, dict(batch), num_items_in_batch=count) for batch in batches]
                sums.append(sum(losses) / (1 if scaled else len(batches)))
        whole, parted = sums
        return torch.allclose(whole, parted, rtol=1e-2 if self.args.bf16 or self.args.fp16 else 1e-4)

    def train(self, resume_from_checkpoint: str | bool | None = None, *arguments: Any, **keywords: Any) -> Any:
        """Train as transformers does.

        Raises:
            ValueError: the checkpoint to go on from is of a run with other options; see [`check_resumed`].
        """
        if resume_from_checkpoint is True:
            resume_from_checkpoint = get_last_checkpoint(str(self.args.output_dir)) or True
        if isinstance(resume_from_checkpoint, str):
            check_resumed(self, resume_from_checkpoint)
        self._auxiliary = {}  # of batches that were tried before
        return super().train(resume_from_checkpoint, *arguments, **keywords)

    def _init_training_state(
        self, max_steps: int, num_update_steps_per_epoch: int, num_train_epochs: int, checkpoint: Any, trial: Any
    ) -> tuple[int, int]:
        """Restore the state as transformers does, which takes the steps between two logs, measurements and saves from
        the checkpoint, whatever the options say, and the place in a stream for one in its first pass, however many
        there were."""
        epochs, batches = super()._init_training_state(
            max_steps, num_update_steps_per_epoch, num_train_epochs, checkpoint, trial
        )
        self.state.compute_steps(self.args, max_steps)
        if checkpoint is not None and not has_length(self.train_dataset) and self.state.epoch:
            # The steps of a pass over a stream are unknown; they are counted in shares of all steps.
            epochs = math.ceil(self.state.epoch) - 1
            steps = round((self.state.epoch - epochs) * max_steps)
            batches = 0 if self.args.ignore_data_skip else steps * self.args.gradient_accumulation_steps
        return epochs, batches

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        """Load weights as transformers does.

        Raises:
            ValueError: they cannot be read, or are those of another model.
        """
        with _reading(resume_from_checkpoint):
            check_files(resume_from_checkpoint)
            super()._load_from_checkpoint(resume_from_checkpoint, model)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        """Load the states as transformers does, which goes on without where there are none.

        Raises:
            ValueError: they are not there, cannot be read, or are those of another run.
        """
        if checkpoint is not None and not self.is_sharded:
            missing = [name for name in (OPTIMIZER_NAME, SCHEDULER_NAME) if not Path(checkpoint, name).is_file()]
            if missing:
                raise ValueError(
                    f"{checkpoint}: holds no {missing[0]} (--save_only_model leaves it out): a run that is resumed "
                    "from it would differ from one without interruption."
                )
        groups: Any = getattr(self.optimizer, "param_groups", [])
        names = [set(group) for group in groups]
        with _reading(checkpoint):
            super()._load_optimizer_and_scheduler(checkpoint)
            groups = getattr(self.optimizer, "param_groups", [])
            if any(before - set(group) for before, group in zip(names, groups, strict=True)):
                raise ValueError("the optimizer is another")

    def _load_rng_state(self, checkpoint: str | None) -> None:
        """Load the states of the generators as transformers does.

        Raises:
            ValueError: they cannot be read.
        """
        with _reading(checkpoint):
            super()._load_rng_state(checkpoint)

    # ---------------------------------------------------------------------------------------------------------- saving
    def _get_output_dir(self, trial: Any) -> str:
        folder = super()._get_output_dir(trial)
        return os.path.join(folder, UNFINISHED) if self._stages else folder

    def init_hf_repo(self, token: str | None = None, private: bool | None = None) -> None:
        """Make the repository as transformers does, and the branch. What it is not to hold, the pickled options of the
        run, which transformers writes before each push, is named where the Hub's client looks for it.

        Raises:
            ValueError: the repository is there and is not as visible as is asked for, holds another model, or cannot
                be written; or the revision is no branch.
        """
        pushing = getattr(self, "push_in_progress", None)
        super().init_hf_repo(token, private)
        self.push_in_progress = pushing
        if self.is_world_process_zero():
            model: Any = getattr(self.model, "saved_model", self.model)
            model = model.get_base_model() if hasattr(model, "get_base_model") else model
            config = getattr(model, "config", None)
            open_repository(
                str(self.hub_model_id),
                private=self.args.hub_private_repo if private is None else private,
                token=self.args.hub_token if token is None else token,
                revision=self.args.hub_revision,
                model=None if config is None else (config.model_type, type(model).__name__),
            )
        ignored = Path(str(self.args.output_dir), ".gitignore")
        if self.is_world_process_zero() and not ignored.exists():
            ignored.parent.mkdir(parents=True, exist_ok=True)
            ignored.write_text(f"{TRAINING_ARGS_NAME}\n", "utf-8")

    def push_to_hub(
        self,
        commit_message: str | None = "End of training",
        blocking: bool = True,
        token: str | None = None,
        revision: str | None = None,
        private: bool | None = None,
        **keywords: Any,
    ) -> Any:
        """Push as transformers does, which looks at `private` only where it has not pushed before.

        Raises:
            ValueError: see `init_hf_repo`.
        """
        self.init_hf_repo(token, private)
        return super().push_to_hub(commit_message, blocking, token, revision, private, **keywords)

    def _finish_current_push(self) -> None:
        """Wait as transformers does, and say what has not arrived."""
        super()._finish_current_push()
        pushing = getattr(self, "push_in_progress", None)
        for job in pushing.jobs if pushing is not None else ():
            if job.done() and (error := job.exception()) is not None:
                logger.warning(f"a checkpoint was not pushed: {error}")
        self.push_in_progress = None

    def create_model_card(self, *arguments: Any, **keywords: Any) -> None:
        """Draft a card as transformers does, unless the one that was written from the records of a run is there."""
        if not Path(str(self.args.output_dir), RECORD).exists():
            super().create_model_card(*arguments, **keywords)

    def _push_from_checkpoint(self, checkpoint_folder: str) -> None:
        """Push as transformers does, which takes weights and config; the code that the config names goes along."""
        if self._stages:
            return
        if self.is_world_process_zero():
            for code in Path(checkpoint_folder).glob("*.py"):
                shutil.copy(code, str(self.args.output_dir))
        super()._push_from_checkpoint(checkpoint_folder)

    def _save(self, output_dir: str | None = None, state_dict: dict[str, Any] | None = None) -> None:
        """Save as transformers does, but with caches on again if they were: the Trainer turns them off to train. The
        options of the run, which transformers pickles, stay in the checkpoints."""
        config = getattr(self.model, "config", None)
        if config is None or self._caches is None:
            super()._save(output_dir, state_dict)
        else:
            turned, config.use_cache = config.use_cache, self._caches
            try:
                super()._save(output_dir, state_dict)
            finally:
                config.use_cache = turned
        if self.args.should_save and not self._stages:
            self._finish_current_push()  # it may be reading the folder
            Path(str(output_dir or self.args.output_dir), TRAINING_ARGS_NAME).unlink(missing_ok=True)

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """Save the model as transformers does; each file appears whole, the weights last. Of a module around a model
        that gives the loss, that model is saved, its `saved_model`."""
        final = Path(str(output_dir or self.args.output_dir))
        staged = final / UNFINISHED
        if _internal_call:
            super().save_model(output_dir, _internal_call=True)
            return
        if self.args.should_save:
            shutil.rmtree(staged, ignore_errors=True)
        self.accelerator.wait_for_everyone()
        super().save_model(str(staged), _internal_call=True)
        self.accelerator.wait_for_everyone()
        if self.args.should_save and staged.is_dir():  # shards of FSDP are saved with checkpoints only
            inner: Any = getattr(self.model, "saved_model", None)
            if inner is not None:
                inner.save_pretrained(staged)
            for path in sorted(staged.iterdir(), key=lambda path: (path.suffix == ".safetensors", path.name)):
                path.replace(final / path.name)
            staged.rmdir()
        self.accelerator.wait_for_everyone()
        if self.args.push_to_hub:
            self.push_to_hub(commit_message="Model save", revision=self.args.hub_revision)

    def _save_checkpoint(self, model: nn.Module, trial: Any) -> None:
        """Save as transformers does, beside the checkpoints, and move the folder to them when it is whole."""
        folder = Path(self._get_output_dir(trial))
        name = f"{PREFIX_CHECKPOINT_DIR}-{self.state.global_step}"
        staged, final = folder / UNFINISHED / name, folder / name
        if self.args.should_save:
            shutil.rmtree(folder / UNFINISHED, ignore_errors=True)
        self.accelerator.wait_for_everyone()
        self._stages = True
        self.began.keep(self.state)
        try:
            super()._save_checkpoint(model, trial)
        finally:
            self._stages = False
        self.accelerator.wait_for_everyone()  # all processes have written their part
        if self.args.should_save:
            self._correct_best(folder, staged)
            if final.exists():
                final.rename(folder / UNFINISHED / "replaced")
            staged.rename(final)
            shutil.rmtree(folder / UNFINISHED)
            best = self.state.best_model_checkpoint
            rotate_checkpoints(str(folder), self.args.save_total_limit, best, use_mtime=True)
        self.accelerator.wait_for_everyone()
        if self.args.push_to_hub:
            self._push_from_checkpoint(str(final))

    def _correct_best(self, folder: Path, staged: Path) -> None:
        """Say where the best checkpoint will be; it may be the one that is still staged."""
        best = self.state.best_global_step
        if not best:
            return
        name = f"{PREFIX_CHECKPOINT_DIR}-{best}"
        if name == staged.name or (folder / name).exists():
            self.state.best_model_checkpoint = str(folder / name)
            self.state.save_to_json(str(staged / TRAINER_STATE_NAME))


class TxTrainer(_Safe):
    """Transformers' [`Trainer`] with

    - the best model by the measure's own direction: what transformers guesses from the name is refused where it is
      wrong (`metric_for_best_model="mse"` wants `greater_is_better=False`), and so are schedules that go by a measure;
    - checkpoints that appear whole or not at all, so that a run that was killed resumes from the last whole one;
    - a stop of all processes at the first loss that is NaN or infinite ([`NonFiniteLoss`]), with its batch saved;
    - weight decay of matrices only;
    - the epoch told to a data collator that is an [`Objective`];
    - `use_cache` saved as it was, not as the Trainer turns it to train;
    - a resume that is the rest of the same run, or is refused: with the options that the run began with, except those
      of logging and saving, and from the row of a stream, in whichever pass ([`check_resumed`]);
    - no more steps when a run is resumed that has done all of them;
    - models inside of `torch.compile` (they stay compiled), DataParallel or DDP, whose checkpoints have the names of
      the model's weights, and not those of the wrapper;
    - smoothed labels of encoder-decoders whose batches have no `decoder_input_ids`, and an error where labels are no
      classes;
    - pushes without the pickled options of the run, and with the card of [`write_card`] if it is there. Whole
      checkpoints (`hub_strategy="checkpoint"`) hold the state of the optimizer, which is pickled too.

    The arguments are those of [`Trainer`].
    """


class TxSeq2SeqTrainer(_Safe, Seq2SeqTrainer):
    """Transformers' [`Seq2SeqTrainer`] with what [`TxTrainer`] adds, and

    - a model that generates, wherever it is loaded, as it did when it was measured: `generation_max_length` and
      `generation_num_beams` go into its generation config. Transformers keeps them to itself, and saves its default of
      20 tokens.

    The arguments are those of [`Seq2SeqTrainer`].
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        options: Any = self.args
        if options.predict_with_generate and options.generation_config is None:
            given = {"max_length": options.generation_max_length, "num_beams": options.generation_num_beams}
            model: Any = self.model
            model.generation_config.update(**{name: value for name, value in given.items() if value is not None})


@contextmanager
def _reading(checkpoint: str | None) -> Iterator[None]:
    """Say of which checkpoint an error speaks: a broken file can raise an error of any kind."""
    try:
        yield
    except ImportError:
        raise
    except Exception as error:
        raise ValueError(
            f"{checkpoint}: cannot be resumed, because it is broken or belongs to another run: {error}"
        ) from error


def _tensors(inputs: dict[str, Any]) -> list[tuple[str, torch.Tensor]]:
    return [(name, value) for name, value in inputs.items() if isinstance(value, torch.Tensor)]
