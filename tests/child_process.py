# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Processes that tests start. They find hf_tx where this one has it, and the helpers in tests/."""

import os
import subprocess
import sys
from pathlib import Path

import hf_tx

PATHS = (str(Path(hf_tx.__file__).parents[1]), str(Path(__file__).parent))


def environment(**own: str) -> dict[str, str]:
    """The environment of this process, on one thread, with `own`."""
    path = os.pathsep.join([*PATHS, os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", **own}


def child(arguments: list[str], folder: Path, *paths: Path, **own: str) -> subprocess.CompletedProcess[str]:
    """Run python in a folder, without network, and without what this process knows of the Hub and of pytest.

    Args:
        arguments: of python.
        folder: made if it is not there.
        *paths: more places to import from, before the others.
        **own: more of the environment.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "HF_"))}
    homes = {"HF_HOME": str(folder / "home"), "HF_MODULES_CACHE": str(folder / "modules"), "HF_HUB_OFFLINE": "1"}
    path = os.pathsep.join([*map(str, paths), *PATHS])
    folder.mkdir(parents=True, exist_ok=True)
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**kept, **homes, "PYTHONPATH": path, **own},
        capture_output=True,
        text=True,
        timeout=300,
    )
