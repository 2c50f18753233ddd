# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
import contextlib

import pytest
from transformers.utils import logging

from hf_tx.common.quiet import without_progress_bars, without_warnings


@pytest.mark.parametrize("shown", [True, False])
def test_the_library_speaks_afterwards_as_before(shown: bool) -> None:
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    (logging.enable_progress_bar if shown else logging.disable_progress_bar)()
    logging.set_verbosity_info()
    try:
        with contextlib.suppress(KeyError), without_progress_bars(), without_warnings():
            assert not logging.is_progress_bar_enabled()
            assert logging.get_verbosity() == logging.ERROR
            raise KeyError
        assert logging.is_progress_bar_enabled() is shown
        assert logging.get_verbosity() == logging.INFO
    finally:
        logging.set_verbosity(level)
        (logging.enable_progress_bar if bars else logging.disable_progress_bar)()
