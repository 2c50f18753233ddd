# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""From raw text to a pre-trained model: any family, any objective of it, any mixers.

Trains a tokenizer unless one is given, trains the model, measures it on held-out data, and saves it with its
tokenizer, a plot of the losses and a model card. All options of the library's Trainer are there too.

hf-tx pretrain --text my-text.txt --output my-model
hf-tx pretrain --family encoder --objective masked-lm --dataset rows.jsonl --columns body
torchrun --nproc-per-node 2 -m hf_tx.cli pretrain --text my-text.txt --mixers gated_delta --bf16
hf-tx pretrain settings.yaml
"""

from collections.abc import Sequence

from .arguments import command_line, parse_options

HELP = "Train a model from raw text: any family, objective and mixers."


def run(argv: Sequence[str], name: str) -> None:
    """Do what the options say."""
    from ..training.pretraining import PretrainingArguments, PretrainingOptions, prepare_pretraining

    arguments, options = parse_options((PretrainingArguments, PretrainingOptions), argv, __doc__, name)
    prepare_pretraining(arguments, options).run(command_line("pretrain", argv))
