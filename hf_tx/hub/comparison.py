# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""The report of a comparison of mixers, which is written from its record."""

import json
import os
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from huggingface_hub import ModelCard, ModelCardData

from ..analysis.plots import plot_comparison
from ..common.whole import write_json
from .cards import DataRecord, format_value, hardware, versions

TEMPLATE = Path(__file__).with_name("comparison_template.md")
RECORD = "comparison.json"
PLOT = "comparison.png"
#: What is equal in addition to the number of parameters.
EQUAL = ("data", "time")


@dataclass(frozen=True)
class MixerCost:
    """What a model with certain mixers costs.

    Attributes:
        mixers: the pattern of its mixers.
        parameters: how many it has.
        intermediate_size: the width of its feed-forward layers.
        token_seconds: the median time of a generated token.
        training_megabytes: peak memory of a process that trains it, minus its size after the imports.
        cache_bytes: keys, values and states of one text, when windows are full.
    """

    mixers: str
    parameters: int
    intermediate_size: int
    token_seconds: float
    training_megabytes: float
    cache_bytes: int


@dataclass(frozen=True)
class Trial:
    """A short training that tried a learning rate, and the bits per byte of the text that decides."""

    mixers: str
    learning_rate: float
    bits_per_byte: float


@dataclass(frozen=True)
class Training:
    """A training of a comparison.

    Attributes:
        mixers: the pattern of the mixers.
        equal: what it has in common with the reference: `data`, `time`, or, for the reference itself, both.
        seed: of the weights and the order of the data.
        learning_rate: the highest.
        steps: how many it took.
        seconds: how long they took.
        losses: steps and the mean loss of a token since the entry before.
        bits_per_byte: of each measured text, by its name.
    """

    mixers: str
    equal: list[str]
    seed: int
    learning_rate: float
    steps: int
    seconds: float
    losses: list[list[float]]
    bits_per_byte: dict[str, float]


@dataclass
class ComparisonRecord:
    """Everything that the report of a comparison says.

    Attributes:
        title: of the report.
        command: what runs the comparison again.
        mixers: the patterns that are compared; the first is the reference.
        data: what the models were trained and measured on.
        measured: names of the texts that are measured: in domain, out of domain.
        training: settings of the trainings.
        tokens_of_a_step: tokens that a step reads.
        context: tokens in the cache when generation and cache are measured.
        baseline: bits per byte of a unigram model, by text.
        costs: what each costs.
        trials: of learning rates.
        trainings: what was trained.
        seconds: how long all of it took.
        license: of the report.
        language: codes of the languages, as far as they are known.
        hardware: what it ran on.
        versions: of the libraries.
    """

    title: str
    command: str
    mixers: list[str]
    data: list[DataRecord]
    measured: list[str]
    training: dict[str, Any]
    tokens_of_a_step: int
    context: int
    baseline: dict[str, float] = field(default_factory=dict)
    costs: list[MixerCost] = field(default_factory=list)
    trials: list[Trial] = field(default_factory=list)
    trainings: list[Training] = field(default_factory=list)
    seconds: float = 0.0
    license: str = "apache-2.0"
    language: list[str] = field(default_factory=list)
    hardware: str = field(default_factory=lambda: hardware())
    versions: dict[str, str] = field(default_factory=lambda: versions())

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write `comparison.json`, which is created when it is complete."""
        write_json(Path(folder, RECORD), asdict(self), indent=1)

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> "ComparisonRecord":
        """Read `comparison.json`.

        Raises:
            FileNotFoundError: if there is none.
            ValueError: if it is not the record of a comparison.
        """
        path = Path(folder, RECORD)
        try:
            stored = json.loads(path.read_text("utf-8"))
            for name, kind in (("data", DataRecord), ("costs", MixerCost), ("trials", Trial), ("trainings", Training)):
                stored[name] = [kind(**each) for each in stored[name]]
            return cls(**stored)
        except (TypeError, KeyError, ValueError) as error:
            raise ValueError(f"{path} is not the record of a comparison: {error}.") from error

    # ---------------------------------------------------------------------------------------------- what was found
    @property
    def several_seeds(self) -> bool:
        """Whether each number is a mean."""
        return len({training.seed for training in self.trainings}) > 1

    def cost(self, mixers: str) -> MixerCost:
        """Return what mixers cost."""
        return next(cost for cost in self.costs if cost.mixers == mixers)

    def of(self, mixers: str, equal: str) -> list[Training]:
        """Return the trainings of mixers at equal data or time, one per seed."""
        return [each for each in self.trainings if each.mixers == mixers and equal in each.equal]

    def bits_per_byte(self, mixers: str, equal: str, text: str) -> tuple[float, float]:
        """Return the mean over the seeds, and their standard deviation, 0 of one."""
        found = [training.bits_per_byte[text] for training in self.of(mixers, equal)]
        return statistics.fmean(found), statistics.stdev(found) if len(found) > 1 else 0.0

    def step_seconds(self, mixers: str) -> float:
        """Return the mean time of a step of the trainings at equal data."""
        return statistics.fmean(training.seconds / training.steps for training in self.of(mixers, "data"))

    def learning_rate(self, mixers: str) -> float:
        """Return the learning rate that was tried with the best result."""
        tried = [trial for trial in self.trials if trial.mixers == mixers]
        return min(tried, key=lambda trial: trial.bits_per_byte).learning_rate


def write_comparison(folder: str | os.PathLike[str], record: ComparisonRecord) -> Path:
    """Write the report of a comparison, `README.md`, its plot, `comparison.png`, and the record that both are made
    from, `comparison.json`.

    Args:
        folder: output folder.
        record: record of a finished comparison.

    Returns:
        The path of the report.

    Raises:
        ImportError: if matplotlib is not installed.
    """
    folder = Path(folder)
    record.save(folder)
    plot_comparison(record, folder / PLOT)
    data = ModelCardData(
        language=record.language or None,
        license=record.license,
        library_name="transformers",
        pipeline_tag="text-generation",
        tags=["hf_tx", "comparison"],
        metrics=["bits_per_byte"],
    )
    card = ModelCard.from_template(
        data,
        template_str=TEMPLATE.read_text("utf-8"),
        run=record,
        plot=PLOT,
        quality=quality_table(record),
        cost=_cost_table(record),
        rates=_rate_table(record),
        format=format_value,
    )
    path = folder / "README.md"
    path.write_text(str(card).rstrip() + "\n", "utf-8")
    return path


# -------------------------------------------------------------------------------------------------------------- tables
def quality_table(record: ComparisonRecord) -> str:
    """Return the bits per byte of all mixers as a table in Markdown, the best of each column in bold."""
    columns = {
        f"{text}, equal {equal}": [record.bits_per_byte(mixers, equal, text) for mixers in record.mixers]
        for equal in EQUAL
        for text in record.measured
    }

    def cell(found: tuple[float, float], column: Iterable[tuple[float, float]]) -> str:
        text = f"{found[0]:.3f}" + (f" ± {found[1]:.3f}" if record.several_seeds else "")
        return f"**{text}**" if found[0] == min(mean for mean, _ in column) else text

    rows = []
    for number, mixers in enumerate(record.mixers):
        steps = record.of(mixers, "time")[0].steps
        quality = [cell(column[number], column) for column in columns.values()]
        rows.append([mixers, f"{record.cost(mixers).parameters:,}", *quality, f"{steps:,}"])
    baseline = [f"{record.baseline[text]:.3f}" for text in record.measured]
    rows.append(["unigram model", "", *baseline * len(EQUAL), ""])
    return _table(["mixers", "parameters", *columns, "steps at equal time"], rows)


def _cost_table(record: ComparisonRecord) -> str:
    columns: dict[str, Callable[[MixerCost], str]] = {
        "mixers": lambda cost: cost.mixers,
        "training, tokens/s": lambda cost: _speed(record, cost.mixers),
        "generation, tokens/s": lambda cost: format_value(round(1 / cost.token_seconds)),
        "training, MiB": lambda cost: format_value(round(cost.training_megabytes)),
        "cache, KiB": lambda cost: format_value(round(cost.cache_bytes / 1024)),
        "seconds, equal data": lambda cost: _seconds(record, cost.mixers, "data"),
        "seconds, equal time": lambda cost: _seconds(record, cost.mixers, "time"),
        "width of the feed-forward layers": lambda cost: str(cost.intermediate_size),
    }
    rows = [[write(record.cost(mixers)) for write in columns.values()] for mixers in record.mixers]
    return _table(list(columns), rows)


def _rate_table(record: ComparisonRecord) -> str:
    rates = sorted({trial.learning_rate for trial in record.trials})
    found = {(trial.mixers, trial.learning_rate): trial.bits_per_byte for trial in record.trials}

    def cell(mixers: str, rate: float) -> str:
        text = f"{found[mixers, rate]:.3f}"
        return f"**{text}**" if rate == record.learning_rate(mixers) else text

    rows = [[mixers, *(cell(mixers, rate) for rate in rates)] for mixers in record.mixers]
    return _table(["mixers", *(f"{rate:g}" for rate in rates)], rows) if record.trials else ""


def _speed(record: ComparisonRecord, mixers: str) -> str:
    return format_value(round(record.tokens_of_a_step / record.step_seconds(mixers)))


def _seconds(record: ComparisonRecord, mixers: str, equal: str) -> str:
    return f"{statistics.fmean(training.seconds for training in record.of(mixers, equal)):.1f}"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heads, ["---", *["---:"] * (len(heads) - 1)], *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
