# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Model cards, which are written from the record of a run: no number in a card is typed by hand."""

import json
import os
import platform
from dataclasses import asdict, dataclass, field, fields
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import EvalResult, ModelCard, ModelCardData

from ..common.whole import write_json
from ..models.version import __version__

TEMPLATE = Path(__file__).with_name("card_template.md")
#: The file with the record that a card was made from.
RECORD = "run.json"
#: Tasks for which transformers has no pipeline.
_AUTO_CLASSES = {
    "question-answering": "AutoModelForQuestionAnswering",
    "sentence-similarity": "AutoModel",
    "text2text-generation": "AutoModelForSeq2SeqLM",
}


@dataclass(frozen=True)
class Result:
    """One measured number.

    Attributes:
        metric: its name, such as `bits_per_byte` or `accuracy`.
        value: the number.
        dataset: name of the data.
        split: split of the data.
        command: the command that reproduces it.
        baseline: value of the baseline, if one was evaluated in the same run.
        baseline_name: name of the baseline.
    """

    metric: str
    value: float
    dataset: str
    split: str = "held-out"
    command: str = ""
    baseline: float | None = None
    baseline_name: str = ""


@dataclass(frozen=True)
class DataRecord:
    """What a model was trained or measured on.

    Attributes:
        name: name of the data.
        license: its license, or what is known about it.
        source: where it comes from.
        size: in words: documents, bytes, rows.
    """

    name: str
    license: str
    source: str = ""
    size: str = ""


@dataclass
class RunRecord:
    """Everything that a card says, recorded by the run itself.

    Attributes:
        title: name of the model.
        summary: what it is, in a sentence or two.
        pipeline_tag: the Hub's name of what the model does, as in `text-generation`.
        uses: what it is meant for.
        limits: what it is not meant for, and known problems.
        language: codes of the languages, as far as the card of the data says them.
        license: of the weights.
        base_model: what was fine-tuned, by name or folder.
        model: class, parameters and the settings worth a line.
        data: what it was trained and measured on.
        training: settings of the training.
        command: the command that reproduces the training.
        results: the metrics.
        seconds: how long the training took.
        hardware: what it ran on.
        versions: of the libraries.
        plots: files in the folder, with what they show.
    """

    title: str
    summary: str
    pipeline_tag: str
    command: str
    model: dict[str, Any]
    data: list[DataRecord]
    training: dict[str, Any]
    results: list[Result]
    seconds: float
    uses: list[str] = field(default_factory=list)
    limits: list[str] = field(default_factory=list)
    language: list[str] = field(default_factory=list)
    license: str = "apache-2.0"
    base_model: str | None = None
    hardware: str = field(default_factory=lambda: hardware())
    versions: dict[str, str] = field(default_factory=lambda: versions())
    plots: dict[str, str] = field(default_factory=dict)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write `run.json`."""
        write_json(Path(folder, RECORD), asdict(self))

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> "RunRecord":
        """Read `run.json`.

        Raises:
            FileNotFoundError: if there is none.
            ValueError: if a field is unknown or missing.
        """
        path = Path(folder, RECORD)
        try:
            stored = dict(json.loads(path.read_text("utf-8")))
        except (ValueError, TypeError) as error:
            raise ValueError(f"{path} is not the record of a run: {error}.") from error
        unknown = stored.keys() - {each.name for each in fields(cls)}
        if unknown:
            raise ValueError(f"{path} has unknown fields: {', '.join(sorted(unknown))}.")
        try:
            stored["data"] = [DataRecord(**each) for each in stored["data"]]
            stored["results"] = [Result(**each) for each in stored["results"]]
            return cls(**stored)
        except (TypeError, KeyError) as error:
            raise ValueError(f"{path} is not the record of a run: {error}.") from error


def hardware() -> str:
    """Describe the hardware of this process."""
    if torch.cuda.is_available():
        return f"{torch.cuda.device_count()} x {torch.cuda.get_device_name()}"
    number = torch.get_num_threads()
    threads = "1 thread" if number == 1 else f"{number} threads"
    return f"{os.cpu_count()} CPU cores ({platform.machine()}), {threads} of torch"


def versions() -> dict[str, str]:
    """Return the versions of what a run depends on."""
    return {"hf_tx": __version__, **{name: version(name) for name in ("transformers", "torch", "tokenizers")}}


def write_card(folder: str | os.PathLike[str], record: RunRecord) -> Path:
    """Write the card of a model, `README.md`, and the record that it was made from, `run.json`.

    Args:
        folder: of the model.
        record: of the run that made it.

    Returns:
        The path of the card.

    Raises:
        FileNotFoundError: if a plot of the record is not in the folder.
    """
    for plot in record.plots:
        if not Path(folder, plot).is_file():
            raise FileNotFoundError(f"{folder} has no file {plot}, which the record of the run names.")
    data = ModelCardData(
        language=record.language or None,
        license=record.license,
        library_name="transformers",
        pipeline_tag=record.pipeline_tag,
        tags=["hf_tx"],
        base_model=record.base_model,
        metrics=list(dict.fromkeys(result.metric for result in record.results)) or None,
        model_name=record.title,
        eval_results=[
            EvalResult(
                task_type=record.pipeline_tag,
                dataset_type=result.dataset.lower().replace(" ", "-"),
                dataset_name=result.dataset,
                dataset_split=result.split,
                metric_type=result.metric,
                metric_value=result.value,
            )
            for result in record.results
        ]
        or None,
    )
    auto_class = _AUTO_CLASSES.get(record.pipeline_tag)
    card = ModelCard.from_template(
        data, template_str=TEMPLATE.read_text("utf-8"), run=record, format=format_value, auto_class=auto_class
    )
    path = Path(folder, "README.md")
    path.write_text(str(card), "utf-8")
    record.save(folder)
    return path


def format_value(value: Any) -> str:
    """Format a number with four significant digits, or with separators."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"
