# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""A tag for every word."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, chain
from typing import Any

import torch
from transformers import AutoModelForTokenClassification, DataCollatorForTokenClassification, EvalPrediction

from ...evaluation.task_metrics import classification_metrics, is_tag, token_classification_metrics
from ...models.losses import IGNORE
from .labels import Labels
from .task import Task, row_name


class TokenClassification(Task):
    """Tag words. See [`Task`].

    A row has a list of words and a list of as many tags. Words are read as the text that they make with spaces between
    them, so that they are cut into tokens as in any text; the first token of a word has its tag, the others none
    (-100). Where all tags are those of entities (`O`, `B-PER`, `I-PER`), whole entities are measured, by seqeval, and
    else single tags.
    """

    name = "token-classification"
    hub_name = "token-classification"
    auto_class = AutoModelForTokenClassification
    texts = ("tokens",)
    labels = ("tags", "ner_tags", "pos_tags", "labels")
    metric = "token_classification"

    def set_up(self, **options: Any) -> None:
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
        for split_name, split in self.splits.items():
            for number, (words, tags) in enumerate(zip(split[column], split[self.label_column], strict=True)):
                where = row_name(split, split_name, number)
                if not isinstance(words, list) or not words:
                    raise ValueError(f"{where}: {column} = {words!r:.60} is no list of words; leave such rows out.")
                if len(words) != len(tags or ()):
                    raise ValueError(f"{where}: has {len(words)} words and {len(tags or ())} labels.")
                for word, tag in zip(words, tags, strict=True):
                    if not isinstance(word, str) or not word.strip():
                        raise ValueError(f"{where}: {word!r} is no word.")
                    self.classes.number(tag, where)
        self.entities = all(map(is_tag, self.classes.names))

    def config_fields(self) -> dict[str, Any]:
        """Return the tags."""
        return self.classes.config_fields()

    def encode(self, batch: Mapping[str, list[Any]]) -> Mapping[str, list[Any]]:
        """Encode words as one text, with the tag of a word at its first token."""
        texts = [" ".join(words) for words in batch[self.columns[0]]]
        encoded = self.tokenizer(texts, truncation=True, max_length=self.max_length, return_offsets_mapping=True)
        offsets = encoded.pop("offset_mapping")
        labels = [
            [IGNORE if word is None else self.classes.number(tags[word], "") for word in first_tokens(words, spans)]
            for words, tags, spans in zip(batch[self.columns[0]], batch[self.label_column], offsets, strict=True)
        ]
        return {**encoded, "labels": labels}

    def collator(self, model: Any) -> DataCollatorForTokenClassification:
        """Pad texts and tags."""
        return DataCollatorForTokenClassification(self.tokenizer)

    def reduce(self, outputs: Any, labels: torch.Tensor) -> torch.Tensor:
        """Return the tag of each token."""
        return super().reduce(outputs, labels).argmax(-1)

    def measures(self, prediction: EvalPrediction) -> dict[str, Any]:
        """Compare the tags of words."""
        right: Any = prediction.label_ids
        pairs = [
            (found[row != IGNORE], row[row != IGNORE])
            for found, row in zip(prediction.predictions, right, strict=True)
        ]
        return self._compare(*zip(*pairs, strict=True))

    def _compare(self, found: Sequence[Any], right: Sequence[Any]) -> dict[str, Any]:
        if not self.entities:
            found, right = (list(chain.from_iterable(rows)) for rows in (found, right))
            return classification_metrics(found, right, self.classes.names)
        found, right = ([[self.classes.names[tag] for tag in row] for row in rows] for rows in (found, right))
        return token_classification_metrics(found, right)

    def baseline(self) -> dict[str, Any]:
        """Return the measures of the most frequent tag."""
        train, right = (
            [[label for label in row if label != IGNORE] for row in rows["labels"]]
            for rows in (self.train_rows, self.held_out_rows)
        )
        ((usual, _),) = Counter(chain.from_iterable(train)).most_common(1)
        return self._compare([[usual] * len(row) for row in right], right)


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
