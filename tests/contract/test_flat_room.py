# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Law L2: what travels with a checkpoint is one flat room, and the rooms depend on each other in one direction."""

import ast
import re
import sys
from pathlib import Path

import pytest
from transformers.dynamic_module_utils import get_relative_import_files, get_relative_imports

import hf_tx

PACKAGE = Path(hf_tx.__file__).parent
MODELS = PACKAGE / "models"
TRAVELLERS = sorted(path for path in MODELS.glob("*.py") if path.name != "__init__.py")
FAMILIES = ("decoder", "encoder", "encoder_decoder")
THIRD_PARTIES = {"torch", "transformers", "huggingface_hub"}
#: A room may import those before it. All others but `cli`, the roof, are rooms of the same height, on top of these.
GROUND = ("models", "common", "backends", "plugins", "conformance")
#: Where one of those imports another, and why. Never both ways.
REASONS = {
    ("training", "tokenization"): "texts are read in one way, whether they train a tokenizer or a model",
    ("training", "objectives"): "a recipe goes all the way, from texts ...",
    ("training", "evaluation"): "... to measures",
    ("training", "hub"): "... and to the card of the model",
    ("training", "analysis"): "a run plots its losses",
    ("training", "baselines"): "... beside what was there before",
    ("hub", "analysis"): "the report of a comparison has a plot",
    ("training", "conversion"): "what is healed may be a model of transformers",
    ("analysis", "conversion"): "the time and memory of a load are measured",
}

by_name = pytest.mark.parametrize("path", TRAVELLERS, ids=lambda path: path.name)


def imports(path: Path) -> list[ast.Import | ast.ImportFrom]:
    tree = ast.parse(path.read_text("utf-8"))
    return [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]


def copied_with(path: Path) -> set[str]:
    """Names of the files that transformers copies when a class of this file is saved."""
    return {Path(needed).name for needed in get_relative_import_files(path)} | {path.name}


def test_the_room_is_flat() -> None:
    below = [path for path in MODELS.iterdir() if path.is_dir() and path.name != "__pycache__"]
    assert not below, "a folder is not copied into a checkpoint"
    others = {path.name for path in MODELS.iterdir() if path.is_file() and path.suffix != ".py"}
    assert others <= {"README.md"}, "only code is copied, and a README is not needed to run"


@by_name
def test_imports_only_what_a_checkpoint_may(path: Path) -> None:
    for node in imports(path):
        where = f"{path.name}:{node.lineno}"
        if isinstance(node, ast.ImportFrom) and node.level:
            assert node.level == 1, f"{where} leaves the room"
            assert node.module, f"{where}: `from . import x` is not copied"
            assert "." not in node.module, f"{where}: the room is flat"
            assert (MODELS / f"{node.module}.py").exists(), f"{where}: no such sibling"
            continue
        names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
        for name in [*names, *(alias.name for alias in node.names)]:
            assert not re.search(r"(^|\.)_", name), f"{where} imports {name}, which others may drop"
        for name in names:
            top = name.split(".")[0]
            assert top in THIRD_PARTIES or top in sys.stdlib_module_names, f"{where} imports {name}"
            # What is imported by its name alone is found by no scanner, and so not copied. Metadata imports nothing.
            assert name == "importlib.metadata" or top not in ("importlib", "runpy", "pkgutil", "imp"), (
                f"{where} imports {name}"
            )


@by_name
def test_the_library_sees_exactly_the_imports(path: Path) -> None:
    """It searches by a regular expression: one that it takes for an import (in a docstring), or misses (broken over
    lines), makes saving fail or leaves a file behind."""
    parsed = {node.module for node in imports(path) if isinstance(node, ast.ImportFrom) and node.level}
    assert set(get_relative_imports(path)) == parsed


@by_name
def test_no_line_of_text_looks_like_an_import(path: Path) -> None:
    """Scanners read lines: prose that begins with one of these words would count as an import of the package."""
    lines = path.read_text("utf-8").splitlines()
    assert not [line for line in lines if re.match(r"\s*(import|from)\s+hf_tx\b", line)]


@by_name
def test_no_call_imports_dynamically(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in ("__import__", "exec", "eval"), f"{path.name}:{node.lineno}"


@pytest.mark.parametrize("kind", ["configuration", "modeling"])
@pytest.mark.parametrize("family", FAMILIES)
def test_saving_a_family_copies_every_part(family: str, kind: str) -> None:
    own = {f"{kind}_{family}.py" for kind in ("configuration", "modeling") for family in FAMILIES}
    parts = {path.name for path in TRAVELLERS} - own
    missing = (parts | {f"configuration_{family}.py", f"modeling_{family}.py"}) - copied_with(
        MODELS / f"{kind}_{family}.py"
    )
    assert not missing, f"no static import of {kind}_{family}.py reaches {missing}"


def test_every_file_belongs_to_a_checkpoint() -> None:
    reached = set().union(*(copied_with(MODELS / f"configuration_{family}.py") for family in FAMILIES))
    assert reached == {path.name for path in TRAVELLERS}


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0] if path.parent != PACKAGE else ""


def rooms_imported(path: Path) -> set[str]:
    """Rooms of hf_tx that a file imports, "" for the top level."""
    package = ("hf_tx", *path.relative_to(PACKAGE).parent.parts)
    found = set()
    for node in imports(path):
        if isinstance(node, ast.Import):
            targets = [alias.name.split(".") for alias in node.names]
        elif node.level:
            base = package[: len(package) - node.level + 1]
            targets = [[*base, *(node.module.split(".") if node.module else [alias.name])] for alias in node.names]
        else:
            targets = [[*(node.module or "").split("."), alias.name] for alias in node.names]
        for target in targets:
            if target[0] == "hf_tx":
                room = target[1] if len(target) > 1 else ""
                found.add(room if (PACKAGE / room).is_dir() else "")
    return found


def may_import(room: str, other: str) -> bool:
    if room in ("", "cli"):
        return True
    if room in GROUND:
        return other in GROUND[: GROUND.index(room) + 1]
    # Not the top level: it imports the rooms itself, so that this would be a circle.
    return other in GROUND or other == room or (room, other) in REASONS


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_rooms_depend_in_one_direction(path: Path) -> None:
    room = room_of(path)
    wrong = {other for other in rooms_imported(path) if not may_import(room, other)}
    assert not wrong, f"{room} must not import {[other or 'the top level' for other in wrong]}"


def test_reasons_are_used_and_go_one_way() -> None:
    used = {(room_of(path), other) for path in PACKAGE.rglob("*.py") for other in rooms_imported(path)}
    assert set(REASONS) <= used
    assert not set(REASONS) & {(other, room) for room, other in REASONS}


def test_rooms_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reading of imports itself: each spelling of one is understood."""
    package = tmp_path / "hf_tx"
    for room in ("models", "training"):
        (package / room).mkdir(parents=True)
    monkeypatch.setattr(sys.modules[__name__], "PACKAGE", package)
    path = package / "models" / "x.py"
    for line, room in {
        "from .mixers import y": "models",
        "from . import mixers": "models",
        "from ..training import loop": "training",
        "from .. import training": "training",
        "from hf_tx.training.loop import y": "training",
        "from hf_tx import training": "training",
        "import hf_tx.training": "training",
        "from hf_tx import TxDecoderConfig": "",
        "from ..registration import register": "",
    }.items():
        path.write_text(line)
        assert rooms_imported(path) == {room}, line
    path.write_text("import torch\nfrom torch import nn")
    assert rooms_imported(path) == set()
