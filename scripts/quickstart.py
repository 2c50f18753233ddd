# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""From a text to a model that others can load, in a few minutes on two CPU cores.

Trains a tokenizer and a small model on a text, measures the model on the end of the text, which it has not seen,
against a unigram model, saves both, loads them in a fresh process without hf_tx, and prints what the model writes.

python scripts/quickstart.py
python scripts/quickstart.py --family encoder --text my-text.txt --output my-model
python scripts/quickstart.py --mixers "sliding*3,full" --sliding-window 64
"""

import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
import transformers
from huggingface_hub.errors import StrictDataclassError
from transformers import PreTrainedModel, Trainer, TrainingArguments, set_seed
from transformers.utils import logging

import hf_tx
from hf_tx.cli.arguments import parse_options
from hf_tx.common.messages import message_of
from hf_tx.common.options import flag
from hf_tx.common.whole import write_json
from hf_tx.evaluation import UnigramModel
from hf_tx.tokenization import train_tokenizer
from hf_tx.tokenization.training import Family
from hf_tx.training import (
    RECIPES,
    Document,
    Recipe,
    SetEpoch,
    StopOnInterrupt,
    check_checkpoint_folder,
    encode_documents,
    read_documents,
    save_checkpoint,
    split_documents,
    width_fields,
)

HERE = Path(__file__).resolve().parent
TEXT = HERE / "data" / "state_of_the_union.txt"
# What the same sums may differ by in another process, relative to the loss.
TOLERANCE = 1e-5


@dataclass
class Arguments:
    """The options of the command."""

    text: list[str] = field(
        default_factory=list,
        metadata={"action": "extend", "help": "Text files. Default: the speeches that come with the scripts."},
    )
    family: Family = field(default="decoder", metadata={"help": "The kind of model."})
    output: str | None = field(default=None, metadata={"help": "Folder to save to. Default: runs/quickstart-FAMILY."})
    overwrite: bool = field(default=False, metadata={"help": "Replace a checkpoint that is in the output folder."})
    steps: int = field(default=600, metadata={"help": "Steps of training."})
    seed: int = field(default=0, metadata={"help": "The same seed gives the same model."})
    mixers: str = field(default="full", metadata={"help": "The mixer of each layer, such as 'sliding*3,full'."})
    encoder_mixers: str | None = field(default=None, metadata={"help": "Those of an encoder-decoder's encoder."})
    decoder_mixers: str | None = field(default=None, metadata={"help": "Those of an encoder-decoder's decoder."})
    sliding_window: int | None = field(
        default=None, metadata={"help": "Tokens in the window of layers with one. Default: a quarter of the context."}
    )
    attn_implementation: str | None = field(default=None, metadata={"help": "The attention backend to train with."})
    vocab_size: int = field(default=4096, metadata={"help": "The most tokens of the tokenizer."})
    context_length: int = field(default=256, metadata={"help": "The most tokens that the model sees at a time."})
    hidden_size: int = field(default=256, metadata={"help": "Features of a position."})
    num_hidden_layers: int = field(default=4, metadata={"help": "Layers of the model, or of each of its stacks."})
    num_attention_heads: int = field(default=4, metadata={"help": "Heads of a layer."})
    intermediate_size: int | None = field(
        default=None, metadata={"help": "Features inside the feed-forward layers. Default: 8/3 of the hidden size."}
    )
    batch_size: int = field(default=4, metadata={"help": "Contexts in a step."})
    learning_rate: float = field(default=1e-3, metadata={"help": "The highest learning rate."})
    held_out: float = field(default=0.1, metadata={"help": "Share of the text to measure on, not to train on."})
    prompt: list[str] = field(
        default_factory=list,
        metadata={"action": "extend", "help": "What to continue or to fill in. Default: held-out text."},
    )
    max_new_tokens: int = field(default=60, metadata={"help": "Length of the samples."})


@dataclass
class Job:
    """What is to be done, once nothing is left that the user could have got wrong."""

    arguments: Arguments
    output: Path
    recipe: Recipe
    trainer: Trainer
    train: list[Document]
    held_out: list[Document]
    prompts: list[str]


class JobFailed(Exception):
    """The job ended after training had begun; the second argument is the exit code."""


def parse(argv: Sequence[str] | None) -> Arguments:
    """Parse the options, and refuse what nothing else would refuse before the work begins.

    Raises:
        ValueError: with the option, its value and the rule.
    """
    arguments = parse_options(Arguments, argv, __doc__.partition("\n\n")[0])
    for name, least in {"steps": 1, "seed": 0, "batch_size": 1, "context_length": 8, "max_new_tokens": 1}.items():
        value = getattr(arguments, name)
        if value < least:
            raise ValueError(f"{flag(name)} {value}: must be at least {least}")
    if not 0 < arguments.learning_rate < math.inf:
        raise ValueError(f"--learning-rate {arguments.learning_rate}: must be above 0")
    if not 0 < arguments.held_out <= 0.5:
        raise ValueError(f"--held-out {arguments.held_out}: must be above 0 and at most 0.5")
    if arguments.family != "encoder-decoder" and (arguments.encoder_mixers or arguments.decoder_mixers):
        raise ValueError(
            f"--encoder-mixers, --decoder-mixers: --family {arguments.family} has one stack; use --mixers"
        )
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise ValueError("quickstart.py runs in one process: start it with python")
    return arguments


def prepare(arguments: Arguments, scratch: str) -> Job:
    """Do all that can go wrong before training: check the output, read and split the text, train the tokenizer, build
    the model, and try it.

    Raises:
        ValueError, StrictDataclassError, OSError, ImportError: an option or a text does not serve.
    """
    output = check_checkpoint_folder(
        arguments.output or f"runs/quickstart-{arguments.family}", overwrite=arguments.overwrite
    )
    recipe_class = RECIPES[arguments.family]
    names = ["mixers", "sliding_window", "hidden_size", "num_hidden_layers", "num_attention_heads"]
    names += ["encoder_mixers", "decoder_mixers"] if arguments.family == "encoder-decoder" else []
    fields = {name: getattr(arguments, name) for name in names}
    fields["max_position_embeddings"] = arguments.context_length
    fields |= width_fields(arguments.hidden_size)
    if arguments.intermediate_size is not None:
        fields["intermediate_size"] = arguments.intermediate_size
    options = {"attn_implementation": arguments.attn_implementation, "loss_implementation": "chunked"}
    # Without weights: what is wrong with the model shows before a long text is read.
    with torch.device("meta"):
        recipe_class.auto_class.from_config(recipe_class.config(vocab_size=arguments.vocab_size, **fields), **options)

    texts = read_documents(arguments.text or [TEXT])
    check_bytes(arguments, sum(len(text.encode("utf-8")) for text in texts))
    train_texts, held_out_texts = split_documents(texts, arguments.held_out)
    tokenizer = train_tokenizer(
        train_texts,
        vocab_size=arguments.vocab_size,
        family=arguments.family,
        model_max_length=arguments.context_length,
        extra_ids=0,
        # Without a terminal the bars would leave empty lines in the log.
        show_progress=sys.stderr.isatty(),
    )
    train, held_out = encode_documents(tokenizer, train_texts), encode_documents(tokenizer, held_out_texts)
    check_tokens(arguments, train, held_out)

    set_seed(arguments.seed)
    recipe = recipe_class(tokenizer, arguments.context_length, arguments.seed)
    model = recipe.auto_class.from_config(recipe.config(**recipe.token_fields(), **fields), **options)
    trainer = build_trainer(arguments, recipe, model, recipe.examples(train), scratch)
    prompts = arguments.prompt or recipe.prompts(held_out_texts)
    check_prompts(recipe, prompts)
    return Job(arguments, output, recipe, trainer, train, held_out, prompts)


def check_bytes(arguments: Arguments, num_bytes: int) -> None:
    """Refuse a text that is too short however it is cut into tokens, each of which is a byte or more.

    Raises:
        ValueError: with what there is and what is needed.
    """
    least = math.ceil(arguments.context_length / arguments.held_out)
    if num_bytes < least:
        raise ValueError(
            f"too little text: {num_bytes:,} bytes, where {least:,} are the least of which one context of "
            f"{arguments.context_length:,} tokens can be held out; give more, or a smaller --context-length"
        )


def check_tokens(arguments: Arguments, train: list[Document], held_out: list[Document]) -> None:
    """Refuse a text that gives no whole context to train on or to measure on.

    Raises:
        ValueError: with what there is and what is needed.
    """
    have = [sum(len(document.token_ids) for document in part) for part in (train, held_out)]
    needed = arguments.context_length
    if min(have) < needed:
        num_bytes = sum(document.num_bytes for document in train + held_out)
        raise ValueError(
            f"too little text: {num_bytes:,} bytes give {have[0]:,} tokens to train on and {have[1]:,} to hold out, "
            f"and both need one context of {needed:,} tokens at least; give about "
            f"{math.ceil(1.1 * num_bytes * needed / max(1, min(have))):,} bytes, or a smaller --context-length"
        )


def check_prompts(recipe: Recipe, prompts: list[str]) -> None:
    """Refuse what the samples cannot begin with.

    Raises:
        ValueError: with the prompt and the rule.
    """
    tokenizer, mask = recipe.tokenizer, recipe.tokenizer.mask_token
    for prompt in prompts:
        if mask is not None and prompt.count(mask) != 1:
            raise ValueError(f"--prompt {prompt!r}: exactly one {mask} says what to fill in")
        num_tokens = len(tokenizer(prompt, verbose=False)["input_ids"])
        if num_tokens >= recipe.context_length:
            raise ValueError(
                f"--prompt {prompt!r}: {num_tokens} tokens leave no room in --context-length {recipe.context_length}"
            )


def build_trainer(
    arguments: Arguments, recipe: Recipe, model: PreTrainedModel, rows: list[Any], scratch: str
) -> Trainer:
    """Build the trainer, and try the model on one row.

    Raises:
        ValueError: the attention backend cannot train the model on this device.
    """
    settings = TrainingArguments(
        output_dir=scratch,
        max_steps=arguments.steps,
        per_device_train_batch_size=arguments.batch_size,
        learning_rate=arguments.learning_rate,
        lr_scheduler_type="cosine",
        warmup_steps=0.1,
        weight_decay=0.1,
        adam_beta2=0.95,
        seed=arguments.seed,
        logging_steps=max(1, arguments.steps // 10),
        logging_nan_inf_filter=False,
        save_strategy="no",
        report_to="none",
        disable_tqdm=False,
        remove_unused_columns=False,
        dataloader_pin_memory=torch.cuda.is_available(),
    )
    trainer = Trainer(
        model,
        settings,
        train_dataset=rows,
        data_collator=recipe.objective,
        callbacks=[SetEpoch(recipe.objective)],
    )
    model.train()(**{name: value.to(model.device) for name, value in recipe.objective(rows[:1]).items()})
    return trainer


def describe(job: Job) -> None:
    """Print what is about to be trained."""
    train, held_out = (sum(document.num_bytes for document in part) for part in (job.train, job.held_out))
    num_tokens = sum(len(document.token_ids) for document in job.train)
    model, arguments = job.trainer.model, job.arguments
    print(f"text          {train + held_out:,} bytes, the last {held_out:,} of them held out")
    print(f"tokenizer     {len(job.recipe.tokenizer):,} tokens, {train / num_tokens:.2f} bytes a token")
    print(f"model         {type(model).__name__}, {model.num_parameters() / 1e6:.1f} million parameters")
    print(f"training      {arguments.steps} steps of {arguments.batch_size} x {arguments.context_length} tokens")
    sys.stdout.flush()


def train_and_save(job: Job) -> None:
    """Train the model, until it is done or Ctrl-C is pressed, and save it with its tokenizer.

    Raises:
        JobFailed: training was interrupted, or the weights are not finite.
        OSError: the folder cannot be written any more.
    """
    model, stop = job.trainer.model, StopOnInterrupt()
    job.trainer.add_callback(stop)
    with stop:
        job.trainer.train()
    # The Trainer turned it off for training, and it would be saved like that.
    model.config.use_cache = job.recipe.family != "encoder"
    if not all(bool(parameter.isfinite().all()) for parameter in model.parameters()):
        raise JobFailed("training diverged, and nothing was saved: lower --learning-rate", 2)
    logging.disable_progress_bar()  # saving takes no time
    save_checkpoint(job.output, model, job.recipe.tokenizer, overwrite=job.arguments.overwrite)
    if stop.interrupted:
        raise JobFailed(f"interrupted; the model after {job.trainer.state.global_step} steps is in {job.output}", 130)


def load_elsewhere(job: Job, scratch: str) -> dict[str, Any]:
    """Load the checkpoint in a fresh process without hf_tx, where it prints samples, and compare the loss on a batch.

    Returns:
        What that process found, and the loss here.

    Raises:
        JobFailed: the checkpoint does not load, or the loss is another.
    """
    model = job.trainer.model.to("cpu").eval()
    batch = job.recipe.held_out_batches(job.held_out, batch_size=2)[0]
    with torch.no_grad():
        expected = model(**batch).loss.item()
    given, found = Path(scratch, "batch.json"), Path(scratch, "found.json")
    given.write_text(json.dumps({name: value.tolist() for name, value in batch.items()}), "utf-8")
    command = [sys.executable, str(HERE / "sample.py"), str(job.output), f"--batch={given}", f"--json={found}"]
    command += [f"--max-new-tokens={job.arguments.max_new_tokens}", f"--seed={job.arguments.seed}"]
    command += [f"--prompt={prompt}" for prompt in job.prompts]
    print("\nin a fresh process without hf_tx:", flush=True)
    if subprocess.run(command, check=False).returncode:
        raise JobFailed(f"the checkpoint in {job.output} does not serve in a fresh process", 1)
    result = json.loads(found.read_text("utf-8"))
    if not math.isclose(result["loss"], expected, rel_tol=TOLERANCE):
        raise JobFailed(f"the checkpoint in {job.output} has the loss {result['loss']}, the model {expected}", 1)
    return {**result, "loss_before_saving": expected}


def run(job: Job, scratch: str, started: float) -> None:
    """Do the job, which was begun at the time `started`, and print what came of it.

    Raises:
        JobFailed: it ended early, with a message and an exit code.
        OSError: the folder cannot be written any more.
    """
    describe(job)
    seconds = {"before training": time.monotonic() - started}
    train_and_save(job)
    seconds["training"] = time.monotonic() - started - seconds["before training"]
    try:
        vocab_size = len(job.recipe.tokenizer)
        unigram = UnigramModel((document.token_ids for document in job.train), vocab_size)
        measured = job.recipe.measure(job.trainer.model, unigram, job.held_out, job.arguments.batch_size)
        reloaded = load_elsewhere(job, scratch)
    except KeyboardInterrupt:
        raise JobFailed(f"interrupted; the trained model is in {job.output}", 130) from None
    seconds["all"] = time.monotonic() - started
    samples = reloaded.pop("samples")
    results = {
        "predicts": job.recipe.predicts,
        "held_out": {"tokens": measured.model.num_tokens, "bytes": measured.num_bytes, **measured.as_dict()},
        "reloaded": reloaded,
        "samples": samples,
        "parameters": job.trainer.model.num_parameters(),
        "seconds": {name: round(value, 1) for name, value in seconds.items()},
        "arguments": asdict(job.arguments),
        "versions": {"hf_tx": hf_tx.__version__, "transformers": transformers.__version__, "torch": torch.__version__},
    }
    write_json(job.output / "results.json", results)
    summarise(results, job.output)


def summarise(results: dict[str, Any], output: Path) -> None:
    """Print the table of what was measured."""
    held_out, reloaded, seconds = results["held_out"], results["reloaded"], results["seconds"]
    size = f" ({held_out['bytes']:,} bytes)" if held_out["bytes"] else ""
    print(f"\nheld-out text: {held_out['tokens']:,} tokens{size}, {results['predicts']}\n")
    print(f"{'':14}{'model':>12}{'unigram':>12}")
    for name, value in held_out["model"].items():
        print(f"{name.replace('_', ' '):14}{value:12.3f}{held_out['unigram'][name]:12.3f}")
    print(f"\nreloaded      loss {reloaded['loss']:.6f} on a fixed batch, {reloaded['loss_before_saving']:.6f} before")
    print(f"time          {seconds['all']:.0f} s, of which training {seconds['training']:.0f} s")
    print(f"saved to      {output}")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code: 2 for what the user can mend."""
    message: object
    started = time.monotonic()
    try:
        with tempfile.TemporaryDirectory(prefix="quickstart-") as scratch:
            try:
                job = prepare(parse(argv), scratch)
            except (ValueError, StrictDataclassError, ImportError) as error:
                raise JobFailed(message_of(error), 2) from error
            run(job, scratch, started)
            return 0
    except JobFailed as failure:
        message, code = failure.args
    except OSError as error:
        message, code = error, 2
    except KeyboardInterrupt:
        message, code = "interrupted, nothing was saved", 130
    kind = "" if code == 130 else "error: "
    print(f"quickstart.py: {kind}{' '.join(str(message).split())}", file=sys.stderr)
    return code


if __name__ == "__main__":
    # A small model gains nothing from several GPUs, and the Trainer would use all of them.
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "0")
    sys.exit(main())
