# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Changes the mixers of a trained language model, and distills the original into it.

First each changed layer is trained to match the outputs of the original layer, then the whole model is trained on the
predictions of the original. The end of the text is held out, and evaluated before and after.

hf-tx distill --model my-model --output linear --mixers gated_linear
hf-tx distill --model my-model --text text.txt --output near --mixers sliding --config-changes '{"sliding_window": 4}'
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..common.options import json_option
from ..common.packaged import SPEECHES
from .arguments import parse_options

if TYPE_CHECKING:
    from ..training import Healing

HELP = "Change the mixers of a trained language model, and distill the original into it."
INTERRUPTED = "interrupted; what was not saved yet is lost"


@dataclass
class Arguments:
    """The options of the command, beside those of the settings."""

    model: str = field(metadata={"help": "The original: a folder of hf_tx or of transformers, or a name on the Hub."})
    output: str = field(metadata={"help": "Folder to save the distilled model to."})
    mixers: str | None = field(default=None, metadata={"help": "Other mixers, such as 'sliding*3,full'."})
    config_changes: str = field(
        default="{}", metadata={"help": "Other fields of the config, such as '{\"sliding_window\": 16}'."}
    )
    text: list[str] = field(
        default_factory=list,
        metadata={
            "action": "extend",
            "help": "Text files, or folders of *.txt; the end is held out. Default: text that comes with hf_tx.",
        },
    )
    held_out: float = field(default=0.1, metadata={"help": "Share of the text to hold out for evaluation."})
    context_length: int | None = field(
        default=None, metadata={"help": "Tokens per row. Default: the maximum of the model, at most 1024."}
    )
    attn_implementation: str | None = field(default=None, metadata={"help": "Attention backend."})
    overwrite: bool = field(default=False, metadata={"help": "Replace an existing checkpoint in the output folder."})


def run(argv: Sequence[str], name: str) -> None:
    """Do what the options say.

    Raises:
        ValueError, OSError, ImportError: an option does not serve.
        KeyboardInterrupt: Ctrl-C was pressed.
    """
    # A small model gains nothing from several GPUs, and the Trainer would use all of them.
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "0")
    from ..training import Healing, HealingSettings

    arguments, settings = parse_options((Arguments, HealingSettings), argv, __doc__, name)
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise ValueError("distilling runs in one process: start it with `hf-tx distill` or python.")
    healing = Healing(
        arguments.model,
        arguments.text or [SPEECHES],
        arguments.output,
        mixers=arguments.mixers,
        config_changes=json_option(arguments, "config_changes"),
        attn_implementation=arguments.attn_implementation,
        context_length=arguments.context_length,
        held_out=arguments.held_out,
        overwrite=arguments.overwrite,
        settings=settings,
    )
    _describe(healing)
    results = healing.run()
    _summarise(results, healing.output)
    if results["interrupted"]:
        raise KeyboardInterrupt("interrupted; what was learnt until then is saved")


def _describe(healing: "Healing") -> None:
    """Print what is about to be learnt."""
    settings, model = healing.settings, healing.model
    print(f"model         {type(model).__name__}, {model.num_parameters() / 1e6:.1f} million parameters")
    print(f"new           {len(healing.new_tensors)} tensors {', '.join(healing.new_tensors[:2])}".rstrip())
    print(f"changed       layers {healing.changed_layers}")
    print(
        f"learning      {settings.transfer_steps} + {settings.steps} steps of {settings.batch_size} x "
        f"{healing.context_length} tokens",
        flush=True,
    )


def _summarise(results: dict[str, Any], output: Path) -> None:
    """Print the table of what was measured."""
    measure, steps = results["measure"], results["steps"]
    print(f"\nheld-out text: {results['held_out_tokens']:,} tokens, {results['predicts']}\n")
    print(f"{'':28}{measure.replace('_', ' '):>14}{'gap':>10}")
    labels = {"original": "original", "changed": "changed", "transferred": "transfer of layers", "healed": "healed"}
    for name, label in labels.items():
        if name in results:
            after = f", {steps[name]} steps" if name in steps else ""
            gap = "" if name == "original" else f"{results['gap'][name]:+10.3f}"
            print(f"{label + after:28}{results[name][measure]:14.3f}{gap}")
    print(f"\ntime          {results['seconds']:.0f} s")
    print(f"saved to      {output}", flush=True)
