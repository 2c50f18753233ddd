# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Trains a small model on a text in a few minutes on two CPU cores.

This is `hf-tx pretrain` with other defaults: a text that comes with hf_tx, and samples at the end. It trains a
tokenizer and a small model, evaluates the model on the held-out end of the text next to a unigram model, saves both,
loads them in a new process without hf_tx, and generates samples.

hf-tx quickstart
hf-tx quickstart --family encoder --text my-text.txt --output my-model
hf-tx quickstart --mixers "sliding*3,full" --sliding-window 64
"""

from collections.abc import Sequence

from .pretrain import train

HELP = "Train a small model in minutes, evaluate it, load it without hf_tx, and generate samples."


def run(argv: Sequence[str], name: str) -> int:
    """Do what the options say."""
    from ..training.quickstart import QuickstartArguments, QuickstartOptions

    return train((QuickstartArguments, QuickstartOptions), "quickstart", argv, __doc__, name)
