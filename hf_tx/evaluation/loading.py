# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Loads models and metrics for evaluation."""

from collections.abc import Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from ..common.checkpoint_files import check_files
from ..common.loading import loading

AUTO_CLASSES: dict[str, Any] = {
    "causal-lm": AutoModelForCausalLM,
    "masked-lm": AutoModelForMaskedLM,
    "continuation": AutoModelForSeq2SeqLM,
    "seq2seq-lm": AutoModelForSeq2SeqLM,
    "sequence-classification": AutoModelForSequenceClassification,
}
# Tokenizers without a limit have a huge number.
_NO_LIMIT = 10**9
_METRICS = Path(__file__).parent / "metrics"


@contextmanager
def of_known_kind(name: str, task: str) -> Iterator[None]:
    """Name the model that does not support the task, instead of all models that do."""
    try:
        yield
    except ValueError as error:
        if "Unrecognized configuration class" in str(error):
            raise ValueError(
                f"{name!r} has no class for the task {task}: choose a task that the model supports"
            ) from error
        raise


def load_model(
    name: str,
    task: str,
    *,
    auto_class: Any = None,
    device: str | None = None,
    trust_remote_code: bool = False,
    **options: Any,
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Load a model and its tokenizer for a task.

    Args:
        name: a folder, or the id of a model on the Hub.
        task: `causal-lm`, `masked-lm`, `continuation`, `seq2seq-lm` or `sequence-classification`; with `auto_class`,
            any name.
        auto_class: the Auto class that loads the model. Default: that of the task.
        device: where to put the model. Default: a GPU if there is one.
        trust_remote_code: whether to run code that comes with the model.
        options: further arguments of `from_pretrained` of the model, such as `dtype` or `attn_implementation`.

    Returns:
        The model, in evaluation mode, and the tokenizer.

    Raises:
        ValueError: if the task is unknown, or the model does not support it; if weights are missing in the checkpoint,
            which would be random; if a file is broken, or a pickle.
        OSError: if there is no such model.
    """
    if auto_class is None and task not in AUTO_CLASSES:
        raise ValueError(f"task = {task!r}: must be one of {', '.join(AUTO_CLASSES)}")
    check_files(name)
    with loading("model", name):
        tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=trust_remote_code)
    with loading("model", name), of_known_kind(name, task):
        model, report = (auto_class or AUTO_CLASSES[task]).from_pretrained(
            name, trust_remote_code=trust_remote_code, use_safetensors=True, output_loading_info=True, **options
        )
    missing = sorted(report["missing_keys"])
    if missing:
        raise ValueError(
            f"{name!r} does not have {len(missing)} weights of {type(model).__name__}, such as {missing[0]!r}, which "
            f"would be random: it was not trained for {task}. Choose another task, or fine-tune it first"
        )
    place = device or torch.accelerator.current_accelerator(check_available=True) or "cpu"
    return model.eval().to(place), tokenizer


def longest_input(config: PreTrainedConfig, tokenizer: PreTrainedTokenizerBase) -> int | None:
    """Return the maximum length that model and tokenizer allow, or None if there is no limit."""
    positions = getattr(config.get_text_config(), "max_position_embeddings", None)
    limits = (positions, tokenizer.model_max_length)
    return min((limit for limit in limits if limit and 0 < limit < _NO_LIMIT), default=None)


def load_metric(name: str) -> Any:
    """Load a metric of hf_tx as a module of `evaluate`, without the network.

    It is `evaluate.load` of a folder in the package: `perplexity`, `pseudo_perplexity`, `classification`,
    `token_classification`, `question_answering` or `seq2seq`.

    Args:
        name: the name of the metric.

    Returns:
        The `evaluate.EvaluationModule`.

    Raises:
        ValueError: if there is no such metric.
        ImportError: if a library that the metric needs is not installed, or hidden by a file of its name.

    Example:

    ```python
    >>> squad = load_metric("question_answering")
    >>> squad.compute(
    ...     predictions=[{"id": "1", "prediction_text": "the old mill"}],
    ...     references=[{"id": "1", "answers": {"text": ["Old Mill", "mill"]}}],
    ... )
    {'exact_match': 100.0, 'f1': 100.0, 'total': 1}

    ```
    """
    # evaluate and what it brings along take seconds to import.
    import evaluate

    if not hasattr(evaluate, "load"):
        raise ImportError(
            f"{evaluate.__file__} hides the library `evaluate`: rename it, or remove its folder from sys.path"
        )
    known = sorted(folder.name for folder in _METRICS.iterdir() if (folder / f"{folder.name}.py").is_file())
    if name not in known:
        close = get_close_matches(name, known, 1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise ValueError(f"there is no metric {name!r}: choose one of {', '.join(known)}.{hint}")
    return evaluate.load(str(_METRICS / name))
