# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Every example in a docstring runs, and so does what the README shows."""

import doctest
import importlib
import pkgutil
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import hf_tx

README = Path(__file__).parents[2] / "README.md"
PACKAGE = Path(hf_tx.__file__).parent
#: Those of the conformance kit and of plug-ins have tests of their own.
READMES = [README] + [
    readme for readme in sorted(PACKAGE.glob("*/README.md")) if readme.parent.name not in ("conformance", "plugins")
]


def examples() -> list[doctest.DocTest]:
    """All docstrings with examples, of all modules of the package."""
    names = ["hf_tx"] + [module.name for module in pkgutil.walk_packages(hf_tx.__path__, "hf_tx.")]
    finder = doctest.DocTestFinder(exclude_empty=True)
    found = [test for name in names for test in finder.find(importlib.import_module(name), name)]
    return [test for test in found if test.examples]


@pytest.mark.parametrize("example", examples(), ids=lambda example: example.name)
def test_docstring(example: doctest.DocTest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    report: list[str] = []
    flags = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    outcome = doctest.DocTestRunner(optionflags=flags, verbose=False).run(example, out=report.append)
    assert outcome.failed == 0, "".join(report)


def test_the_examples_are_found() -> None:
    names = {example.name for example in examples()}
    assert {"hf_tx.models.mixer.expand_pattern", "hf_tx.models.configuration_decoder.TxDecoderConfig"} <= names


def blocks_of_docstrings() -> list[Any]:
    return [
        pytest.param(block, id=path.name)
        for path in sorted(Path(hf_tx.__file__).parent.rglob("*.py"))
        for block in re.findall(r"```python\n(.*?)```", path.read_text("utf-8"), flags=re.DOTALL)
    ]


@pytest.mark.parametrize("block", blocks_of_docstrings())
def test_no_example_is_left_out(block: str) -> None:
    """An example whose prompt doctest does not recognise would never run."""
    assert ">>> " in block, f"a block of python without prompts:\n{block}"


def blocks(readme: Path, language: str) -> list[str]:
    """Blocks of a language in a README. One that cannot run here says why: "```python  (not run: needs a GPU)"."""
    found = re.findall(r"^```(\w+)([^\n]*)\n(.*?)^```", readme.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    return [code for name, note, code in found if name == language and "(not run: " not in note]


def test_python_in_the_readmes(tmp_path: Path) -> None:
    """The blocks of each run in their order, as a reader would run them, and without the blocks of another."""
    code = {readme.parent.name: "\n".join(blocks(readme, "python")) for readme in READMES if readme.exists()}
    runs = "\n".join(f"print({name!r}); exec({text!r}, {{'__name__': {name!r}}})" for name, text in code.items())
    root = Path(hf_tx.__file__).parents[1]
    code_of_all = f"import sys; sys.path.insert(0, {str(root)!r})\n{runs}"
    child = subprocess.run(
        [sys.executable, "-c", code_of_all], cwd=tmp_path, capture_output=True, text=True, timeout=500
    )
    assert child.returncode == 0, f"{child.stdout[-500:]}\n{child.stderr}"


@pytest.mark.parametrize("readme", [pytest.param(readme, id=readme.parent.name) for readme in READMES])
def test_links_in_the_readmes(readme: Path) -> None:
    """What they link to in the repository exists. The package has no files beside it where it is installed."""
    if not readme.exists():
        pytest.skip(f"{readme} is not part of what is tested here")
    prose = re.sub(r"^```.*?^```", "", readme.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    for name in re.findall(r"\]\((?!https?://|#|mailto:)([^)#]+)", prose):
        if readme == README or not name.startswith("../../"):
            found = readme.parent / name
            inside = PACKAGE / name.removeprefix("hf_tx/")  # of the installed package
            assert found.exists() or (name.startswith("hf_tx/") and inside.exists()), f"{readme}: {name}"


def test_commands_in_the_readmes() -> None:
    """They are shell, and the files of the repository that they name exist."""
    for readme in filter(Path.exists, READMES):
        for command in [*blocks(readme, "bash"), *blocks(readme, "sh")]:
            checked = subprocess.run(["bash", "-n"], input=command, capture_output=True, text=True)
            assert checked.returncode == 0, f"{command}\n{checked.stderr}"
            for name in re.findall(r"(?<![\w/.-])(?:scripts|tests|\.ci|model_cards)/[\w./-]*\w", command):
                assert (README.parent / name).exists(), f"{name} does not exist:\n{command}"
