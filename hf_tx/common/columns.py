# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""What is not read of a table is told."""

from collections.abc import Collection, Sequence

from transformers.utils import logging

logger = logging.get_logger(__name__)


def tell_unread(columns: Sequence[str], read: Collection[str]) -> None:
    """Log which columns of a dataset are not read."""
    unread = [column for column in columns if column not in read]
    if unread:
        logger.warning_once(f"columns that are not read: {', '.join(unread)}; read are {', '.join(read)}.")
