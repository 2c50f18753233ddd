# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Fine-tunes a pre-trained model: text and token classification, question answering, seq2seq and chat.

Evaluates the model on held-out data next to a baseline, and saves it with its tokenizer, a plot of the losses and a
model card. All options of the Trainer of transformers are available too.

hf-tx finetune --model my-encoder --task sequence-classification --dataset reviews.csv
hf-tx finetune --model my-encoder --task token-classification --dataset entities.jsonl
hf-tx finetune --model my-encoder --task question-answering --dataset squad --task-options '{"doc_stride": 64}'
hf-tx finetune --model my-t5 --task seq2seq --dataset pairs.csv --columns german --label-column english
torchrun --nproc-per-node 2 -m hf_tx.cli finetune --model my-decoder --task chat --dataset turns.jsonl --lora-r 8
hf-tx finetune settings.yaml
"""

from collections.abc import Sequence

from .arguments import command_line, parse_options

HELP = "Fine-tune a model: classification, tagging, question answering, seq2seq, chat."


def run(argv: Sequence[str], name: str) -> None:
    """Do what the options say."""
    from ..training.finetuning import FinetuningArguments, FinetuningOptions, prepare_finetuning

    arguments, options = parse_options((FinetuningArguments, FinetuningOptions), argv, __doc__, name)
    prepare_finetuning(arguments, options).run(command_line("finetune", argv))
