# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Compares mixers in the same language model, at equal parameters, equal data and equal time.

Writes a report with tables, a plot, and all numbers as JSON: bits per byte of texts of the same and of another domain,
speed of training and generation, memory. --resume picks up a comparison that was interrupted.

hf-tx compare --text books --eval-text book.txt --other-text letters.txt
hf-tx compare --text books --eval-text book.txt --other-text plays.txt --mixers full "lstm*3,full"
hf-tx compare settings.yaml
"""

from collections.abc import Sequence

from .arguments import command_line, parse_options

HELP = "Compare mixers at equal parameters, data and time."
INTERRUPTED = "interrupted; go on with --resume"


def run(argv: Sequence[str], name: str) -> None:
    """Do what the options say."""
    from ..hub import quality_table
    from ..training.comparison import ComparisonArguments, prepare_comparison

    arguments = parse_options(ComparisonArguments, argv, __doc__, name)
    record = prepare_comparison(arguments, command_line("compare", argv)).run()
    print(f"\n{quality_table(record)}\n\n{record.seconds / 60:.1f} minutes; the report is in {arguments.output}")
