# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""The logits processor that keeps each row of `generate()` within a constraint, and within its budget of tokens."""

import collections
import threading
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from transformers import LogitsProcessor

from .constraint import Compiled, Constraint
from .engine import GrammarError, Matcher

#: How many tokens are tried at a step, the best first; how many ends are searched at a step; how many are remembered.
CANDIDATES, _SEARCHES, _REMEMBERED = 64, 12, 16
_SEARCH_STEPS = 600


class _Change(NamedTuple):
    """How a token changes the end of a text: what comes before, and how much of the former end is left out."""

    before: tuple[int, ...]
    without: int


class _Row:
    """Where a row stands: its matcher, its text, a short end of it, and the ends after the tokens that may follow."""

    def __init__(self, matcher: Matcher, text: bytes, end: tuple[int, ...]) -> None:
        self.matcher, self.text, self.end = matcher, text, end
        self.ends: dict[int, tuple[int, ...]] = {}
        self._complete: bool | None = None

    def complete(self, compiled: Compiled) -> bool:
        if self._complete is None:
            self._complete = self.matcher.complete() and compiled.accepts(self.text)
        return self._complete


class ConstraintLogitsProcessor(LogitsProcessor):
    """Lets only tokens pass after which the text can still become one that conforms, in the tokens that are left.

    What a row has generated is all that decides, not what the processor has seen before: rows may be reordered,
    copied, left out and come back. It is called after the penalties of `generate()` and before temperature, top-k,
    top-p and the other ways to narrow a distribution, so that these choose among allowed tokens.

    Args:
        constraint: for all rows, or one for each prompt.
        tokenizer: of the model.
        prompt_length: how many ids a row has at the first step: the length of `input_ids` with padding for a decoder,
            0 with `inputs_embeds` alone, and that of `decoder_input_ids` (mostly 1) for an encoder-decoder.
        max_new_tokens: as for `generate()`. The last of them is an eos token.
        eos_token_id: ids that end a text, as for `generate()`; those of the tokenizer by default.
        rows_per_prompt: `num_beams` or `num_return_sequences`, if there is one constraint for each prompt.
        lenient_rows: go on when a row has left the constraint, which happens where candidates are drawn that cannot
            be chosen: in beam sampling and in assisted decoding. Otherwise that is an error.
        candidates: how many allowed tokens are tried at a step, the best first; the others are not chosen. None for
            all, which is exact and slow.

    Raises:
        ValueError: there is no eos token, or the budget cannot hold the shortest text that was found.
    """

    def __init__(
        self,
        constraint: Constraint | Sequence[Constraint],
        tokenizer: Any,
        *,
        prompt_length: int,
        max_new_tokens: int,
        eos_token_id: int | Sequence[int] | None = None,
        rows_per_prompt: int = 1,
        lenient_rows: bool = False,
        candidates: int | None = CANDIDATES,
    ) -> None:
        constraints = [constraint] if isinstance(constraint, Constraint) else list(constraint)
        if not constraints:
            raise ValueError("constraint: is an empty list.")
        if candidates is not None and candidates < 1:
            raise ValueError(f"candidates must be at least 1, not {candidates}.")
        self._one_for_all = isinstance(constraint, Constraint)
        self.compiled = [one.compile(tokenizer) for one in constraints]
        self.prompt_length, self.max_new_tokens = prompt_length, max_new_tokens
        self.eos_token_ids = _eos_ids(tokenizer, eos_token_id)
        self.rows_per_prompt, self.lenient_rows, self.candidates = rows_per_prompt, lenient_rows, candidates
        for one in self.compiled:
            if len(one.end) + 1 > max_new_tokens:
                raise ValueError(
                    f"{one.constraint!r}: max_new_tokens={max_new_tokens} cannot hold a complete text: the shortest "
                    f"that was found takes {len(one.end) + 1} tokens, with the one that ends it."
                )
        self._lock = threading.Lock()
        # Only saves work: a row that is not here is read anew from its tokens.
        self._rows: collections.OrderedDict[tuple[int, tuple[int, ...]], _Row | None] = collections.OrderedDict()
        # What is learnt here stays here, so that the same seed gives the same text: changes of ends that were found
        # lately, and those found in places that look alike.
        self._changes = {id(one): [_Change((), without) for without in range(3)] for one in self.compiled}
        self._found: dict[tuple[int, bytes | None, bool], list[_Change]] = {}

    def __deepcopy__(self, memo: dict[int, Any]) -> "ConstraintLogitsProcessor":
        copied = object.__new__(type(self))
        copied.__dict__.update(self.__dict__)
        copied._lock, copied._rows = threading.Lock(), collections.OrderedDict()
        copied._found = {key: list(changes) for key, changes in self._found.items()}
        copied._changes = {key: list(changes) for key, changes in self._changes.items()}
        return copied

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        """Return the scores with all but the allowed tokens at minus infinity.

        Args:
            input_ids: what each row has, with its prompt. Shape: (rows, length).
            scores: of the next token. Shape: (rows, vocabulary of the model).

        Raises:
            ValueError: the scores of a row are not numbers, or nothing of what is allowed has a score.
        """
        step = input_ids.shape[1] - self.prompt_length
        if step < 0:
            raise ValueError(f"prompt_length={self.prompt_length}, but the rows have {input_ids.shape[1]} ids.")
        rows = input_ids[:, self.prompt_length :].tolist()
        self._check_rows(len(rows))
        masked = torch.full_like(scores, -torch.inf)
        with self._lock:
            for index, tokens in enumerate(rows):
                allowed = self._allowed(index, tuple(tokens), scores[index], step)
                if allowed is None:
                    # Nothing of it counts any more, and a row without a token cannot be drawn from.
                    masked[index, self.eos_token_ids[0]] = torch.nan_to_num(
                        scores[index, self.eos_token_ids[0]], nan=0.0, posinf=0.0, neginf=0.0
                    )
                else:
                    masked[index, allowed] = scores[index, allowed]
            while len(self._rows) > max(64, 4 * len(rows)):
                self._rows.popitem(last=False)
        return masked

    def _check_rows(self, count: int) -> None:
        if not self._one_for_all and count != len(self.compiled) * self.rows_per_prompt:
            raise ValueError(
                f"there are {len(self.compiled)} constraints for {count} rows: give one for all, or one for each "
                f"prompt (rows_per_prompt={self.rows_per_prompt})."
            )

    def _allowed(self, index: int, tokens: tuple[int, ...], scores: torch.Tensor, step: int) -> list[int] | None:
        """Return the tokens that may follow; None if the row has ended, or has left the constraint."""
        which = 0 if self._one_for_all else index // self.rows_per_prompt
        compiled = self.compiled[which]
        where = f"step {step + 1}, row {index}"
        if scores.shape[0] <= max(self.eos_token_ids):
            raise ValueError(
                f"eos_token_id: {max(self.eos_token_ids)} is past the {scores.shape[0]} tokens of the model."
            )
        if any(token in self.eos_token_ids for token in tokens):
            return None
        if torch.isnan(scores).any():
            raise ValueError(f"{where}: the model gives scores that are not numbers (NaN).")
        row = self._row(which, tokens)
        if row is None:
            if self.lenient_rows:
                return None
            raise ValueError(
                f"{where}: {compiled.vocabulary.text(tokens)!r} is no beginning of a text that conforms to "
                f"{compiled.constraint!r}. Either prompt_length={self.prompt_length} is not the length of the prompt, "
                "or another processor came after this one, or tokens were drawn by an assistant or by beam sampling "
                "(lenient_rows=True)."
            )
        left = self.max_new_tokens - step
        try:
            allowed = self._open(compiled, row, scores, left)
        except GrammarError as error:
            raise ValueError(f"{where}: {compiled.constraint!r}: {error}") from error
        if row.complete(compiled):
            allowed += [token for token in self.eos_token_ids if scores[token] > -torch.inf]
        if not allowed:
            raise ValueError(
                f"{where}: all tokens that {compiled.constraint!r} allows have a score of minus infinity, or none is "
                f"left in {left} tokens after {row.text!r}. Look at min_new_tokens, no_repeat_ngram_size, "
                "bad_words_ids, suppress_tokens and other processors."
            )
        return allowed

    def _row(self, which: int, tokens: tuple[int, ...]) -> _Row | None:
        """Return where a row stands; None if its tokens are no beginning of a text that conforms."""
        key = (which, tokens)
        if key not in self._rows:
            self._rows[key] = self._read(which, tokens)
        self._rows.move_to_end(key)
        return self._rows[key]

    def _read(self, which: int, tokens: tuple[int, ...]) -> _Row | None:
        compiled = self.compiled[which]
        text = compiled.vocabulary.text(tokens)
        parent = self._rows.get((which, tokens[:-1])) if tokens else None
        if parent is not None and tokens[-1] in parent.ends:
            matcher = parent.matcher.copy()
            matcher.consume(tokens[-1:])
            return _Row(matcher, text, parent.ends[tokens[-1]])
        matcher = compiled.root()
        if not tokens:
            return _Row(matcher, text, compiled.end)
        pieces = compiled.vocabulary.pieces
        if any(token >= len(pieces) or pieces[token] is None for token in tokens) or not matcher.consume(tokens):
            return None
        end = compiled.closer.short_end(matcher, lambda rest: compiled.accepts(text + rest))
        return None if end is None else _Row(matcher, text, end)

    def _open(self, compiled: Compiled, row: _Row, scores: torch.Tensor, left: int) -> list[int]:
        """Return the tokens after which the text can be ended in what is left, and keep how."""
        mask = row.matcher.mask()
        if mask is None:
            return []
        pieces = compiled.vocabulary.pieces
        size = min(len(pieces), scores.shape[0])
        bits = np.unpackbits(np.frombuffer(mask, dtype=np.uint8), count=size, bitorder="little")
        ids = torch.from_numpy(np.flatnonzero(bits)).to(scores.device)
        found = scores[ids]
        count = len(ids) if self.candidates is None else min(self.candidates, len(ids))
        best = torch.topk(found, count).indices
        values = dict(zip(ids[best].tolist(), found[best].tolist(), strict=True))
        searches = _SEARCHES
        at_start = not row.text and compiled.vocabulary.drops_first_space
        for token, value in values.items():
            if value == -torch.inf or token in self.eos_token_ids or pieces[token] is None:
                continue
            if token in row.ends or (at_start and (pieces[token] or b"").startswith(b" ")):
                continue
            end = self._end_after(compiled, row, token, left - 2)
            if end is None and left > 2:
                end, searched = self._find(compiled, row, token, searches > 0)
                searches -= searched
            if end is not None:
                row.ends[token] = end
        if row.end and row.end[0] < scores.shape[0]:
            row.ends.setdefault(row.end[0], row.end[1:])
            values.setdefault(row.end[0], scores[row.end[0]].item())
        fitting = (token for token, end in row.ends.items() if len(end) <= left - 2)
        return [token for token in fitting if values.get(token, -torch.inf) > -torch.inf]

    def _end_after(self, compiled: Compiled, row: _Row, token: int, longest: int) -> tuple[int, ...] | None:
        """Return an end after a token that is like one that was found before, if possible of at most some tokens."""
        if row.end and row.end[0] == token:
            return row.end[1:]
        too_long = None
        changes = self._changes[id(compiled)]
        for place, change in enumerate(changes):
            if change.without > len(row.end):
                continue
            end = change.before + row.end[change.without :]
            if row.matcher.accepts((token, *end)):
                if place > 3:
                    changes.insert(place // 2, changes.pop(place))
                if len(end) <= longest:
                    return end
                too_long = too_long or end
        return too_long

    def _find(self, compiled: Compiled, row: _Row, token: int, search: bool) -> tuple[tuple[int, ...] | None, bool]:
        """Return an end after a token, by what was found in places that look alike or by a search; and if by that."""
        matcher = row.matcher.copy()
        if not matcher.consume((token,)):
            return None, False
        known = self._found.setdefault((id(compiled), matcher.mask(), matcher.complete()), [])
        for change in known:
            end = change.before + row.end[change.without :]
            if change.without <= len(row.end) and row.matcher.accepts((token, *end)):
                return end, False
        if not search:
            return None, False
        text = row.text + compiled.vocabulary.text((token,))
        accepted = lambda rest: compiled.accepts(text + rest)  # noqa: E731
        found = compiled.closer.short_end(matcher, accepted, steps=_SEARCH_STEPS, thorough=False)
        if found is not None:
            same = 0
            while same < min(len(found), len(row.end)) and found[-1 - same] == row.end[-1 - same]:
                same += 1
            change = _Change(found[: len(found) - same], len(row.end) - same)
            if change not in known:
                known.insert(0, change)
                del known[_REMEMBERED:]
            changes = self._changes[id(compiled)]
            if change not in changes:
                changes.insert(min(4, len(changes)), change)
                del changes[_REMEMBERED:]
        return found, True


def _eos_ids(tokenizer: Any, given: int | Sequence[int] | torch.Tensor | None) -> list[int]:
    if isinstance(given, torch.Tensor):
        given = given.tolist()
    if given is None:
        given = getattr(tokenizer, "eos_token_id", None)
    ids = [given] if isinstance(given, int) else list(given or [])
    if not ids:
        raise ValueError(
            "there is no eos token, so that a text could not end: give eos_token_id, or set tokenizer.eos_token."
        )
    return ids
