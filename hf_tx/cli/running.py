# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Runs a command: shows its log, prints one message for bad input, and returns an exit code."""

import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from huggingface_hub.errors import StrictDataclassError

from ..common.messages import message_of

#: The exceptions that bad input raises; their message is printed, without a traceback.
BAD_INPUT = (ValueError, StrictDataclassError, OSError, ImportError, FloatingPointError)


def run_command(name: str, run: Callable[[], int | None], interrupted: str = "interrupted") -> int:
    """Run a command. What hf_tx logs is shown on stderr; of several processes, only the first shows it.

    Args:
        name: prefix of the messages.
        run: runs the command and returns an exit code, or None for 0.
        interrupted: message after Ctrl-C, unless the KeyboardInterrupt has one.

    Returns:
        The exit code: that of `run`; 2 after bad input and 130 after Ctrl-C, with one message on stderr.
    """
    try:
        with _log_shown(name):
            return run() or 0
    except BAD_INPUT as error:
        print(f"{name}: error: {message_of(error)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt as error:
        print(f"{name}: {str(error) or interrupted}", file=sys.stderr)
        return 130


@contextmanager
def _log_shown(name: str) -> Iterator[None]:
    logger = logging.getLogger("hf_tx")
    before = logger.level, logger.propagate
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter(f"{name}: %(message)s"))
    logger.addHandler(handler)
    logger.propagate = False
    logger.setLevel(logging.INFO if os.environ.get("RANK", "0") == "0" else logging.ERROR)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.level, logger.propagate = before
