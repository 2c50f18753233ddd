# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Compares mixers in the same language model, at equal parameters, equal data and equal time.

Writes a report with tables, a plot, and all numbers as JSON: bits per byte of texts of the same and of another domain,
speed of training and generation, memory. What was broken off goes on with --resume.

python scripts/compare_mixers.py --text books --held-out book.txt --other-domain letters.txt
python scripts/compare_mixers.py --text books --held-out book.txt --other-domain plays.txt --mixers full "lstm*3,full"
python scripts/compare_mixers.py scripts/reference/mixers.yaml
"""

import sys
from collections.abc import Sequence

from hf_tx.cli.arguments import parse_options, run_script
from hf_tx.hub import quality_table
from hf_tx.training.comparison import ComparisonArguments, prepare_comparison
from hf_tx.training.runs import command_of


def compare_mixers(argv: Sequence[str] | None) -> None:
    """Do what the options say."""
    arguments = parse_options(ComparisonArguments, argv, __doc__.partition("\n\n")[0])
    record = prepare_comparison(arguments, command_of("compare_mixers.py", argv)).run()
    print(f"\n{quality_table(record)}\n\n{record.seconds / 60:.1f} minutes; the report is in {arguments.output}")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code: 2 for what the user can mend."""
    return run_script("compare_mixers.py", compare_mixers, argv, interrupted="interrupted; go on with --resume")


if __name__ == "__main__":
    sys.exit(main())
