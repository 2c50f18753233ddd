# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Parses the options of a command, which are dataclasses, from the command line or from one file. Options can have the
names of hf_tx or those of the example scripts of transformers."""

import argparse
import copy
import json
import re
import shlex
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import fields
from difflib import get_close_matches
from functools import cached_property, partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, NoReturn, TypeVar, cast, get_type_hints, overload

import yaml  # type: ignore[import-untyped]
from transformers import HfArgumentParser

from ..common.options import flag

Options = TypeVar("Options")
_FILES = (".yaml", ".yml", ".json")

#: The names that the example scripts of transformers use for an option of hf_tx, in every command that has the option
#: and does not define others (`"aliases"` in the metadata of its field). If several options have the same name, the
#: first in the order of the classes gets it, so that `output_dir` is the option of hf_tx and not that of the Trainer.
ALIASES: dict[str, tuple[str, ...]] = {
    "model": ("model_name_or_path",),
    "tokenizer": ("tokenizer_name",),
    "dataset": ("dataset_name",),
    "dataset_config": ("dataset_config_name",),
    "columns": ("text_column", "text_column_name", "text_column_names"),
    "label_column": ("label_column_name", "summary_column"),
    "train_split": ("train_split_name",),
    "eval_split": ("validation_split_name",),
    "context_length": ("block_size", "max_seq_length"),
    "max_length": ("max_seq_length", "max_source_length"),
    "generation_num_beams": ("num_beams",),
    "output": ("output_dir",),
    "overwrite": ("overwrite_output_dir",),
    "steps": ("max_steps",),
    "batch_size": ("per_device_train_batch_size",),
}

#: Options of the example scripts that take files of text or of rows, with the option of hf_tx for text and that for
#: rows. A command has them if it has the first.
FILES: dict[str, tuple[str, str]] = {
    "train_file": ("text", "dataset"),
    "validation_file": ("eval_text", "eval_dataset"),
}

#: What to do instead of other options of the example scripts, if a command does not have them.
INSTEAD: dict[str, str] = {
    "model": "this command trains a new model; use `hf-tx finetune` to train a model that you have",
    "model_name_or_path": "this command trains a new model; use `hf-tx finetune` to train a model that you have",
    "model_type": "use --family (decoder, encoder or encoder-decoder)",
    "config_name": "use options for the sizes (--hidden-size ...), and --config-changes for other fields",
    "config_overrides": "use --config-changes with JSON, such as '{\"hidden_dropout\": 0.1}'",
    "validation_split_percentage": "use --held-out with a share, such as 0.05",
    "mlm_probability": "use --objective-options '{\"mlm_probability\": 0.15}'",
    "steps": "use --max-steps",
    "batch_size": "use --per-device-train-batch-size",
    "doc_stride": "use --task-options '{\"doc_stride\": 64}'",
    "max_answer_length": "use --task-options '{\"max_answer_length\": 30}'",
    "max_target_length": "use --task-options '{\"max_target_length\": 64}'",
    "val_max_target_length": "use --task-options '{\"max_target_length\": 64}'",
    "n_best_size": "use --task-options '{\"n_best\": 20}'",
    "problem_type": 'use --task-options \'{"problem_type": "regression"}\'',
    "baseline": 'use --task-options \'{"baseline": "tf-idf"}\'',
    "line_by_line": "use --objective-options '{\"packed\": false}'",
    "preprocessing_num_workers": "rows are prepared in one process, to be the same on every machine; remove it",
    "overwrite_cache": "changed files are always read again; remove it",
    "overwrite_output_dir": "remove the output folder, or choose another",
    "cache_dir": "set the environment variable HF_HOME to the folder of the cache",
    "model_revision": "download the revision with `hf download --revision`, and pass its folder",
    "token": "log in with `hf auth login`, which stores the token",
    "torch_dtype": "use --bf16 or --fp16",
    "pad_to_max_length": "rows are always padded to the longest one of their batch; remove it",
    "validation_file": "pass the data as --text or --dataset of `hf-tx evaluate`",
    "test_file": "evaluate on other data with `hf-tx evaluate`",
    "max_predict_samples": "evaluate on other data with `hf-tx evaluate`",
    "task_name": "use --task for the kind of task, and --dataset for the data",
    "use_peft": "use --lora-r to train LoRA adapters",
}

#: The groups of `--help`, in their order. The other options of the Trainer are last, in a group of their own.
GROUPS: dict[str, tuple[str, ...]] = {
    "model": (
        "model", "task", "task_options", "objective", "objective_options", "family", "tokenizer", "algorithm",
        "vocab_size", "min_frequency", "lowercase", "model_max_length", "mixers", "encoder_mixers", "decoder_mixers",
        "hidden_size", "num_hidden_layers", "num_attention_heads", "sliding_window", "config_changes",
        "attn_implementation", "dtype", "lora_r", "trust_remote_code",
    ),
    "data": (
        "text", "dataset", "dataset_config", "columns", "label_column", "train_split", "eval_text", "eval_dataset",
        "eval_split", "split", "other_text", "held_out", "held_out_first", "streaming", "shuffle_buffer_size",
        "max_train_samples", "max_eval_samples",
        "max_eval_characters", "context_length", "max_length",
    ),
    "training and evaluation": (
        "max_steps", "num_train_epochs", "steps", "transfer_steps", "trial_steps", "per_device_train_batch_size",
        "per_device_eval_batch_size", "gradient_accumulation_steps", "batch_size", "learning_rate",
        "transfer_learning_rate", "lr_scheduler_type", "warmup_steps", "weight_decay", "temperature", "labels_weight",
        "bf16", "fp16", "mixed_precision", "seed", "stride", "generation_max_length",
        "generation_num_beams", "generation_context", "rounds", "resume", "disable_tqdm", "samples", "prompt",
        "max_new_tokens",
    ),
    "output and Hub": (
        "output", "overwrite", "title", "license", "language", "data_name", "data_license", "data_source",
        "other_name", "other_license", "other_source", "report_to", "push_to_hub", "hub_model_id",
        "hub_private_repo", "hub_revision", "hub_token",
    ),
}  # fmt: skip
OTHERS, OF_TRAINER = "others", "other options of the Trainer of transformers"


class _Help(argparse.RawDescriptionHelpFormatter):
    """Shows each option once, as `flag` spells it, with its default and its other names after the help."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=34, width=min(119, shutil.get_terminal_size().columns - 2))

    def _format_action_invocation(self, action: argparse.Action) -> str:
        if not action.option_strings or action.nargs == 0:
            return super()._format_action_invocation(action)
        value = self._format_args(action, self._get_default_metavar_for_optional(action))
        return f"{flag(action.option_strings[0].lstrip('-'))} {value}"

    def _get_default_metavar_for_optional(self, action: argparse.Action) -> str:
        kind = getattr(action.type, "__name__", "")
        return {"int": "N", "float": "X", "string_to_bool": "BOOL"}.get(kind, "VALUE")

    def _get_help_string(self, action: argparse.Action) -> str:
        text = action.help or ""
        if action.default not in (None, [], "", "{}", argparse.SUPPRESS) and action.default is not False:
            text += "" if "Default: " in text else " Default: %(default)s."
        _, *others = dict.fromkeys(flag(name.lstrip("-")) for name in action.option_strings)
        return text.strip() + (f" Alias: {', '.join(others)}." if others and action.nargs != 0 else "")


class _FileOfEitherKind(argparse.Action):
    """Passes files to the option for text or to the option for rows, depending on their extension."""

    def __init__(self, option_strings: Sequence[str], dest: str, text: str, rows: str | None) -> None:
        self.text, self.rows = f"--{text}", f"--{rows or text}"
        also = f" or {flag(rows)}" if rows else ""
        super().__init__(
            option_strings,
            dest,
            nargs="+",
            default=argparse.SUPPRESS,
            help=f"Like {flag(text)}{also}, depending on the extension.",
        )

    def __call__(self, parser: Any, namespace: argparse.Namespace, values: Any, option_string: Any = None) -> None:
        from ..tokenization.files import ending
        from ..tokenization.tables import TABLES

        for value in values:
            action = parser._option_string_actions[self.rows if ending(value) in TABLES else self.text]
            action.required = False  # it is given, under this name
            action(parser, namespace, value if action.nargs is None else [value], option_string)


def _place(names: Sequence[str], action: argparse.Action) -> int:
    return names.index(action.dest) if action.dest in names else len(names)


class _Parser(HfArgumentParser):
    """Adds aliases and groups, and raises errors instead of exiting, so that each is one line, as all others."""

    def __init__(self, classes: Any, **settings: Any) -> None:
        self._claimed: set[str] = set()
        super().__init__(classes, formatter_class=_Help, allow_abbrev=False, **settings)
        for name, (text, rows) in FILES.items():
            if text in self._claimed:
                spelt, of_rows = (f"--{name}", flag(name)), rows if rows in self._claimed else None
                self._parts["data"].add_argument(*spelt, action=_FileOfEitherKind, text=text, rows=of_rows)
        for title, names in GROUPS.items():
            self._parts[title]._group_actions.sort(key=partial(_place, names))

    def error(self, message: str) -> NoReturn:
        """Raise a ValueError; of an option with several names, show only the first."""
        raise ValueError(re.sub(r"(--[\w-]+)(/--[\w-]+)+", r"\1", message))

    def _add_dataclass_arguments(self, dtype: Any) -> None:
        hints, own = get_type_hints(dtype), {field.name for field in fields(dtype)} - self._claimed
        self._claimed |= own
        rest = OF_TRAINER if any(kind.__name__ == "TrainingArguments" for kind in dtype.__mro__) else OTHERS
        for given in fields(dtype):
            if not given.init or given.name not in own:
                continue
            field = copy.copy(given)  # HfArgumentParser changes it
            field.type = hints[field.name]
            aliases = given.metadata.get("aliases", ALIASES.get(given.name, ()))
            aliases = [name for name in aliases if name not in self._claimed]
            self._claimed.update(aliases)
            spelt = dict.fromkeys(spelling for name in aliases for spelling in (f"--{name}", flag(name)))
            field.metadata = MappingProxyType({**field.metadata, "aliases": list(spelt)})
            title = next((title for title, names in GROUPS.items() if given.name in names), rest)
            self._parse_dataclass_field(self._parts[title], field)

    @cached_property
    def _parts(self) -> dict[str, Any]:
        """The groups by title. All are created at once, because `--help` shows them in the order of creation."""
        return {title: self.add_argument_group(title) for title in (*GROUPS, OTHERS, OF_TRAINER)}

    def into_dataclasses(self, argv: Sequence[str]) -> list[Any]:
        """Return an object of each class. If several classes have an option, the first one gets it."""
        found = vars(self.parse_args(list(argv)))
        return [
            dtype(**{each.name: found.pop(each.name) for each in fields(dtype) if each.init and each.name in found})
            for dtype in cast(Any, self.dataclass_types)
        ]


@overload
def parse_options(
    options_class: type[Options], argv: Sequence[str] | None = None, description: str | None = None, name: str = ...
) -> Options: ...


@overload
def parse_options(
    options_class: tuple[type[Any], ...],
    argv: Sequence[str] | None = None,
    description: str | None = None,
    name: str = ...,
) -> tuple[Any, ...]: ...


def parse_options(
    options_class: Any, argv: Sequence[str] | None = None, description: str | None = None, name: str | None = None
) -> Any:
    """Parse the options of a command: `--name value`, or the path of one `.yaml`, `.yml` or `.json` file with names
    and values. Both use the same parser, and therefore the same checks.

    Args:
        options_class: a dataclass for `HfArgumentParser`, or several. Lists have `"action": "extend"` in their
            metadata. The names that the example scripts of transformers use are accepted too, see `ALIASES`.
        argv: the arguments, without the name of the program. Default: those of the process.
        description: text of `--help`: the docstring of the command's module, with examples after an empty line.
        name: of the command. Default: that of the process.

    Returns:
        An object of the class, or of each.

    Raises:
        ValueError: if an option is missing, unknown or of another type, or if the file has no options.
        OSError: if the file cannot be read.
        SystemExit: after `--help`.
    """
    argv = sys.argv[1:] if argv is None else list(argv)
    parser = _Parser(
        cast(Any, options_class), prog=name, usage="%(prog)s [--OPTION VALUE ...] | FILE", description=description
    )
    if len(argv) == 1 and Path(argv[0]).suffix.lower() in _FILES:
        argv = list(_options_of_file(Path(argv[0]), parser))
    elif argv and not argv[0].startswith("-"):
        raise ValueError(
            f"{argv[0]} is not an option. Options begin with --; a file with options ({', '.join(_FILES)}) must be "
            "the only argument"
        )
    # Before required options are checked: a misspelled option may be a required one.
    for argument in argv:
        given = argument.partition("=")[0]
        if given.startswith("--") and given not in parser._option_string_actions:
            raise ValueError(f"unknown option {given}" + _hint(given, list(parser._option_string_actions)))
    found = parser.into_dataclasses(argv)
    return tuple(found) if isinstance(options_class, tuple) else found[0]


def _hint(given: str, known: list[str]) -> str:
    instead = INSTEAD.get(given[2:].replace("-", "_"))
    close = get_close_matches(given, known, 1)
    return f": {instead}" if instead else f": did you mean {close[0]}?" if close else ""


def command_line(command: str, argv: Sequence[str]) -> str:
    """Return the command line that runs a command again, for a card, without the token of the Hub."""
    shown, hidden = [], False
    for part in argv:
        name = part.partition("=")[0].lstrip("-").replace("-", "_")
        if not hidden and not name.endswith("token"):
            shown.append(part)
        hidden = name.endswith("token") and "=" not in part and not hidden
    return shlex.join(["hf-tx", command, *shown])


class _Yaml(yaml.SafeLoader):  # type: ignore[misc]
    """Raises an error if a name occurs twice: one value would silently replace the other."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        _refuse_twice([key.value for key, _ in node.value])
        return super().construct_mapping(node, deep)


def _of_json(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    _refuse_twice([name for name, _ in pairs])
    return dict(pairs)


def _refuse_twice(names: list[Any]) -> None:
    twice = [name for number, name in enumerate(names) if name in names[:number]]
    if twice:
        raise ValueError(f"{twice[0]} occurs twice")


def _options_of_file(path: Path, parser: HfArgumentParser) -> Iterator[str]:
    actions = parser._option_string_actions
    try:
        text = path.read_text("utf-8-sig")
        is_json = path.suffix.lower() == ".json"
        found: Any = json.loads(text, object_pairs_hook=_of_json) if is_json else yaml.load(text, _Yaml)
        if not isinstance(found, dict):
            raise ValueError("it must contain names and values of options, such as `max_steps: 100`")
        # By the field that they set, since an option can have several names.
        _refuse_twice([actions[f"--{name}"].dest if f"--{name}" in actions else name for name in found])
    except (ValueError, yaml.YAMLError) as error:
        raise ValueError(f"{str(path)!r} cannot be read: {error}") from error
    for name, value in found.items():
        action = actions.get(f"--{name}")
        if isinstance(value, list) and action is not None and action.nargs is None:
            raise ValueError(f"{str(path)!r}: {name} must be one value, not a list")
        for item in value if isinstance(value, list) else [value]:
            # null means that the option is not given.
            if item is not None:
                yield f"--{name}={json.dumps(item, default=str) if isinstance(item, dict) else item}"
