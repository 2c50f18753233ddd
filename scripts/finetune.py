# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""From a pre-trained model and rows with labels to a model for a task: classes of texts, tags of words, answers in
texts, texts from texts, and answers to instructions.

Trains the model, measures it on held-out data beside a baseline, and saves it with its tokenizer, a plot of the losses
and a model card. All options of the library's Trainer are there too.

python scripts/finetune.py --model my-encoder --task sequence-classification --dataset reviews.csv
python scripts/finetune.py --model my-encoder --task token-classification --dataset entities.jsonl
python scripts/finetune.py --model my-encoder --task question-answering --dataset squad --doc-stride 64
python scripts/finetune.py --model my-t5 --task seq2seq --dataset pairs.csv --columns german --label-column english
torchrun --nproc-per-node 2 scripts/finetune.py --model my-decoder --task chat --dataset turns.jsonl --lora-r 8
python scripts/finetune.py settings.yaml
"""

import sys
from collections.abc import Sequence

from hf_tx.cli.arguments import parse_options, run_script
from hf_tx.training.finetuning import FinetuningArguments, FinetuningOptions, prepare_finetuning
from hf_tx.training.runs import command_of


def finetune(argv: Sequence[str] | None) -> None:
    """Do what the options say."""
    arguments, options = parse_options((FinetuningArguments, FinetuningOptions), argv, __doc__.partition("\n\n")[0])
    prepare_finetuning(arguments, options).run(command_of("finetune.py", argv))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code: 2 for what the user can mend."""
    return run_script("finetune.py", finetune, argv)


if __name__ == "__main__":
    sys.exit(main())
