# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Healing: a language model gets other mixers or settings, and learns from what it was before."""

import math
import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
import transformers
from accelerate import PartialState
from transformers import AutoConfig, AutoTokenizer, TrainerState, TrainingArguments, set_seed

from ..common.checkpoint_files import check_files
from ..common.loading import loading
from ..common.whole import write_json
from ..conversion import from_hf
from ..conversion.building import changes_with_mixers, class_named
from ..evaluation import evaluate_texts, score_targets
from ..models.heads import LanguageModelHead
from ..models.version import __version__
from ..objectives import OBJECTIVES, TokenObjective, text_objective_of
from ..objectives.texts import encode_texts
from .corpus import read_documents, split_documents
from .distillation import DistillationTrainer, inputs_and_targets, logits_loss, transfer_errors, transfer_loss
from .epochs import SetEpoch
from .interruption import StopOnInterrupt
from .saving import check_checkpoint_folder, save_checkpoint

# Squared error of a layer, relative to its outputs, from which on it computes something else. Rounding in float32
# stays below 1e-12, and other mixers are above 1e-4.
_CHANGED = 1e-9
# The longest context that is taken without being asked for.
_CONTEXT = 1024
_BAR = "scoring the held-out text"


@dataclass
class HealingSettings:
    """How a changed model learns from the original.

    Raises:
        ValueError: a value that is out of its range.
    """

    transfer_steps: int = field(
        default=100, metadata={"help": "Steps of training each changed layer to match the original layer."}
    )
    steps: int = field(default=200, metadata={"help": "Steps of training on the predictions of the original."})
    transfer_learning_rate: float = field(default=1e-3, metadata={"help": "Peak learning rate of the transfer steps."})
    learning_rate: float = field(default=5e-4, metadata={"help": "Peak learning rate of the other steps."})
    temperature: float = field(default=1.0, metadata={"help": "Temperature that divides the logits of both models."})
    labels_weight: float = field(
        default=0.0,
        metadata={"help": "Weight of the text itself in the loss; the predictions of the original have the rest."},
    )
    batch_size: int = field(default=4, metadata={"help": "Rows per step."})
    seed: int = field(default=0, metadata={"help": "Random seed."})

    def __post_init__(self) -> None:
        for name, least in {"transfer_steps": 0, "steps": 0, "batch_size": 1, "seed": 0}.items():
            if getattr(self, name) < least:
                raise ValueError(f"{name} = {getattr(self, name)}: must be at least {least}.")
        if not self.transfer_steps + self.steps:
            raise ValueError("transfer_steps = 0, steps = 0: nothing would be trained; one must be at least 1.")
        for name in ("transfer_learning_rate", "learning_rate", "temperature"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"{name} = {getattr(self, name)}: must be above 0.")
        if not 0 <= self.labels_weight <= 1:
            raise ValueError(f"labels_weight = {self.labels_weight}: must be from 0 to 1.")


def load_language_model(
    source: str | os.PathLike[str],
    mixers: str | None = None,
    config_changes: dict[str, Any] | None = None,
    attn_implementation: str | None = None,
) -> tuple[Any, list[str]]:
    """Load a language model of hf_tx or of transformers as one of hf_tx, in float32, with changes if there are any.

    Args:
        source: a folder, or a name on the Hub.
        mixers: other mixers; of an encoder-decoder, of both stacks.
        config_changes: other fields of the config to change, by name.
        attn_implementation: the backend. Default: the first that computes all layers.

    Returns:
        The model, and the names of the tensors that the source does not have.

    Raises:
        ValueError: it is no language model, a change names no field or changes the size of a tensor, or a family
            cannot be converted.
        OSError: there is no checkpoint.
    """
    check_files(source)
    with loading("model", source):
        config = AutoConfig.from_pretrained(source)
    options: dict[str, Any] = dict(
        attn_implementation=attn_implementation, dtype=torch.float32, output_loading_info=True
    )
    try:
        if config.model_type.startswith("hf_tx"):
            config = _changed_config(source, config, mixers, config_changes)
            model, info = class_named(config.architectures[0]).from_pretrained(
                source, config=config, use_safetensors=True, **options
            )
        else:
            model, info = from_hf(source, mixers=mixers, config_changes=config_changes, **options)
    except RuntimeError as error:
        raise ValueError(
            f"{source}: cannot be loaded with mixers = {mixers!r}, config_changes = {config_changes}. Sizes of "
            f"tensors that the original has cannot be changed. ({error})"
        ) from error
    if not issubclass(type(model), LanguageModelHead):
        raise ValueError(
            f"{source}: is a {type(model).__name__}, which is not a language model; a model for causal LM, "
            "masked LM or conditional generation is needed."
        )
    return model.eval(), sorted(info["missing_keys"])


def _changed_config(source: Any, config: Any, mixers: str | None, changes: dict[str, Any] | None) -> Any:
    changes = changes_with_mixers(config, mixers, changes)
    changed, unknown = AutoConfig.from_pretrained(source, **changes, return_unused_kwargs=True)
    if unknown:
        raise ValueError(f"config_changes: {type(config).__name__} has no field {next(iter(unknown))!r}.")
    if not changed.architectures:
        raise ValueError(f"{source}: config.json names no architectures.")
    return changed


class Healing:
    """A changed model that learns from the original.

    First every layer that computes something else learns the original's, reading the original's hidden states (see
    `transfer_errors`), then the whole model learns the original's predictions (see `logits_loss`), both on rows of a
    text whose end is held out and measured. All that can go wrong is refused when this object is built.

    Args:
        source: the original; see `load_language_model`.
        texts: files of text; see `read_documents`.
        output: the folder to save to.
        mixers: the mixers of the changed model. Default: the original's.
        config_changes: other fields of its config to change.
        attn_implementation: the backend of both.
        context_length: tokens of a row. Default: the most that model and tokenizer take, but not above 1024.
        held_out: share of the text to measure on, above 0 and at most 0.5.
        overwrite: whether a checkpoint that is in the output folder may be replaced.
        settings: how the model learns.

    Raises:
        ValueError: a setting, a change, the model, its tokenizer or the text does not serve.
        OSError: a file cannot be read, or the folder not be written.
    """

    def __init__(
        self,
        source: str | os.PathLike[str],
        texts: Sequence[str | os.PathLike[str]],
        output: str | os.PathLike[str],
        *,
        mixers: str | None = None,
        config_changes: dict[str, Any] | None = None,
        attn_implementation: str | None = None,
        context_length: int | None = None,
        held_out: float = 0.1,
        overwrite: bool = False,
        settings: HealingSettings | None = None,
    ) -> None:
        if not 0 < held_out <= 0.5:
            raise ValueError(f"held_out = {held_out}: must be above 0 and at most 0.5.")
        if mixers is None and not config_changes:
            raise ValueError("neither mixers nor config_changes are given: the model would be the original.")
        self.settings = settings or HealingSettings()
        self.overwrite = overwrite
        self._described = {"source": str(source), "mixers": mixers, "config_changes": config_changes}
        #: The folder to save to.
        self.output = check_checkpoint_folder(output, overwrite=overwrite)
        if self.output == Path(source).resolve():
            raise ValueError(f"output {str(output)!r} is the folder of the original: choose another.")
        train_texts, held_out_texts = split_documents(read_documents(texts), held_out)

        set_seed(self.settings.seed)
        #: The changed model, and the names of the tensors that are new in it.
        self.model, self.new_tensors = load_language_model(source, mixers, config_changes, attn_implementation)
        self.original, missing = load_language_model(source, attn_implementation=attn_implementation)
        if missing:
            raise ValueError(f"{source}: has no weights for {', '.join(missing[:3])}; the original must be whole.")
        self._use_cache = self.model.config.use_cache  # the Trainer turns it off
        for model in (self.original, self.model):
            model.to(PartialState().device)
        #: What both models predict, and are measured by.
        self.objective = _objective(source, self.original, context_length, self.settings.seed)
        self.tokenizer, self.context_length = self.objective.tokenizer, self.objective.max_length
        #: The text to measure on.
        self.held_out = held_out_texts
        encoded = [encode_texts(self.tokenizer, texts) for texts in (train_texts, held_out_texts)]
        self._rows, held_out_rows = (list(self.objective.rows(documents)) for documents in encoded)
        self._measured_rows = [self.objective.fix(row) for row in held_out_rows]
        sizes = [sum(map(len, documents)) for documents in encoded]
        if min(sizes) < self.context_length:
            raise ValueError(
                f"too little text: training and held-out text need {self.context_length} tokens each, and one "
                f"has {min(sizes)}; give more, or a smaller context_length."
            )
        self.held_out_tokens = sizes[1]
        #: The layers that compute something else; found only if there are transfer steps.
        self.changed_layers = self._try()

    def _try(self) -> list[int]:
        rows = self._rows[: self.settings.batch_size]
        batch = {name: value.to(self.model.device) for name, value in self.objective(rows).items()}
        changed: list[int] = []
        if self.settings.transfer_steps:
            with torch.no_grad():
                errors = transfer_errors(self.model, self.original, batch)
            changed = (errors > _CHANGED).nonzero().flatten().tolist()
            if not changed:
                raise ValueError(
                    f"no layer of the changed model computes anything else in {self.context_length} tokens, so "
                    "that there is nothing to transfer: change more, or set transfer_steps = 0."
                )
        with torch.no_grad():  # a backend that cannot train refuses
            self._logits_loss(self.model.train(), self.original, {name: value[:1] for name, value in batch.items()})
        return changed

    def _logits_loss(self, student: Any, teacher: Any, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
        return logits_loss(student, teacher, inputs, self.settings.temperature, self.settings.labels_weight)

    # ---------------------------------------------------------------------------------------------------- the work
    def run(self) -> dict[str, Any]:
        """Measure, learn, save and measure again.

        Ctrl-C ends learning after the current step, and what was learnt is saved, but not measured; pressed again, it
        raises KeyboardInterrupt.

        Returns:
            What is in `results.json`: `measure` (its name), `original`, `changed`, `transferred`, `healed` (all
            measures of each; what was not reached is left out), `gap` (of each to the original), `steps` (taken), and
            what was done, and to what.

        Raises:
            ValueError: the weights are not finite any more; nothing is saved.
            OSError: the folder cannot be written any more.
        """
        started, settings, stop = time.monotonic(), self.settings, StopOnInterrupt()
        transfer = partial(transfer_loss, layers=self.changed_layers)
        stages = {
            "transferred": (settings.transfer_steps, settings.transfer_learning_rate, transfer),
            "healed": (settings.steps, settings.learning_rate, self._logits_loss),
        }
        measures = {"original": self._measure(self.original)}
        states: dict[str, TrainerState] = {}
        name = "changed"
        for stage, (steps, learning_rate, objective) in stages.items():
            if steps and not stop.interrupted:
                measures[name] = self._measure(self.model)
                with stop:
                    states[stage] = self._learn(stop, steps, learning_rate, objective)
                name = stage
        self.model.config.use_cache = self._use_cache
        if not all(bool(parameter.isfinite().all()) for parameter in self.model.parameters()):
            raise ValueError("training diverged, and nothing was saved: lower the learning rates.")
        save_checkpoint(self.output, self.model, self.tokenizer, _States(states), overwrite=self.overwrite)
        if not stop.interrupted:
            measures[name] = self._measure(self.model)

        measure = "bits_per_byte" if "bits_per_byte" in measures["original"] else "loss"
        results = {
            "predicts": self.objective.predicts,
            "held_out_tokens": self.held_out_tokens,
            "measure": measure,
            **measures,
            "gap": {name: found[measure] - measures["original"][measure] for name, found in measures.items()},
            "steps": {name: state.global_step for name, state in states.items()},
            "interrupted": stop.interrupted,
            "new_tensors": self.new_tensors,
            "changed_layers": self.changed_layers,
            "seconds": round(time.monotonic() - started, 1),
            **self._described,
            "settings": asdict(settings),
            "versions": {"hf_tx": __version__, "transformers": transformers.__version__, "torch": torch.__version__},
        }
        write_json(self.output / "results.json", results)
        return results

    def _measure(self, model: Any) -> dict[str, float]:
        """Return how well a model predicts the held-out text or, where the objective does not score all of it, the
        labels of rows of it."""
        size = self.settings.batch_size
        if self.objective.text_task is None:
            rows = self._measured_rows
            batches = (self.objective(rows[start : start + size]) for start in range(0, len(rows), size))
            score = score_targets(model, (inputs_and_targets(model, batch) for batch in batches), description=_BAR)
            return {"loss": score.loss, "perplexity": score.perplexity, "accuracy": score.accuracy}
        found = evaluate_texts(
            model,
            self.tokenizer,
            self.held_out,
            task=self.objective.text_task,
            context_length=self.context_length,
            batch_size=size,
            description=_BAR,
        )
        return {"loss": found.score.loss, "perplexity": found.perplexity, "bits_per_byte": found.bits_per_byte}

    def _learn(self, stop: StopOnInterrupt, steps: int, learning_rate: float, objective: Any) -> TrainerState:
        with tempfile.TemporaryDirectory(prefix="healing-") as scratch:
            arguments = TrainingArguments(
                output_dir=scratch,
                max_steps=steps,
                per_device_train_batch_size=self.settings.batch_size,
                learning_rate=learning_rate,
                lr_scheduler_type="cosine",
                warmup_steps=0.1,
                adam_beta2=0.95,
                seed=self.settings.seed,
                logging_steps=max(1, steps // 10),
                logging_nan_inf_filter=False,
                save_strategy="no",
                report_to="none",
                disable_tqdm=False,
                remove_unused_columns=False,
                dataloader_pin_memory=torch.cuda.is_available(),
            )
            trainer = DistillationTrainer(
                self.model,
                arguments,
                teacher=self.original,
                objective=objective,
                train_dataset=self._rows,
                data_collator=self.objective,
                callbacks=[stop, SetEpoch(self.objective)],
            )
            trainer.train()
        return trainer.state


# ------------------------------------------------------------------------------------------------------------- parts
@dataclass
class _States:
    """The states of the trainers, as a part of a checkpoint."""

    by_stage: dict[str, TrainerState]

    def save_pretrained(self, save_directory: Path) -> None:
        for name, state in self.by_stage.items():
            state.save_to_json(str(save_directory / f"trainer_state_{name}.json"))


def _objective(source: str | os.PathLike[str], model: Any, context_length: int | None, seed: int) -> TokenObjective:
    """Return the objective that scores text of the model's family, with its tokenizer.

    Raises:
        ValueError: there is no tokenizer, or it lacks a special token that the rows need, or the context is too long
            or too short.
    """
    family = model.config.model_type.removeprefix("hf_tx_").replace("_", "-")
    with loading("tokenizer", source):
        tokenizer = AutoTokenizer.from_pretrained(source)
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token  # as usual for decoders; it fills the last row and is never learnt
    if len(tokenizer) > model.config.get_text_config(decoder=True).vocab_size:
        raise ValueError(f"{source}: the tokenizer has {len(tokenizer)} tokens, which are more than the model's.")
    stacks = model.config.stacks if model.config.is_encoder_decoder else [model.config]
    most = min(tokenizer.model_max_length, *(stack.max_position_embeddings for stack in stacks))
    length = min(most, _CONTEXT) if context_length is None else context_length
    if not 8 <= length <= most:
        raise ValueError(
            f"context_length = {length}: must be at least 8 and at most {most}, the longest of the model."
        )
    kind: Any = OBJECTIVES[text_objective_of(family)]
    try:
        return kind(tokenizer, length, seed=seed)
    except ValueError as error:
        raise ValueError(f"{source}: {error}") from error
