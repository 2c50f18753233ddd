# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Every test draws the same numbers, whichever tests its process ran before."""

import pytest
import transformers


# Before the fixtures, so that what a session or a module shares does not depend on who asks first.
@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    transformers.set_seed(0)
