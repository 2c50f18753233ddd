# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Measures models on texts: how well they predict them, or which classes they give to them.

Every token is scored exactly once. Several models are compared: language models by bits per byte, whatever their
tokenizers; their perplexities are shown where they are of the same tokens. All options can stand in one YAML or JSON
file instead. The script runs with python, torchrun and accelerate launch.

python scripts/evaluate.py --model my-model --text held-out.txt
python scripts/evaluate.py --model my-model gpt2 --text held-out.txt --context-length 512 --stride 256
python scripts/evaluate.py --model my-encoder --task masked-lm --dataset reviews.jsonl --column review
python scripts/evaluate.py --model my-t5 --task seq2seq-lm --dataset pairs.csv --column source --target-column target
python scripts/evaluate.py --model my-classifier --task sequence-classification --dataset reviews.csv
python scripts/evaluate.py evaluation.yaml
"""

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
import transformers
from accelerate import PartialState
from transformers import AutoConfig

import hf_tx
from hf_tx.cli.arguments import parse_options, run_script
from hf_tx.evaluation import TextResult, evaluate_classifier, evaluate_texts, load_model, rank
from hf_tx.evaluation.loading import AUTO_CLASSES, of_known_kind
from hf_tx.tokenization import iter_rows
from hf_tx.training import read_documents


@dataclass
class Arguments:
    """The options of the command."""

    model: list[str] = field(metadata={"action": "extend", "help": "Folders or Hub ids of models with a tokenizer."})
    task: Literal["causal-lm", "masked-lm", "seq2seq-lm", "sequence-classification"] = field(
        default="causal-lm", metadata={"help": "What the models do."}
    )
    text: list[str] = field(
        default_factory=list, metadata={"action": "extend", "help": "Text files, or directories of *.txt files."}
    )
    dataset: str | None = field(
        default=None, metadata={"help": "Instead of --text: a Hub id, a dataset folder, or a jsonl/csv/parquet file."}
    )
    dataset_config: str | None = field(default=None, metadata={"help": "Configuration of the dataset."})
    split: str | None = field(default=None, metadata={"help": "Split of the dataset. Default: test; all of a file."})
    column: str = field(default="text", metadata={"help": "Column of texts; for seq2seq-lm, of sources."})
    target_column: str = field(default="target", metadata={"help": "Column of the targets of seq2seq-lm."})
    label_column: str = field(default="label", metadata={"help": "Column of the labels of sequence-classification."})
    context_length: int | None = field(default=None, metadata={"help": "The most tokens that a model sees at a time."})
    stride: int | None = field(default=None, metadata={"help": "Tokens by which windows move on. Default: half."})
    batch_size: int = field(default=8, metadata={"help": "Windows or texts that go through a model together."})
    attn_implementation: str | None = field(default=None, metadata={"help": "The attention backend."})
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = field(
        default="auto", metadata={"help": "Floating-point type of the weights; auto: as they were saved."}
    )
    trust_remote_code: bool = field(default=False, metadata={"help": "Run code that comes with a model."})
    output: str | None = field(default=None, metadata={"help": "JSON file to write the results to."})
    overwrite: bool = field(default=False, metadata={"help": "Replace an output file that is there."})


def read_data(arguments: Arguments) -> list[Any]:
    """Return texts, or rows of a text and its target or label.

    Raises:
        ValueError, OSError: there is no such data.
    """
    if bool(arguments.text) == bool(arguments.dataset):
        raise ValueError("give either --text or --dataset")
    more = {"seq2seq-lm": [arguments.target_column], "sequence-classification": [arguments.label_column]}
    columns = [arguments.column, *more.get(arguments.task, [])]
    if not arguments.dataset:
        if len(columns) > 1:
            raise ValueError(f"--task {arguments.task} needs the columns {' and '.join(columns)}: give a --dataset")
        if arguments.split or arguments.dataset_config:
            raise ValueError("--split and --dataset-config are those of a --dataset: leave them out with --text")
        return read_documents(arguments.text)
    split = arguments.split or ("train" if Path(arguments.dataset).is_file() else "test")
    rows = iter_rows(arguments.dataset, columns=columns, config=arguments.dataset_config, split=split)
    return [row if len(columns) > 1 else row[0] for row in rows]


def check(arguments: Arguments) -> None:
    """Refuse what can be refused before anything is loaded.

    Raises:
        ValueError, OSError: with the option, its value and the rule.
    """
    if arguments.output:
        output = Path(arguments.output).resolve()
        if output.is_dir() or not output.parent.is_dir():
            raise ValueError(f"--output {arguments.output}: must be a file in a folder that exists")
        if output.exists() and not arguments.overwrite:
            raise ValueError(f"--output {arguments.output}: exists; name another file, or give --overwrite")
    if arguments.stride is not None and arguments.task != "causal-lm":
        raise ValueError(f"--stride {arguments.stride}: only windows of a causal-lm move on by a stride; leave it out")
    if len(set(arguments.model)) < len(arguments.model):
        raise ValueError(f"--model {' '.join(arguments.model)}: a model is there twice")


def check_models(arguments: Arguments) -> None:
    """Refuse a model that is not there, or is not for the task, before the first is evaluated.

    Raises:
        ValueError, OSError: with its name.
    """
    for name in arguments.model:
        # A misspelt name or a model of another kind must not show after an hour with the models before it.
        try:
            config = AutoConfig.from_pretrained(name, trust_remote_code=arguments.trust_remote_code)
        except OSError as error:
            raise OSError(f"--model {name}: {error}") from error
        with of_known_kind(name, arguments.task), torch.device("meta"):
            AUTO_CLASSES[arguments.task].from_config(config, trust_remote_code=arguments.trust_remote_code)


def evaluate(arguments: Arguments, name: str, data: list[Any], state: PartialState) -> TextResult | dict[str, Any]:
    """Evaluate one model.

    Raises:
        ValueError, OSError, ImportError: the model, its tokenizer, an option or the data do not serve.
    """
    model, tokenizer = load_model(
        name,
        arguments.task,
        device=str(state.device),
        trust_remote_code=arguments.trust_remote_code,
        dtype=arguments.dtype,
        attn_implementation=arguments.attn_implementation,
    )
    options = {name: getattr(arguments, name) for name in ("context_length", "batch_size")}
    if arguments.task == "sequence-classification":
        texts, labels = zip(*data, strict=True)
        return {
            "name": name,
            **evaluate_classifier(model, tokenizer, texts, labels, description=name, state=state, **options),
        }
    return evaluate_texts(
        model,
        tokenizer,
        data,
        task=arguments.task,
        stride=arguments.stride,
        name=name,
        description=name,
        state=state,
        **options,
    )


def table(rows: list[dict[str, Any]], columns: Sequence[str]) -> str:
    """Return measures as a table."""
    cells = [["model", *(column.replace("_", " ") for column in columns)]]
    for row in rows:
        values = [row[column] for column in columns]
        cells.append(
            [row["name"], *(f"{value:.4f}" if isinstance(value, float) else f"{value:,}" for value in values)]
        )
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join(
        "  ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])]).rstrip() for line in cells
    )


def summary(results: list[TextResult]) -> str:
    """Return the table of language models, the best first, and what must be known to read it."""
    ranked = rank(results)
    kind = "pseudo_" if ranked[0].task == "masked-lm" else ""
    columns = [f"{kind}bits_per_byte", f"{kind}perplexity", "accuracy", "tokens", "bytes", "unknown_tokens"]
    notes = []
    try:
        rank(results, by="perplexity")
    except ValueError as error:
        columns.remove(f"{kind}perplexity")
        notes.append(f"perplexity is not shown: {error}")
    notes += [
        f"{result.name}: the tokenizer does not keep all of the text, so that the model had less to predict"
        for result in ranked
        if not result.lossless
    ]
    return "\n".join([table([result.as_dict() for result in ranked], columns), *notes])


def run(arguments: Arguments) -> None:
    """Evaluate the models, print the table, and write the results.

    Raises:
        ValueError, OSError, ImportError: an option, the data or a model does not serve.
    """
    check(arguments)
    data = read_data(arguments)
    check_models(arguments)
    # Without being told, it takes several processes without GPUs for several single ones.
    state = PartialState(cpu=not torch.accelerator.is_available())
    results, seconds = [], {}
    for name in arguments.model:
        started = time.monotonic()
        results.append(evaluate(arguments, name, data, state))
        seconds[name] = round(time.monotonic() - started, 1)
    if not state.is_main_process:
        return
    if isinstance(results[0], TextResult):
        print(summary(results))
        found = [result.as_dict() for result in rank(results)]
    else:
        print(table(results, ["accuracy", "f1_macro", "f1_micro", "mcc", "texts", "cut_texts"]))
        found = results
    if arguments.output:
        versions = {"hf_tx": hf_tx.__version__, "transformers": transformers.__version__, "torch": torch.__version__}
        how = {"seconds": seconds, "processes": state.num_processes, "arguments": asdict(arguments)}
        content = {"results": found, **how, "versions": versions}
        part = Path(f"{arguments.output}.part")
        part.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", "utf-8")
        part.replace(arguments.output)
        print(f"saved to {Path(arguments.output).resolve()}")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code: 2 for what the user can mend."""
    description = __doc__.partition("\n\n")[0]
    return run_script("evaluate.py", lambda argv: run(parse_options(Arguments, argv, description)), argv)


if __name__ == "__main__":
    sys.exit(main())
