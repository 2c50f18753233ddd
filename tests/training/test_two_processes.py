# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Two processes on the CPU: data parallel, fully sharded and tensor parallel training, against one process."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from child_process import environment
from training.runs import SAVES
from training.two_processes import CHECKS

pytestmark = pytest.mark.distributed
HERE = Path(__file__).parent


def launch(program: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run a program beside this file in two processes."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    return subprocess.run(
        [*launcher, str(HERE / program), *map(str, arguments)],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, str]]:
    """What became of each check, by process; all of them run in one start of the two."""
    folder = tmp_path_factory.mktemp("two")
    run = launch("two_processes.py", folder)
    assert run.returncode == 0, run.stderr[-3000:]
    return [json.loads((folder / f"results-{rank}.json").read_text("utf-8")) for rank in range(2)]


@pytest.mark.parametrize("name", CHECKS)
def test_equals_one_process(name: str, results: list[dict[str, str]]) -> None:
    for rank, result in enumerate(results):
        assert result[name] == "ok", f"process {rank}:\n{result[name]}"


def test_a_nan_in_one_process_ends_the_launcher(tmp_path: Path) -> None:
    """Neither process waits for the other."""
    run = launch("runs.py", tmp_path, "nan")
    assert run.returncode != 0
    assert f"NonFiniteLoss: the loss of step {SAVES + 1} is nan" in run.stderr
    assert [path.name for path in tmp_path.glob("_nonfinite-step-*/*")] == ["batch-1.safetensors"]
