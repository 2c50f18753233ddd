# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Takes the cards of the reference models out of runs/ into model_cards/, and writes the table of the README.

The models are those of the settings in scripts/reference/; a card is a model's README.md, with the record that it was
written from and its plots. The report of the comparison of mixers is taken too. Weights stay where they are.

python scripts/reference_models.py
python scripts/reference_models.py --runs elsewhere --names decoder
"""

import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hf_tx.cli.arguments import parse_options
from hf_tx.cli.running import run_command
from hf_tx.hub import ComparisonRecord, RunRecord, write_card, write_comparison

ROOT = Path(__file__).parents[1]
CARDS = ROOT / "model_cards"
README = ROOT / "README.md"
BEGIN, END = "<!-- reference models: begin -->\n", "<!-- reference models: end -->\n"
#: In the order in which they are trained, each with the settings of its name.
MODELS = ("decoder", "encoder", "classifier", "encoder-decoder", "translator")
#: The comparison, whose report is no row of the table.
COMPARISON = "mixers"
#: What a row of the table says of a model, in this order, if its run has measured it.
METRICS = ("bits_per_byte", "accuracy", "f1_macro", "bleu", "chrf")


def ending(name: str) -> str:
    """Return the file that a run of this name writes at its end."""
    return "README.md" if name == COMPARISON else "run.json"


def collect(run: Path, cards: Path) -> Path:
    """Write the card or the report of a run, from its record and with its plots, into a folder of its name.

    Raises:
        FileNotFoundError: there is no such run, or it is not at its end.
    """
    if not (run / ending(run.name)).is_file():
        raise FileNotFoundError(f"{run}: holds no {ending(run.name)}, which a run writes at its end.")
    folder = cards / run.name
    folder.mkdir(parents=True, exist_ok=True)
    if run.name == COMPARISON:
        write_comparison(folder, ComparisonRecord.load(run))
        return folder
    record = RunRecord.load(run)
    for plot in record.plots:
        shutil.copyfile(run / plot, folder / plot)
    write_card(folder, record)
    return folder


def table(cards: Path = CARDS) -> str:
    """Return the table of all models that have a card."""
    rows = ["| model | parameters | trained in | measured | value | beside |", "|---|---|---|---|---|---|"]
    for name in MODELS:
        if not (cards / name).is_dir():
            continue
        record = RunRecord.load(cards / name)
        first = f"[{name}](model_cards/{name}/README.md)"
        size, time = f"{record.model['parameters'] / 1e6:.1f} M", f"{record.seconds / 60:.1f} min"
        shown = [result for result in record.results if result.metric in METRICS] or record.results[:1]
        for result in shown:
            what = f"{result.metric.replace('_', ' ')}, {result.dataset} ({result.split})"
            beside = "" if result.baseline is None else f"{result.baseline:.3f} ({result.baseline_name})"
            rows.append(f"| {first} | {size} | {time} | {what} | {result.value:.3f} | {beside} |")
            first = size = time = ""
    return "".join(f"{row}\n" for row in rows) if len(rows) > 2 else ""


def with_table(text: str, cards: Path = CARDS) -> str:
    """Return the README with the table that the cards give."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{README.name}: has no place for the table: {BEGIN.strip()} ... {END.strip()}.")
    return before + begin + table(cards) + end + after


@dataclass
class Arguments:
    """The options of the command."""

    names: list[str] = field(
        default_factory=list, metadata={"action": "extend", "help": "Models. Default: all that have run."}
    )
    runs: str = field(default="runs", metadata={"help": "Where they have been trained."})


def reference_models(argv: Sequence[str] | None) -> None:
    """Do what the options say."""
    arguments = parse_options(Arguments, argv, __doc__)
    known, runs = (*MODELS, COMPARISON), Path(arguments.runs)
    unknown = [name for name in arguments.names if name not in known]
    if unknown:
        raise ValueError(f"{unknown[0]}: is no reference model; they are {', '.join(known)}.")
    for name in arguments.names or [name for name in known if (runs / name / ending(name)).is_file()]:
        print(f"{name}: {collect(runs / name, CARDS)}")
    README.write_text(with_table(README.read_text("utf-8")), "utf-8")
    print(table() or "there are no cards yet")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code: 2 for what the user can mend."""
    return run_command("reference_models.py", lambda: reference_models(argv))


if __name__ == "__main__":
    sys.exit(main())
