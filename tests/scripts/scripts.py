# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""What the tests of training scripts share."""

import contextlib
import importlib.util
import json
import re
import runpy
import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from hf_tx.cli import main
from hf_tx.hub import RunRecord

FOLDER = Path(__file__).parents[2] / "scripts"


class Wrapper:
    """A script that stands for a command: its file is run in this process, which is cheaper than one for each test."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def main(self, argv: Sequence[str]) -> int:
        """Run it as `python scripts/NAME.py` does, and return its exit code."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "argv", [str(self.path), *argv])
            with pytest.raises(SystemExit) as end:
                runpy.run_path(str(self.path), run_name="__main__")
        code = end.value.code
        assert isinstance(code, int)
        return code


@contextlib.contextmanager
def loaded(name: str) -> Iterator[Any]:
    """The script, which has a function `main`. One that is more than a wrapper is a module, under another name."""
    if "from hf_tx.cli import main" in (FOLDER / f"{name}.py").read_text("utf-8"):
        yield Wrapper(FOLDER / f"{name}.py")
        return
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
    assert commands == set(re.findall(r"^hf-tx evaluate .*$", card, flags=re.MULTILINE))
    for command in commands:
        _, *argv = shlex.split(command)
        assert main([*argv, "--output", "again.json", "--overwrite"]) == 0, command
        (found,) = json.loads(Path("again.json").read_text("utf-8"))["results"]
        for result in results:
            if result.command == command:
                assert found[result.metric] == pytest.approx(result.value, rel=1e-5, abs=1e-6), result


def results_of(folder: str | Path) -> dict[str, dict[str, Any]]:
    """Return what a run measured, by metric."""
    record = json.loads(Path(folder, "run.json").read_text("utf-8"))
    return {result["metric"]: result for result in record["results"]}
