# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""From raw text to a pre-trained model with its tokenizer, its measures and its card."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
from transformers import AutoTokenizer, PreTrainedTokenizerBase, TrainingArguments, set_seed
from transformers.utils import logging

from ..common.checkpoint_files import check_files
from ..common.columns import iter_columns, iter_pieces
from ..common.loading import loading
from ..common.options import did_you_mean, flag, json_option
from ..evaluation import Score, TextResult, UnigramModel, evaluate_texts
from ..hub import DataRecord, Result, license_of, read_data_card
from ..objectives import OBJECTIVES, Objective, objectives_of
from ..objectives.texts import iter_encoded
from ..tokenization import train_tokenizer
from ..tokenization.training import Family
from .data import check_columns, load_measured, load_splits
from .honouring import check_honoured
from .new_models import NEW_MODELS, new_config, width_fields
from .resuming import check_resumed
from .runs import (
    Run,
    RunArguments,
    RunOptions,
    check_best,
    make_objective,
    measures_of,
    try_model,
)
from .streaming import FIRST_CHARACTERS, check_streaming, load_stream, stream_rows
from .trainer import TxTrainer

logger = logging.get_logger(__name__)

# The fields of the config that the tokenizer decides, whatever is learnt.
_OF_TOKENIZER = {"vocab_size"}.union(*(kind.token_ids for kind in OBJECTIVES.values()))
# Characters of the held-out data from which prompts are taken.
_READ_FOR_PROMPTS = 10_000
# Objectives that measure plain text, whatever the domain.
_OF_TEXT = [name for name, kind in OBJECTIVES.items() if kind.text_task is not None]
_LIMIT = (
    "It is a small model, trained for a short time: it knows few facts, and what it writes is not to be relied on."
)


@dataclass
class PretrainingArguments(RunArguments):
    """What is trained on what. The options of training itself are those of the Trainer."""

    family: Family = field(default="decoder", metadata={"help": "Family of the model."})
    objective: str | None = field(
        default=None,
        metadata={"help": f"Objective: {', '.join(OBJECTIVES)}. Default: the first of these that fits the family."},
    )
    objective_options: str = field(
        default="{}", metadata={"help": 'Options of the objective, such as \'{"masking": "span"}\'.'}
    )
    tokenizer: str | None = field(
        default=None,
        metadata={"help": "Tokenizer: a folder, or a name on the Hub. Default: a tokenizer is trained on the text."},
    )
    vocab_size: int = field(default=4096, metadata={"help": "Vocabulary size of a tokenizer that is trained."})
    context_length: int = field(default=256, metadata={"help": "Maximum number of tokens of a context."})
    mixers: str = field(default="full", metadata={"help": "Mixers of the layers, such as 'sliding*3,full'."})
    encoder_mixers: str | None = field(default=None, metadata={"help": "Mixers of the encoder of an encoder-decoder."})
    decoder_mixers: str | None = field(default=None, metadata={"help": "Mixers of the decoder of an encoder-decoder."})
    hidden_size: int = field(default=256, metadata={"help": "Size of the hidden states."})
    num_hidden_layers: int = field(default=4, metadata={"help": "Number of layers, per stack."})
    num_attention_heads: int = field(default=4, metadata={"help": "Number of attention heads."})
    sliding_window: int | None = field(
        default=None, metadata={"help": "Window of the layers that have one. Default: a quarter of the context."}
    )
    samples: bool = field(
        default=False,
        metadata={
            "help": "At the end, load the model in a new process without hf_tx, and print what it writes for each "
            "--prompt, or for beginnings of held-out text."
        },
    )
    prompt: list[str] = field(
        default_factory=list,
        metadata={"action": "extend", "help": "--samples: texts to continue or to fill in."},
    )
    max_new_tokens: int = field(default=60, metadata={"help": "--samples: maximum number of generated tokens."})
    other_text: list[str] = field(
        default_factory=list,
        metadata={
            "action": "extend",
            "help": f"Text files of another domain, to evaluate bits per byte: for {', '.join(_OF_TEXT)}.",
        },
    )
    streaming: bool = field(
        default=False,
        metadata={"help": "Read the data while learning from it, so that it never has to fit in memory or on a disk."},
    )
    held_out_first: int | None = field(
        default=None,
        metadata={
            "help": "Of --streaming, where there is no split or --eval-text to measure on: the rows of a dataset, or "
            "characters of text files, that are held out at the beginning. Default: 1,000 rows; --held-out of the "
            "text, at most 1,000,000 characters."
        },
    )
    shuffle_buffer_size: int = field(
        default=1000, metadata={"help": "Of --streaming: from how many rows the next is drawn; 0 keeps their order."}
    )
    config_changes: str = field(
        default="{}",
        metadata={"help": "Other fields of the config, such as '{\"hidden_dropout\": 0.1}'."},
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        fits = objectives_of(self.family)
        self.objective = self.objective or fits[0]
        if self.objective not in OBJECTIVES:
            raise ValueError(
                f"--objective {self.objective}: must be one of {', '.join(OBJECTIVES)}"
                f"{did_you_mean(self.objective, OBJECTIVES)}."
            )
        if self.objective not in fits:
            raise ValueError(
                f"--objective {self.objective}: is not for --family {self.family}, which learns {', '.join(fits)}."
            )
        for name in {name for new in NEW_MODELS.values() for name in new.mixer_fields}:
            if getattr(self, name) and name not in NEW_MODELS[self.family].mixer_fields:
                raise ValueError(f"{flag(name)}: --family {self.family} has no such stack; use --mixers.")
        if self.other_text and self.objective not in _OF_TEXT:
            raise ValueError(
                f"--other-text: is measured of {', '.join(_OF_TEXT)} alone, not of {self.objective}; leave it out."
            )
        if self.prompt and not self.samples:
            raise ValueError("--prompt: is an option of --samples; give it too.")
        if self.max_new_tokens < 1:
            raise ValueError(f"--max-new-tokens {self.max_new_tokens}: must be at least 1.")
        check_streaming(self)
        self.output = self.output or f"runs/{self.family}-{self.objective}"


@dataclass
class PretrainingOptions(RunOptions):
    """The options of the Trainer, with defaults for small models that begin with nothing."""

    max_steps: int = field(default=-1, metadata={"help": "Training steps. Default: 600, unless epochs are given."})
    num_train_epochs: float | None = field(  # type: ignore[assignment]
        default=None, metadata={"help": "Epochs, instead of steps."}
    )
    per_device_train_batch_size: int = field(default=8, metadata={"help": "Rows per step and device."})
    learning_rate: float = field(default=1e-3, metadata={"help": "Peak learning rate."})
    lr_scheduler_type: str = field(default="cosine", metadata={"help": "Learning rate schedule."})  # type: ignore
    weight_decay: float = field(default=0.1, metadata={"help": "Weight decay of the matrices."})
    adam_beta2: float = field(default=0.95, metadata={"help": "Beta 2 of Adam."})

    def __post_init__(self) -> None:
        if self.num_train_epochs is None:
            self.num_train_epochs, self.max_steps = 1.0, 600 if self.max_steps == -1 else self.max_steps
        elif self.max_steps > 0:
            raise ValueError("--max-steps, --num-train-epochs: give one of them; steps would decide alone.")
        super().__post_init__()


def prepare_pretraining(arguments: PretrainingArguments, options: TrainingArguments) -> "Pretraining":
    """Do all that can go wrong before the first step: load the data, train or load the tokenizer, build model and
    trainer, try one batch, and find the repository if the model is to be pushed.

    Raises:
        ValueError, OSError, ImportError: an option or the data does not serve. Nothing is left behind then.
    """
    with arguments.preparing(options):
        return _prepare(arguments, options)


def _prepare(arguments: PretrainingArguments, options: TrainingArguments) -> "Pretraining":
    check_best(options, ())
    kind = OBJECTIVES[str(arguments.objective)]
    check_honoured(options, f"--objective {kind.name}", kind.honours)
    config_fields = _fields(arguments)
    objective_options = json_option(arguments, "objective_options")
    columns = arguments.columns or list(kind.columns)
    with options.main_process_first(desc="the data"):
        if arguments.streaming:
            train, held_out, found_by = load_stream(arguments, columns, arguments.held_out_first)
        else:
            train, held_out, found_by = load_splits(arguments, options.seed)
    other_texts = {path: load_measured(text=[path]) for path in arguments.other_text}
    for split in (train, held_out):
        check_columns(split, columns)
    tokenizer = _tokenizer(arguments, options, train, columns, kind)
    set_seed(options.seed)
    objective = make_objective(kind, tokenizer, arguments.context_length, options.seed, objective_options)
    config = new_config(arguments.family, **objective.token_fields(), **config_fields)
    model = kind.auto_class.from_config(config, attn_implementation=arguments.attn_implementation)
    with options.main_process_first(desc="the rows"):
        if arguments.streaming:
            rows = stream_rows(objective, train, columns, options, arguments.shuffle_buffer_size)
        else:
            rows = objective.prepare(train, columns)
        measured = objective.prepare(held_out, columns, fixed=True)
    trainer = TxTrainer(
        objective.trainable(model),
        options,
        train_dataset=rows,
        eval_dataset=measured,
        data_collator=objective,
        processing_class=tokenizer,
    )
    texts_held_out = ({"text": piece} for piece in iter_pieces(held_out, columns))
    trainer.began.add(arguments, rows_to_learn_from=rows, rows_held_out=texts_held_out)
    if options.resume_from_checkpoint is not None:
        check_resumed(trainer, options.resume_from_checkpoint, model.config)
    trainer.check_first_batch()
    prompts = arguments.prompt
    if arguments.samples and not prompts:
        prompts = objective.prompts(iter_pieces(held_out, columns[:1], _READ_FOR_PROMPTS))
    if arguments.samples and not prompts:
        logger.warning(f"--samples: {kind.name} and the held-out data give no prompts; name yours by --prompt.")
    for prompt in prompts:
        objective.check_prompt(prompt)
    arguments.prepare_push(options, model)
    texts = (train, held_out, columns[0]) if kind.text_task is not None else None
    return Pretraining(arguments, trainer, tokenizer, found_by, objective, texts, other_texts, prompts)


class Pretraining(Run):
    """A pre-training that is ready to begin; `run()` does the rest. See [`Run`]."""

    arguments: PretrainingArguments

    def __init__(
        self,
        arguments: PretrainingArguments,
        trainer: TxTrainer,
        tokenizer: PreTrainedTokenizerBase,
        found_by: Mapping[str, Any],
        objective: Objective,
        texts: tuple[Any, Any, str] | None,
        other_texts: Mapping[str, Any],
        prompts: Sequence[str],
    ) -> None:
        super().__init__(arguments, trainer, tokenizer, found_by)
        self.objective, self.texts, self.other_texts, self.prompts = objective, texts, other_texts, prompts

    @property
    def pipeline_tag(self) -> str:
        """The Hub's name of what the model does."""
        return self.objective.pipeline_tag

    @property
    def summary(self) -> str:
        """The model in a sentence."""
        arguments = self.arguments
        size = f"{self.model.num_parameters() / 1e6:.1f} million parameters"
        return f"A small {arguments.family} with {size}, pre-trained by {arguments.objective} on {self.data_name}."

    @property
    def uses(self) -> list[str]:
        """What the model is meant for."""
        return [
            "A beginning for fine-tuning (`hf-tx finetune`).",
            "Comparing mixers and objectives at a small size.",
        ]

    @property
    def limits(self) -> list[str]:
        """What the model is not meant for."""
        return [_LIMIT, *super().limits]

    @property
    def data(self) -> list[DataRecord]:
        """What it was trained and measured on."""
        found = super().data
        for path, rows in self.other_texts.items():
            card, size = read_data_card(path), sum(map(len, iter_pieces(rows, ["text"])))
            name = card.get("pretty_name", Path(path).stem)
            source = card.get("source", "")
            found.append(DataRecord(name, license_of(card), source, f"{size:,} characters, to measure on"))
        return found

    def model_facts(self) -> dict[str, Any]:
        """What a card says of the model."""
        config = self.model.config
        stacks = (
            dict(zip(NEW_MODELS[self.arguments.family].stacks, config.stacks, strict=True))
            if config.is_encoder_decoder
            else {"": config}
        )
        facts: dict[str, Any] = {"class": type(self.model).__name__, "parameters": self.model.num_parameters()}
        for name, stack in stacks.items():
            facts |= {
                f"{name} layers".strip(): stack.num_hidden_layers,
                f"{name} mixers".strip(): ", ".join(stack.mixers),
                f"{name} hidden size".strip(): stack.hidden_size,
            }
            if not stack.is_heterogeneous and stack.sliding_window is not None:
                facts[f"{name} window".strip()] = stack.sliding_window
        return facts | {"vocabulary": len(self.tokenizer), "context": self.arguments.context_length}

    def loss_of_rows(self, count: int) -> tuple[dict[str, torch.Tensor], float]:
        """Return a batch of the first held-out rows, and the loss of the model on it; the model is on the CPU then."""
        rows: Any = self.trainer.eval_dataset
        batch = self.objective([row for row, _ in zip(rows, range(count), strict=False)])
        module = self.objective.trainable(self.model.to("cpu")).eval()
        with torch.no_grad():
            return batch, module(**batch).loss.item()

    def training_facts(self) -> dict[str, Any]:
        """What a card says of the training, beside what all do."""
        return {"objective": self.arguments.objective, "tokens of a row": self.arguments.context_length}

    def measure(self) -> list[Result]:
        """Measure the held-out data beside a baseline: the loss of the objective and, where it scores plain text,
        bits per byte and perplexity."""
        arguments = self.arguments
        loss = measures_of(self.trainer)["loss"]
        command = self.measured_by(
            objective=self.objective.name,
            objective_options=arguments.objective_options if arguments.objective_options != "{}" else None,
            context_length=arguments.context_length,
            seed=self.objective.seed,
        )
        if self.texts is None:
            rows: Any = self.trainer.train_dataset, self.trainer.eval_dataset
            return [self.result("loss", loss, command, *self.objective.baseline(*rows) or ())]
        found = [self.result("loss", loss, command)]
        train, held_out, column = self.texts
        unigram, name = self._unigram(train, column)
        measured, baseline = self._score(held_out, column, unigram)
        command = self.measured_by(task=self.objective.text_task, context_length=arguments.context_length)
        for metric, value, beside in (
            ("bits_per_byte", measured.bits_per_byte, measured.bits_per_byte_of(baseline)),
            ("perplexity", measured.perplexity, baseline.perplexity),
        ):
            found.append(self.result(metric, value, command, beside, name))
        return found + [self._measure_other(path, rows, unigram, name) for path, rows in self.other_texts.items()]

    def _unigram(self, train: Any, column: str) -> tuple[UnigramModel, str]:
        """Return a unigram model of the training text, or of the beginning of a stream, and its name."""
        if not self.arguments.streaming:
            return UnigramModel(self._tokens(train, column), len(self.tokenizer)), "unigram model"
        texts = iter_encoded(self.tokenizer, iter_pieces(train, [column], FIRST_CHARACTERS))
        return UnigramModel(texts, len(self.tokenizer)), f"unigram model of {FIRST_CHARACTERS:,} characters"

    def _measure_other(self, path: str, rows: Any, unigram: UnigramModel, unigram_name: str) -> Result:
        measured, baseline = self._score(rows, "text", unigram)
        beside = measured.bits_per_byte_of(baseline)
        found_by = {"text": [path]}
        command = self.measured_by(
            found_by, task=self.objective.text_task, context_length=self.arguments.context_length
        )
        name = read_data_card(path).get("pretty_name", Path(path).stem)
        return Result("bits_per_byte", measured.bits_per_byte, name, "another domain", command, beside, unigram_name)

    def _score(self, rows: Any, column: str, unigram: UnigramModel) -> tuple[TextResult, Score]:
        """Score texts with the model and with the unigram model of the training text."""
        assert self.objective.text_task is not None  # there are texts
        measured = evaluate_texts(
            self.model,
            self.tokenizer,
            rows[column],
            task=self.objective.text_task,
            context_length=self.arguments.context_length,
            description="scoring text" if self.trainer.is_world_process_zero() else None,
            state=None if self.trainer.is_sharded else PartialState(),
        )
        return measured, Score.total(map(unigram.score, self._tokens(rows, column)))

    def _tokens(self, rows: Any, column: str) -> Iterator[Iterator[int]]:
        """Return the tokens of each text, which are never all in memory."""
        return iter_encoded(self.tokenizer, (text for (text,) in iter_columns(rows, [column])))


def _fields(arguments: PretrainingArguments) -> dict[str, Any]:
    names = ["mixers", "sliding_window", "hidden_size", "num_hidden_layers", "num_attention_heads"]
    names += NEW_MODELS[arguments.family].mixer_fields
    fields = {name: getattr(arguments, name) for name in names}
    fields["max_position_embeddings"] = arguments.context_length
    fields |= width_fields(arguments.hidden_size)
    changes = json_option(arguments, "config_changes")
    for name in sorted(_OF_TOKENIZER & changes.keys()):
        raise ValueError(
            f"--config-changes {arguments.config_changes}: the tokenizer decides {name} (--tokenizer, --vocab-size); "
            "leave it out."
        )
    fields |= changes
    kind = OBJECTIVES[str(arguments.objective)]
    config = new_config(arguments.family, vocab_size=arguments.vocab_size, **fields)
    try_model(kind.auto_class, config, attn_implementation=arguments.attn_implementation)
    return fields


def _tokenizer(
    arguments: PretrainingArguments,
    options: TrainingArguments,
    train: Any,
    columns: Sequence[str],
    kind: type[Objective],
) -> PreTrainedTokenizerBase:
    """Load the tokenizer, or train one on the first process, with the tokens that the objective needs, and load it on
    all."""
    if arguments.tokenizer is not None:
        check_files(arguments.tokenizer, weights=False)
        with loading("--tokenizer", arguments.tokenizer):
            return AutoTokenizer.from_pretrained(arguments.tokenizer)
    folder = arguments.scratch / "tokenizer"
    with options.main_process_first(desc="the tokenizer"):
        if not (folder / "tokenizer.json").is_file():
            if arguments.streaming:
                logger.warning(f"the tokenizer is trained on the first {FIRST_CHARACTERS:,} characters of the stream.")
            trained = train_tokenizer(
                iter_pieces(train, columns, FIRST_CHARACTERS if arguments.streaming else None),
                vocab_size=arguments.vocab_size,
                family=arguments.family,
                model_max_length=arguments.context_length,
                extra_ids=kind.extra_ids,
                show_progress=options.should_log and not options.disable_tqdm,
            )
            missing = [role for role in kind.needs if getattr(trained, role) is None]
            trained.add_special_tokens({role: f"<{role.removesuffix('_token')}>" for role in missing})
            trained.save_pretrained(folder)
    return AutoTokenizer.from_pretrained(folder)
