# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""The files of scripts/ that stand for a command of the package."""

import pytest
from scripts.scripts import FOLDER, Wrapper

WRAPPERS = sorted(path.stem for path in FOLDER.glob("*.py") if "from hf_tx.cli import main" in path.read_text("utf-8"))


def test_there_is_one_for_every_command_that_trains_or_measures() -> None:
    assert set(WRAPPERS) >= {"benchmark", "compare", "distill", "evaluate", "finetune", "pretrain", "train_tokenizer"}


@pytest.mark.parametrize("name", WRAPPERS)
def test_it_calls_itself_by_its_file(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert Wrapper(FOLDER / f"{name}.py").main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"usage: {name}.py ")
    assert f'["{name.replace("_", "-")}", *sys.argv[1:]]' in (FOLDER / f"{name}.py").read_text("utf-8")
