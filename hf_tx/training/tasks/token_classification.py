# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""A tag for every word."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, chain
from typing import Any, ClassVar

import torch
from transformers import AutoModelForTokenClassification, DataCollatorForTokenClassification, EvalPrediction

from ...evaluation.directions import MEASURES
from ...evaluation.task_metrics import classification_metrics, is_tag, token_classification_metrics
from ...models.losses import IGNORE
from .labels import Labels
from .task import Task, row_name

# The tag of words that are not read, where there is no `O`.
_NONE = -1


class TokenClassification(Task):
    """Tag words. See [`Task`].

    A row has a list of words and a list of as many tags. Words are read as the text that they make with spaces between
    them, so that they are cut into tokens as in any text; the first token of a word has its tag, the others none
    (-100). Where all tags are those of entities (`O`, `B-PER`, `I-PER`), whole entities are measured, by seqeval, and
    else single tags.

    All words are measured. Those that the model does not read, since the row is cut before them or the tokenizer makes
    nothing of them, are taken to be tagged `O`; where there is no such tag, to have none, which is never right.
    """

    name = "token-classification"
    pipeline_tag = "token-classification"
    auto_class = AutoModelForTokenClassification
    texts = ("tokens",)
    labels = ("tags", "ner_tags", "pos_tags", "labels")
    metric = "token_classification"
    cuts: ClassVar = {"cut_rows": "rows that were cut", "unread_rows": "rows with words that are not read"}

    def set_up(self) -> None:
        """Find the tags, and check that all words have one."""
        (column,) = self.columns
        feature = self.first_split.features[self.label_column]
        if not hasattr(feature, "feature"):
            raise ValueError(
                f"the column {self.label_column!r} holds no lists: {self.name} reads a tag for each word."
            )
        if self.train is None:
            self.classes = Labels.of_model(feature.feature, self.config)
        else:
            found = chain.from_iterable(tags or () for tags in self.train[self.label_column])
            self.classes = Labels(feature.feature, found, self.config.label2id)
        #: The numbers of all tags, by the name of the data.
        self.tags: dict[str, list[list[int]]] = {}
        for split_name, split in self.splits.items():
            numbers = self.tags[split_name] = []
            for number, (words, tags) in enumerate(zip(split[column], split[self.label_column], strict=True)):
                where = row_name(split, split_name, number)
                if not isinstance(words, list) or not words:
                    raise ValueError(f"{where}: {column} = {words!r:.60} is not a list of words; remove such rows.")
                if len(words) != len(tags or ()):
                    raise ValueError(f"{where}: has {len(words)} words and {len(tags or ())} labels.")
                for word in words:
                    if not isinstance(word, str) or not word.strip():
                        raise ValueError(f"{where}: {word!r} is not a word.")
                numbers.append([self.classes.number(tag, where) for tag in tags])
        self.entities = all(map(is_tag, self.classes.names))

    def config_fields(self) -> dict[str, Any]:
        """Return the tags."""
        return self.classes.config_fields()

    def rows(self, split: Any) -> Any:
        """Return the rows of which words are read.

        Raises:
            ValueError: there is none.
        """
        rows = super().rows(split)
        read = list(rows["words"])
        if not any(read):
            raise ValueError(
                f"no word begins within {self.max_length} tokens (--max-length): there is nothing to learn."
            )
        if split is self.held_out:
            #: Of each held-out row, the words that are read.
            self.read = read
        return rows.remove_columns("words").select([number for number, words in enumerate(read) if words])

    def encode(self, batch: Mapping[str, list[Any]]) -> Mapping[str, list[Any]]:
        """Encode words as one text, with the tag of a word at its first token."""
        rows = batch[self.columns[0]]
        encoded, cut = self.encode_cut([" ".join(words) for words in rows], return_offsets_mapping=True)
        begun = [
            list(first_tokens(words, spans)) for words, spans in zip(rows, encoded.pop("offset_mapping"), strict=True)
        ]
        labels = [
            [IGNORE if word is None else self.classes.number(tags[word], "") for word in words]
            for words, tags in zip(begun, batch[self.label_column], strict=True)
        ]
        read = [[word for word in words if word is not None] for words in begun]
        unread = [len(words) < len(row) for words, row in zip(read, rows, strict=True)]
        return {**encoded, "labels": labels, "words": read, "cut_rows": cut, "unread_rows": unread}

    def collator(self, model: Any) -> DataCollatorForTokenClassification:
        """Pad texts and tags."""
        return DataCollatorForTokenClassification(self.tokenizer)

    def reduce(self, outputs: Any, labels: torch.Tensor) -> torch.Tensor:
        """Return the tag of each token."""
        return super().reduce(outputs, labels).argmax(-1)

    @property
    def measured(self) -> Iterable[str]:
        """The names of the numbers in `measures`."""
        return MEASURES["entities" if self.entities else "classification"]

    def measures(self, prediction: EvalPrediction) -> dict[str, Any]:
        """Compare the tags of all words, those that are not read included."""
        labels: Any = prediction.label_ids
        of_words = (row[right != IGNORE] for row, right in zip(prediction.predictions, labels, strict=True))
        outside = self.classes.names.index("O") if "O" in self.classes.names else _NONE
        found = [[outside] * len(row) for row in self.tags["held-out"]]
        for row, words in zip(found, self.read, strict=True):
            for word, tag in zip(words, next(of_words) if words else (), strict=True):
                row[word] = int(tag)
        return self._compare(found)

    def _compare(self, found: Sequence[Sequence[int]]) -> dict[str, Any]:
        right: Sequence[Sequence[int]] = self.tags["held-out"]
        if not self.entities:
            tags, wanted = (list(chain.from_iterable(rows)) for rows in (found, right))
            return classification_metrics(tags, wanted, self.classes.names, none=_NONE)
        names = {**dict(enumerate(self.classes.names)), _NONE: "O"}
        named, expected = ([[names[tag] for tag in row] for row in rows] for rows in (found, right))
        return token_classification_metrics(named, expected)

    def baseline(self) -> dict[str, Any]:
        """Return the measures of the most frequent tag."""
        ((usual, _),) = Counter(chain.from_iterable(self.tags["training"])).most_common(1)
        return self._compare([[usual] * len(row) for row in self.tags["held-out"]])


def first_tokens(words: Sequence[str], spans: Sequence[tuple[int, int]]) -> Iterator[int | None]:
    """Yield for each token the word that begins with it, or None.

    Args:
        words: of a text in which one space stands between words.
        spans: where each token begins and ends in the text; special tokens are empty.
    """
    ends = list(accumulate(len(word) + 1 for word in words))
    word, seen = 0, -1
    for start, end in spans:
        if start == end:
            yield None
            continue
        # By its last character: the first may be the space before the word.
        while end > ends[word]:
            word += 1
        yield word if word != seen else None
        seen = word
