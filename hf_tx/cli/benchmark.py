# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""`hf-tx benchmark`: time and peak memory as a function of the length."""

import argparse
import json
from pathlib import Path

HELP = "Measure time and memory of mixers and attention backends for several lengths."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    kinds = parser.add_subparsers(dest="kind", metavar="KIND", required=True)
    attention = kinds.add_parser(
        "attention", help="time layers of each mixer with each backend, as a table, JSON and a plot"
    )
    attention.add_argument("--mixers", nargs="+", default=["sliding", "full"], help="names of mixers")
    attention.add_argument(
        "--backends", nargs="+", default=["sdpa", "banded", "tiled"], help="names of attention backends"
    )
    attention.add_argument(
        "--lengths", nargs="+", type=int, default=[4096, 8192, 16384, 32768], help="numbers of tokens"
    )
    attention.add_argument("--repeats", type=int, default=3, help="number of timed runs (default: 3)")
    alone = kinds.add_parser("alone", help="time the attention functions of hf_tx and of transformers")
    alone.add_argument("--length", type=int, default=8192, help="number of tokens (default: 8192)")
    long = kinds.add_parser("long", help="time training steps of a whole model and of Mistral in transformers")
    long.add_argument("--lengths", nargs="+", type=int, default=[8192, 16384], help="numbers of tokens")
    load = kinds.add_parser(
        "load", help="time loading a checkpoint of transformers with `from_hf` and with its own class"
    )
    load.add_argument("folder", help="folder of the checkpoint")
    for command in (alone, long, load):
        command.add_argument(
            "--rounds", type=int, default=5, help="number of rounds; each times every candidate once (default: 5)"
        )
    for command in (attention, alone, long, load):
        command.add_argument(
            "--threads", type=int, default=0, help="number of threads of PyTorch (default: 0, PyTorch chooses)"
        )
        command.add_argument("--output", help="write the results to OUTPUT.json; `attention` also writes OUTPUT.png")


def run(arguments: argparse.Namespace) -> None:
    from ..analysis import benchmark

    options = {name: value for name, value in vars(arguments).items() if name != "command"}
    kind, output = options.pop("kind"), options.pop("output")
    if kind == "load" and not Path(arguments.folder, "config.json").is_file():
        raise FileNotFoundError(f"{arguments.folder} is not the folder of a checkpoint: it has no config.json.")
    try:
        if kind == "attention":
            rows = benchmark.run_attention(options.pop("mixers"), options.pop("backends"), **options)
        else:
            rows = getattr(benchmark, f"run_{kind}")(**options)
    except RuntimeError as error:  # PyTorch is out of memory, or a backend has no kernel for the case
        raise ValueError(str(error)) from error
    print(benchmark.table(rows))
    if output:
        Path(f"{output}.json").write_text(json.dumps(rows, indent=1) + "\n", "utf-8")
        if kind == "attention":
            benchmark.plot(rows, f"{output}.png")
