# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Hides progress bars and warnings of transformers."""

from collections.abc import Iterator
from contextlib import contextmanager

from transformers.utils import logging


@contextmanager
def without_progress_bars() -> Iterator[None]:
    """Show no progress bars."""
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


@contextmanager
def without_warnings() -> Iterator[None]:
    """Hide warnings of transformers, and its load report."""
    level = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(level)
