# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Errors in words."""

from huggingface_hub.errors import StrictDataclassError


def message_of(error: BaseException) -> str:
    """Return what an error says, in one line. Of a config that breaks a rule, that is the rule alone: the library puts
    the name of the method that checks it in front."""
    if isinstance(error, StrictDataclassError) and error.__cause__ is not None:
        error = error.__cause__
    return " ".join(str(error).split()) or type(error).__name__
