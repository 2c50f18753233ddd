# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""What all objectives have in common: from texts to rows of tokens, and from rows to batches with labels.

An objective is made once for a tokenizer. `prepare` turns a dataset of texts into one of rows; the objective itself is
the data collator that makes batches of them:

```python
>>> from datasets import Dataset
>>> from hf_tx.objectives import OBJECTIVES
>>> from hf_tx.tokenization import train_tokenizer
>>> texts = Dataset.from_dict({"text": ["one two three four", "five six seven"] * 20})
>>> tokenizer = train_tokenizer(texts["text"], family="encoder", vocab_size=300, show_progress=False)
>>> objective = OBJECTIVES["masked-lm"](tokenizer, max_length=16, seed=0)
>>> rows = objective.prepare(texts)
>>> sorted(objective([rows[0], rows[1]]))  # Trainer(..., train_dataset=rows, data_collator=objective)
['input_ids', 'labels', 'position_ids']

```

What is drawn at random for a row is a function of the seed, the epoch and the tokens of the row, and of nothing else:
neither of the batch that it is in, nor of the number of worker or training processes, nor of what was drawn before. So
a run that goes on from a checkpoint draws what the whole run would have drawn. The epoch has to be told, by
`set_epoch`, or by the callback `hf_tx.training.SetEpoch`; otherwise every epoch draws the same.
"""

import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, fields
from itertools import islice, tee
from numbers import Integral, Real
from operator import itemgetter
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import nn
from transformers import AutoModelForSeq2SeqLM, PreTrainedTokenizerBase

from ..common.arrow import cache_file, write_rows
from ..common.columns import iter_columns, tell_unread
from ..common.pieces import Text
from ..evaluation.results import TextTask
from ..evaluation.scores import Score
from ..evaluation.unigram import UnigramModel
from ..models.losses import IGNORE
from ..models.version import __version__
from .batches import Batch, Row, pad_pairs, pad_rows
from .texts import frame_of, iter_encoded, lines_of, start_of

# What tokenizers add to a row, and follows from the rest of it.
_SAYS_NOTHING_MORE = ("special_tokens_mask", "length")
# Rows of which a unigram model counts the labels.
_MOST_COUNTED = 10_000
# Tokens of a prompt, at most.
_PROMPT = 24


class Baseline(NamedTuple):
    """What a model's loss is compared with.

    Attributes:
        loss: of the baseline, on the same labels.
        name: what it is, for a card.
    """

    loss: float
    name: str


@dataclass(eq=False)
class Objective(ABC):
    """What a model learns from a text, as a data collator.

    Args:
        tokenizer: cuts the texts, and says which tokens are special.
        max_length: the most tokens of an input, special ones included.
        seed: of what is drawn at random.

    Raises:
        ValueError: the tokenizer lacks a token that the objective needs, or a number is out of range.
    """

    tokenizer: PreTrainedTokenizerBase
    max_length: int
    _: KW_ONLY
    seed: int = 0

    #: The name in `OBJECTIVES`.
    name: ClassVar[str]
    #: The families of models that can learn it.
    families: ClassVar[tuple[str, ...]]
    #: The Auto class that builds such a model.
    auto_class: ClassVar[Any]
    #: The tokens that the tokenizer must have.
    needs: ClassVar[tuple[str, ...]] = ("pad_token",)
    #: Sentinels (`<extra_id_0>` ...) of a tokenizer that is trained for it.
    extra_ids: ClassVar[int] = 0
    #: The fields of the config that the tokenizer decides, beside `vocab_size`.
    token_ids: ClassVar[tuple[str, ...]] = ("pad_token_id",)
    #: The Hub's name of what a model that has learnt it does, for a card.
    pipeline_tag: ClassVar[str]
    #: What is predicted, in words.
    predicts: ClassVar[str]
    #: The task of `evaluate_texts` that scores plain text by what is learnt, in bits per byte and perplexity; None
    #: where the loss is all that is measured.
    text_task: ClassVar[TextTask | None] = None
    #: The columns of a dataset that `prepare` reads.
    columns: ClassVar[tuple[str, ...]] = ("text",)
    takes_more_columns: ClassVar[bool] = False
    #: Options of the Trainer that not all tasks and objectives honour, and this one does; see `check_honoured`.
    honours: ClassVar[tuple[str, ...]] = (
        "label_smoothing_factor",
        "prediction_loss_only",
        "neftune_noise_alpha",
        "activation_checkpointing",
        "train_sampling_strategy",
    )

    def __post_init__(self) -> None:
        for option in fields(self)[2:]:
            value, kind = getattr(self, option.name), type(option.default)
            known = {int: Integral, float: Real}.get(kind, kind)
            if isinstance(value, bool) != (kind is bool) or not isinstance(value, known):
                raise ValueError(f"{option.name} = {value!r}: must be of the type {kind.__name__}.")
        if self.max_length < 1 or self.seed < 0:
            raise ValueError(
                f"max_length = {self.max_length}, seed = {self.seed}: must be at least 1 and at least 0, respectively."
            )
        for role in self.needs:
            if getattr(self.tokenizer, f"{role}_id") is None:
                raise ValueError(
                    f"{self.name} needs a {role}, and the tokenizer has none: let the role be played by a token that "
                    f"it has (tokenizer.{role} = '...'; for pad_token, the eos_token will do), or add one "
                    f"(tokenizer.add_special_tokens({{'{role}': '...'}}), then model.resize_token_embeddings)."
                )
        # Shared, so that worker processes that live on from epoch to epoch learn of the next one.
        self._epoch = torch.zeros((), dtype=torch.int64).share_memory_()
        self._set_up()

    def _set_up(self) -> None:
        """Check what is the objective's own, and compute what it needs."""
        return

    def token_fields(self) -> dict[str, Any]:
        """Return the fields of a new model's config that the tokenizer decides."""
        return {"vocab_size": len(self.tokenizer), **{name: getattr(self.tokenizer, name) for name in self.token_ids}}

    def set_epoch(self, epoch: int) -> None:
        """Say that a new pass over the data begins, in which everything is drawn anew."""
        self._epoch.fill_(epoch)

    def trainable(self, model: nn.Module) -> nn.Module:
        """Return the module whose forward pass gives the loss: the model itself, unless its class has no such loss."""
        return model

    def prepare(self, dataset: Any, columns: str | Sequence[str] | None = None, *, fixed: bool = False) -> Any:
        """Turn texts into the rows that the objective collates. All other columns are left out, which is told.

        Texts are encoded as they are: what spells a special token is plain text. Neither the texts nor the rows have
        to fit in memory: the rows of a `Dataset` are in a file of the cache of `datasets`, those of a stream are made
        when they are read. Both are the same rows.

        Args:
            dataset: one split, a `Dataset` or an `IterableDataset` of the library `datasets`.
            columns: the columns that hold the texts, if they are not called as in `self.columns`.
            fixed: draw now, once for all, what would be drawn anew in each epoch. For evaluation.

        Returns:
            A dataset of the same kind.

        Raises:
            ValueError: no such dataset, a column that it does not have, or nothing in it.
        """
        from datasets import Dataset, IterableDataset  # takes a second to import

        columns = (columns,) if isinstance(columns, str) else tuple(columns or self.columns)
        more = len(columns) - len(self.columns)
        if more < 0 or (more and not self.takes_more_columns):
            raise ValueError(f"columns = {columns}: {self.name} reads a column for each of {self.columns}.")
        if not isinstance(dataset, Dataset | IterableDataset):
            raise ValueError(
                f"the dataset is a {type(dataset).__name__}: prepare() takes one split, a Dataset or an "
                "IterableDataset of the library datasets (Dataset.from_list makes one of rows)."
            )
        # A stream may not know its columns before it is read.
        found = dataset.column_names or list(next(iter(dataset), {}))
        missing = [column for column in columns if column not in found]
        if missing:
            listed = ", ".join(map(repr, found)) or "none, since it has no rows"
            raise ValueError(f"the dataset has no column {missing[0]!r}: its columns are {listed}.")
        tell_unread(found, columns)
        if isinstance(dataset, IterableDataset):
            rows = self.stream(dataset, columns)
        else:
            path = cache_file(dataset, (self.encode, columns, __version__))
            rows = write_rows(self._rows_of(dataset, columns), self.features(), path)
            if not len(rows):
                raise ValueError(f"the texts in {', '.join(map(repr, columns))} have no tokens to learn from.")
        return rows.map(self.fix) if fixed else rows

    def stream(self, rows: Any, columns: Sequence[str]) -> Any:
        """Turn texts into a stream of the rows that the objective collates.

        Args:
            rows: an `IterableDataset`, or whatever gives rows of texts each time it is iterated over. Texts may be
                iterators over their parts.
            columns: the columns that hold the texts.

        Returns:
            An `IterableDataset` of one shard: the last row of a shard may be padded, and processes that share its rows
            have as many of them each.
        """
        from datasets import Features, IterableDataset

        texts = {"rows": rows, "columns": tuple(columns)}  # a list would be taken for shards
        return IterableDataset.from_generator(self._rows_of, Features(self.features()), gen_kwargs=texts)

    def _rows_of(self, rows: Any, columns: Sequence[str]) -> Iterator[dict[str, Any]]:
        """Return the rows that texts give, one by one."""
        if hasattr(rows, "set_epoch"):  # a stream that is shuffled anew in each
            rows.set_epoch(int(self._epoch))
        texts = tee(iter_columns(rows, columns), len(columns))
        return self.encode(*(map(itemgetter(number), part) for number, part in enumerate(texts)))

    def baseline(self, rows: Iterable[Row], held_out: Iterable[Row]) -> Baseline | None:
        """Return what the loss on held-out rows is compared with; None if there is nothing.

        Args:
            rows: those that are learnt from.
            held_out: those that are measured.
        """
        return None

    def prompts(self, texts: Iterable[str]) -> list[str]:
        """Return prompts that are made of texts, for samples of what a trained model writes; none if it does not
        write."""
        return []

    def check_prompt(self, prompt: str) -> None:
        """Raise ValueError for a prompt that a trained model cannot answer."""
        num_tokens = len(self.tokenizer(prompt, verbose=False)["input_ids"])
        if num_tokens >= self.max_length:
            raise ValueError(
                f"--prompt {prompt!r:.60}: has {num_tokens} tokens, which leaves no room in a context of "
                f"{self.max_length}; shorten it."
            )

    def features(self) -> dict[str, Any]:
        """Return the columns of the rows and their types, as `datasets.Features` takes them."""
        from datasets import List, Value

        return {"input_ids": List(Value("int32"))}

    @abstractmethod
    def encode(self, *columns: Iterable[Text]) -> Iterator[dict[str, Any]]:
        """Return the rows that texts give, as lists of numbers, one by one. Columns are read side by side."""

    @abstractmethod
    def fix(self, row: Row) -> dict[str, Any]:
        """Return the row as it is after everything has been drawn; the collator leaves it as it is."""

    @abstractmethod
    def __call__(self, rows: Sequence[Row]) -> Batch:
        """Return a batch of rows, with what is to be learnt from them."""


@dataclass(eq=False)
class TokenObjective(Objective):
    """An objective whose labels are tokens of the text itself. See [`Objective`].

    Rows come from `prepare` or from elsewhere: `input_ids`, with special tokens or without. Padding in them is found
    by their `attention_mask` and taken out, never by its number, which may be that of `<eos>`. A row that has `labels`
    already keeps its tokens and labels.
    """

    #: What is read of a row. The numbers in each belong to those in the others.
    reads: ClassVar[tuple[str, ...]] = ("input_ids", "labels", "position_ids")

    def __post_init__(self) -> None:
        super().__post_init__()
        self.rows([])  # refuses a max_length without room

    def encode(self, *columns: Iterable[Text]) -> Iterator[dict[str, Any]]:
        """Return the rows that texts give, one by one."""
        (texts,) = columns
        return self.rows(iter_encoded(self.tokenizer, texts))

    @abstractmethod
    def rows(self, documents: Iterable[Iterable[int]]) -> Iterator[dict[str, list[int]]]:
        """Return the rows that documents give, one by one. A document is its tokens without special ones, which are
        read once, before the next document."""

    @abstractmethod
    def example(self, row: dict[str, list[int]], rng: np.random.Generator) -> dict[str, list[int]]:
        """Return a row with `labels`.

        Args:
            row: what `reads` names, as far as it is there; no labels, no padding.
            rng: gives everything that is drawn at random.
        """

    def collate(self, examples: list[dict[str, list[int]]]) -> Batch:
        """Pad rows that have labels."""
        return pad_rows(examples, self.tokenizer)

    def baseline(self, rows: Iterable[Row], held_out: Iterable[Row]) -> Baseline:
        """Return the loss of a unigram model of the labels of the rows, as the first epoch draws them."""
        labels = map(self._labels, rows)
        unigram = UnigramModel(islice(labels, _MOST_COUNTED), len(self.tokenizer))
        more = next(labels, None) is not None
        score = Score.total(map(unigram.score, map(self._labels, held_out)))
        return Baseline(score.loss, f"unigram model of {_MOST_COUNTED:,} rows" if more else "unigram model")

    def prompts(self, texts: Iterable[str]) -> list[str]:
        """Return the first words of a line."""
        return [start_of(self.tokenizer, line, min(8, self.max_length // 2)) for line in lines_of(texts)[:1]]

    def _labels(self, row: Row) -> list[int]:
        return [label for label in self.fix(row)["labels"] if label != IGNORE]

    def fix(self, row: Row) -> dict[str, Any]:
        """Return the row as the first epoch draws it."""
        return self._example(row, "the row", epoch=0)

    def __call__(self, rows: Sequence[Row]) -> Batch:
        """Return a batch of rows, drawing what the current epoch draws.

        Raises:
            ValueError: a row is empty, longer than `max_length`, or not what the objective can work with.
        """
        epoch = int(self._epoch)
        return self.collate([self._example(row, f"row {number} of a batch", epoch) for number, row in enumerate(rows)])

    def _example(self, row: Row, where: str, epoch: int) -> dict[str, list[int]]:
        if not isinstance(row, Mapping) or "input_ids" not in row:
            raise ValueError(
                f"{where} has no input_ids: make rows of texts with prepare(), and keep the Trainer from leaving "
                "columns out (remove_unused_columns=False)."
            )
        read = dict.fromkeys((*self.reads, "labels", "attention_mask"))
        unread = [name for name in row if name not in (*read, *_SAYS_NOTHING_MORE) and row[name] is not None]
        if unread:
            raise ValueError(
                f"{where} has {unread[0]!r}, which {self.name} does not read: it reads {', '.join(read)}; "
                "take it out (dataset.remove_columns)."
            )
        plain = self._plain(row, where)
        tokens = plain["input_ids"]
        if not tokens:
            raise ValueError(f"{where} has no tokens: leave empty texts out, as prepare() does.")
        if "labels" not in plain:
            key = zlib.crc32(np.asarray(tokens, dtype=np.int64).tobytes())
            plain = self.example(plain, np.random.default_rng((self.seed, epoch, key)))
        longest = max(len(plain["input_ids"]), len(plain["labels"]))
        if longest > self.max_length:
            raise ValueError(
                f"{where} has {longest} tokens, and max_length = {self.max_length}: cut texts with prepare(), or "
                "raise max_length."
            )
        return plain

    def _plain(self, row: Row, where: str) -> dict[str, list[int]]:
        """Return what is read of a row as lists, without padding."""
        names = [name for name in (*self.reads, "attention_mask") if row.get(name) is not None]
        arrays = {name: np.asarray(row[name]) for name in names}
        shapes = {name: values.shape for name, values in arrays.items()}
        if len(shapes["input_ids"]) != 1 or len(set(shapes.values())) > 1:
            raise ValueError(f"{where} needs lists of one length, a number a token, and has the shapes {shapes}.")
        real = arrays.pop("attention_mask", np.ones(shapes["input_ids"])).astype(bool)
        return {name: values[real].tolist() for name, values in arrays.items()}


@dataclass(eq=False)
class SourceObjective(TokenObjective):
    """An objective of encoder-decoders: the encoder reads a source, the decoder writes a target. See
    [`TokenObjective`]."""

    families = ("encoder-decoder",)
    auto_class = AutoModelForSeq2SeqLM
    pipeline_tag = "text2text-generation"
    token_ids: ClassVar[tuple[str, ...]] = ("pad_token_id", "eos_token_id")
    needs: ClassVar[tuple[str, ...]] = ("pad_token", "eos_token")
    reads = ("input_ids",)

    def prompts(self, texts: Iterable[str]) -> list[str]:
        """Return the source of the beginning of a line."""
        line = [start_of(self.tokenizer, line, min(_PROMPT, self.max_length // 2)) for line in lines_of(texts)[:1]]
        begin, end = frame_of(self.tokenizer)
        sources = [self.fix(row)["input_ids"] for row in islice(self.encode(line), 1)]
        return [str(self.tokenizer.decode(ids[len(begin) : len(ids) - len(end)])).strip() for ids in sources]

    def collate(self, examples: list[dict[str, list[int]]]) -> Batch:
        """Pad sources and labels."""
        return pad_pairs(examples, self.tokenizer)

    def _plain(self, row: Row, where: str) -> dict[str, list[int]]:
        plain = super()._plain(row, where)
        if row.get("labels") is not None:  # as long as they like
            plain["labels"] = np.asarray(row["labels"]).tolist()
        return plain
