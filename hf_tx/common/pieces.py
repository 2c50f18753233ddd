# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Cuts long texts into pieces for a tokenizer, which needs hundreds of bytes per character that it reads at a time."""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias

from transformers.utils import logging

logger = logging.get_logger(__name__)

#: A text, or its parts in order, which do not need to be in memory together.
Text: TypeAlias = str | Iterable[str]
#: Maximum number of characters of a piece.
LONGEST_PIECE = 1 << 16
# A space before a word, which almost all tokenizers keep with the word; or else a boundary of a word.
_BORDERS = (re.compile(r"(?<=\S) (?=\w)"), re.compile(r"(?<=\w)(?=[^\w\s])|(?<=[^\w\s])(?=\w)"))
_SEARCHED, _TRIED, _CONTEXT = 1 << 12, 8, 256


def cut_text(text: Text, encode: Callable[[str], list[int]] | None = None) -> Iterator[str]:
    """Cut a text into pieces of at most `LONGEST_PIECE` characters. Encoded one by one, they have the tokens of the
    whole text.

    The text is cut where the tokens around the cut do not change. If there is no such place near the end of a piece,
    the tokens next to the cut can differ from those of the whole text, and a warning says where.

    Args:
        text: the text. If it is short, it is the only piece. The pieces do not depend on the parts that it comes in.
        encode: returns the tokens of a text, without special tokens. Default: tokens are not compared.

    Yields:
        The pieces. Joined, they are the text.
    """
    held, parts = (text, iter(())) if isinstance(text, str) else ("", iter(text))
    start = before = 0  # where the next piece begins in what is held, and how much is held no longer
    changed = []
    while True:
        missing = start + LONGEST_PIECE + _CONTEXT + 1 - len(held)
        if more := _read(parts, missing):
            past = max(0, start - _CONTEXT)
            held, start, before = "".join([held[past:], *more]), start - past, before + past
        if len(held) - start <= LONGEST_PIECE:
            break
        stop, is_safe = _border(held, start, start + LONGEST_PIECE, encode)
        if not is_safe:
            changed.append(before + stop)
        yield held[start:stop]
        start = stop
    yield held[start:] if start else held
    if changed:
        logger.warning(
            f"a text of {before + len(held):,} characters is encoded in pieces. At {len(changed)} of the cuts, the "
            f"tokens can differ from those of the whole text; the first is at character {changed[0]:,}."
        )


def beginning(text: Text, num_tokens: int, tokenizer: Any) -> str:
    """Return the beginning of a text that has at least a given number of tokens.

    Args:
        text: the text.
        num_tokens: the number of tokens. A text of usual length is returned unchanged.
        tokenizer: if it truncates on the left, the whole text is returned.
    """
    if isinstance(text, str) and (len(text) <= LONGEST_PIECE or tokenizer.truncation_side != "right"):
        return text
    if tokenizer.truncation_side != "right":
        return "".join(text)
    encode = plain_encoder(tokenizer)
    found = []
    for piece in cut_text(text, encode):
        found.append(piece)
        num_tokens -= len(encode(piece))
        if num_tokens <= 0:
            break
    return "".join(found)


def _read(parts: Iterator[str], missing: int) -> list[str]:
    """Read parts until they have the missing characters, or no part is left."""
    found = []
    while missing > 0 and (part := next(parts, None)) is not None:
        found.append(part)
        missing -= len(part)
    return found


def _border(text: str, start: int, stop: int, encode: Callable[[str], list[int]] | None) -> tuple[int, bool]:
    first = max(start + 1, stop - _SEARCHED)
    found: list[int] = []
    for pattern in _BORDERS:
        places = [match.start() for match in pattern.finditer(text, first, stop + 1) if match.start() <= stop]
        for place in places[: -_TRIED - 1 : -1]:
            if encode is None or _is_safe(text, place, encode):
                return place, True
        found = found or places
    return (found[-1] if found else stop), encode is None


def _is_safe(text: str, place: int, encode: Callable[[str], list[int]]) -> bool:
    before, after = text[max(0, place - _CONTEXT) : place], text[place : place + _CONTEXT]
    return encode(before + after) == encode(before) + encode(after)


def plain_encoder(tokenizer: Any) -> Callable[[str], list[int]]:
    """Return a function that encodes text without special tokens, and reads special tokens in it as plain text."""
    return lambda text: tokenizer(text, add_special_tokens=False, split_special_tokens=True, verbose=False)[
        "input_ids"
    ]
