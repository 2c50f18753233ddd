# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""The positions of the tokens of a row, and the documents that are packed in it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from .tracing import is_tracing
from .values import refuse_where


def begins_document(position_ids: torch.Tensor | None = None, seq_idx: torch.Tensor | None = None) -> torch.Tensor:
    """Return where a document begins: at position 0, or without positions, where its number differs from that of the
    token before. The first token of a call continues its document unless its position is 0.

    Args:
        position_ids: *Shape:* `(batch or 1, length)`, int64, or None.
        seq_idx: numbers of the documents. *Shape:* `(batch, length)`, int, or None.

    Returns:
        *Shape:* that of what is given, bool.
    """
    if position_ids is not None:
        return position_ids == 0
    assert seq_idx is not None
    return nn.functional.pad(seq_idx[..., 1:] != seq_idx[..., :-1], (1, 0), value=False)


def positions_of(
    inputs_embeds: torch.Tensor,
    attention_mask: torch.Tensor | None,
    seq_idx: torch.Tensor | None,
    past: int | torch.Tensor,
) -> torch.Tensor:
    """Return zero-based positions that count real tokens only, so that padding on either side changes nothing.

    Args:
        inputs_embeds: *Shape:* `(batch, length, any)`.
        attention_mask: padding. *Shape:* `(batch, past + length)`, or None.
        seq_idx: document numbers; positions restart where they change. *Shape:* `(batch, length)`, or None.
        past: tokens in the cache.

    Returns:
        *Shape:* `(batch or 1, length)`, int64.
    """
    length, device = inputs_embeds.shape[1], inputs_embeds.device
    if attention_mask is None:
        before = rank = torch.arange(length, device=device)[None] + past
    else:
        real = attention_mask.long()
        rank = (real.cumsum(-1) - 1)[:, -length:]
        before = (rank + 1) - real[:, -length:]
    if seq_idx is not None:
        rank = rank - torch.where(begins_document(seq_idx=seq_idx), before, 0).cummax(-1)[0]
    return rank.clamp(min=0)


def inner_ranks(attention_mask: torch.Tensor | None, looks: bool) -> torch.Tensor | None:
    """Return the rank of every token among the real ones of its row if it can differ from its index by more than a
    constant: if there is padding between real tokens, for example when second turns of unequal length are batched.
    None if no row has any, so that distances can be counted by index.

    In a graph the values of a mask are not known: it counts by index, and padding inside of a row raises an error when
    it runs.

    Args:
        attention_mask: padding. *Shape:* `(batch, past + length)`, or None.
        looks: whether the values of the mask can be read; if not, any mask has ranks.

    Returns:
        *Shape:* `(batch, past + length)`, int64; a pad has the rank of the real token before it.
    """
    if attention_mask is None:
        return None
    if looks and bool(attention_mask.min()):  # faster than all()
        return None
    real = attention_mask.bool()
    is_inner = (real[:, 1:] & ~real[:, :-1]).sum(-1) + real[:, 0] > 1
    if is_tracing(attention_mask):
        torch._assert_async(
            ~is_inner.any(),
            "attention_mask has padding between the tokens of a row, but this graph was compiled for padding before "
            "or after them. Call the model without compiling it, or only pad on one side.",
        )
        return None
    return None if looks and not bool(is_inner.any()) else real.long().cumsum(-1) - 1


def numbers_of(kwargs: dict[str, Any], inputs: torch.Tensor) -> torch.Tensor | None:
    """Return the numbers of the documents of a call, from `seq_idx` or from the beginnings of the documents in one
    row, `cu_seq_lens_q`, which are the format of flash attention. *Shape:* `(batch, length)`, int64, or None.

    Args:
        kwargs: keywords of the call.
        inputs: tokens or embeddings. *Shape:* `(batch, length)` or `(batch, length, any)`.

    Raises:
        ValueError: if there are several rows, or the beginnings are those of another length.
    """
    numbers, borders = kwargs.get("seq_idx"), kwargs.get("cu_seq_lens_q")
    if numbers is not None or borders is None:
        return numbers
    rows, length = inputs.shape[:2]

    def message() -> str:
        return (
            f"cu_seq_lens_q ends at {int(borders[-1])}, but the input has {rows} rows of {length} tokens: it must "
            "contain the beginnings of the documents of one row, and the end of the last one."
        )

    if rows > 1:
        raise ValueError(message())
    refuse_where(borders[-1:] != length, message)
    return torch.searchsorted(borders[1:].contiguous(), torch.arange(length, device=borders.device), right=True)[None]


@dataclass(frozen=True)
class Documents:
    """The documents packed in the rows of a batch.

    A document begins where the position is zero. A key belongs to the document of a query if it is at or after this
    beginning: `rank(key) >= rank(query) - position(query)`, where rank counts real tokens. The rule does not need the
    positions of the keys, so that a packed row can continue with its cache.

    Attributes:
        start: rank at which the document of each query begins. *Shape:* `(batch, length)`, int64.
        begins: whether a document begins here. *Shape:* `(batch, length)`, bool.
        ranks: ranks of the keys, or None when every key is real and its rank is its index. *Shape:*
            `(batch, past + length)`, int64.
        past: tokens in the cache.
    """

    start: torch.Tensor
    begins: torch.Tensor
    ranks: torch.Tensor | None
    past: int | torch.Tensor

    def rule(self, is_causal: bool) -> Callable[..., Any]:
        """Return the condition that isolates the documents, for `and_mask_function`. Without `is_causal`, keys must
        also stand before the end of the document."""
        start, ranks, past = self.start, self.ranks, self.past

        def causal_rule(b: Any, h: Any, q: Any, kv: Any) -> Any:
            # Keys past the mask are slots of a static cache that nothing has been written to.
            key = kv if ranks is None else ranks[b, kv.clamp(max=ranks.shape[1] - 1)]
            return key >= start[b, q - past]

        def bidirectional_rule(b: Any, h: Any, q: Any, kv: Any) -> Any:
            return start[b, q] == start[b, kv]

        return causal_rule if is_causal else bidirectional_rule


def find_documents(
    position_ids: torch.Tensor,
    attention_mask: torch.Tensor | None,
    inputs_embeds: torch.Tensor,
    past: int | torch.Tensor,
    looks: bool,
) -> Documents | None:
    """Return the documents packed in the rows, or None when every row is known to be one document.

    Args:
        position_ids: *Shape:* `(batch or 1, length)`, int64.
        attention_mask: padding. *Shape:* `(batch, past + length)`, or None.
        inputs_embeds: *Shape:* `(batch, length, any)`.
        past: tokens in the cache.
        looks: whether the values of the positions and the mask may be read.
    """
    batch, length = inputs_embeds.shape[:2]
    # A step of generate() without padding, where every operation is felt: no rank is above `past`.
    if length == 1 and looks and min(position_ids.tolist())[0] >= past:
        return None
    if attention_mask is None:
        ranks = None
        rank = (torch.arange(length, device=inputs_embeds.device) + past)[None]
    else:
        ranks = attention_mask.long().cumsum(-1) - 1
        rank = ranks[:, -length:]
    if looks and not bool((rank > position_ids).any()):
        return None
    real = None if attention_mask is None else attention_mask[:, -length:].bool()
    start = rank - position_ids
    begins = begins_document(position_ids)
    if real is not None:
        begins = begins & real
    if length > 1:
        # A token that does not begin a document belongs to that of the token before it, whatever its position.
        known = begins.clone()
        known[:, 0] = True
        if real is not None:
            known = (known & real) | (real & (real.cumsum(-1) == 1))
        # By index: an exporter replaces cummax() by a function that returns a plain tuple.
        start = torch.where(known, start, torch.iinfo(start.dtype).min).cummax(-1)[0]
    # Positions of the caller may begin above 0, which is before the first token.
    start = start.clamp(min=0).expand(batch, -1)
    if real is not None:
        start = torch.where(real, start, 0)
    if looks and not bool((start > 0).any()):
        return None
    return Documents(start, begins.expand(batch, -1), ranks, past)


def origins(
    inputs_embeds: torch.Tensor, attention_mask: torch.Tensor | None, documents: Documents | None
) -> torch.Tensor | None:
    """Return the index of the key at which the document of every query begins, or None when that is 0 everywhere.
    *Shape:* `(batch, length)`, int64."""
    if documents is not None:
        if documents.ranks is None:
            return documents.start
        # The first key of that rank; a pad has the rank of the real token before it.
        return torch.searchsorted(documents.ranks, documents.start.contiguous())
    if attention_mask is None:
        return None
    return attention_mask.long().argmax(-1, keepdim=True).expand(-1, inputs_embeds.shape[1])


@dataclass(frozen=True)
class Segments:
    """The mask of a mixer that is not attention: padding, which must not reach its state, and document boundaries,
    which its state must not cross.

    Attributes:
        real: whether a token is real, or None when all are. *Shape:* `(batch, length)`, bool.
        document: number of the document of a token: 0 continues with the state, others begin without one; or None if
            all continue with it. *Shape:* `(batch, length)`, int64.
    """

    real: torch.Tensor | None = None
    document: torch.Tensor | None = None


def segments(
    inputs_embeds: torch.Tensor, attention_mask: torch.Tensor | None, documents: Documents | None, looks: bool
) -> Segments:
    """Return the padding and the borders of documents of the tokens in this call.

    Args:
        inputs_embeds: *Shape:* `(batch, length, any)`.
        attention_mask: padding. *Shape:* `(batch, past + length)`, or None.
        documents: the documents packed in the rows, or None.
        looks: whether the values of the mask may be read.
    """
    real = None
    if attention_mask is not None:
        real = attention_mask[:, -inputs_embeds.shape[1] :].bool()
        if looks and bool(real.all()):
            real = None
    return Segments(real, None if documents is None else documents.begins.long().cumsum(-1))
