# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Texts that fit in memory: read, and split into training and held-out text."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from ..common.packaged import path_of
from ..tokenization.corpus import iter_texts, texts_in


def text_files(paths: Iterable[str | os.PathLike[str]]) -> list[Path]:
    """Return the files that paths stand for; a directory stands for all `*.txt` files in it and below."""
    # A directory without texts is left to iter_texts, which refuses it.
    return [file for path in map(path_of, paths) for file in texts_in(path) or [path]]


def read_documents(paths: Iterable[str | os.PathLike[str]]) -> list[str]:
    """Read text files, each of which is a document. A directory stands for all `*.txt` files (also
    `*.txt.gz` and the like) in it and below.

    Raises:
        FileNotFoundError: a path does not exist.
        ValueError: a file is empty, blank, or not UTF-8 text; see `iter_texts`.
    """
    return ["".join(iter_texts(file)) for file in text_files(paths)]


def split_documents(documents: Sequence[str], held_out: float) -> tuple[list[str], list[str]]:
    """Hold the end of the texts out, so that nothing of it is ever seen in training.

    The cut is at the end of the line that is nearest; where the lines are too long for that, at the nearest space, or
    else between two characters.

    Args:
        documents: the texts, taken as one after another.
        held_out: the share of the characters to hold out, above 0 and below 1.

    Returns:
        The training texts and the held-out texts. Joined, both together are the texts.

    Raises:
        ValueError: a share that is not between 0 and 1.
    """
    if not 0 < held_out < 1:
        raise ValueError(f"held_out = {held_out}: must be above 0 and below 1")
    total = sum(map(len, documents))
    missing = round(total * (1 - held_out))
    for number, document in enumerate(documents):
        if missing <= len(document):
            cut = _cut(document, missing, tolerance=total * min(held_out, 1 - held_out) / 2)
            parts = [*documents[:number], document[:cut]], [document[cut:], *documents[number + 1 :]]
            return [text for text in parts[0] if text], [text for text in parts[1] if text]
        missing -= len(document)
    return list(documents), []


def hold_out_beginning(files: Sequence[str], size: int) -> tuple[list[str], list[str], int]:
    """Hold the beginning of text files out, without reading what comes after.

    Args:
        files: in their order.
        size: about how many characters are held out; the cut is that of `split_documents`.

    Returns:
        The held-out texts, the files that are left, and how many characters of the first of them are held out.

    Raises:
        ValueError: nothing is left.
    """
    texts: list[str] = []
    missing, tolerance = size, size / 2
    for number, file in enumerate(files):
        begun, length = [], 0
        for piece in iter_texts(file):
            begun.append(piece)
            length += len(piece)
            if length > missing + tolerance:
                text = "".join(begun)
                cut = _cut(text, missing, tolerance)
                return [*texts, text[:cut]], list(files[number:]), cut
        texts.append("".join(begun))
        missing -= length
        if missing <= tolerance and number + 1 < len(files):
            return texts, list(files[number + 1 :]), 0
    raise ValueError(
        f"--held-out-first {size}: the texts have {sum(map(len, texts)):,} characters, so that too few would be left "
        "to train on; hold out fewer."
    )


def _cut(text: str, target: int, tolerance: float) -> int:
    for separator in ("\n", " "):
        ends = (text.rfind(separator, 0, target) + 1, text.find(separator, target) + 1, len(text))
        near = [end for end in ends if end and abs(end - target) <= tolerance]
        if near:
            return min(near, key=lambda end: abs(end - target))
    return target
