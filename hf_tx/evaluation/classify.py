# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""What a classifier says of texts."""

from collections.abc import Sequence
from typing import Any

from accelerate import PartialState
from tqdm.auto import tqdm  # type: ignore[import-untyped]
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from .language_models import evaluating
from .loading import longest_input
from .processes import shared
from .task_metrics import classification_metrics, libraries


def evaluate_classifier(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    texts: Sequence[str],
    labels: Sequence[int | str],
    *,
    context_length: int | None = None,
    batch_size: int = 8,
    description: str | None = None,
    state: PartialState | None = None,
) -> dict[str, Any]:
    """Compares the classes that a model gives to texts with the right ones.

    Args:
        model: a model for sequence classification with one right class.
        tokenizer: its tokenizer.
        texts: the texts.
        labels: the right classes, by number or by name.
        context_length: the most tokens of a text; what is longer is cut. Default: what model and tokenizer allow.
        batch_size: texts that go through the model together.
        description: the label of a progress bar; None for no bar.
        state: several processes that share the work: all of them call, and all get the result.

    Returns:
        What `classification_metrics` returns, with `texts` and `cut_texts`, how many were longer than the model reads.

    Raises:
        ValueError: a model with several right classes or none, texts that are no strings or not as many as labels, a
            label that is no class of the model.
        ImportError: scikit-learn is not installed.
    """
    libraries("classification")  # before the work, not after it
    names = list((model.config.id2label or {}).values())
    if model.config.problem_type not in (None, "single_label_classification") or len(names) < 2:
        raise ValueError(
            f"{type(model).__name__} has {len(names)} labels and problem_type = {model.config.problem_type!r}: only "
            "models with one right class of several are evaluated"
        )
    if not texts or len(texts) != len(labels):
        raise ValueError(f"{len(texts)} texts and {len(labels)} labels: there must be one for each, and at least one")
    wrong = next((number for number, text in enumerate(texts) if not isinstance(text, str)), None)
    if wrong is not None:
        raise ValueError(f"text {wrong} is {texts[wrong]!r:.60}: texts must be strings")
    references = [_class(label, number, names) for number, label in enumerate(labels)]
    longest = context_length or longest_input(model.config, tokenizer)
    lengths = [len(ids) for ids in tokenizer(list(texts), verbose=False)["input_ids"]]

    hidden = description is None or not (state is None or state.is_main_process)
    bar = tqdm(total=len(texts), desc=description, disable=hidden, leave=False)

    def classes(batch: list[str]) -> list[int]:
        inputs = tokenizer(
            batch, padding=True, truncation=longest is not None, max_length=longest, return_tensors="pt"
        ).to(model.device)
        return model(**inputs).logits.argmax(-1).tolist()

    with evaluating(model), bar:
        predictions = shared(texts, batch_size, classes, lambda batch: bar.update(len(batch)), state)
    cut = sum(longest is not None and length > longest for length in lengths)
    return {**classification_metrics(predictions, references, names), "texts": len(texts), "cut_texts": cut}


def _class(label: int | str, number: int, names: list[str]) -> int:
    if label in names:
        return names.index(str(label))
    if isinstance(label, int) and 0 <= label < len(names):
        return label
    raise ValueError(f"label {number} is {label!r}: the classes are 0 to {len(names) - 1}, or {', '.join(names)}")
