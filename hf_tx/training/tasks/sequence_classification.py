# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""A class for a text or a pair of texts, several of them, or a number."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from transformers import AutoModelForSequenceClassification, DataCollatorWithPadding, EvalPrediction
from transformers.utils import logging

from ...baselines import classify_by_words
from ...evaluation.directions import MEASURES
from ...evaluation.task_metrics import classification_metrics, regression_metrics
from .labels import Labels, are_numbers, number_of
from .options import TaskOptions, option
from .task import Task, row_name

logger = logging.get_logger(__name__)
BASELINES = ("majority", "tf-idf")
PROBLEMS = ("single_label_classification", "multi_label_classification", "regression")


@dataclass(frozen=True, kw_only=True)
class SequenceClassificationOptions(TaskOptions):
    """See [`TaskOptions`]."""

    problem_type: str | None = option(None, "default: by the labels", choices=PROBLEMS, of_training=True)
    baseline: str = option("majority", "what measures are compared with", choices=BASELINES, of_training=True)


class SequenceClassification(Task):
    """Classify a text, or a pair of texts. See [`Task`].

    What the labels are says what the problem is, and not how they are stored: lists hold all right classes; if all are
    numbers and one has a fraction, the number itself is to be predicted; else a name or a whole number is the right
    class. `problem_type`, an option, says it where the data does not; numbers that are classes by it may have gaps.

    Measures are those of scikit-learn, beside those of the majority: the most frequent class for all texts; of
    several, those that more than half of the texts have; of numbers, their mean. With `baseline="tf-idf"`, beside
    those of a logistic regression on weighted counts of words.
    """

    name = "sequence-classification"
    options_class = SequenceClassificationOptions
    pipeline_tag = "text-classification"
    auto_class = AutoModelForSequenceClassification
    labels = ("label", "labels")
    metric = "classification"

    def choose_columns(self, columns: Sequence[str]) -> tuple[str, ...]:
        """Return one column of texts, or two for pairs."""
        if len(columns) > 2:
            raise ValueError(f"--columns {' '.join(columns)}: {self.name} reads one, or two for pairs of texts.")
        return tuple(columns or self.texts)

    def set_up(self) -> None:
        """Find the classes, and check the labels of all rows."""
        super().set_up()
        problem_type, baseline = self.given.problem_type, self.given.baseline
        feature = self.first_split.features[self.label_column]
        listed = hasattr(feature, "feature")
        if self.train is None:
            problem_type = self.config.problem_type or ("regression" if self.config.num_labels == 1 else None)
        self.problem_type = problem_type or _problem_of(self.first_split[self.label_column], listed)
        if (self.problem_type == "multi_label_classification") != listed:
            raise ValueError(
                f"the problem is {self.problem_type}, and {self.label_column!r} holds "
                f"{'lists' if listed else 'no lists'}; several right classes stand in a list, and no other labels do."
            )
        if baseline == "tf-idf" and (self.problem_type != PROBLEMS[0] or len(self.columns) > 1):
            raise ValueError(
                "--task-options: baseline = tf-idf is for texts with one right class, and not for pairs; leave it out."
            )
        self.baseline_name = baseline  # type: ignore[misc]
        if self.problem_type != PROBLEMS[0]:  # there is not one class to smooth
            self.honours = tuple(name for name in self.honours if name != "label_smoothing_factor")
        if self.problem_type != "regression":
            feature = feature.feature if listed else feature
            if self.train is None:
                self.classes = Labels.of_model(feature, self.config)
            else:
                found = self.train[self.label_column]
                if listed:
                    found = [label for right in found for label in right or ()]
                self.classes = Labels(feature, found, self.config.label2id, as_names=problem_type is not None)
        self.targets = {
            split_name: [
                self._target(label, row_name(split, split_name, number))
                for number, label in enumerate(split[self.label_column])
            ]
            for split_name, split in self.splits.items()
        }
        if self.train is not None and len(set(map(repr, self.targets["training"]))) < 2:
            raise ValueError(f"all labels are {self.train[self.label_column][0]!r:.60}: there is nothing to learn.")
        of = "" if self.problem_type == "regression" else f" of {len(self.classes.names)} classes"
        why = "as said" if problem_type else "by the labels; problem_type in --task-options says another"
        logger.info(f"{self.label_column}: {self.problem_type}{of} ({why}).")

    @property
    def said(self) -> str:
        """The task in messages, with the kind of problem that its labels pose."""
        return f"{super().said} ({self.problem_type})"

    def _target(self, label: Any, where: str) -> Any:
        if self.problem_type == "regression":
            label = label if number_of(label) is None else number_of(label)
            if not isinstance(label, int | float) or not math.isfinite(label):
                raise ValueError(f"{where}: label {label!r} is not a finite number; remove such rows.")
            return float(label)
        if self.problem_type == "single_label_classification":
            return self.classes.number(label, where)
        if label is None:
            raise ValueError(f"{where}: there is no list of labels; an empty one says that no class is right.")
        right = {self.classes.number(each, where) for each in label}
        if len(right) < len(label):
            raise ValueError(
                f"{where}: {label!r:.60} names a class twice: a list holds the right classes, not 0 or 1 for each."
            )
        return [float(number in right) for number in range(len(self.classes.names))]

    def config_fields(self) -> dict[str, Any]:
        """Return the classes and the kind of problem."""
        classes = {"num_labels": 1} if self.problem_type == "regression" else self.classes.config_fields()
        return {"problem_type": self.problem_type, **classes}

    def rows(self, split: Any) -> Any:
        """Return encoded texts with their labels."""
        targets = self.targets["training" if split is self.train else "held-out"]
        return super().rows(split).add_column("labels", targets)

    def encode(self, batch: Mapping[str, list[Any]]) -> Mapping[str, list[Any]]:
        """Encode texts or pairs; what is too long is cut."""
        encoded, cut = self.encode_cut(*(batch[name] for name in self.columns))
        return {**encoded, "cut_rows": cut}

    def collator(self, model: Any) -> DataCollatorWithPadding:
        """Pad texts."""
        return DataCollatorWithPadding(self.tokenizer)

    @property
    def measured(self) -> Iterable[str]:
        """The names of the numbers in `measures`."""
        if self.problem_type == "regression":
            return MEASURES["regression"]
        several = self.problem_type == "multi_label_classification"
        return [name for name in MEASURES["classification"] if not (several and name == "mcc")]

    def measures(self, prediction: EvalPrediction) -> dict[str, Any]:
        """Compare classes or numbers."""
        logits: Any = prediction.predictions
        if self.problem_type == "regression":
            found = logits[:, 0]
        else:
            found = logits.argmax(-1) if self.problem_type == "single_label_classification" else logits > 0
        return self._compare(found, prediction.label_ids)

    def _compare(self, found: Any, right: Any) -> dict[str, Any]:
        if self.problem_type == "regression":
            return regression_metrics(found, right)
        found, right = (np.asarray(values).astype(int).tolist() for values in (found, right))
        return classification_metrics(found, right, self.classes.names)

    def baseline(self) -> dict[str, Any]:
        """Return the measures of the baseline."""
        train, right = self.targets["training"], self.targets["held-out"]
        if self.baseline_name == "tf-idf":
            texts, others = (split[self.columns[0]] for split in self.splits.values())
            return self._compare(classify_by_words(texts, train, others), right)
        usual: Any
        if self.problem_type == "regression":
            usual = float(np.mean(train))
        elif self.problem_type == "single_label_classification":
            ((usual, _),) = Counter(train).most_common(1)
        else:
            usual = np.mean(train, axis=0) > 0.5
        return self._compare([usual] * len(right), right)


def _problem_of(labels: Sequence[Any], listed: bool) -> str:
    if listed:
        return "multi_label_classification"
    # NaN is how data frames store what is missing.
    fractions = are_numbers(labels) and any(isinstance(n, float) and n == n for n in map(number_of, labels))
    return "regression" if fractions else "single_label_classification"
