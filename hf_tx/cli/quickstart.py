# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""From a text to a model that others can load, in a few minutes on two CPU cores.

This is `hf-tx pretrain` with other defaults: a text that comes with hf_tx, and samples at the end. It trains a
tokenizer and a small model, measures the model on the end of the text, which it has not seen, beside a unigram model,
saves both, loads them in a new process without hf_tx, and prints what the model writes.

hf-tx quickstart
hf-tx quickstart --family encoder --text my-text.txt --output my-model
hf-tx quickstart --mixers "sliding*3,full" --sliding-window 64
"""

from collections.abc import Sequence

from .pretrain import train

HELP = "Train a small model from a text in minutes, measure it, load it without hf_tx, and sample from it."


def run(argv: Sequence[str], name: str) -> int:
    """Do what the options say."""
    from ..training.quickstart import QuickstartArguments, QuickstartOptions

    return train((QuickstartArguments, QuickstartOptions), "quickstart", argv, __doc__, name)
