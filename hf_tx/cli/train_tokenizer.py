# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Trains a tokenizer from text files or a dataset and saves it as a folder that AutoTokenizer loads.

hf-tx train-tokenizer --text my-text.txt --output my-tokenizer
hf-tx train-tokenizer --dataset wikitext --dataset-config wikitext-2-raw-v1 --output my-tokenizer
"""

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from ..tokenization import check_output_folder, iter_dataset, iter_texts, save_tokenizer, train_tokenizer
from ..tokenization.training import Algorithm, Family
from .arguments import parse_options

HELP = "Train a tokenizer from text files or a dataset."
INTERRUPTED = "interrupted; nothing was saved"

_SAMPLE_CHARACTERS = 1 << 16


@dataclass
class Arguments:
    """The options of the command."""

    output: str = field(metadata={"help": "Folder to save the tokenizer to."})
    text: list[str] = field(
        default_factory=list, metadata={"action": "extend", "help": "Text files, or folders with *.txt files."}
    )
    dataset: str | None = field(
        default=None,
        metadata={
            "help": "Instead of --text: a name on the Hub, a dataset folder, or a csv, json, jsonl or parquet file."
        },
    )
    dataset_config: str | None = field(
        default=None, metadata={"help": "Configuration of the dataset, if it has several."}
    )
    split: str = field(default="train", metadata={"help": "Split of the dataset."})
    columns: list[str] = field(
        default_factory=list,
        metadata={"action": "extend", "help": "Columns with the texts. Default: text."},
    )
    algorithm: Algorithm = field(default="bpe", metadata={"help": "Algorithm that splits words into tokens."})
    vocab_size: int = field(default=8192, metadata={"help": "Maximum number of tokens, including special tokens."})
    family: Family = field(
        default="decoder", metadata={"help": "Family of the model; decides which special tokens are added."}
    )
    model_max_length: int | None = field(
        default=None, metadata={"help": "Maximum length of the input of the model, in tokens."}
    )
    min_frequency: int | None = field(
        default=None, metadata={"help": "How often a pair of tokens must occur to be merged."}
    )
    lowercase: bool = field(default=False, metadata={"help": "Convert texts to lower case."})
    overwrite: bool = field(default=False, metadata={"help": "Replace the tokenizer in the output folder."})


def run(argv: Sequence[str], name: str) -> None:
    """Train, save and describe the tokenizer.

    Raises:
        ValueError: if an option or a text is invalid.
        OSError: if a file cannot be read, or the folder cannot be written.
    """
    arguments = parse_options(Arguments, argv, __doc__, name)
    if bool(arguments.text) == bool(arguments.dataset):
        raise ValueError("give either --text or --dataset, and not both")
    check_output_folder(arguments.output, overwrite=arguments.overwrite)
    if arguments.dataset:
        source: dict[str, Any] = {"config": arguments.dataset_config, "split": arguments.split}
        columns = arguments.columns or ["text"]
        texts: Iterator[str] = chain(*[iter_dataset(arguments.dataset, column=column, **source) for column in columns])
    else:
        texts = iter_texts(arguments.text)
    sample: list[str] = []
    tokenizer = train_tokenizer(
        _keeping_sample(texts, sample),
        algorithm=arguments.algorithm,
        vocab_size=arguments.vocab_size,
        family=arguments.family,
        model_max_length=arguments.model_max_length,
        min_frequency=arguments.min_frequency,
        lowercase=arguments.lowercase,
        # Without a terminal, progress bars would leave empty lines in the log.
        show_progress=sys.stderr.isatty(),
    )
    folder = save_tokenizer(tokenizer, arguments.output, overwrite=arguments.overwrite)
    _describe(tokenizer, "".join(sample))
    print(f"saved to      {folder}")


def _keeping_sample(texts: Iterable[str], sample: list[str]) -> Iterator[str]:
    missing = _SAMPLE_CHARACTERS
    for text in texts:
        if missing > 0:
            sample.append(text[:missing])
            missing -= len(sample[-1])
        yield text


def _describe(tokenizer: Any, sample: str) -> None:
    num_bytes = len(sample.encode("utf-8"))
    num_tokens = len(tokenizer(sample, add_special_tokens=False, verbose=False)["input_ids"])
    example = sample.strip()[:60]
    special = tokenizer.all_special_tokens
    shown = " ".join(special[:6]) + (" ..." if len(special) > 6 else "")
    print(f"vocabulary    {len(tokenizer)} tokens, including {shown}")
    print(f"compression   {num_bytes / num_tokens:.2f} bytes per token on the first {num_bytes} bytes")
    print(f"example       {example!r}")
    print(f"  as tokens   {tokenizer(example).tokens()}")
