# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""The command line: what it prints, and how it ends."""

import json
from importlib.metadata import entry_points

import pytest
import tiny_models
from child_process import child

import hf_tx
from hf_tx import cli
from hf_tx.analysis import estimate


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    tiny_models.config_of("decoder").save_pretrained(folder)
    return folder


def test_the_command_is_installed():
    (command,) = entry_points(group="console_scripts", name="hf-tx")
    assert command.load() is cli.main


def test_estimate_prints_what_the_library_returns(folder, capsys):
    assert cli.main(["estimate", str(folder), "--context", "24", "--batch", "2", "--dtype", "bf16"]) == 0
    printed = capsys.readouterr()
    assert printed.out == f"{estimate(folder, 24, 2, 'bf16')}\n"
    assert printed.err == ""


def test_estimate_as_json(folder, capsys):
    assert cli.main(["estimate", str(folder / "config.json"), "--context", "24", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    expected = estimate(folder, 24)
    assert printed.pop("attention_share") == expected.attention_share
    assert printed == vars(expected)


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["estimate", "--help"]])
def test_help_and_version(arguments, capsys):
    with pytest.raises(SystemExit) as end:
        cli.main(arguments)
    assert end.value.code == 0
    printed = capsys.readouterr().out
    assert (f"hf_tx {hf_tx.__version__}" if arguments == ["--version"] else "usage: hf-tx") in printed


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "COMMAND"),
        (["estimat"], "invalid choice: 'estimat'"),
        (["estimate"], "CONFIG_OR_MODEL, --context"),
        (["estimate", "x", "--context", "many"], "invalid int value: 'many'"),
    ],
)
def test_misspelt_arguments(arguments, message, capsys):
    with pytest.raises(SystemExit) as end:
        cli.main(arguments)
    assert end.value.code == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        (None, [], "there is no such file or folder"),
        ("{", [], "valid JSON"),
        ("{}", [], "model_type"),
        ('{"model_type": "nope"}', [], "nope"),
        ('{"model_type": "vit"}', [], "pixel_values"),
        ('{"model_type": "gpt2"}', ["--dtype", "int8"], "dtype = 'int8'"),
        ('{"model_type": "gpt2"}', ["--batch", "0"], "batch = 0"),
        ('{"model_type": "hf_tx_decoder", "hiden_size": 8}', [], "hidden_size"),
    ],
)
def test_bad_input_is_one_message(content, options, message, tmp_path, capsys):
    file = tmp_path / "config.json"
    if content is not None:
        file.write_text(content)
    assert cli.main(["estimate", str(file), "--context", "8", *options]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("hf-tx estimate: error: ")
    assert printed.err.count("\n") == 1
    assert message in printed.err


def test_messages_call_a_command_by_its_name(capsys, monkeypatch):
    for name, shown in ((None, "hf-tx pretrain"), ("pretrain.py", "pretrain.py")):
        assert cli.main(["pretrain", "--txt", "a"], name) == 2
        assert capsys.readouterr().err == f"{shown}: error: unknown option --txt: did you mean --text?\n"
    monkeypatch.setattr("hf_tx.cli.pretrain.parse_options", interrupt)
    assert cli.main(["pretrain"]) == 130
    assert capsys.readouterr().err == "hf-tx pretrain: interrupted\n"
    monkeypatch.setattr("hf_tx.cli.compare.parse_options", interrupt)
    assert cli.main(["compare"]) == 130
    assert (
        capsys.readouterr().err
        == "hf-tx compare: interrupted; run the command again with --resume to pick up where it left off\n"
    )


def interrupt(*_):
    raise KeyboardInterrupt


def test_every_command_is_listed_with_its_help(capsys):
    with pytest.raises(SystemExit):
        cli.main(["--help"])
    shown = " ".join(capsys.readouterr().out.split())
    for name, module in cli._COMMANDS.items():
        assert f" {name} {module.HELP}" in shown


PROCESS = """
import sys
import hf_tx
before = set(sys.modules)
from hf_tx.cli import main

new = {name for name in sys.modules if name not in before}
heavy = ("hf_tx.training", "hf_tx.hub", "transformers.trainer", "transformers.training_args", "datasets", "accelerate")
assert not [name for name in new if name.startswith(heavy)], sorted(new)
sys.exit(main())
"""


def test_in_a_process_of_its_own(folder, tmp_path):
    """The command line loads little more than the package itself."""
    bad = child(["-c", PROCESS, "estimate", str(folder), "--context", "0"], tmp_path)
    assert (bad.returncode, bad.stdout) == (2, "")
    assert bad.stderr == "hf-tx estimate: error: context = 0: must be an integer of at least 1.\n"
