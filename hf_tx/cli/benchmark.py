# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""`hf-tx benchmark`: time and peak memory against the length, side by side."""

import argparse
import json
from pathlib import Path

HELP = "Measure time and memory of mixers and backends against the length, side by side."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    kinds = parser.add_subparsers(dest="kind", metavar="KIND", required=True)
    attention = kinds.add_parser("attention", help="layers of one mixer, with each backend; a table, JSON and a plot")
    attention.add_argument("--mixers", nargs="+", default=["sliding", "full"])
    attention.add_argument("--backends", nargs="+", default=["sdpa", "banded", "tiled"])
    attention.add_argument("--lengths", nargs="+", type=int, default=[4096, 8192, 16384, 32768])
    attention.add_argument("--repeats", type=int, default=3, help="timed runs")
    alone = kinds.add_parser("alone", help="attention functions, and those of transformers")
    alone.add_argument("--length", type=int, default=8192)
    long = kinds.add_parser("long", help="training steps of a whole model, and of the Mistral of transformers")
    long.add_argument("--lengths", nargs="+", type=int, default=[8192, 16384])
    load = kinds.add_parser("load", help="loading a checkpoint of transformers, by `from_hf` and by its own class")
    load.add_argument("folder")
    for command in (alone, long, load):
        command.add_argument("--rounds", type=int, default=5, help="rounds in which the sides alternate")
    for command in (attention, alone, long, load):
        command.add_argument("--threads", type=int, default=0, help="threads of torch; 0: as torch chooses")
        command.add_argument("--output", help="write OUTPUT.json; `attention` also OUTPUT.png")


def run(arguments: argparse.Namespace) -> None:
    from ..analysis import benchmark

    options = {name: value for name, value in vars(arguments).items() if name != "command"}
    kind, output = options.pop("kind"), options.pop("output")
    if kind == "load" and not Path(arguments.folder, "config.json").is_file():
        raise FileNotFoundError(f"{arguments.folder}: holds no checkpoint: there is no config.json.")
    try:
        if kind == "attention":
            rows = benchmark.run_attention(options.pop("mixers"), options.pop("backends"), **options)
        else:
            rows = getattr(benchmark, f"run_{kind}")(**options)
    except RuntimeError as error:  # torch has no memory, or a backend no kernel, for what is to be measured
        raise ValueError(str(error)) from error
    print(benchmark.table(rows))
    if output:
        Path(f"{output}.json").write_text(json.dumps(rows, indent=1) + "\n", "utf-8")
        if kind == "attention":
            benchmark.plot(rows, f"{output}.png")
