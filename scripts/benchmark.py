# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Measures time and peak memory against the length, side by side.

python scripts/benchmark.py attention --mixers sliding full --backends sdpa banded tiled --output benchmark
python scripts/benchmark.py alone --length 8192
python scripts/benchmark.py long --lengths 8192 16384
python scripts/benchmark.py load my-llama

`attention` measures layers of one mixer, and writes a table, benchmark.json and benchmark.png. `alone` compares the
attention functions with those of transformers, `long` the training step of a whole model with transformers' Mistral,
and `load` how a checkpoint of transformers is loaded by `from_hf` and by its own class.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from hf_tx.analysis import benchmark


def parser() -> argparse.ArgumentParser:
    """Describe the options."""
    result = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = result.add_subparsers(dest="command", required=True)
    attention = commands.add_parser("attention", help="time and memory of mixers with backends")
    attention.add_argument("--mixers", nargs="+", default=["sliding", "full"])
    attention.add_argument("--backends", nargs="+", default=["sdpa", "banded", "tiled"])
    attention.add_argument("--lengths", nargs="+", type=int, default=[4096, 8192, 16384, 32768])
    attention.add_argument("--repeats", type=int, default=3, help="timed runs")
    alone = commands.add_parser("alone", help="attention functions, side by side")
    alone.add_argument("--length", type=int, default=8192)
    long = commands.add_parser("long", help="training steps of a whole model, side by side")
    long.add_argument("--lengths", nargs="+", type=int, default=[8192, 16384])
    load = commands.add_parser("load", help="loading a checkpoint of transformers, side by side")
    load.add_argument("folder")
    for command in (alone, long, load):
        command.add_argument("--rounds", type=int, default=5, help="rounds in which the sides alternate")
    for command in (attention, alone, long, load):
        command.add_argument("--threads", type=int, default=0, help="threads of torch; 0: as torch chooses")
        command.add_argument("--output", help="write OUTPUT.json; `attention` also OUTPUT.png")
    return result


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code: 2 for what the user can mend."""
    options = vars(parser().parse_args(argv))
    command, output = options.pop("command"), options.pop("output")
    try:
        if command == "attention":
            rows = benchmark.run_attention(options.pop("mixers"), options.pop("backends"), **options)
        else:
            rows = getattr(benchmark, f"run_{command}")(**options)
        print(benchmark.table(rows))
        if output:
            Path(f"{output}.json").write_text(json.dumps(rows, indent=1) + "\n", "utf-8")
            if command == "attention":
                benchmark.plot(rows, f"{output}.png")
    except (ValueError, OSError, ImportError, RuntimeError) as error:
        print(f"benchmark.py: error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
