# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""JSON schemas: what of them is enforced, and the judge of a text."""

import copy
import json
from collections.abc import Callable, Iterator
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from typing import Any

from .engine import GrammarError, Matcher, byte_vocabulary, json_grammar
from .patterns import FORMATS, JUDGES, STRICTER, PatternError, translate

#: Larger schemas, and deeper ones, are refused.
LARGEST, DEEPEST = 1_000_000, 64
#: The keywords that the engine enforces.
ENFORCED = frozenset(
    {
        "anyOf",
        "oneOf",
        "allOf",
        "$ref",
        "const",
        "enum",
        "type",
        "items",
        "additionalItems",
        "prefixItems",
        "minItems",
        "maxItems",
        "properties",
        "additionalProperties",
        "patternProperties",
        "required",
        "minProperties",
        "maxProperties",
        "minLength",
        "maxLength",
        "pattern",
        "format",
        "minimum",
        "maximum",
        "exclusiveMinimum",
        "exclusiveMaximum",
        "multipleOf",
    }
)
_HOLDERS = ("$defs", "definitions", "$schema")
_OLDER = ("draft-04", "draft-06", "draft-07")
_LISTS = ("allOf", "anyOf", "oneOf", "prefixItems")
_MAPS = ("properties", "patternProperties")
_SINGLE = ("items", "additionalItems", "additionalProperties")
_BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
_ONE_OF = "oneOf constraints are not supported"


class SchemaError(ValueError):
    """A JSON schema that cannot be a constraint. The message names the place in the schema."""


class Schema:
    """A JSON schema that was read.

    Args:
        source: the schema: a dict or a bool, its text, or a pydantic model.
        strict: refuse what is not enforced; otherwise leave it out, and name it in `unchecked`.
        whitespace: `"compact"` or `"flexible"`.

    Raises:
        SchemaError: it is none, too large, refers to other documents, or has keywords that are not enforced.
    """

    def __init__(self, source: Any, strict: bool = True, whitespace: str = "compact") -> None:
        self.schema = _read(source)
        self._validators = _validators_of(self.schema)
        self._strict = strict
        problems: dict[str, str] = {}
        self.enforced = self._rewrite(problems)
        self.grammar = self._compile(problems, whitespace)
        if problems and strict:
            listed = "; ".join(f"{path}: {why}" for path, why in problems.items())
            raise SchemaError(f"{listed}. Remove it, or leave it unchecked with strict=False.")
        self.unchecked = tuple(problems)
        self._judge = _judge(self._validators, self.schema)
        self._judge_of_enforced = _judge(self._validators, self._without(problems)) if problems else self._judge

    def explain(self, text: str, enforced_only: bool = False) -> str | None:
        """Return why a text does not conform, or None if it does."""
        try:
            value = parse(text, _Number)
        except (ValueError, RecursionError) as error:
            return f"is not JSON: {error}"
        judge = self._judge_of_enforced if enforced_only else self._judge
        try:
            found = next(judge.iter_errors(value), None)
        except RecursionError:
            return "is nested too deeply"
        return None if found is None else f"{found.json_path}: {found.message}"

    def _rewrite(self, problems: dict[str, str]) -> Any:
        """Return the schema for the engine: what it does not know left out, and the rest so that it agrees."""
        rewritten = copy.deepcopy(self.schema)
        for path, schema in reachable(rewritten, self._validators.VALIDATORS):
            self._rewrite_one(path, schema, problems)
        return rewritten

    def _rewrite_one(self, path: str, schema: dict[str, Any], problems: dict[str, str]) -> None:
        known = self._validators.VALIDATORS
        older = any(draft in self._validators.META_SCHEMA.get("$schema", "") for draft in _OLDER)
        if path != "#" and isinstance(schema.get("$id", schema.get("id")), str):
            raise SchemaError(f"{path}: a part of a schema with an $id of its own is not supported.")
        if "$ref" in schema and older:  # its neighbours are ignored
            for key in [key for key in schema if key not in ("$ref", *_HOLDERS)]:
                del schema[key]
        _numbers(schema)
        for key in list(schema):
            if key in _HOLDERS or key in _BOUNDS:
                continue
            if key not in known and key != "dependencies":  # which later drafts know from former ones
                del schema[key]
            elif key not in ENFORCED:
                value = schema.pop(key)
                if not _without_effect(key, value, self.schema if path == "#" else schema):
                    problems[f"{path}/{_escaped(key)}"] = "is not enforced"
        if "additionalItems" in schema and not isinstance(schema.get("items"), list):
            del schema["additionalItems"]
        self._strings(path, schema, problems)
        least, required = schema.get("minProperties", 0), set(schema.get("required", ()))
        if least > len(required) + 1:
            problems[f"{path}/minProperties"] = "is not enforced, since a text may repeat keys that are not named"
            del schema["minProperties"]
        why = _bounds_problem(schema)
        if why:
            for key in (*_BOUNDS, "multipleOf"):
                if schema.pop(key, None) is not None:
                    problems[f"{path}/{key}"] = why

    def _strings(self, path: str, schema: dict[str, Any], problems: dict[str, str]) -> None:
        if "pattern" in schema:
            try:
                schema["pattern"] = translate(schema["pattern"])
            except PatternError as error:
                problems[f"{path}/pattern"] = f"{schema.pop('pattern')!r} {error}"
        for pattern in list(schema.get("patternProperties", ())):
            try:
                translated = translate(pattern)
            except PatternError as error:
                # The keys that it is about would be of any kind, so that nothing of it can be left out.
                raise SchemaError(f"{path}/patternProperties/{_escaped(pattern)}: {error}.") from error
            if translated != pattern:
                properties = schema["patternProperties"]
                schema["patternProperties"] = {
                    translated if key == pattern else key: value for key, value in properties.items()
                }
        name = schema.get("format")
        if name is not None and name not in FORMATS:
            problems[f"{path}/format"] = f"{name!r} is not enforced (of formats are: {', '.join(FORMATS)})"
            del schema["format"]
        elif name in STRICTER:
            del schema["format"]
            schema.setdefault("allOf", []).append({"pattern": STRICTER[name]})
        elif name == "hostname":
            schema["maxLength"] = min(schema.get("maxLength", 253), 253)

    def _compile(self, problems: dict[str, str], whitespace: str) -> str:
        """Return the grammar; a `oneOf` whose branches are not known to exclude each other is a problem."""
        while True:
            try:
                grammar = json_grammar(self.enforced, whitespace)
                Matcher.compile(grammar, byte_vocabulary())
                return grammar
            except GrammarError as error:
                if _ONE_OF not in str(error):
                    raise SchemaError(f"the schema cannot be enforced: {error}") from error
                for path, schema in reachable(self.enforced, self._validators.VALIDATORS):
                    if "oneOf" in schema and self._fails_by_one_of(schema):
                        problems[f"{path}/oneOf"] = "is not enforced, since its branches may hold together"
                        branches = schema.pop("oneOf")
                        schema.setdefault("allOf", []).append({"anyOf": branches})
                        break
                else:
                    raise SchemaError(f"the schema cannot be enforced: {error}") from error

    def _fails_by_one_of(self, schema: dict[str, Any]) -> bool:
        """Return whether the schema compiles further with this `oneOf` as an `anyOf`."""
        alone = {"oneOf": schema["oneOf"], **{key: self.enforced[key] for key in _HOLDERS if key in self.enforced}}
        if "$ref" in json.dumps(alone["oneOf"]):
            return True
        try:
            Matcher.compile(json_grammar(alone, "compact"), byte_vocabulary())
        except GrammarError as error:
            return _ONE_OF in str(error)
        return False

    def _without(self, problems: dict[str, str]) -> Any:
        """Return the schema without the keywords that are not enforced."""
        kept = copy.deepcopy(self.schema)
        for path, schema in reachable(kept, self._validators.VALIDATORS):
            for key in list(schema):
                if f"{path}/{_escaped(key)}" in problems:
                    value = schema.pop(key)
                    if key == "oneOf":
                        schema.setdefault("allOf", []).append({"anyOf": value})
        return kept


class _Number(float):
    """A number of a text that knows how it was written, since rounding may carry it over a bound."""

    written: Decimal

    def __new__(cls, text: str) -> "_Number":
        number = super().__new__(cls, text)
        try:
            number.written = Decimal(text)
        except InvalidOperation:  # such an exponent says no more than its sign
            number.written = Decimal(float(text))
        return number


def _exact(value: Any) -> Decimal:
    return value.written if isinstance(value, _Number) else Decimal(repr(value))


def parse(text: str, number: Callable[[str], Any] = float) -> Any:
    """Return the value of a JSON text.

    Args:
        text: the text.
        number: makes a number of one that is written with a point or an exponent.

    Raises:
        ValueError: it is none; NaN and Infinity are none.
    """

    def refuse(name: str) -> None:
        raise ValueError(f"{name} is not JSON")

    return json.loads(text, parse_constant=refuse, parse_float=number)


def _read(source: Any) -> Any:
    if hasattr(source, "model_json_schema"):
        source = source.model_json_schema()
    if isinstance(source, str):
        try:
            source = json.loads(source)
        except (ValueError, RecursionError) as error:
            raise SchemaError(f"the schema is not JSON: {error}.") from error
    if not isinstance(source, dict | bool):
        raise SchemaError(f"a schema is an object, its text or a pydantic model, not {type(source).__name__}.")
    if source is False:
        raise SchemaError("the schema is false: no text conforms.")
    source = {} if source is True else source
    depth = _depth(source)
    if depth > DEEPEST:
        raise SchemaError(f"the schema is nested deeper than {DEEPEST}: flatten it with $defs.")
    try:
        size = len(json.dumps(source))
    except (TypeError, ValueError) as error:
        raise SchemaError(f"the schema is not JSON: {error}.") from error
    if size > LARGEST:
        raise SchemaError(f"the schema has {size} characters, more than {LARGEST}.")
    return source


def _depth(value: Any) -> int:
    """Return how deeply a value is nested; it stops a little past the limit, and so ends with a value in itself."""
    level, depth = [value], 0
    while level and depth <= DEEPEST:
        level = [
            part
            for item in level
            if isinstance(item, dict | list)
            for part in (item.values() if isinstance(item, dict) else item)
        ]
        depth += 1
    return depth


def _validators_of(schema: dict[str, Any]) -> Any:
    import jsonschema

    named = schema.get("$schema")
    found = jsonschema.validators.validator_for(schema, default=None if named else jsonschema.Draft202012Validator)
    if found is None or found is jsonschema.Draft3Validator:
        raise SchemaError(f"$schema: {named!r} is not among drafts 4, 6, 7, 2019-09 and 2020-12.")
    try:
        found.check_schema(schema)
    except (jsonschema.SchemaError, RecursionError) as error:
        place = "/".join(["#", *(str(part) for part in getattr(error, "absolute_path", ()))])
        raise SchemaError(f"{place}: {getattr(error, 'message', error)}.") from error
    return found


def _judge(validators: Any, schema: Any) -> Any:
    import jsonschema
    import referencing

    checker = jsonschema.FormatChecker()
    for name, judge in JUDGES.items():
        checker.checks(name)(lambda value, judge=judge: not isinstance(value, str) or judge(value))  # type: ignore[misc]
    exact = jsonschema.validators.extend(validators, {"multipleOf": _multiple_of, **_bounds_of(validators)})
    return exact(schema, format_checker=checker, registry=referencing.Registry())


def _multiple_of(validator: Any, divisor: Any, value: Any, schema: Any) -> Iterator[Any]:
    """In decimal, as JSON writes numbers: 19.99 is a multiple of 0.01."""
    import jsonschema

    if validator.is_type(value, "number"):
        written = _exact(value)
        # Of numbers with such exponents, no text is allowed either.
        far = not written.is_finite() or abs(written.adjusted()) > 400
        if far or (Fraction(written) / Fraction(_exact(divisor))).denominator != 1:
            yield jsonschema.ValidationError(f"{value!r} is not a multiple of {divisor}")


def _bounds_of(validators: Any) -> dict[str, Any]:
    """Return judges of bounds that compare numbers as they are written."""
    import jsonschema

    def judge_of(key: str, breaks: Callable[[Decimal, Decimal], bool]) -> Any:
        def judge(validator: Any, bound: Any, value: Any, schema: Any) -> Iterator[Any]:
            # Draft 4 says by a neighbour that a bound is exclusive.
            exclusive = schema.get("exclusive" + key.capitalize()) is True
            if validator.is_type(value, "number"):
                number, limit = _exact(value), _exact(bound)
                if breaks(number, limit) or (exclusive and number == limit):
                    yield jsonschema.ValidationError(f"{value!r} is past the {key} of {bound}")

        return judge

    judges = {
        "minimum": judge_of("minimum", lambda number, limit: number < limit),
        "maximum": judge_of("maximum", lambda number, limit: number > limit),
        "exclusiveMinimum": judge_of("exclusiveMinimum", lambda number, limit: number <= limit),
        "exclusiveMaximum": judge_of("exclusiveMaximum", lambda number, limit: number >= limit),
    }
    return {key: judge for key, judge in judges.items() if key in validators.VALIDATORS}


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")


def _without_effect(key: str, value: Any, schema: dict[str, Any]) -> bool:
    if key == "uniqueItems":
        return value is False
    if key == "if":
        return not {"then", "else"} & schema.keys()
    if key in ("unevaluatedItems", "unevaluatedProperties", "propertyNames"):
        return value is True or value == {}
    return value == {} and key in ("dependencies", "dependentRequired", "dependentSchemas")


def _numbers(schema: dict[str, Any]) -> None:
    """Say bounds as later drafts do."""
    for bound, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if isinstance(schema.get(exclusive), bool) and schema.pop(exclusive) and bound in schema:
            schema[exclusive] = schema.pop(bound)


def _bounds_problem(schema: dict[str, Any]) -> str | None:
    """Return in which way the engine allows numbers that the bounds do not: numbers at and beside them are tried."""
    keys = [key for key in (*_BOUNDS, "multipleOf") if isinstance(schema.get(key), int | float)]
    types = schema.get("type", "number")
    types = [types] if isinstance(types, str) else types
    if not keys or not {"number", "integer"} & set(types):
        return None
    alone = {"type": [name for name in types if name in ("number", "integer")], **{key: schema[key] for key in keys}}
    try:
        matcher = Matcher.compile(json_grammar(alone, "compact"), byte_vocabulary())
    except GrammarError:
        return None  # the schema as a whole says it
    judge = _judge(_validators_of({}), alone)
    for text in sorted(_beside([schema[key] for key in keys])):
        if matcher.accepts(byte_vocabulary().greedily(text.encode())) and not judge.is_valid(parse(text, _Number)):
            return f"is not enforced: the engine takes {text}"
    return None


def _beside(numbers: list[Any]) -> set[str]:
    found = {"0", "-0", "0.0", "-0.0", "1", "-1", "0.1", "-0.1"}
    for number in numbers:
        exact = Decimal(repr(number))
        if abs(exact.adjusted()) > 30:
            continue
        step = Decimal(1).scaleb(min(int(exact.as_tuple().exponent), 0))
        for sign in (1, -1):
            for off in (Decimal(0), step, -step, step / 10, -step / 10, Decimal(1), Decimal(-1)):
                text = format(sign * (exact + off), "f")
                found |= {text, f"{text}0" if "." in text else f"{text}.0"}
    return found


def reachable(root: dict[str, Any], known: Any) -> list[tuple[str, dict[str, Any]]]:
    """Return the parts of a schema that a text may have to conform to, each with its path, from the outside in.

    Raises:
        SchemaError: a `$ref` leads out of the schema, or nowhere.
    """
    found: list[tuple[str, dict[str, Any]]] = []
    seen: set[int] = set()
    waiting: list[tuple[str, Any]] = [("#", root)]
    while waiting:
        path, schema = waiting.pop(0)
        if not isinstance(schema, dict) or id(schema) in seen:
            continue
        seen.add(id(schema))
        found.append((path, schema))
        if isinstance(schema.get("$ref"), str):
            waiting.append(_resolve(root, schema["$ref"], path))
        for key in (*_LISTS, "items"):
            if key in known and isinstance(schema.get(key), list):
                waiting += [(f"{path}/{key}/{index}", part) for index, part in enumerate(schema[key])]
        for key in _MAPS:
            if key in known and isinstance(schema.get(key), dict):
                waiting += [(f"{path}/{key}/{_escaped(name)}", part) for name, part in schema[key].items()]
        waiting += [(f"{path}/{key}", schema[key]) for key in _SINGLE if key in known and key in schema]
    return found


def _resolve(root: dict[str, Any], reference: str, path: str) -> tuple[str, Any]:
    if reference != "#" and not reference.startswith("#/"):
        raise SchemaError(
            f"{path}/$ref: {reference!r} is not a place in this schema (#/...): other documents are never fetched, "
            "and anchors are not followed. Put the definition under $defs."
        )
    target: Any = root
    for part in reference.split("/")[1:]:
        part = part.replace("~1", "/").replace("~0", "~")
        try:
            target = target[int(part)] if isinstance(target, list) else target[part]
        except (KeyError, ValueError, IndexError, TypeError):
            raise SchemaError(f"{path}/$ref: {reference!r} leads to nothing.") from None
    return (reference.rstrip("/") or "#", target)
