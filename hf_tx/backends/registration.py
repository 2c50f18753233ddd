# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Makes the backends known to transformers, and what they compute to the models."""

from collections.abc import Callable
from functools import wraps
from typing import Any

from transformers import PreTrainedModel

from ..models.backend_rules import BACKENDS, LIBRARY_BACKENDS, PATTERN, POSITION_BIAS, SINKS, SOFTCAP, register_backend
from .banded import banded_attention
from .mask_rule import mask_rule
from .tiled import tiled_attention


def register() -> None:
    """Register `tiled` and `banded`, attention and mask together; models that would not use them refuse them."""
    computes = (SOFTCAP, POSITION_BIAS, SINKS, PATTERN)
    register_backend("tiled", tiled_attention, mask_rule, computes=computes, by_distance=True, dense_masks=True)
    register_backend("banded", banded_attention, mask_rule, computes=computes, by_distance=True, needs_band=True)
    # Transformers accepts every registered name for every model, and has no hook for a backend to say no.
    for method, argument in (
        ("get_correct_attn_implementation", "requested_attention"),
        ("set_attn_implementation", "attn_implementation"),
    ):
        setattr(PreTrainedModel, method, _refusing(getattr(PreTrainedModel, method), argument))


def uses_backends(cls: type[PreTrainedModel]) -> bool:
    """Whether a class computes its attention through the attention interface of transformers.

    `_supports_attention_backend` alone does not say it: T5 and BART call the interface and do not set it. A class that
    supports no attention function but its own has layers that do not call it, whatever its source looks like.
    """
    supports_others = cls._supports_sdpa or cls._supports_flex_attn
    return cls._supports_attention_backend or (supports_others and cls._can_set_attn_implementation())


def _refusing(method: Callable[..., Any], argument: str) -> Callable[..., Any]:
    """Wrap a method of a model that is asked for a backend in its first argument, whose name is given."""
    if hasattr(method, "__wrapped__"):  # this module may be imported again
        return method

    @wraps(method)
    def checked(self: PreTrainedModel, *args: Any, **kwargs: Any) -> Any:
        asked = args[0] if args else kwargs.get(argument)
        backend = asked.get("") if isinstance(asked, dict) else asked
        if backend in BACKENDS.keys() - LIBRARY_BACKENDS and not uses_backends(type(self)):
            able = "'sdpa' or 'eager'" if self._supports_sdpa else "'eager'"
            raise ValueError(
                f"attn_implementation={backend!r} cannot serve {type(self).__name__}: the class does not compute its "
                f"attention through the attention interface of transformers, so the backend would not be used; load "
                f"it with attn_implementation={able}. A class of your own that does says so by "
                "`_supports_attention_backend = True`."
            )
        return method(self, *args, **kwargs)

    return checked
