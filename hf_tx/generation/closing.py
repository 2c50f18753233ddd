# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""A short way from where a text stands in a grammar to a complete text."""

import heapq
import itertools
from collections.abc import Callable
from typing import NamedTuple

from .engine import Matcher
from .vocabulary import Vocabulary

#: What ends things in most grammars, and one or two of each kind of letter. They are tried before all others.
_FIRST = [bytes([value]) for value in b"\"}]0,:1-.{[antf A\\')(>/eu2T@Z;"]


class _Width(NamedTuple):
    """How many tokens are tried from a place: of those to be tried first, and of the others (None: all)."""

    first: int
    others: int | None


#: So few are all tried: they are names, numbers or what stands between values, and not the inside of a string.
_FEW = 20
#: Texts that are searched in depth are no longer than this many bytes.
_LONGEST = 2_000
_NARROW, _MIDDLE, _WHOLE = _Width(3, 1), _Width(12, 2), _Width(len(_FIRST), None)


class _Place:
    """A text and where it stands in the grammar. Two places that look alike have the same tokens after them."""

    def __init__(self, text: bytes, matcher: Matcher, parent: "_Place | None" = None) -> None:
        self.text, self.matcher, self.parent = text, matcher, parent
        self.looks = (matcher.mask(), matcher.complete())

    def times(self) -> int:
        """Return how often the way here has come by places that look like this one."""
        place, count = self.parent, 0
        while place is not None:
            count += place.looks == self.looks
            place = place.parent
        return count


class _Exhausted(Exception):
    """As many places as allowed were tried."""


class Closer:
    """Finds short ends of texts of one vocabulary."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        atoms = set(vocabulary.atoms)
        ids = (vocabulary.ids.get(piece) for piece in _FIRST)
        self._first = tuple(token for token in ids if token in atoms)
        self._others = tuple(token for token in vocabulary.atoms if token not in set(self._first))

    def short_end(
        self,
        matcher: Matcher,
        accepted: Callable[[bytes], bool] = lambda _: True,
        at_start: bool = False,
        steps: int = 4_000,
        thorough: bool = True,
    ) -> tuple[int, ...] | None:
        """Search a short end: by length as long as that takes few steps, and then in depth.

        Args:
            matcher: where the text stands. It stays there.
            accepted: whether the bytes found are an end; asked where the grammar allows one.
            at_start: nothing stands before, where some tokenizers cannot write a space.
            steps: how many places each way of searching tries.
            thorough: try all ways, and not only those that find most ends.

        Returns:
            Its tokens; None if none was found.
        """
        begin = _Place(b"", matcher)
        search = _Search(self, accepted, at_start)
        ways = (
            lambda: search.by_length(begin, _MIDDLE, 1, steps // 4),
            lambda: search.by_length(begin, _NARROW, 16, steps),
            lambda: search.in_depth(begin, _NARROW, steps),
            lambda: search.by_length(begin, _MIDDLE, 16, steps // 2),
            lambda: search.by_length(begin, _WHOLE, 4, steps),
            lambda: search.in_depth(begin, _WHOLE, steps),
        )
        for way in ways if thorough else ways[:3]:
            try:
                found = way()
            except _Exhausted:
                continue
            if found is not None:
                return self.vocabulary.tokenize(found)
            if not search.left_out:
                return None
        return None

    def after(self, place: _Place, width: _Width, at_start: bool) -> tuple[list[_Place], bool]:
        """Return the places after one, and whether all tokens were tried."""
        forced = place.matcher.forced()
        tokens = self.vocabulary.tokenize(forced) if len(forced) > 1 else None
        steps = [tokens] if tokens is not None else []
        every = True
        if tokens is None:
            mask = place.looks[0]
            if mask is None:
                return [], True
            first, others = self._allowed(self._first, mask), self._allowed(self._others, mask)
            every = len(first) + len(others) <= _FEW
            if not every:
                every = len(first) <= width.first and (width.others is None or len(others) <= width.others)
                first, others = first[: width.first], others[: width.others]
            steps += [(token,) for token in first + others]
        found = []
        for step in steps:
            piece = self.vocabulary.text(step)
            if at_start and not place.text and self.vocabulary.drops_first_space and piece[:1] == b" ":
                continue
            matcher = place.matcher.copy()
            if matcher.consume(step):
                found.append(_Place(place.text + piece, matcher, place))
        return found, every

    def _allowed(self, tokens: tuple[int, ...], mask: bytes) -> list[int]:
        return [token for token in tokens if mask[token >> 3] >> (token & 7) & 1]


class _Search:
    def __init__(self, closer: Closer, accepted: Callable[[bytes], bool], at_start: bool) -> None:
        self._closer, self._accepted, self._at_start = closer, accepted, at_start
        self.left_out = False

    def _ends(self, place: _Place) -> bool:
        return place.looks[1] and self._accepted(place.text)

    def by_length(self, begin: _Place, width: _Width, alike: int, steps: int) -> bytes | None:
        """Try the shortest texts first, and of places that look alike only some."""
        self.left_out = False
        order = itertools.count()
        queue = [(0, next(order), begin)]
        seen: dict[tuple[bytes | None, bool], int] = {}
        while queue:
            _, _, here = heapq.heappop(queue)
            if self._ends(here):
                return here.text
            places, every = self._closer.after(here, width, self._at_start)
            self.left_out |= not every
            steps -= len(places)
            for place in places:
                seen[place.looks] = seen.get(place.looks, 0) + 1
                if seen[place.looks] > alike:
                    self.left_out = True
                else:
                    heapq.heappush(queue, (len(place.text), next(order), place))
            if steps < 0:
                raise _Exhausted
        return None

    def in_depth(self, begin: _Place, width: _Width, steps: int) -> bytes | None:
        """Go on where the text has been least: out of what can go on for ever, and through what has to be counted."""
        self.left_out = False
        stack = [begin]
        while stack:
            here = stack.pop()
            if self._ends(here):
                return here.text
            places, every = self._closer.after(here, width, self._at_start)
            self.left_out |= not every
            steps -= len(places)
            if steps < 0 or len(here.text) > _LONGEST:
                raise _Exhausted
            unlike = {place.looks: place for place in reversed(places)}  # the first of those that look alike
            self.left_out |= len(unlike) < len(places)
            inverse = [place for place in reversed(places) if unlike[place.looks] is place]
            stack += sorted(inverse, key=_Place.times, reverse=True)
        return None
