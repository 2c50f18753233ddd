# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""The messages of errors."""

from huggingface_hub.errors import StrictDataclassError


def message_of(error: BaseException) -> str:
    """Return the message of an error in one line. For an invalid config, this is the message of the rule, without the
    name of the method that checks it."""
    if isinstance(error, StrictDataclassError) and error.__cause__ is not None:
        error = error.__cause__
    return " ".join(str(error).split()) or type(error).__name__
