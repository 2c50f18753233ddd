# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Evaluates models on texts, as language models or on the task that they were fine-tuned for.

Every token is scored exactly once. Several models are ranked: language models by bits per byte, which do not depend
on the tokenizer; perplexities are only compared if the tokenizers are the same. --held-out selects the part of the
data that `hf-tx pretrain` and `hf-tx finetune` hold out, so the command in a model card reproduces its numbers. All
options can be in one YAML or JSON file instead. With torchrun, several processes share the work.

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

HELP = "Evaluate and compare models on texts and tasks."


def run(argv: Sequence[str], name: str) -> None:
    """Run the evaluation."""
    from ..training.evaluation import EvaluationArguments, run_evaluation

    run_evaluation(parse_options(EvaluationArguments, argv, __doc__, name))
