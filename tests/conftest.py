# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""No test depends on those that its process ran before: each draws the same numbers, and leaves tables as they are."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import transformers

TESTS = Path(__file__).parent


# Before the fixtures, so that what a session or a module shares does not depend on who asks first.
@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    transformers.set_seed(0)


def _tables() -> dict[str, str]:
    """Return what the tables of all modules of tests hold: dicts, lists and sets with names in capitals."""
    return {
        f"{module.__name__}.{name}": repr(value)
        for module in list(sys.modules.values())
        if TESTS in Path(getattr(module, "__file__", None) or "").parents
        for name, value in vars(module).items()
        if name.isupper() and isinstance(value, dict | list | set)
    }


@pytest.fixture(scope="session", autouse=True)
def tables_stay() -> Iterator[None]:
    """Fail at the end if a test has changed a table, say through a config that keeps the dict it was given."""
    before = _tables()
    yield
    after = _tables()
    changed = [name for name in before if after[name] != before[name]]
    assert not changed, f"tests have changed the tables {', '.join(changed)}"
