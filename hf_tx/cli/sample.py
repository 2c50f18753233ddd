# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Loads a checkpoint as somebody without hf_tx does, and prints generated samples.

The code comes from the checkpoint (`trust_remote_code=True`). Importing hf_tx is blocked, and nothing is cached or
downloaded: a checkpoint that loads here has everything that it needs.

hf-tx sample runs/quickstart-decoder --prompt "My fellow Americans"
hf-tx sample runs/quickstart-encoder --prompt "My fellow [MASK], thank you."
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

HELP = "Load a checkpoint in a process without hf_tx, and print generated samples."
#: Runs this file, which imports nothing of hf_tx, by its path: path, name of the command, and arguments.
CODE = "import runpy, sys; _, path, name, *argv = sys.argv; sys.exit(runpy.run_path(path)['main'](argv, name))"
STRATEGIES: dict[str, dict[str, Any]] = {
    "greedy": {"do_sample": False},
    "beam": {"do_sample": False, "num_beams": 4},
    "temperature": {"do_sample": True, "temperature": 0.8, "top_k": 0},
    "top-k": {"do_sample": True, "top_k": 40},
    "top-p": {"do_sample": True, "top_p": 0.9, "top_k": 0},
    "repetition penalty": {"do_sample": False, "repetition_penalty": 1.3},
}
FILLS_IN = "AutoModelForMaskedLM"
AUTO_CLASSES = ("AutoModelForCausalLM", FILLS_IN, "AutoModelForSeq2SeqLM")


class _WithoutHfTx:
    """Makes the import of hf_tx fail, wherever it is installed."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        if name.partition(".")[0] == "hf_tx":
            raise ModuleNotFoundError("importing hf_tx is blocked here: a checkpoint must load without it", name=name)


@contextlib.contextmanager
def reading(name: str | Path) -> Iterator[None]:
    """Name the broken folder or file in the error: loading raises exceptions of any type.

    Raises:
        ValueError: with the name.
    """
    try:
        yield
    except ImportError:
        raise
    except Exception as error:
        raise ValueError(f"{name}: cannot be loaded: {error}") from error


def load(folder: str) -> tuple[Any, Any, bool]:
    """Return the model and the tokenizer of a checkpoint, and whether the model fills in masks.

    Raises:
        OSError: if the folder has no checkpoint.
        ValueError: if the model cannot generate or fill in text, or if the checkpoint is broken.
    """
    import transformers

    if not Path(folder, "config.json").is_file():
        raise FileNotFoundError(f"{folder!r} is not the folder of a checkpoint: it has no config.json")
    with reading(folder):
        config = transformers.AutoConfig.from_pretrained(folder, trust_remote_code=True)
    auto_class = next((name for name in AUTO_CLASSES if name in getattr(config, "auto_map", {})), None)
    if auto_class is None:
        raise ValueError(
            f"{folder!r}: the auto_map of its config has none of {', '.join(AUTO_CLASSES)}; sample a model that "
            "generates or fills in text"
        )
    settings = Path(folder, "generation_config.json")
    if settings.is_file():
        with reading(settings):  # from_pretrained takes the defaults in place of a broken one
            json.loads(settings.read_text("utf-8"))
    with reading(folder):
        model = getattr(transformers, auto_class).from_pretrained(folder, trust_remote_code=True, use_safetensors=True)
        # The tokenizer is not of hf_tx, but its loader reads the config of the model.
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, trust_remote_code=True)
    return model.eval(), tokenizer, auto_class == FILLS_IN


def loss_on(model: Any, batch: dict[str, list[Any]]) -> float:
    """Return the loss on a batch with labels."""
    import torch

    with torch.no_grad():
        return model(**{name: torch.tensor(values) for name, values in batch.items()}).loss.item()


def write_on(model: Any, tokenizer: Any, prompt: str, max_new_tokens: int, seed: int) -> list[dict[str, Any]]:
    """Return the texts that the model generates for a prompt, one per strategy.

    Raises:
        ValueError: if the prompt is as long as the context of the model.
    """
    from transformers import set_seed

    inputs = tokenizer(prompt, return_tensors="pt", verbose=False)
    free = tokenizer.model_max_length - (0 if model.config.is_encoder_decoder else inputs["input_ids"].shape[1])
    if free < 1:
        raise ValueError(
            f"the prompt fills the whole context of {tokenizer.model_max_length} tokens: shorten it, so that "
            "tokens can be generated"
        )
    samples = []
    for strategy, settings in STRATEGIES.items():
        set_seed(seed)
        tokens = model.generate(**inputs, **settings, max_new_tokens=min(max_new_tokens, free))[0]
        if not model.config.is_encoder_decoder:
            tokens = tokens[inputs["input_ids"].shape[1] :]
        text = tokenizer.decode(tokens, skip_special_tokens=True)
        samples.append({"strategy": strategy, "settings": settings, "prompt": prompt, "text": text})
    return samples


def fill_in(model: Any, tokenizer: Any, prompts: Sequence[str]) -> list[dict[str, Any]]:
    """Return the tokens that the model predicts for the mask of each prompt.

    Raises:
        ValueError: if a prompt does not have exactly one mask.
    """
    from transformers import pipeline

    for prompt in prompts:
        if prompt.count(tokenizer.mask_token) != 1:
            raise ValueError(f"the prompt {prompt!r} must contain exactly one {tokenizer.mask_token}")
    fill = pipeline("fill-mask", model=model, tokenizer=tokenizer)
    return [
        {"prompt": prompt, "text": [{"token": found["token_str"], "score": found["score"]} for found in fill(prompt)]}
        for prompt in prompts
    ]


def show(samples: list[dict[str, Any]]) -> None:
    """Print samples."""
    prompt = None
    for sample in samples:
        if sample["prompt"] != prompt:
            prompt = sample["prompt"]
            print(f"\nprompt: {prompt}")
        if isinstance(sample["text"], list):
            print("  " + ", ".join(f"{found['token']!r} {found['score']:.1%}" for found in sample["text"]))
        else:
            settings = ", ".join(f"{name}={value}" for name, value in sample["settings"].items())
            print(f"\n  [{sample['strategy']}: {settings}]\n  {' '.join(sample['text'].split())}")
    sys.stdout.flush()


def write(arguments: argparse.Namespace) -> None:
    """Load the checkpoint, print samples, and write what was asked for.

    Raises:
        OSError: there is no checkpoint in the folder.
        ValueError: the checkpoint or a prompt does not serve.
    """
    model, tokenizer, fills_in = load(arguments.checkpoint)
    loss = None
    if arguments.batch:
        with reading(arguments.batch):
            loss = loss_on(model, json.loads(arguments.batch.read_text("utf-8")))
    if fills_in:
        samples = fill_in(model, tokenizer, arguments.prompt)
    else:
        samples = [
            sample
            for prompt in arguments.prompt
            for sample in write_on(model, tokenizer, prompt, arguments.max_new_tokens, arguments.seed)
        ]
    show(samples)
    if arguments.json:
        found = {"model_class": f"{type(model).__module__}.{type(model).__name__}", "loss": loss, "samples": samples}
        arguments.json.write_text(json.dumps(found), "utf-8")


def main(argv: Sequence[str], name: str = "sample.py") -> int:
    """Do what the options say, in a process that has not imported hf_tx.

    Args:
        argv: the options.
        name: name of the command in messages.

    Returns:
        The exit code: 0, 2 for bad input, 130 after Ctrl-C.
    """
    parser = argparse.ArgumentParser(name, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", help="folder of the checkpoint")
    parser.add_argument(
        "--prompt", nargs="+", action="extend", default=[], help="texts to continue, or with a mask token to fill in"
    )
    parser.add_argument(
        "--max-new-tokens", type=int, default=60, help="maximum number of tokens to generate (default: 60)"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the sampling strategies (default: 0)")
    parser.add_argument("--batch", type=Path, help="JSON file with a batch and its labels; prints the loss on it")
    parser.add_argument("--json", type=Path, help="file to write the loss and the samples to")
    arguments = parser.parse_args(argv)
    if not arguments.prompt and not arguments.batch:
        parser.error("give a --prompt or a --batch")
    try:
        with tempfile.TemporaryDirectory(prefix="sample-") as cache:
            # Before transformers is imported: it reads them once.
            os.environ.update(HF_MODULES_CACHE=cache, HF_HUB_OFFLINE="1")
            sys.meta_path.insert(0, _WithoutHfTx())
            from transformers.utils import logging

            logging.disable_progress_bar()
            write(arguments)
    except (ValueError, OSError, ImportError) as error:
        print(f"{name}: error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


def command_of(argv: Sequence[str], name: str = "hf-tx sample") -> list[str]:
    """Return the command that runs this file in a new process."""
    # -P: a module in the working directory must not replace one of a library.
    return [sys.executable, "-P", "-c", CODE, __file__, name, *argv]


def run(argv: Sequence[str], name: str) -> int:
    """Run in a new process, and return its exit code."""
    return subprocess.run(command_of(argv, name), check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
