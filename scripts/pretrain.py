# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""From raw text to a pre-trained model: any family, any objective of it, any mixers.

Trains a tokenizer unless one is given, trains the model, measures it on held-out data, and saves it with its
tokenizer, a plot of the losses and a model card. All options of the library's Trainer are there too.

python scripts/pretrain.py --text my-text.txt --output my-model
python scripts/pretrain.py --family encoder --objective masked-lm --dataset rows.jsonl --columns body
torchrun --nproc-per-node 2 scripts/pretrain.py --text my-text.txt --mixers gated_delta --bf16
python scripts/pretrain.py settings.yaml
"""

import sys
from collections.abc import Sequence

from hf_tx.cli.arguments import parse_options, run_script
from hf_tx.training.pretraining import PretrainingArguments, PretrainingOptions, prepare_pretraining
from hf_tx.training.runs import command_of


def pretrain(argv: Sequence[str] | None) -> None:
    """Do what the options say."""
    arguments, options = parse_options((PretrainingArguments, PretrainingOptions), argv, __doc__.partition("\n\n")[0])
    prepare_pretraining(arguments, options).run(command_of("pretrain.py", argv))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code: 2 for what the user can mend."""
    return run_script("pretrain.py", pretrain, argv)


if __name__ == "__main__":
    sys.exit(main())
