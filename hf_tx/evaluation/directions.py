# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""The metrics of each kind of model, and whether a greater value is better."""

from collections.abc import Callable, Iterable
from typing import TypeVar

Item = TypeVar("Item")

#: The metrics of each kind, and whether a greater value is better.
MEASURES: dict[str, dict[str, bool]] = {
    "language model": {
        "loss": False,
        "bits_per_byte": False,
        "perplexity": False,
        "pseudo_bits_per_byte": False,
        "pseudo_perplexity": False,
    },
    "classification": {"accuracy": True, "f1_macro": True, "f1_micro": True, "mcc": True},
    "regression": {"mse": False, "mae": False, "r2": True},
    "entities": {
        "overall_precision": True,
        "overall_recall": True,
        "overall_f1": True,
        "overall_accuracy": True,
    },
    "answers": {
        "exact_match": True,
        "f1": True,
        "HasAns_exact": True,
        "HasAns_f1": True,
        "NoAns_exact": True,
        "NoAns_f1": True,
    },
    "seq2seq": {"rouge1": True, "rouge2": True, "rougeL": True, "rougeLsum": True, "bleu": True, "chrf": True},
    "chat": {"answer_perplexity": False, "answer_token_accuracy": True},
}
#: Whether a greater value is better, by the name of the metric.
GREATER_IS_BETTER: dict[str, bool] = {name: better for kind in MEASURES.values() for name, better in kind.items()}


def greater_is_better(measure: str, given: bool | None = None) -> bool | None:
    """Return whether a greater value of a metric is better.

    Args:
        measure: name of the metric, with or without the `eval_` of the Trainer.
        given: the value of `--greater_is_better`.

    Returns:
        Whether a greater value is better; for unknown metrics, `given`.

    Raises:
        ValueError: if `given` is wrong for a known metric.

    Example:

    ```python
    >>> greater_is_better("eval_mse"), greater_is_better("bleu"), greater_is_better("my_measure")
    (False, True, None)

    ```
    """
    known = GREATER_IS_BETTER.get(measure.removeprefix("eval_"))
    if None not in (known, given) and known != given:
        raise ValueError(
            f"greater_is_better = {given} is wrong for metric_for_best_model = {measure}: a "
            f"{'greater' if known else 'smaller'} value is better. Set greater_is_better = {known}, or leave it out."
        )
    return given if known is None else known


def ranked(items: Iterable[Item], measure: str, value: Callable[[Item], float]) -> list[Item]:
    """Return items from the best to the worst.

    Args:
        items: the items.
        measure: name of the metric.
        value: returns the value of an item.

    Raises:
        KeyError: if there is no such metric.
    """
    return sorted(items, key=value, reverse=GREATER_IS_BETTER[measure])
