# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
from collections.abc import Iterator
from typing import Any

import pytest
from scripts.scripts import loaded


@pytest.fixture(scope="module")
def script(request: pytest.FixtureRequest) -> Iterator[Any]:
    """The script that the test module is named after."""
    with loaded(request.path.stem.removeprefix("test_")) as module:
        yield module
