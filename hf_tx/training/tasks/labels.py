# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Classes by name and by number."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from transformers import PreTrainedConfig

# Not 007: what begins with a zero is a code.
_NUMBER = re.compile(r"[+-]?((0|[1-9][0-9]*)(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")


def number_of(label: Any) -> int | float | None:
    """Return the number that a label is or spells, whole ones as integers; None if it is none.

    How a number is stored means nothing: data frames keep a column of integers with an empty cell as floats, and a csv
    has text alone.
    """
    if isinstance(label, str) and _NUMBER.fullmatch(label):
        label = float(label) if set(label) & set(".eE") else int(label)
    if isinstance(label, float) and label.is_integer():
        return int(label)
    return label if isinstance(label, int | float) and not isinstance(label, bool) else None


def are_numbers(labels: Iterable[Any]) -> bool:
    """Return whether all labels that are there are numbers, or spell them."""
    found = [label for label in labels if label is not None and label != ""]
    return bool(found) and all(number_of(label) is not None for label in found)


def _plain(label: Any) -> Any:
    """Return a whole number of any type as an integer; text is left as it is."""
    number = None if isinstance(label, str) else number_of(label)
    return label if number is None else number


def _is_label(label: Any) -> bool:
    return isinstance(label, str | int) and label != ""


class Labels:
    """The names of classes, as the training data has them, and their numbers.

    Names come from the dataset where it has some (`ClassLabel`), and else from the labels: strings in alphabetical
    order, or numbers that count from 0 or 1 without a gap. Labels that all spell numbers are numbers.

    Args:
        feature: the type of the column, or of what its lists hold.
        found: the labels of the training data.
        known: numbers by name that a model has already. They are kept where the names are the same.
        as_names: take numbers as names, which may have gaps.

    Raises:
        ValueError: numbers with a gap, or less than two classes.
    """

    def __init__(
        self,
        feature: Any,
        found: Iterable[Any],
        known: Mapping[str, Any] | None = None,
        as_names: bool = False,
    ) -> None:
        found = list(found)
        self._of_dataset: list[str] | None = getattr(feature, "names", None)
        self._are_numbers = self._of_dataset is None and are_numbers(found)
        self.names = self._of_dataset or (_numbers(found, as_names) if self._are_numbers else _names(found))
        if len(self.names) < 2:
            what = f"all labels are {self.names[0]}" if self.names else "no label is a name, or the number of a class"
            raise ValueError(f"{what}: there is nothing to learn.")
        if known and set(known) == set(self.names) and sorted(known.values()) == list(range(len(known))):
            self.names = sorted(known, key=known.__getitem__)
        self._numbers = {name: number for number, name in enumerate(self.names)}
        self._whose = "training data"

    @classmethod
    def of_model(cls, feature: Any, config: PreTrainedConfig) -> "Labels":
        """Return the classes that a model has. Labels are their names, or their numbers if no name is a number.

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
        labels = cls(None, names, {name: number for number, name in enumerate(names)}, as_names=True)
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
        spelt = number_of(label)
        label = spelt if self._are_numbers and spelt is not None else _plain(label)
        if not _is_label(label):
            raise ValueError(
                f"{where}: label {label!r:.60} is neither the name nor the number of a class; remove such rows."
            )
        name = str(label)
        if self._of_dataset is not None and isinstance(label, int):
            name = self._of_dataset[label] if 0 <= label < len(self._of_dataset) else ""
        elif self._whose == "model" and name not in self._numbers and isinstance(spelt, int):
            # Names that are numbers themselves may count from 1.
            name = self.names[spelt] if not self._are_numbers and 0 <= spelt < len(self.names) else name
        if name not in self._numbers:
            shown = spelt if self._whose == "model" and spelt is not None else label
            raise ValueError(
                f"{where}: label {shown!r} is not one of the {len(self.names)} classes of the {self._whose}: "
                f"{', '.join(self.names[:10])}{' ...' if len(self.names) > 10 else ''}."
            )
        return self._numbers[name]

    def config_fields(self) -> dict[str, Any]:
        """Return the fields of the config."""
        return {"id2label": dict(enumerate(self.names)), "label2id": dict(self._numbers)}


def _names(labels: Iterable[Any]) -> list[str]:
    # What is no label is refused where it stands, by its number.
    return sorted({str(label) for label in map(_plain, labels) if _is_label(label)})


def _numbers(labels: Iterable[Any], gaps: bool) -> list[str]:
    ordered = sorted({label for label in map(number_of, labels) if isinstance(label, int)})
    first = ordered[0] if ordered[:1] == [1] else 0
    beyond = [label for number, label in enumerate(ordered, first) if label != number]
    if beyond and not gaps:
        raise ValueError(
            f"the training data has the labels {', '.join(map(str, ordered[:10]))}: {beyond[0]} is out of range, as "
            f"{len(ordered)} classes have the numbers {first} to {first + len(ordered) - 1}. Leave no gaps, "
            "or give names; problem_type in --task-options says that they are names (single_label_classification) or "
            "amounts (regression)."
        )
    return [str(label) for label in ordered]
