# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""What `import hf_tx` costs: its own modules, and no library beyond those that the Auto classes load anyway."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

import hf_tx

SCRIPT = """
import json, sys

def loaded():
    return {name.partition(".")[0] for name in sys.modules}

from transformers import AutoConfig, LlamaForCausalLM
from transformers.models.auto import modeling_auto
for name in sys.argv[1:]:
    getattr(modeling_auto, name)
before, files = loaded(), set(sys.modules)
import hf_tx
new = loaded() - before
library = sorted(name for name in set(sys.modules) - files if name.startswith("transformers."))
print(json.dumps({"new": sorted(new), "all": sorted(loaded()), "library": library}))
"""


@pytest.fixture(scope="module")
def report() -> dict[str, list[str]]:
    autos = sorted(
        {
            name
            for cls in (hf_tx.TxDecoderConfig, hf_tx.TxEncoderConfig, hf_tx.TxEncoderDecoderConfig)
            for name in cls.full_auto_map
        }
        - {"AutoConfig"}
    )
    root = str(Path(hf_tx.__file__).parents[1])
    script = f"import sys; sys.path.insert(0, {root!r})\n{SCRIPT}"
    child = subprocess.run([sys.executable, "-c", script, *autos], capture_output=True, text=True, timeout=120)
    assert child.returncode == 0, child.stderr
    assert not child.stderr, f"importing is not silent: {child.stderr}"
    return json.loads(child.stdout.splitlines()[-1])


def test_no_library_beyond_those_of_the_auto_classes(report: dict[str, list[str]]) -> None:
    beyond = [name for name in report["new"] if name not in sys.stdlib_module_names]
    assert beyond == ["hf_tx"]


@pytest.mark.parametrize("name", ["peft", "datasets", "evaluate", "sklearn", "matplotlib", "pandas", "gensim"])
def test_optional_libraries_stay_out(report: dict[str, list[str]], name: str) -> None:
    assert name not in report["all"]


def test_the_library_loads_no_models_of_its_own(report: dict[str, list[str]]) -> None:
    """The Trainer or another family would cost more than hf_tx itself."""
    foreign = [name for name in report["library"] if name.startswith(("transformers.models.", "transformers.trainer"))]
    assert not [name for name in foreign if not name.startswith("transformers.models.auto")], foreign


#: What rooms may not import: those above them, so that each is of use without them.
ABOVE = {
    "models": ("common", "evaluation", "objectives", "tokenization", "training", "hub", "cli"),
    "common": ("evaluation", "objectives", "tokenization", "training", "hub", "cli"),
    "evaluation": ("objectives", "tokenization", "training", "hub", "cli"),
    "objectives": ("tokenization", "training", "hub", "cli"),
    "training": ("cli",),
}


@pytest.mark.parametrize("room", ABOVE)
def test_imports_have_one_direction(room: str) -> None:
    package = Path(hf_tx.__file__).parent
    wrong = []
    for file in sorted((package / room).rglob("*.py")):
        dots = "." * (len(file.relative_to(package).parts))
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom):
                name = f"{'.' * node.level}{node.module or ''}"
                for above in ABOVE[room]:
                    if name in (f"{dots}{above}", f"hf_tx.{above}") or name.startswith(
                        (f"{dots}{above}.", f"hf_tx.{above}.")
                    ):
                        wrong.append(f"{file.relative_to(package)}: from {name} import ...")
    assert not wrong
