# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Keywords of a call: a forward with `**kwargs` takes any, so that those which nobody reads are refused here."""

import difflib
import inspect
from typing import Any

from transformers.utils import TransformersKwargs

from .backend_rules import own_keywords

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


def check_keywords(model: Any, backend: str, kwargs: dict[str, Any]) -> None:
    """Refuse keywords that neither the model nor its attention backend reads.

    Args:
        model: the model that is called.
        backend: name of the attention implementation of this call.
        kwargs: what its forward() does not name.

    Raises:
        TypeError: with the nearest name that it takes.
    """
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
