# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""The code that travels with a checkpoint says which transformers it needs, before it needs anything of it."""

import ast
import re
from pathlib import Path

import pytest
from child_process import child
from tiny_models import build

import hf_tx
from hf_tx.models import requirements

MODELS = Path(requirements.__file__).parent
CONFIGS = (hf_tx.TxDecoderConfig, hf_tx.TxEncoderConfig, hf_tx.TxEncoderDecoderConfig)
ENTRIES = sorted({name.partition(".")[0] for cls in CONFIGS for name in cls.full_auto_map.values()})
#: An older transformers, which lacks what the first imports of the code ask for.
OLDER = """
import sys, huggingface_hub.dataclasses, transformers
from transformers import AutoConfig, AutoModelForCausalLM
transformers.__version__ = "5.19.0"
del huggingface_hub.dataclasses.strict
def package(folder, **kwargs):
    import hf_tx
for load in (AutoConfig.from_pretrained, AutoModelForCausalLM.from_pretrained, package):
    try:
        load(sys.argv[1], trust_remote_code=True)
    except ImportError as error:
        print("said:", error)
"""
SAID = (
    "said: the code of this model needs transformers >= 5.24, but transformers 5.19.0 is installed: "
    'pip install --upgrade "transformers>=5.24"\n'
)


@pytest.mark.parametrize("path", [*(MODELS / f"{name}.py" for name in ENTRIES), Path(hf_tx.__file__)], ids=str)
def test_it_is_the_first_import(path: Path) -> None:
    first = next(node for node in ast.parse(path.read_text()).body if isinstance(node, ast.Import | ast.ImportFrom))
    assert isinstance(first, ast.ImportFrom)
    assert first.level == 1
    assert first.module in ("requirements", "models.requirements")


def test_remote_code_and_the_package_say_it(tmp_path: Path) -> None:
    build("decoder", "sdpa", "lm").save_pretrained(tmp_path / "model")
    ran = child(["-c", OLDER, str(tmp_path / "model")], tmp_path / "child")
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == 3 * SAID


@pytest.mark.parametrize("version", ["5.24.0", "5.24.0.dev0", "5.30.1", "6.0", "source"])
def test_other_versions_pass(version: str) -> None:
    requirements._check(version)


def test_it_is_what_the_package_requires() -> None:
    project = Path(hf_tx.__file__).parents[1] / "pyproject.toml"
    if not project.is_file():
        pytest.skip("hf_tx is installed without its sources")
    found = re.search(r'"transformers>=(\d+)\.(\d+)', project.read_text("utf-8"))
    assert found is not None
    assert tuple(map(int, found.groups())) == requirements.TRANSFORMERS
