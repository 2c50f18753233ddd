# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""What a generated text has to conform to."""

import json
import threading
import weakref
from collections.abc import Sequence
from typing import Any

from .closing import Closer
from .engine import WHITESPACE, GrammarError, Matcher, byte_vocabulary, library
from .patterns import PatternError, check_repetitions
from .schemas import Schema, parse
from .vocabulary import Vocabulary, vocabulary_of

#: Longer grammars, and longer lists of choices, are refused.
LONGEST_GRAMMAR, MOST_CHOICES = 500_000, 50_000


class Constraint:
    """What a generated text has to conform to: made by `json_schema`, `json`, `regex`, `lark` or `choices`.

    A constraint does not change. It can be shared between threads, copied and pickled, and is compiled once for each
    tokenizer.

    Example:
        >>> from hf_tx.generation import Constraint
        >>> constraint = Constraint.json_schema({"type": "array", "items": {"type": "integer"}, "minItems": 2})
        >>> constraint.validate("[3,4]"), constraint.validate("[3]"), constraint.validate("[3,")
        (True, False, False)
        >>> Constraint.regex("[a-c]+").validate("abba")
        True
    """

    def __init__(self, kind: str, source: Any, options: dict[str, Any] | None = None) -> None:
        self.kind, self.source, self.options = kind, source, dict(options or {})
        library()
        self._schema: Schema | None = None
        if kind in ("json_schema", "json"):
            whitespace = self.options.get("whitespace", "compact")
            if whitespace not in WHITESPACE:
                raise ValueError(f"whitespace must be one of {', '.join(WHITESPACE)}, not {whitespace!r}.")
            self._schema = Schema(source, self.options.get("strict", True), whitespace)
            # Of a pydantic model, its schema is what can be compared and pickled.
            self.source = self._schema.schema
            self._grammar = self._schema.grammar
        else:
            self._grammar = _GRAMMARS[kind](source)
        self._compiled: weakref.WeakKeyDictionary[Vocabulary, Compiled] = weakref.WeakKeyDictionary()
        self._lock = threading.Lock()
        self._bytes = Matcher.compile(self._grammar, byte_vocabulary()) if self._schema is None else None

    @classmethod
    def json_schema(cls, schema: Any, *, strict: bool = True, whitespace: str = "compact") -> "Constraint":
        """JSON that conforms to a schema.

        Args:
            schema: a dict, its text, or a pydantic model. Of drafts 4, 6, 7, 2019-09 and 2020-12 by its `$schema`;
                without one, of 2020-12.
            strict: refuse a schema with keywords that cannot be enforced; otherwise they are listed in `unchecked`.
            whitespace: `"compact"` for none between the parts of the text, or `"flexible"` for at most four
                characters in each place.

        Raises:
            ValueError: the schema cannot be enforced; the message names the place in it.
        """
        return cls("json_schema", schema, {"strict": strict, "whitespace": whitespace})

    @classmethod
    def json(cls, *, whitespace: str = "compact") -> "Constraint":
        """Any JSON value."""
        return cls("json", {}, {"whitespace": whitespace})

    @classmethod
    def regex(cls, pattern: str) -> "Constraint":
        r"""Text that matches a regular expression from its beginning to its end, in the syntax of the regex crate of
        Rust without lookaround and backreferences; `\\d` and `\\w` mean those of Unicode.

        Raises:
            ValueError: it is none, or too large.
        """
        return cls("regex", pattern)

    @classmethod
    def lark(cls, grammar: str) -> "Constraint":
        """Text of a context-free grammar in the dialect of Lark that llguidance reads, whose first rule is `start`.

        Raises:
            ValueError: it is none, or too large.
        """
        return cls("lark", grammar)

    @classmethod
    def choices(cls, choices: Sequence[str]) -> "Constraint":
        """One of some texts.

        Raises:
            ValueError: there are none.
        """
        if isinstance(choices, str) or not all(isinstance(choice, str) for choice in choices):
            raise ValueError(f"choices must be a list of texts, not {choices!r}.")
        return cls("choices", tuple(choices))

    @property
    def unchecked(self) -> tuple[str, ...]:
        """The places in the schema that `strict=False` left out."""
        return self._schema.unchecked if self._schema is not None else ()

    def validate(self, text: str) -> bool:
        """Return whether a text conforms: all of its schema, also what is unchecked in generation. Formats count."""
        return self.explain(text) is None

    def explain(self, text: str, *, enforced_only: bool = False) -> str | None:
        """Return why a text does not conform, or None if it does.

        Args:
            text: the text.
            enforced_only: leave out what is unchecked.
        """
        if self._schema is not None:
            return self._schema.explain(text, enforced_only)
        if self.kind == "choices":
            return None if text in self.source else "is none of the choices"
        tokens = byte_vocabulary().greedily(text.encode("utf-8", "surrogatepass"))
        assert self._bytes is not None
        with self._lock:
            matcher = self._bytes.copy()
        return None if matcher.consume(tokens) and matcher.complete() else f"does not match the {self.kind}"

    def parse(self, text: str) -> Any:
        """Return the value of a JSON text; of other constraints, the text."""
        return parse(text) if self._schema is not None else text

    def compile(self, tokenizer: Any) -> "Compiled":
        """Compile for a tokenizer, once for each.

        Raises:
            ValueError: the tokenizer cannot write a text exactly, or none that conforms.
        """
        vocabulary = vocabulary_of(tokenizer)
        with self._lock:
            found = self._compiled.get(vocabulary)
            if found is None:
                found = Compiled(self, self._grammar, vocabulary)
                self._compiled[vocabulary] = found
            return found

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Constraint) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[str, str]:
        return self.kind, json.dumps([self.source, self.options])

    def __deepcopy__(self, memo: dict[int, Any]) -> "Constraint":
        return self  # it does not change

    def __reduce__(self) -> tuple[Any, ...]:
        return Constraint, (self.kind, self.source, self.options)

    def __repr__(self) -> str:
        source = str(self.source)
        return f"Constraint.{self.kind}({source if len(source) < 60 else source[:57] + '...'})"


class Compiled:
    """A constraint for the tokens of a vocabulary."""

    def __init__(self, constraint: Constraint, grammar: str, vocabulary: Vocabulary) -> None:
        self.constraint, self.vocabulary = constraint, vocabulary
        self.closer = Closer(vocabulary)
        self._lock = threading.Lock()
        try:
            self._root = Matcher.compile(grammar, vocabulary)
            end = self.closer.short_end(self._root, self.accepts, at_start=True)
            why = "either there is none, or the shortest is very long"
        except GrammarError as error:  # one that compiles for bytes
            end, why = None, str(error)
        if end is None:
            raise GrammarError(f"{constraint!r}: no complete text was found that the tokenizer can write: {why}.")
        #: A short text that conforms.
        self.end = end

    def root(self) -> Matcher:
        """Return a matcher at the beginning of a text."""
        with self._lock:
            return self._root.copy()

    def accepts(self, text: bytes) -> bool:
        """Return whether a text that the grammar allows conforms. A schema has a judge besides."""
        if self.constraint._schema is None:
            return True
        try:
            return self.constraint.explain(text.decode(), enforced_only=True) is None
        except UnicodeDecodeError:
            return False


def _regex(pattern: Any) -> str:
    if not isinstance(pattern, str):
        raise ValueError(f"a pattern is a text, not {type(pattern).__name__}.")
    try:
        check_repetitions(pattern)
    except PatternError as error:
        raise ValueError(f"the pattern {error}.") from error
    return library().LLMatcher.grammar_from_regex(pattern)


def _lark(grammar: Any) -> str:
    if not isinstance(grammar, str):
        raise ValueError(f"a grammar is a text, not {type(grammar).__name__}.")
    if len(grammar) > LONGEST_GRAMMAR:
        raise ValueError(f"the grammar has {len(grammar)} characters, more than {LONGEST_GRAMMAR}.")
    return library().LLMatcher.grammar_from_lark(grammar)


def _choices(choices: tuple[str, ...]) -> str:
    if not choices:
        raise ValueError("choices must be a list of texts, and is empty.")
    if len(choices) > MOST_CHOICES or sum(map(len, choices)) > LONGEST_GRAMMAR:
        raise ValueError(f"there are {len(choices)} choices, more than {MOST_CHOICES}, or they are too long.")
    alternatives = " | ".join(json.dumps(choice, ensure_ascii=False) for choice in dict.fromkeys(choices))
    return library().LLMatcher.grammar_from_lark(f"start: {alternatives}")


_GRAMMARS = {"regex": _regex, "lark": _lark, "choices": _choices}
