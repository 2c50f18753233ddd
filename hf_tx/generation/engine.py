# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""llguidance, the engine of constraints: compiles them within limits, and follows a text token by token."""

import contextlib
import functools
import json
from collections.abc import Iterator, Sequence
from typing import Any

from .vocabulary import Vocabulary

#: What compiling and a step may cost; a hostile grammar ends with an error instead of hanging the process.
LIMITS = dict(
    max_items_in_row=2_000,
    initial_lexer_fuel=300_000,
    step_lexer_fuel=100_000,
    step_max_items=50_000,
    max_lexer_states=50_000,
    max_grammar_size=200_000,
    verbose_errors=False,
)
#: Compact JSON, or white space of at most this many characters in each place.
WHITESPACE = {"compact": None, "flexible": r"[\x20\x0A\x0D\x09]{1,4}"}


class GrammarError(ValueError):
    """A constraint that the engine cannot compile."""


def library() -> Any:
    """Return llguidance.

    Raises:
        ImportError: it is not installed.
    """
    try:
        import jsonschema  # noqa: F401  # the judge
        import llguidance
    except ImportError as error:
        raise ImportError('constraints need llguidance and jsonschema: pip install "hf_tx[structured]"') from error
    return llguidance


class _Tokenizer:
    """A vocabulary in the form that the engine reads."""

    is_tokenizer_wrapper = True
    bos_token_id = None

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.tokens = [piece or b"" for piece in vocabulary.pieces] + [b"\xff<end>"]
        self.eos_token_id = vocabulary.end
        self.special_token_ids = [vocabulary.end]
        self._greedily = vocabulary.greedily

    def __call__(self, text: bytes | str) -> list[int]:
        return self._greedily(text.encode() if isinstance(text, str) else text)


def engine_tokenizer(vocabulary: Vocabulary) -> Any:
    """Return the engine's tokenizer of a vocabulary."""
    return library().LLTokenizer(_Tokenizer(vocabulary))


@functools.cache
def byte_vocabulary() -> Vocabulary:
    """Return a vocabulary of single bytes, by which texts are judged."""
    return Vocabulary([bytes([value]) for value in range(255)])


def json_grammar(schema: Any, whitespace: str) -> str:
    """Return the grammar of a JSON schema."""
    options = {
        "item_separator": ",",
        "key_separator": ":",
        "whitespace_flexible": False,
        "whitespace_pattern": WHITESPACE[whitespace],
    }
    with _panics():
        return library().LLMatcher.grammar_from_json_schema(json.dumps(schema), overrides=options)


class Matcher:
    """Where a text stands in a grammar."""

    def __init__(self, matcher: Any, vocabulary: Vocabulary) -> None:
        self._matcher = matcher
        self._end = vocabulary.end

    @classmethod
    def compile(cls, grammar: str, vocabulary: Vocabulary) -> "Matcher":
        """Compile a grammar for a vocabulary.

        Raises:
            GrammarError: the engine refuses it, or it is past the limits.
        """
        engine = library()
        limits = engine.LLParserLimits(**LIMITS)
        with _panics():
            matcher = engine.LLMatcher(vocabulary.engine, grammar, log_level=0, limits=limits)
        if matcher.is_error():
            raise GrammarError(_reason(matcher.get_error()))
        return cls(matcher, vocabulary)

    def copy(self) -> "Matcher":
        """Return an independent copy."""
        copied = object.__new__(Matcher)
        copied._matcher, copied._end = self._matcher.deep_copy(), self._end
        return copied

    def consume(self, tokens: Sequence[int]) -> bool:
        """Go on by some tokens. Return whether the grammar allows them; if not, the matcher is of no more use."""
        return not tokens or self._matcher.try_consume_tokens(list(tokens)) == len(tokens)

    def accepts(self, tokens: Sequence[int]) -> bool:
        """Return whether some tokens make a complete text of what stands here. The matcher stays where it is."""
        whole = [*tokens, self._end]
        return self._matcher.validate_tokens(whole) == len(whole)

    def complete(self) -> bool:
        """Return whether the text may end here."""
        return self._matcher.is_accepting()

    def forced(self) -> bytes:
        """Return the bytes that have to follow."""
        return b"" if self._matcher.is_stopped() else self._matcher.compute_ff_bytes()

    def mask(self) -> bytes | None:
        """Return the tokens that may follow, one bit each (the lowest bit first); None if there are none.

        Raises:
            GrammarError: the text has come to a place that is past the limits.
        """
        if self._matcher.is_stopped():
            self.check()
            return None
        with _panics():
            found = self._matcher.compute_bitmask()
        self.check()
        return found

    def check(self) -> None:
        """Raise a GrammarError if the engine is in an error."""
        if self._matcher.is_error():
            raise GrammarError(_reason(self._matcher.get_error()))


@contextlib.contextmanager
def _panics() -> Iterator[None]:
    """The engine's own failures are errors of the grammar too."""
    try:
        yield
    except (ValueError, RuntimeError) as error:
        raise GrammarError(_reason(str(error))) from error
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise GrammarError(f"the engine failed: {_reason(str(error))}") from error


def _reason(message: str) -> str:
    """The first lines of an error of the engine, which may go on with the state of its parser."""
    message = message.partition("<state>")[0]
    return " ".join(message.split())[:600] or "the engine gives no reason"
