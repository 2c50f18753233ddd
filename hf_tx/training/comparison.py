# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""A fair comparison of mixers: equal parameters, then equal data and equal time."""

import hashlib
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

import torch
from transformers import PrinterCallback, ProgressCallback, SchedulerType, set_seed

from ..analysis import match_parameters, parameter_count
from ..analysis.benchmark import Case, compare, decoding_steps, measure
from ..analysis.plots import import_pyplot
from ..common.options import flag, json_option
from ..evaluation import Score, UnigramModel, evaluate_texts
from ..hub import ComparisonRecord, DataRecord, MixerCost, Training, Trial, write_comparison
from ..models.configuration_changes import without_idle
from ..models.mixers import expand_pattern
from ..objectives import CausalLM
from ..objectives.texts import encode_texts
from ..tokenization import train_tokenizer
from .corpus import read_documents, split_documents
from .new_models import new_config, width_fields
from .pretraining import PretrainingOptions
from .saving import check_checkpoint_folder
from .trainer import TxTrainer

_MIXERS = ("full", "sliding", "linear", "retention", "gated_linear", "gated_delta", "lstm", "gru")
# What the models learn, and are measured by.
_LEARNT = CausalLM
_IN_DOMAIN, _OUT_OF_DOMAIN = "in domain", "out of domain"
# Share of the training text that decides between learning rates.
_DECIDING = 0.02
# Entries in the record of the losses of a training.
_ENTRIES = 40
# Tokens that are generated in a round.
_GENERATED = 16


@dataclass
class ComparisonArguments:
    """What is compared, on what. See [`Comparison`]."""

    text: list[str] = field(
        default_factory=list,
        metadata={"action": "extend", "help": "Text files to train on, or folders of *.txt; a file is a document."},
    )
    eval_text: list[str] = field(
        default_factory=list, metadata={"action": "extend", "help": "Texts of the same domain to evaluate on."}
    )
    other_text: list[str] = field(
        default_factory=list, metadata={"action": "extend", "help": "Texts of another domain to evaluate on."}
    )
    mixers: list[str] = field(
        default_factory=list,
        metadata={
            "action": "extend",
            "help": "Mixers, or patterns such as 'sliding*3,full'; the first is the reference. Default: eight kinds.",
        },
    )
    output: str = field(default="runs/mixers", metadata={"help": "Folder to write the report to."})
    resume: bool = field(default=False, metadata={"help": "Continue the comparison in the output folder."})
    vocab_size: int = field(
        default=2048, metadata={"help": "Vocabulary size of the tokenizer, which all models share."}
    )
    context_length: int = field(default=256, metadata={"help": "Maximum number of tokens of a context."})
    hidden_size: int = field(default=128, metadata={"help": "Size of the hidden states."})
    num_hidden_layers: int = field(default=4, metadata={"help": "Number of layers."})
    num_attention_heads: int = field(default=4, metadata={"help": "Number of attention heads."})
    sliding_window: int = field(default=64, metadata={"help": "Window of the mixers that have one."})
    config_changes: str = field(
        default="{}", metadata={"help": 'Other fields of all configs, such as \'{"position_type": "alibi"}\'.'}
    )
    max_steps: int = field(default=300, metadata={"help": "Training steps at equal data."})
    per_device_train_batch_size: int = field(default=8, metadata={"help": "Rows per step."})
    learning_rate: list[float] = field(
        default_factory=list,
        metadata={"action": "extend", "help": "The highest learning rate, or several to choose from. Default: 1e-3."},
    )
    trial_steps: int = field(
        default=100, metadata={"help": "Steps for which each of several learning rates is tried."}
    )
    seed: list[int] = field(
        default_factory=list,
        metadata={"action": "extend", "help": "Seeds; all models are trained with each of them. Default: 0."},
    )
    rounds: int = field(default=15, metadata={"help": "Rounds of time measurements."})
    generation_context: int = field(default=1024, metadata={"help": "Tokens in the cache when generation is timed."})
    max_eval_characters: int | None = field(
        default=None, metadata={"help": "Evaluate on this many characters, the same number from each document."}
    )
    disable_tqdm: bool = field(default=False, metadata={"help": "No progress bars."})
    title: str = field(default="A comparison of mixers", metadata={"help": "Title of the report."})
    data_name: str = field(
        default="", metadata={"help": "Name of the text, for the report. Default: names of the files."}
    )
    data_license: str = field(default="not stated", metadata={"help": "License of the text."})
    data_source: str = field(default="", metadata={"help": "Source of the text."})
    other_name: str = field(default="", metadata={"help": "Name of the text of another domain."})
    other_license: str = field(default="not stated", metadata={"help": "License of the text."})
    other_source: str = field(default="", metadata={"help": "Source of the text."})
    license: str = field(default="apache-2.0", metadata={"help": "License of the report."})
    language: list[str] = field(
        default_factory=list, metadata={"action": "extend", "help": "Codes of the languages of the texts."}
    )

    def __post_init__(self) -> None:
        self.mixers = self.mixers or list(_MIXERS)
        self.learning_rate = self.learning_rate or [1e-3]
        self.seed = self.seed or [0]
        for name in ("text", "eval_text", "other_text"):
            if not getattr(self, name):
                raise ValueError(f"{flag(name)}: is missing; texts to train on and to measure on are needed.")
        for name in ("mixers", "learning_rate", "seed"):
            values = getattr(self, name)
            if len(set(values)) < len(values):
                raise ValueError(f"{flag(name)} {' '.join(map(str, values))}: a value is given twice.")
        if len(self.mixers) < 2:
            raise ValueError(f"--mixers {self.mixers[0]}: give at least two to compare.")
        at_least = {"max_steps": 1, "per_device_train_batch_size": 1, "trial_steps": 1, "rounds": 1}
        at_least |= {"context_length": 2, "max_eval_characters": 1}
        at_least["generation_context"] = max(self.context_length, self.sliding_window)  # windows are full then
        for name, least in at_least.items():
            value = getattr(self, name)
            if value is not None and value < least:
                raise ValueError(f"{flag(name)} {value}: must be at least {least}.")
        if min(self.seed) < 0 or not all(0 < rate < 1 for rate in self.learning_rate):
            raise ValueError("--seed, --learning-rate: must be at least 0, and between 0 and 1.")


def prepare_comparison(arguments: ComparisonArguments, command: str) -> "Comparison":
    """Do all that can go wrong before the first step: read the texts, train the tokenizer, find the width at which all
    models have as many parameters as the first, and try a batch with each.

    Args:
        arguments: what is compared, on what.
        command: what runs this again, for the report.

    Raises:
        ValueError, OSError, ImportError: an option or the data does not serve. Nothing is left behind then.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise ValueError("mixers are compared in one process: start `hf-tx compare` without a launcher.")
    import_pyplot()
    started = ComparisonRecord.load(arguments.output) if arguments.resume else None
    if started is None:
        check_checkpoint_folder(arguments.output)
    for mixers in arguments.mixers:
        _config(arguments, mixers, vocab_size=arguments.vocab_size)  # before a long text is read
    comparison = Comparison(arguments, command)
    if started is not None:
        comparison.go_on_from(started)
    return comparison


class _Bar(ProgressCallback):
    """A progress bar without the log, which the record holds."""

    def on_log(self, *arguments: Any, **keywords: Any) -> None:
        """Write nothing."""


class Comparison:
    """Mixers in the same decoder language model, trained on the same text: with as many parameters as the first of
    them, the reference, and then with as much data and with as much time as it.

    Generation is timed in rounds in which the mixers take turns, so that a machine that gets slower does so for all; a
    step of training is timed over a whole training, since its time depends on the batch. Each number is recorded as
    soon as it is found, and a comparison that was broken off goes on from there. It runs on the CPU.

    Args:
        arguments: what is compared, on what.
        command: what runs this again, for the report.

    Raises:
        ValueError, OSError: an option or the data does not serve.
    """

    def __init__(self, arguments: ComparisonArguments, command: str) -> None:
        self.arguments = arguments
        texts = {name: read_documents(getattr(arguments, name)) for name in ("text", "eval_text", "other_text")}
        for name in ("eval_text", "other_text"):
            if seen := set(texts[name]) & set(texts["text"]):
                raise ValueError(f"{flag(name)}: a document is in --text too: {min(seen)[:40]!r} ...")
        train = texts["text"]
        #: The text that decides between learning rates.
        self.deciding: list[str] = []
        if len(arguments.learning_rate) > 1:
            train, self.deciding = split_documents(train, _DECIDING)
            self.deciding = _beginnings(self.deciding, arguments.max_eval_characters)
        #: The texts that are measured, by name.
        self.measured = {
            _IN_DOMAIN: _beginnings(texts["eval_text"], arguments.max_eval_characters),
            _OUT_OF_DOMAIN: _beginnings(texts["other_text"], arguments.max_eval_characters),
        }
        self.tokenizer = train_tokenizer(
            train,
            vocab_size=arguments.vocab_size,
            model_max_length=arguments.context_length,
            show_progress=not arguments.disable_tqdm,
        )
        self.objective = _LEARNT(self.tokenizer, arguments.context_length)
        documents = encode_texts(self.tokenizer, train)
        self.rows = list(self.objective.rows(documents))
        if len(self.rows) < arguments.per_device_train_batch_size:
            raise ValueError(
                f"--text: is {len(self.rows)} rows of {arguments.context_length} tokens, too few for a step of "
                f"{arguments.per_device_train_batch_size} rows: give more text."
            )
        self.configs = self._configs()
        for mixers in arguments.mixers:
            decoding_steps(self._model(mixers, 0), arguments.generation_context, 1)()
        self.record = ComparisonRecord(
            title=arguments.title,
            command=command,
            mixers=arguments.mixers,
            data=self._data(texts["text"]),
            measured=list(self.measured),
            training=self._training_facts(),
            tokens_of_a_step=arguments.per_device_train_batch_size * arguments.context_length,
            context=arguments.generation_context,
            baseline=self._baseline(documents),
            license=arguments.license,
            language=arguments.language,
        )

    # ------------------------------------------------------------------------------------------------- what is there
    def _configs(self) -> dict[str, Any]:
        """Return the config of each mixer, with as many parameters as the first."""
        arguments, tokens = self.arguments, self.objective.token_fields()
        configs = {mixers: _config(arguments, mixers, **tokens) for mixers in arguments.mixers}
        reference = parameter_count(configs[arguments.mixers[0]]).total
        return {
            mixers: config if mixers == arguments.mixers[0] else match_parameters(config, reference)
            for mixers, config in configs.items()
        }

    def _model(self, mixers: str, seed: int) -> Any:
        set_seed(seed)
        return self.objective.auto_class.from_config(self.configs[mixers])

    def _data(self, text: list[str]) -> list[DataRecord]:
        arguments, records = self.arguments, []
        for name, own, read, purpose in (
            ("text", "data", text, "to train on"),
            ("eval_text", "data", self.measured[_IN_DOMAIN], "to measure"),
            ("other_text", "other", self.measured[_OUT_OF_DOMAIN], "to measure"),
        ):
            named = getattr(arguments, f"{own}_name") or " ".join(Path(path).name for path in getattr(arguments, name))
            digest = hashlib.sha256("\0".join(read).encode("utf-8")).hexdigest()[:12]
            documents = "1 document" if len(read) == 1 else f"{len(read):,} documents"
            size = f"{documents}, {sum(map(len, read)):,} characters (sha256 {digest})"
            facts = (getattr(arguments, f"{own}_license"), getattr(arguments, f"{own}_source"), f"{purpose}: {size}")
            records.append(DataRecord(named, *facts))
        return records

    def _training_facts(self) -> dict[str, Any]:
        """Return the settings that all trainings have in common."""
        arguments, options = self.arguments, self._options("", 1, 1.0, 0)
        config = self.configs[arguments.mixers[0]]
        rates = ", ".join(f"{rate:g}" for rate in arguments.learning_rate)
        several = len(arguments.learning_rate) > 1
        return {
            "layers": config.num_hidden_layers,
            "hidden size": config.hidden_size,
            "heads": config.num_attention_heads,
            "window": arguments.sliding_window,
            "other fields": arguments.config_changes,
            "vocabulary": len(self.tokenizer),
            "context": arguments.context_length,
            "rows of a step": arguments.per_device_train_batch_size,
            "steps": arguments.max_steps,
            "passes over the text": arguments.max_steps * arguments.per_device_train_batch_size / len(self.rows),
            "learning rate": f"the best of {rates}" if several else rates,
            **({"steps of a trial": arguments.trial_steps} if several else {}),
            "schedule": SchedulerType(options.lr_scheduler_type).value,
            "warm-up": f"{options.warmup_steps:.0%} of the steps",
            "weight decay": options.weight_decay,
            "precision": "fp32",
            "seeds": ", ".join(map(str, arguments.seed)),
            "rounds": arguments.rounds,
        }

    def _baseline(self, train: list[list[int]]) -> dict[str, float]:
        """Return the bits per byte of a unigram model of the training text."""
        unigram, found = UnigramModel(train, len(self.tokenizer)), {}
        for name, texts in self.measured.items():
            score = Score.total(map(unigram.score, encode_texts(self.tokenizer, texts)))
            found[name] = score.bits_per_byte(sum(len(text.encode("utf-8")) for text in texts))
        return found

    def go_on_from(self, started: ComparisonRecord) -> None:
        """Take over what another run of the same comparison has found.

        Raises:
            ValueError: it is another comparison.
        """
        same = ("mixers", "data", "training", "tokens_of_a_step", "context", "hardware", "versions")
        for name in same:
            there, here = getattr(started, name), getattr(self.record, name)
            if there != here:
                raise ValueError(
                    f"--resume: {self.arguments.output} holds another comparison, whose {name} is {there}, and not "
                    f"{here}: choose another --output."
                )
        found = {name: getattr(started, name) for name in ("costs", "trials", "trainings", "seconds")}
        self.record = replace(self.record, **found)

    # ------------------------------------------------------------------------------------------------------ the work
    def run(self) -> ComparisonRecord:
        """Measure what the mixers cost, choose learning rates, train, and write the report.

        Returns:
            What the report is written from.

        Raises:
            OSError: the folder cannot be written any more.
            NonFiniteLoss: a training diverges.
        """
        record, arguments = self.record, self.arguments
        reference, *others = record.mixers
        Path(arguments.output).mkdir(parents=True, exist_ok=True)
        if not record.costs:
            with self._recorded():
                record.costs = self._costs()
        if self.deciding:
            tried = {(trial.mixers, trial.learning_rate) for trial in record.trials}
            for mixers, rate in product(record.mixers, arguments.learning_rate):
                if (mixers, rate) not in tried:
                    with self._recorded():
                        record.trials.append(self._trial(mixers, rate))
        trained = {
            (training.mixers, training.seed, equal) for training in record.trainings for equal in training.equal
        }
        wanted = [([reference], ["data", "time"]), (others, ["data"]), (others, ["time"])]
        for patterns, equal in wanted:
            for seed, mixers in product(arguments.seed, patterns):
                if (mixers, seed, equal[0]) not in trained:
                    with self._recorded():
                        record.trainings.append(self._training(mixers, equal, seed))
        write_comparison(arguments.output, record)
        return record

    @contextmanager
    def _recorded(self) -> Iterator[None]:
        """Save the record after what is found, with the time that it took."""
        started = time.monotonic()
        yield
        self.record.seconds = round(self.record.seconds + time.monotonic() - started, 1)
        self.record.save(self.arguments.output)

    def _costs(self) -> list[MixerCost]:
        """Measure what each costs, in turns."""
        arguments, context = self.arguments, self.arguments.generation_context
        sides = {
            mixers: decoding_steps(self._model(mixers, arguments.seed[0]), context, _GENERATED)
            for mixers in arguments.mixers
        }
        found = compare(sides, arguments.rounds, None if arguments.disable_tqdm else "timing generation")
        costs = []
        for mixers, config in self.configs.items():
            count = parameter_count(config, cache_dtype=torch.float32)
            with tempfile.TemporaryDirectory() as folder:
                config.save_pretrained(folder, include_code=False)
                rows = arguments.per_device_train_batch_size
                case = Case("config", mixers, "sdpa", arguments.context_length, folder=folder, rows=rows)
                megabytes = measure(case).megabytes
            costs.append(
                MixerCost(
                    mixers=mixers,
                    parameters=count.total,
                    intermediate_size=config.intermediate_size,
                    token_seconds=statistics.median(found[mixers]) / _GENERATED,
                    training_megabytes=megabytes,
                    cache_bytes=count.cache_bytes_per_token * context + count.cache_bytes_limit,
                )
            )
        return costs

    def _trial(self, mixers: str, rate: float) -> Trial:
        model, _, _ = self._train(mixers, self.arguments.trial_steps, rate, self.arguments.seed[0], "trial")
        return Trial(mixers, rate, self._bits_per_byte(model, self.deciding))

    def _training(self, mixers: str, equal: list[str], seed: int) -> Training:
        record, steps = self.record, self.arguments.max_steps
        if "data" not in equal:
            seconds = steps * record.step_seconds(record.mixers[0])
            steps = max(1, round(seconds / record.step_seconds(mixers)))
        rate = record.learning_rate(mixers) if self.deciding else self.arguments.learning_rate[0]
        model, seconds, losses = self._train(mixers, steps, rate, seed, f"equal {' and '.join(equal)}")
        return Training(
            mixers=mixers,
            equal=equal,
            seed=seed,
            learning_rate=rate,
            steps=steps,
            seconds=round(seconds, 2),
            losses=losses,
            bits_per_byte={name: self._bits_per_byte(model, texts) for name, texts in self.measured.items()},
        )

    def _train(
        self, mixers: str, steps: int, rate: float, seed: int, purpose: str
    ) -> tuple[Any, float, list[list[float]]]:
        """Return a model that was trained, how many seconds it took, and its losses."""
        print(f"{mixers}, {purpose}: {steps} steps with learning rate {rate:g}, seed {seed}", file=sys.stderr)
        model = self._model(mixers, seed)
        with tempfile.TemporaryDirectory() as folder:
            options = self._options(folder, steps, rate, seed)
            trainer = TxTrainer(model, options, train_dataset=self.rows, data_collator=self.objective)
            for talks in (PrinterCallback, ProgressCallback):
                trainer.remove_callback(talks)
            if not options.disable_tqdm:
                trainer.add_callback(_Bar)
            started = time.monotonic()
            trainer.train()
            seconds = time.monotonic() - started
        losses = [[entry["step"], entry["loss"]] for entry in trainer.state.log_history if "loss" in entry]
        return model, seconds, losses

    def _options(self, folder: str, steps: int, rate: float, seed: int) -> PretrainingOptions:
        return PretrainingOptions(
            output_dir=folder,
            max_steps=steps,
            per_device_train_batch_size=self.arguments.per_device_train_batch_size,
            learning_rate=rate,
            seed=seed,
            logging_steps=max(1, steps // _ENTRIES),
            eval_strategy="no",
            save_strategy="no",
            use_cpu=True,
            disable_tqdm=self.arguments.disable_tqdm,
        )

    def _bits_per_byte(self, model: Any, texts: list[str]) -> float:
        return evaluate_texts(
            model,
            self.tokenizer,
            texts,
            task=_LEARNT.text_task,
            context_length=self.arguments.context_length,
            description=None if self.arguments.disable_tqdm else "scoring",
        ).bits_per_byte


def _config(arguments: ComparisonArguments, mixers: str, **tokens: Any) -> Any:
    """Return the config of a model with certain mixers, without what they do not read."""
    fields: dict[str, Any] = {
        "hidden_size": arguments.hidden_size,
        "num_hidden_layers": arguments.num_hidden_layers,
        "num_attention_heads": arguments.num_attention_heads,
        "max_position_embeddings": arguments.context_length,
        "sliding_window": arguments.sliding_window,
        **width_fields(arguments.hidden_size),
        **json_option(arguments, "config_changes"),
        **tokens,
    }
    names = expand_pattern(mixers, fields["num_hidden_layers"])
    return new_config(*_LEARNT.families, mixers=mixers, **without_idle(fields, names))


def _beginnings(texts: Sequence[str], most: int | None) -> list[str]:
    """Return the beginnings of texts, equally long, of `most` characters together."""
    if most is None:
        return list(texts)
    return [text for text in (text[: most // len(texts)] for text in texts) if text]
