# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""What the tests of training scripts share."""

import contextlib
import importlib.util
import json
import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from hf_tx.hub import RunRecord

FOLDER = Path(__file__).parents[2] / "scripts"


@contextlib.contextmanager
def loaded(name: str) -> Iterator[ModuleType]:
    """The script as a module, under another name, since `evaluate` is the library's: what is tested in this process is
    cheaper than in one for each test."""
    spec = importlib.util.spec_from_file_location(f"{name}_script", FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


def write_rows(path: str | Path, rows: Sequence[dict[str, Any]]) -> str:
    """Write rows as JSON lines."""
    Path(path).write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return str(path)


def measure_again(folder: str | Path) -> None:
    """Run the commands that a card gives for its numbers, and compare what they find."""
    card = Path(folder, "README.md").read_text("utf-8")
    results = RunRecord.load(folder).results
    commands = {result.command for result in results}
    assert commands == set(re.findall(r"^python scripts/evaluate.py .*$", card, flags=re.MULTILINE))
    with loaded("evaluate") as script:
        for command in commands:
            _, _, *options = shlex.split(command)
            assert script.main([*options, "--output", "again.json", "--overwrite"]) == 0, command
            (found,) = json.loads(Path("again.json").read_text("utf-8"))["results"]
            for result in results:
                if result.command == command:
                    assert found[result.metric] == pytest.approx(result.value, rel=1e-5, abs=1e-6), result


def results_of(folder: str | Path) -> dict[str, dict[str, Any]]:
    """Return what a run measured, by metric."""
    record = json.loads(Path(folder, "run.json").read_text("utf-8"))
    return {result["metric"]: result for result in record["results"]}
