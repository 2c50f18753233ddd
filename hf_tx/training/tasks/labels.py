# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Classes by name and by number."""

from collections.abc import Iterable, Mapping
from typing import Any

from transformers import PreTrainedConfig


def _whole(label: Any) -> Any:
    """Return a whole float as the number that it is: an empty cell makes a column of integers one of floats."""
    return int(label) if isinstance(label, float) and label.is_integer() else label


def _is_label(label: Any) -> bool:
    return isinstance(label, str | int) and label != ""


class Labels:
    """The names of classes, as the training data has them, and their numbers.

    Names come from the dataset where it has some (`ClassLabel`), and else from the labels: strings in alphabetical
    order, or numbers that count from 0 or 1 without a gap.

    Args:
        feature: the type of the column, or of what its lists hold.
        found: the labels of the training data.
        known: numbers by name that a model has already. They are kept where the names are the same.

    Raises:
        ValueError: numbers with a gap, or less than two classes.
    """

    def __init__(self, feature: Any, found: Iterable[Any], known: Mapping[str, Any] | None = None) -> None:
        self._of_dataset: list[str] | None = getattr(feature, "names", None)
        self.names = self._of_dataset or _names(found)
        if len(self.names) < 2:
            what = f"all labels are {self.names[0]}" if self.names else "no label is a name, or the number of a class"
            raise ValueError(f"{what}: nothing can be learnt.")
        if known and set(known) == set(self.names) and sorted(known.values()) == list(range(len(known))):
            self.names = sorted(known, key=known.__getitem__)
        self._numbers = {name: number for number, name in enumerate(self.names)}
        self._whose = "training data"

    @classmethod
    def of_model(cls, feature: Any, config: PreTrainedConfig) -> "Labels":
        """Return the classes that a model has. Labels are their names, or their numbers.

        Args:
            feature: the type of the column, or of what its lists hold.
            config: of the model.

        Raises:
            ValueError: less than two classes, or two of one name.
        """
        by_number: Any = config.id2label or {}
        names = [str(by_number[number]) for number in sorted(by_number)]
        if len(set(names)) < max(2, len(names)):
            raise ValueError(
                f"the model has the classes {', '.join(names) or 'none'}: there must be two, and no name twice."
            )
        labels = cls(None, names, {name: number for number, name in enumerate(names)})
        labels._of_dataset, labels._whose = getattr(feature, "names", None), "model"
        return labels

    def number(self, label: Any, where: str) -> int:
        """Return the number of a class.

        Args:
            label: as the dataset has it.
            where: says where it stands.

        Raises:
            ValueError: there is no such class.
        """
        label = _whole(label)
        if not _is_label(label):
            raise ValueError(
                f"{where}: label {label!r:.60} is no name, and no number of a class; leave such rows out."
            )
        name = str(label)
        if self._of_dataset is not None and isinstance(label, int):
            name = self._of_dataset[label] if 0 <= label < len(self._of_dataset) else ""
        elif self._whose == "model" and name not in self._numbers and isinstance(label, int):
            name = self.names[label] if 0 <= label < len(self.names) else name
        if name not in self._numbers:
            raise ValueError(
                f"{where}: label {label!r} is none of the {len(self.names)} classes of the {self._whose}: "
                f"{', '.join(self.names[:10])}{' ...' if len(self.names) > 10 else ''}."
            )
        return self._numbers[name]

    def config_fields(self) -> dict[str, Any]:
        """Return the fields of the config."""
        return {"id2label": dict(enumerate(self.names)), "label2id": dict(self._numbers)}


def _names(labels: Iterable[Any]) -> list[str]:
    # What is no label is refused where it stands, by its number.
    found = {label for label in map(_whole, labels) if _is_label(label)}
    if any(isinstance(label, str) for label in found) or found <= {True, False}:
        return sorted(map(str, found))
    ordered = sorted(found)
    first = ordered[0] if ordered[:1] == [1] else 0
    beyond = [label for number, label in enumerate(ordered, first) if label != number]
    if beyond:
        raise ValueError(
            f"the training data has the labels {', '.join(map(str, ordered[:10]))}: {beyond[0]} is out of range, as "
            f"{len(ordered)} classes have the numbers {first} to {first + len(ordered) - 1}. Leave no gaps, "
            "or give names."
        )
    return [str(label) for label in ordered]
