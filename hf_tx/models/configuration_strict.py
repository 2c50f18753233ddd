# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Configs whose rules speak for themselves."""

from typing import Any, TypeVar, dataclass_transform

from huggingface_hub.dataclasses import strict as checked
from huggingface_hub.errors import StrictDataclassClassValidationError

Config = TypeVar("Config", bound=type)


@dataclass_transform()
def strict(cls: Config) -> Config:
    """Decorate a config as `strict` of huggingface_hub does, which checks its types and rules; but the message of a
    broken rule is the rule's own, without the name of the method that holds it."""
    found: Any = checked(cls)
    validate = found.validate

    def validate_in_words(self: Any) -> None:
        """Check every rule.

        Raises:
            StrictDataclassClassValidationError: one is broken.
        """
        try:
            validate(self)
        except StrictDataclassClassValidationError as error:
            error.args = (str(error.__cause__),)
            raise

    validate_in_words.__is_defined_by_strict_decorator__ = True  # type: ignore[attr-defined]
    found.validate = validate_in_words
    return found
