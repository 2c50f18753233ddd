# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Measures models on texts: how well they predict them, and how well they do what they were fine-tuned for.

Every token is scored exactly once. Several models are compared: language models by bits per byte, whatever their
tokenizers; their perplexities are shown where they are of the same tokens. With --held-out, what is measured is the
part of the data that pretrain.py and finetune.py hold out: so the command in a model card finds its numbers again. All
options can stand in one YAML or JSON file instead. The script runs with python, torchrun and accelerate launch.

python scripts/evaluate.py --model my-model --text held-out.txt
python scripts/evaluate.py --model my-model gpt2 --text held-out.txt --context-length 512 --stride 256
python scripts/evaluate.py --model my-encoder --task masked-lm --dataset reviews.jsonl --columns review
python scripts/evaluate.py --model my-t5 --task seq2seq-lm --dataset pairs.csv --columns source --label-column target
python scripts/evaluate.py --model my-classifier --task sequence-classification --dataset reviews.csv --held-out 0.1
python scripts/evaluate.py --model my-encoder --objective masked-lm --text my-text.txt --held-out 0.1
python scripts/evaluate.py evaluation.yaml
"""

import sys
from collections.abc import Sequence

from hf_tx.cli.arguments import parse_options, run_script
from hf_tx.training.evaluation import EvaluationArguments, run_evaluation


def evaluate(argv: Sequence[str] | None) -> None:
    """Do what the options say."""
    run_evaluation(parse_options(EvaluationArguments, argv, __doc__.partition("\n\n")[0]))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code: 2 for what the user can mend."""
    return run_script("evaluate.py", evaluate, argv)


if __name__ == "__main__":
    sys.exit(main())
