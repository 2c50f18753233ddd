# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Compares mixers in the same language model, at equal parameters, equal data and equal time.

Writes a report with tables, a plot, and all numbers as JSON: bits per byte on texts of the same and of another
domain, speed of training and generation, memory. --resume picks up where an interrupted comparison left off.

hf-tx compare --text books --eval-text book.txt --other-text letters.txt
hf-tx compare --text books --eval-text book.txt --other-text plays.txt --mixers full "lstm*3,full"
hf-tx compare settings.yaml
"""

from collections.abc import Sequence

from .arguments import command_line, parse_options

HELP = "Compare mixers at equal parameters, data and time."
INTERRUPTED = "interrupted; run the command again with --resume to pick up where it left off"


def run(argv: Sequence[str], name: str) -> None:
    """Run the comparison."""
    from ..hub import quality_table
    from ..training.comparison import ComparisonArguments, prepare_comparison

    arguments = parse_options(ComparisonArguments, argv, __doc__, name)
    record = prepare_comparison(arguments, command_line("compare", argv)).run()
    print(f"\n{quality_table(record)}\n\n{record.seconds / 60:.1f} minutes; report saved to {arguments.output}")
