# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""The bytes that each token of a tokenizer adds to a text, as the engine of constraints has to know them."""

import functools
import json
import random
import threading
import weakref
from collections.abc import Iterable, Sequence
from typing import Any

#: Decoders whose text is what their tokens say, joined.
_EXACT = ("ByteLevel", "Metaspace", "Replace", "ByteFallback", "Fuse", "Strip")
_SPACE = "\u2581"
_CHECKS, _CHECKED_TOKENS = 48, 6


class Vocabulary:
    """What the tokens of a tokenizer write.

    Args:
        pieces: for each id, the bytes that it adds to a text; None for an id that is no text: special tokens, and
            those that the tokenizer writes in another way than it says.
        drops_first_space: decoding drops the space at the beginning of a text.
    """

    def __init__(self, pieces: Sequence[bytes | None], drops_first_space: bool = False) -> None:
        # Nothing that is text begins with the byte 255, by which the engine marks special tokens.
        self.pieces = tuple(piece if piece and piece[0] != 0xFF else None for piece in pieces)
        self.drops_first_space = drops_first_space
        self.ids: dict[bytes, int] = {}
        for index, piece in enumerate(self.pieces):
            if piece is not None:
                self.ids.setdefault(piece, index)
        if not self.ids:
            raise ValueError("the tokenizer has no token that writes text.")
        self.longest = max(map(len, self.ids))
        #: The id, after all others, that stands for the end of a text in the engine.
        self.end = len(self.pieces)

    @functools.cached_property
    def atoms(self) -> tuple[int, ...]:
        """The tokens that no shorter ones can write: together they write all that the vocabulary can."""
        return tuple(index for piece, index in self.ids.items() if self._split(piece, len(piece) - 1) is None)

    def text(self, tokens: Iterable[int]) -> bytes:
        """Return what tokens write; special ones write nothing."""
        known = len(self.pieces)
        return b"".join(self.pieces[token] or b"" for token in tokens if 0 <= token < known)

    def tokenize(self, text: bytes) -> tuple[int, ...] | None:
        """Return the fewest tokens that write a text, or None if there are none."""
        return self._split(text, self.longest)

    def _split(self, text: bytes, longest: int) -> tuple[int, ...] | None:
        # fewest[n]: (how many tokens write the first n bytes, the length of the last of them)
        fewest: list[tuple[int, int] | None] = [(0, 0)] + [None] * len(text)
        for stop in range(1, len(text) + 1):
            for start in range(max(0, stop - longest), stop):
                before = fewest[start]
                best = fewest[stop]
                if before is None or (best is not None and best[0] <= before[0] + 1):
                    continue
                if text[start:stop] in self.ids:
                    fewest[stop] = (before[0] + 1, stop - start)
        stop, found = len(text), list[int]()
        while stop:
            step = fewest[stop]
            if step is None:
                return None
            found.append(self.ids[text[stop - step[1] : stop]])
            stop -= step[1]
        return tuple(reversed(found))

    @functools.cached_property
    def engine(self) -> Any:
        """The tokenizer of the engine."""
        from .engine import engine_tokenizer

        return engine_tokenizer(self)

    def greedily(self, text: bytes) -> list[int]:
        """Return tokens that write a text, the longest first, up to what none of them writes."""
        found: list[int] = []
        start = 0
        while start < len(text):
            for length in range(min(self.longest, len(text) - start), 0, -1):
                token = self.ids.get(text[start : start + length])
                if token is not None:
                    found.append(token)
                    start += length
                    break
            else:
                break
        return found


def _decoders(decoder: dict[str, Any] | None) -> list[dict[str, Any]]:
    if decoder is None:
        return []
    return decoder["decoders"] if decoder["type"] == "Sequence" else [decoder]


def _byte_of_letter() -> dict[str, int]:
    """The alphabet in which byte-level tokenizers spell bytes (the table of GPT-2)."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    letters = {chr(byte): byte for byte in printable}
    others = (byte for byte in range(256) if byte not in printable)
    return letters | {chr(256 + index): byte for index, byte in enumerate(others)}


def _piece(token: str, kinds: list[str], decoders: list[dict[str, Any]], letters: dict[str, int]) -> bytes | None:
    if "ByteLevel" in kinds:
        return bytes(letters[letter] for letter in token) if all(letter in letters for letter in token) else None
    if "ByteFallback" in kinds and len(token) == 6 and token.startswith("<0x") and token.endswith(">"):
        return bytes([int(token[3:5], 16)])
    for decoder in decoders:
        if decoder["type"] == "Metaspace":
            token = token.replace(decoder.get("replacement", _SPACE), " ")
        elif decoder["type"] == "Replace":
            pattern = decoder["pattern"].get("String")
            if pattern is None:
                return None
            token = token.replace(pattern, decoder["content"])
    return token.encode()


def _decode(tokenizer: Any, tokens: list[int]) -> str:
    return tokenizer.decode(tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False)


def read_vocabulary(tokenizer: Any) -> Vocabulary:
    """Return the vocabulary of a tokenizer of transformers.

    Raises:
        ValueError: the tokenizer cannot write a text exactly; the message says why.
    """
    name = type(tokenizer).__name__
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise ValueError(
            f"{name}: a constraint needs the bytes of each token, which only tokenizers of the tokenizers library "
            "tell: convert it to one (PreTrainedTokenizerFast)."
        )
    state = json.loads(backend.to_str())
    decoders = _decoders(state["decoder"])
    kinds = [decoder["type"] for decoder in decoders]
    refused = [kind for kind in kinds if kind not in _EXACT]
    if refused or not kinds:
        what = f"its decoder {refused[0]}" if refused else "decoding without a decoder"
        raise ValueError(
            f"{name}: {what} adds and moves spaces between tokens ({state['model']['type']}), so that it cannot write "
            "every text exactly, and a constraint could not be kept. Use a byte-level BPE, Unigram or SentencePiece "
            "tokenizer."
        )
    letters = _byte_of_letter()
    added = {int(index): token for index, token in tokenizer.added_tokens_decoder.items()}
    special = {*tokenizer.all_special_ids, *(index for index, token in added.items() if token.special)}
    vocabulary = tokenizer.get_vocab()
    pieces: list[bytes | None] = [None] * (max(vocabulary.values()) + 1)
    for token, index in vocabulary.items():
        if index not in special and index not in added:
            pieces[index] = _piece(token, kinds, decoders, letters)
    _add(tokenizer, pieces, {index: token.content for index, token in added.items() if index not in special})
    spaced = next((index for index, piece in enumerate(pieces) if piece and piece[:1] == b" " and piece.strip()), None)
    drops = spaced is not None and not _decode(tokenizer, [spaced]).startswith(" ")
    found = Vocabulary(pieces, drops)
    _check(tokenizer, found, name)
    return found


def _add(tokenizer: Any, pieces: list[bytes | None], added: dict[int, str]) -> None:
    """Tokens that were added by hand are text if they write their name wherever they stand."""
    beside = next((index for index, piece in enumerate(pieces) if piece and piece.isalpha()), None)
    for index, content in added.items():
        if beside is not None:
            letter = (pieces[beside] or b"").decode()
            written = _decode(tokenizer, [beside, index, beside, index, index])
            if written == letter + content + letter + content + content:
                pieces[index] = content.encode()


def _is_text(piece: bytes) -> bool:
    """Return whether a piece is whole letters."""
    try:
        piece.decode()
    except UnicodeDecodeError:
        return False
    return True


def _check(tokenizer: Any, vocabulary: Vocabulary, name: str) -> None:
    """Compare with what the tokenizer writes, for sequences that are drawn always the same."""
    draw = random.Random(0)
    usable = [index for piece, index in vocabulary.ids.items() if _is_text(piece)]
    for _ in range(_CHECKS if usable else 0):
        tokens = [draw.choice(usable) for _ in range(_CHECKED_TOKENS)]
        expected = vocabulary.text(tokens).decode()
        if vocabulary.drops_first_space:
            expected = expected.removeprefix(" ")
        written = _decode(tokenizer, tokens)
        if written != expected:
            raise ValueError(
                f"{name}: it writes {written!r} for the tokens {tokenizer.convert_ids_to_tokens(tokens)}, whose bytes "
                f"say {expected!r}: it cannot write a text exactly, so that a constraint could not be kept."
            )


_KNOWN: "weakref.WeakKeyDictionary[Any, tuple[Any, Vocabulary]]" = weakref.WeakKeyDictionary()
_LOCK = threading.Lock()


def vocabulary_of(tokenizer: Any) -> Vocabulary:
    """Return the vocabulary of a tokenizer; it is read once, and again when tokens were added."""
    mark = (len(tokenizer), tuple(sorted(tokenizer.added_tokens_decoder)), tuple(tokenizer.all_special_ids))
    with _LOCK:
        known = _KNOWN.get(tokenizer)
        if known is None or known[0] != mark:
            known = (mark, read_vocabulary(tokenizer))
            _KNOWN[tokenizer] = known
        return known[1]
