# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""The options of commands: our names and those of the example scripts of transformers, files of options, and help."""

import re
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import pytest
import yaml
from transformers import Seq2SeqTrainingArguments

from hf_tx.cli import distill, train_tokenizer
from hf_tx.cli.arguments import ALIASES, FILES, GROUPS, INSTEAD, command_line, parse_options
from hf_tx.training.comparison import ComparisonArguments
from hf_tx.training.evaluation import EvaluationArguments
from hf_tx.training.finetuning import FinetuningArguments, FinetuningOptions
from hf_tx.training.healing import HealingSettings
from hf_tx.training.pretraining import PretrainingArguments, PretrainingOptions

PRETRAIN, FINETUNE = (PretrainingArguments, PretrainingOptions), (FinetuningArguments, FinetuningOptions)
#: The classes of options of each command.
COMMANDS: dict[str, tuple[Any, ...]] = {
    "train-tokenizer": (train_tokenizer.Arguments,),
    "pretrain": PRETRAIN,
    "finetune": FINETUNE,
    "evaluate": (EvaluationArguments,),
    "distill": (distill.Arguments, HealingSettings),
    "compare": (ComparisonArguments,),
}
OF_TRAINER = {each.name for each in fields(Seq2SeqTrainingArguments)}


def names_of(classes: tuple[Any, ...]) -> set[str]:
    return {each.name for kind in classes for each in fields(kind) if each.init}


def test_every_option_of_a_command_has_its_group_and_every_name_an_option() -> None:
    grouped = [name for names in GROUPS.values() for name in names]
    assert len(set(grouped)) == len(grouped)
    own = {name for classes in COMMANDS.values() for name in names_of(classes)} - OF_TRAINER
    assert own <= set(grouped)
    assert set(grouped) | set(ALIASES) <= own | OF_TRAINER
    assert {option for pair in FILES.values() for option in pair} <= own


# ------------------------------------------------------------------------- the names of the example scripts
def test_a_language_model_with_the_options_of_an_example_script() -> None:
    theirs = "--tokenizer_name gpt2 --dataset_name wiki --dataset_config_name raw --text_column_name body --do_train "
    theirs += "--block_size 128 --validation-split-name test --output_dir out --per_device_train_batch_size 4"
    ours = "--tokenizer gpt2 --dataset wiki --dataset-config raw --columns body --do-train "
    ours += "--context-length 128 --eval-split test --output out --per-device-train-batch-size 4"
    (arguments, options), (expected, others) = (parse_options(PRETRAIN, line.split()) for line in (theirs, ours))
    assert arguments == expected
    assert (arguments.output, arguments.context_length, options.do_train) == ("out", 128, True)
    # The folder is ours to say; the run tells the Trainer.
    assert options.output_dir == others.output_dir != "out"


@pytest.mark.parametrize(("train", "held_out"), [("a.csv", "b.csv"), ("a.jsonl.gz", "b.jsonl.gz"), ("a.txt", "b")])
def test_files_of_text_and_of_rows_are_told_by_their_endings(train: str, held_out: str) -> None:
    line = f"--model_name_or_path m --task seq2seq --max_source_length 9 --train_file {train}"
    arguments, _ = parse_options(FINETUNE, [*line.split(), "--validation-file", held_out])
    found = (arguments.dataset, arguments.eval_dataset, arguments.text, arguments.eval_text)
    assert found == (([], [], [train], [held_out]) if train == "a.txt" else ([train], [held_out], [], []))
    assert (arguments.model, arguments.max_length) == ("m", 9)


def test_lists_and_single_values_have_other_names_too() -> None:
    line = "--model_name_or_path a b --dataset_name d --max_seq_length 8 --num_beams 2"
    arguments = parse_options(EvaluationArguments, [*line.split(), "--task", "seq2seq"])
    assert (arguments.model, arguments.max_length, arguments.generation_num_beams) == (["a", "b"], 8, 2)
    arguments = parse_options(train_tokenizer.Arguments, ["--train_file", "a.csv", "--output_dir", "o"])
    assert (arguments.dataset, arguments.text, arguments.output) == ("a.csv", [], "o")
    arguments, settings = parse_options(
        COMMANDS["distill"], ["--model", "m", "--train_file", "a.txt", "--output_dir", "o", "--max_steps", "3"]
    )
    assert (arguments.text, settings.steps) == (["a.txt"], 3)


@pytest.mark.parametrize(
    ("command", "given", "message"),
    [
        (
            "pretrain",
            "--model_name_or_path gpt2",
            "unknown option --model_name_or_path: this command trains a new model; use `hf-tx finetune`",
        ),
        (
            "pretrain",
            "--validation_split_percentage=5",
            "unknown option --validation_split_percentage: use --held-out",
        ),
        ("pretrain", "--mlm-probability 0.3", "unknown option --mlm-probability: use --objective-options"),
        ("pretrain", "--block_sise 3", "unknown option --block_sise: did you mean --block_size?"),
        ("pretrain", "--overwrite_output_dir", "--overwrite_output_dir: remove the output folder, or choose another"),
        ("finetune", "--task_name mrpc", "unknown option --task_name: use --task for the kind of task"),
        ("finetune", "--test_file a.csv", "unknown option --test_file: evaluate on other data with `hf-tx evaluate`"),
        (
            "distill",
            "--validation_file a.txt",
            "unknown option --validation_file: pass the data as --text or --dataset of ",
        ),
        ("evaluate", "--output_dir a", "unknown option --output_dir: did you mean --output"),
        (
            "evaluate",
            "model",
            "model is not an option. Options begin with --; a file with options (.yaml, .yml, .json) must be the only",
        ),
        ("distill", "--steps 2", "the following arguments are required: --model, --output"),
        ("distill", "--steps many", "argument --steps: invalid int value: 'many'"),
    ],
)
def test_what_means_nothing_here_is_refused_with_a_hint(command: str, given: str, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        parse_options(COMMANDS[command], given.split())


def test_what_to_do_instead_names_options_that_there_are() -> None:
    known = {f"--{name.replace('_', '-')}" for classes in COMMANDS.values() for name in names_of(classes)}
    for hint in INSTEAD.values():
        assert set(re.findall(r"--[\w-]+", hint)) - {"--revision"} <= known, hint


# ------------------------------------------------------------------------------------------------- files of options
@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_file_has_the_same_names(here: Path) -> None:
    content = {"model-name-or-path": "m", "task": "chat", "train_file": ["a.csv", "b.csv"], "max_seq_length": 8}
    Path("options.yaml").write_text(yaml.safe_dump(content), "utf-8")
    found, _ = parse_options(FINETUNE, ["options.yaml"])
    line = "--model m --task chat --dataset a.csv b.csv --max-length 8"
    assert asdict(found) == asdict(parse_options(FINETUNE, line.split())[0])


@pytest.mark.parametrize("twice", ["model: m\nmodel_name_or_path: n\n", "max_length: 2\nmax-seq-length: 2\n"])
def test_two_names_of_one_option_are_one_too_many(here: Path, twice: str) -> None:
    Path("options.yml").write_text(twice, "utf-8")
    with pytest.raises(ValueError, match=r"'options.yml' cannot be read: (model|max_length) occurs twice"):
        parse_options(FINETUNE, ["options.yml"])


def test_a_command_for_a_card_has_no_token() -> None:
    given = ["--text", "my text.txt", "--hub-token", "secret", "--hub_token=secret", "--bf16"]
    assert command_line("pretrain", given) == "hf-tx pretrain --text 'my text.txt' --bf16"


# -------------------------------------------------------------------------------------------------------------- help
@pytest.mark.parametrize("command", COMMANDS)
def test_help_is_grouped_and_names_every_option_once(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        parse_options(COMMANDS[command], ["--help"], "What it does.\n\nhf-tx example --text a", f"hf-tx {command}")
    assert end.value.code == 0
    shown = capsys.readouterr().out
    assert shown.startswith(
        f"usage: hf-tx {command} [--OPTION VALUE ...] | FILE\n\nWhat it does.\n\nhf-tx example --text a\n"
    )
    titles = re.findall(r"^([\w ]+):$", shown, flags=re.MULTILINE)
    trainer = ["other options of the Trainer of transformers"] if command in ("pretrain", "finetune") else []
    assert titles == ["options", *[title for title in GROUPS if title in titles], *trainer]
    assert {"model", "data", "output and Hub"} <= set(titles)
    listed = re.findall(r"^  --([\w-]+)", shown, flags=re.MULTILINE)
    assert len(set(listed)) == len(listed)
    assert {name.replace("-", "_") for name in listed} >= names_of(COMMANDS[command]) - {"output_dir"}


@dataclass
class Unknown:
    """Options that no table knows."""

    colour: str = field(default="red", metadata={"help": "Of the plot."})
    text: str = "a"


def test_options_of_another_script_need_no_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert parse_options(Unknown, ["--colour", "blue"]) == Unknown("blue")
    with pytest.raises(SystemExit):
        parse_options(Unknown, ["--help"])
    assert "others:\n  --colour VALUE" in capsys.readouterr().out
