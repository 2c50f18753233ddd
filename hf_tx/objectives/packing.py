# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Packing: documents of any length as rows of one length, without padding between them.

A document that is longer than a row is cut into pieces. Every piece has the frame of a text of its own (`begin` and
`end`: `<bos>`, or `[CLS]` and `[SEP]`), and its positions begin at 0, which is how the models of hf_tx know that it
sees nothing of the other pieces in its row. Only the end of the last row is padding, which is a piece of its own.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice

from ..models.losses import IGNORE


def cut_documents(
    documents: Iterable[Iterable[int]], length: int, *, begin: Sequence[int] = (), end: Sequence[int] = ()
) -> Iterator[list[int]]:
    """Cut documents into pieces of at most `length` tokens, for rows of one piece each.

    Args:
        documents: the tokens of each document, without special tokens.
        length: the most tokens of a piece, special ones included.
        begin: special tokens before every piece.
        end: special tokens after every piece.

    Returns:
        An iterator over the pieces, each with its frame.

    Raises:
        ValueError: a piece has no room for a token beside the special ones.
    """
    room = _room(length, begin, end)
    return ([*begin, *piece, *end] for document in documents for piece in _pieces(document, room))


def _pieces(document: Iterable[int], length: int) -> Iterator[list[int]]:
    tokens = iter(document)
    while piece := list(islice(tokens, length)):
        yield piece


def pack_documents(
    documents: Iterable[Iterable[int]],
    length: int,
    *,
    pad_token_id: int,
    begin: Sequence[int] = (),
    end: Sequence[int] = (),
) -> list[dict[str, list[int]]]:
    """Pack documents into rows. Every token of every document stands in exactly one row.

    Args:
        documents: the tokens of each document, without special tokens.
        length: tokens of a row.
        pad_token_id: fills the last row.
        begin: special tokens before every piece.
        end: special tokens after every piece.

    Returns:
        Rows of `input_ids`, `position_ids` (0 where a piece begins) and `special_tokens_mask` (1 for `begin`, `end`
        and padding), each of `length` numbers.

    Raises:
        ValueError: a row has no room for a token beside the special ones.
    """
    return list(iter_packed(documents, length, pad_token_id=pad_token_id, begin=begin, end=end))


def iter_packed(
    documents: Iterable[Iterable[int]],
    length: int,
    *,
    pad_token_id: int,
    begin: Sequence[int] = (),
    end: Sequence[int] = (),
) -> Iterator[dict[str, list[int]]]:
    """Return the rows of `pack_documents` one by one; nothing is held but a row."""
    frame = length - _room(length, begin, end)
    return _packed(documents, length, frame, pad_token_id, begin, end)


def _packed(
    documents: Iterable[Iterable[int]],
    length: int,
    frame: int,
    pad_token_id: int,
    begin: Sequence[int],
    end: Sequence[int],
) -> Iterator[dict[str, list[int]]]:
    row = _new_row()
    for document in documents:
        tokens = iter(document)
        for first in tokens:
            space = length - len(row["input_ids"])
            if space <= frame:
                # Also when nothing is missing.
                yield _padded(row, space, pad_token_id)
                row, space = _new_row(), length
            piece = [first, *islice(tokens, space - frame - 1)]
            _add(row, [*begin, *piece, *end], [1] * len(begin) + [0] * len(piece) + [1] * len(end))
    if row["input_ids"]:
        yield _padded(row, length - len(row["input_ids"]), pad_token_id)


def pack_for_causal_lm(
    documents: Iterable[Iterable[int]], length: int, *, bos_token_id: int | None, eos_token_id: int, pad_token_id: int
) -> list[dict[str, list[int]]]:
    """Pack documents into the rows of a causal language model.

    Every piece begins with `<bos>`, so that a text that begins with it is nothing new to the model; `<eos>` stands at
    the end of a document only, and is learnt. The first token of a piece and padding are no targets. They are known by
    their place, so that the three special tokens may be one.

    Args:
        documents: the tokens of each document, without special tokens.
        length: tokens of a row.
        bos_token_id: before every piece; None for models without it, which never learn the first token of a piece.
        eos_token_id: after the last piece of a document.
        pad_token_id: fills the last row.

    Returns:
        Rows of `input_ids`, `position_ids` and `labels` (not shifted, -100 for no target).
    """
    rows = iter_packed_for_causal_lm(
        documents, length, bos_token_id=bos_token_id, eos_token_id=eos_token_id, pad_token_id=pad_token_id
    )
    return list(rows)


def iter_packed_for_causal_lm(
    documents: Iterable[Iterable[int]], length: int, *, bos_token_id: int | None, eos_token_id: int, pad_token_id: int
) -> Iterator[dict[str, list[int]]]:
    """Return the rows of `pack_for_causal_lm` one by one."""
    begin = [] if bos_token_id is None else [bos_token_id]
    rows = iter_packed(close_documents(documents, eos_token_id), length, begin=begin, pad_token_id=pad_token_id)
    return map(_with_labels, rows)


def close_documents(documents: Iterable[Iterable[int]], eos_token_id: int) -> Iterator[Iterator[int]]:
    """Yield the documents that are not empty, each with `<eos>` after it."""
    for document in documents:
        tokens = iter(document)
        first = next(tokens, None)
        if first is not None:
            yield chain((first,), tokens, (eos_token_id,))


def _with_labels(row: dict[str, list[int]]) -> dict[str, list[int]]:
    special = row.pop("special_tokens_mask")
    places = zip(row["input_ids"], special, row["position_ids"], strict=True)
    row["labels"] = [token if position and not mark else IGNORE for token, mark, position in places]
    return row


def _room(length: int, begin: Sequence[int], end: Sequence[int]) -> int:
    frame = len(begin) + len(end)
    if length <= frame:
        raise ValueError(f"length = {length}: a row needs room for {frame} special tokens and at least one token.")
    return length - frame


def _new_row() -> dict[str, list[int]]:
    return {"input_ids": [], "position_ids": [], "special_tokens_mask": []}


def _add(row: dict[str, list[int]], token_ids: Sequence[int], special: Sequence[int]) -> None:
    row["input_ids"] += token_ids
    row["position_ids"] += range(len(token_ids))
    row["special_tokens_mask"] += special


def _padded(row: dict[str, list[int]], missing: int, pad_token_id: int) -> dict[str, list[int]]:
    _add(row, [pad_token_id] * missing, [1] * missing)
    return row
