# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Checks the keywords of a call: a forward with `**kwargs` accepts any, so unused ones raise an error here."""

import difflib
import inspect
from typing import Any

import torch
from transformers.cache_utils import Cache
from transformers.utils import TransformersKwargs, logging

from .backend_rules import own_keywords
from .values import may_look_at

logger = logging.get_logger(__name__)

#: What transformers' callers pass to every model, or to a part of it what is meant for the whole: `generate()` hands
#: the encoder all that it was given, and every model the tokenizer that it looks for `stop_strings` with.
KNOWN = frozenset(TransformersKwargs.__annotations__) | {
    "return_dict",
    "use_cache",
    "labels",
    "shift_labels",
    "logits_to_keep",
    "skip_logits",
    "tokenizer",
    "assistant_tokenizer",
}


def check_keywords(model: Any, backend: str, kwargs: dict[str, Any], cache: Cache | None = None) -> None:
    """Check that the model or its attention backend uses all keywords.

    Args:
        model: the model that is called.
        backend: name of the attention implementation of this call.
        kwargs: what its forward() does not name. `cache_position` is taken out: models of transformers ignore it.
        cache: the cache that comes with them.

    Raises:
        TypeError: with the nearest name that it takes.
        ValueError: `cache_position` says other than the cache.
    """
    if "cache_position" in kwargs:
        _check_cache_position(kwargs.pop("cache_position"), cache)
    unknown = [name for name in kwargs if name not in KNOWN]
    if not unknown:
        return
    own = own_keywords(backend)
    unknown = [name for name in unknown if own is not None and name not in own and kwargs[name] is not None]
    if unknown:
        named = set(inspect.signature(type(model).forward).parameters) - {"self", "kwargs"}
        nearest = difflib.get_close_matches(unknown[0], named | KNOWN, n=1)
        raise TypeError(
            f"{type(model).__name__}.forward() got an unexpected keyword argument {unknown[0]!r}, which "
            f"attn_implementation={backend!r} does not accept either"
            + (f"; did you mean {nearest[0]!r}?" if nearest else f"; it accepts {', '.join(sorted(named))}.")
        )


def _check_cache_position(positions: Any, cache: Cache | None) -> None:
    """Check that the places which loops of older versions of transformers give are those that the tokens go to."""
    if positions is None:
        return
    logger.warning_once("cache_position is ignored: transformers has removed it, because caches count their tokens.")
    if cache is None or not may_look_at(positions):
        return
    past = cache.get_seq_length()
    if not torch.equal(positions, torch.arange(len(positions), device=positions.device) + past):
        raise ValueError(
            f"cache_position begins at {int(positions[0])}, but the cache contains {int(past)} tokens: it counts "
            "them itself, and new tokens follow them. Leave cache_position out; to go back, call crop() or reset() "
            "of the cache."
        )
