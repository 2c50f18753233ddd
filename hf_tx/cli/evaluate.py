# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Measures models on texts: how well they predict them, and how well they do what they were fine-tuned for.

Every token is scored exactly once. Several models are compared: language models by bits per byte, whatever their
tokenizers; their perplexities are shown where they are of the same tokens. With --held-out, what is measured is the
part of the data that `hf-tx pretrain` and `hf-tx finetune` hold out: so the command in a model card finds its numbers
again. All options can stand in one YAML or JSON file instead. Several processes share the work.

hf-tx evaluate --model my-model --text held-out.txt
hf-tx evaluate --model my-model gpt2 --text held-out.txt --context-length 512 --stride 256
hf-tx evaluate --model my-encoder --task masked-lm --dataset reviews.jsonl --columns review
hf-tx evaluate --model my-t5 --task seq2seq-lm --dataset pairs.csv --columns source --label-column target
hf-tx evaluate --model my-classifier --task sequence-classification --dataset reviews.csv --held-out 0.1
hf-tx evaluate --model my-encoder --objective masked-lm --text my-text.txt --held-out 0.1
torchrun --nproc-per-node 2 -m hf_tx.cli evaluate --model my-model --text held-out.txt
hf-tx evaluate evaluation.yaml
"""

from collections.abc import Sequence

from .arguments import parse_options

HELP = "Measure models on texts and tasks, side by side."


def run(argv: Sequence[str], name: str) -> None:
    """Do what the options say."""
    from ..training.evaluation import EvaluationArguments, run_evaluation

    run_evaluation(parse_options(EvaluationArguments, argv, __doc__, name))
