# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Keywords of a call: a forward with `**kwargs` takes any, so that those which nobody reads are refused here."""

import difflib
import inspect
from typing import Any

import torch
from transformers.cache_utils import Cache
from transformers.utils import TransformersKwargs, logging

from .backend_rules import own_keywords
from .values import may_look_at

logger = logging.get_logger(__name__)

#: What the library's callers pass to every model, or to a part of it what is meant for the whole: `generate()` hands
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
    """Refuse keywords that neither the model nor its attention backend reads.

    Args:
        model: the model that is called.
        backend: name of the attention implementation of this call.
        kwargs: what its forward() does not name. `cache_position` is taken out: models of the library ignore it.
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
            f"attn_implementation={backend!r} does not read either"
            + (f"; did you mean {nearest[0]!r}?" if nearest else f"; it takes {', '.join(sorted(named))}.")
        )


def _check_cache_position(positions: Any, cache: Cache | None) -> None:
    """Check that the places which loops of older versions of the library give are those that the tokens go to."""
    if positions is None:
        return
    logger.warning_once("cache_position is ignored: the library has removed it, since caches count their own tokens.")
    if cache is None or not may_look_at(positions):
        return
    past = cache.get_seq_length()
    if not torch.equal(positions, torch.arange(len(positions), device=positions.device) + past):
        raise ValueError(
            f"cache_position begins at {int(positions[0])}, and the cache holds {int(past)} tokens: it counts them "
            "itself, and what comes next is written behind them. Leave cache_position out; crop() or reset() the "
            "cache to go back."
        )
