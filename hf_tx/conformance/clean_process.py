# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Loads a saved model where nothing of this process is known: a new one, in which hf_tx cannot be imported.

`python clean_process.py task.pt` is what the other process runs; the file imports nothing of hf_tx.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch


class _Without:
    """Makes the import of a package fail."""

    def __init__(self, package: str) -> None:
        self.package = package

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        if name.partition(".")[0] == self.package:
            raise ImportError(f"{self.package} is not here")


def assert_loads_elsewhere(
    folder: str,
    auto_class: str,
    inputs: dict[str, torch.Tensor],
    expected: dict[str, torch.Tensor],
    setup: str = "",
    without: str = "hf_tx",
    backend: str | None = "eager",
) -> None:
    """Load a saved model in a new process and compare what it returns.

    Args:
        folder: of the model.
        auto_class: name of the class of transformers that loads it.
        inputs: of its forward.
        expected: what it must return, by the name of the output, to the bit.
        setup: code that the process runs first, such as the import of the package that registers the class.
        without: a package that cannot be imported there; "" for none.
        backend: the attention backend, or None for the default.

    Raises:
        AssertionError: it does not load, or returns something else.
    """
    from transformers import dynamic_module_utils  # not above: the other process finds it on the path of this one

    with tempfile.TemporaryDirectory() as scratch:
        task = Path(scratch, "task.pt")
        # Code of models that this process has loaded is in a package of the same name as that of the other process.
        path = [os.path.abspath(each) for each in sys.path if each != dynamic_module_utils.HF_MODULES_CACHE]
        content = dict(folder=folder, auto=auto_class, inputs=inputs, expected=expected)
        torch.save({**content, "setup": setup, "without": without, "backend": backend, "path": path}, task)
        environment = os.environ | {"HF_MODULES_CACHE": str(Path(scratch, "modules")), "HF_HUB_OFFLINE": "1"}
        done = subprocess.run(
            [sys.executable, __file__, str(task)], cwd=scratch, env=environment, capture_output=True, text=True
        )
    if done.returncode:
        raise AssertionError(f"in a new process: {done.stderr.strip().splitlines()[-1]}")


def _load(path: str) -> None:
    task = torch.load(path, weights_only=True)
    sys.path[:] = [Path(path).parent.as_posix(), *task["path"]]
    if task["without"]:
        sys.meta_path.insert(0, _Without(task["without"]))  # type: ignore[arg-type]
    import transformers

    exec(task["setup"], {})
    load = getattr(transformers, task["auto"]).from_pretrained
    options = {} if task["backend"] is None else {"attn_implementation": task["backend"]}
    model = load(task["folder"], trust_remote_code=True, **options).eval()
    with torch.no_grad():
        outputs = model(**task["inputs"])
    for name, value in task["expected"].items():
        if not torch.equal(outputs[name], value):
            raise AssertionError(f"{name} differs by {(outputs[name] - value).abs().max():.1e}")


if __name__ == "__main__":
    # The folder of this file would hide other modules behind the names of its neighbours.
    sys.path.pop(0)
    _load(sys.argv[1])
