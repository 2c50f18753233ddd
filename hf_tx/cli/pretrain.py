# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Trains a new model on raw text: any family, any of its objectives, any mixers.

Trains a tokenizer unless one is given, evaluates the model on held-out data, and saves it with its tokenizer, a plot
of the losses and a model card. All options of the Trainer of transformers are available too.

hf-tx pretrain --text my-text.txt --output my-model
hf-tx pretrain --family encoder --objective masked-lm --dataset rows.jsonl --columns body
torchrun --nproc-per-node 2 -m hf_tx.cli pretrain --text my-text.txt --mixers gated_delta --bf16
hf-tx pretrain settings.yaml
"""

import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .arguments import command_line, parse_options
from .sample import command_of

if TYPE_CHECKING:
    from ..training.pretraining import Pretraining

HELP = "Train a new model on raw text: any family, objective and mixers."
# What the same sums may differ by in another process, relative to the loss.
_TOLERANCE = 1e-5
# Held-out rows of which the loss is compared.
_COMPARED = 2


def run(argv: Sequence[str], name: str) -> int:
    """Do what the options say."""
    from ..training.pretraining import PretrainingArguments, PretrainingOptions

    return train((PretrainingArguments, PretrainingOptions), "pretrain", argv, __doc__, name)


def train(classes: tuple[type[Any], type[Any]], command: str, argv: Sequence[str], text: str | None, name: str) -> int:
    """Pre-train as the options say, and show samples if they are asked for.

    Args:
        classes: of the options: `PretrainingArguments` and `PretrainingOptions`, or those with other defaults.
        command: the name of the subcommand, for the card.
        argv: the options.
        text: what the command does, for `--help`.
        name: what messages call the command.

    Returns:
        The exit code: 1 if the saved model is not what was trained.
    """
    from ..training.pretraining import prepare_pretraining

    arguments, options = parse_options(classes, argv, text, name)
    pretraining = prepare_pretraining(arguments, options)
    pretraining.run(command_line(command, argv))
    if not pretraining.prompts or not pretraining.trainer.is_world_process_zero():
        return 0
    try:
        fault = _show_samples(pretraining)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"interrupted; the trained model is in {arguments.output}") from None
    if fault:
        print(f"{name}: error: {fault}", file=sys.stderr)
    return 1 if fault else 0


def _show_samples(pretraining: "Pretraining") -> str:
    """Load the saved model in a new process without hf_tx, where it prints samples, and compare the loss of some
    held-out rows with that of the model that was trained.

    Returns:
        What is wrong with the saved model; nothing if it is as it should be.
    """
    arguments, trainer = pretraining.arguments, pretraining.trainer
    options = [f"--max-new-tokens={arguments.max_new_tokens}", f"--seed={trainer.args.seed}"]
    options += [f"--prompt={prompt}" for prompt in pretraining.prompts]
    with tempfile.TemporaryDirectory(prefix="samples-") as scratch:
        given, found = Path(scratch, "batch.json"), Path(scratch, "found.json")
        expected = None
        if not trainer.is_sharded:  # the parts of its weights are in all processes
            batch, expected = pretraining.loss_of_rows(_COMPARED)
            given.write_text(json.dumps({key: value.tolist() for key, value in batch.items()}), "utf-8")
            options += [f"--batch={given}", f"--json={found}"]
        print("\nin a new process without hf_tx:", flush=True)
        if subprocess.run(command_of([arguments.output, *options]), check=False).returncode:
            return f"the model in {arguments.output} does not load and write in a new process, see above"
        if expected is None:
            return ""
        loss = json.loads(found.read_text("utf-8"))["loss"]
    if not math.isclose(loss, expected, rel_tol=_TOLERANCE):
        return f"the model in {arguments.output} has the loss {loss} on held-out rows, the trained model {expected}"
    print(f"\nloss of {_COMPARED} held-out rows there: {loss:.6f}, and {expected:.6f} here", flush=True)
    return ""
