# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
import copy
import json
import pickle
import random
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import jsonschema
import pytest
from pydantic import BaseModel

from hf_tx.generation import Constraint
from hf_tx.generation.engine import Matcher, byte_vocabulary
from hf_tx.generation.patterns import translate

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
DRAFTS = {
    "4": "http://json-schema.org/draft-04/schema#",
    "6": "http://json-schema.org/draft-06/schema#",
    "7": "http://json-schema.org/draft-07/schema#",
    "2019-09": "https://json-schema.org/draft/2019-09/schema",
    "2020-12": "https://json-schema.org/draft/2020-12/schema",
}


def takes(constraint: Constraint, text: str) -> bool:
    """Whether the grammar takes a text, apart from the judge."""
    matcher = Matcher.compile(constraint._grammar, byte_vocabulary())
    return matcher.accepts(byte_vocabulary().greedily(text.encode()))


def texts_of(constraint: Constraint, count: int, seed: int = 0) -> list[str]:
    """Texts that the grammar takes, drawn byte by byte."""
    draw = random.Random(seed)
    found = []
    for _ in range(20 * count):
        matcher, text = Matcher.compile(constraint._grammar, byte_vocabulary()), b""
        while len(text) < 80:
            if matcher.complete() and draw.random() < 0.3:
                break
            mask = matcher.mask()
            if mask is None:
                break
            # Mostly ASCII, so that texts are short enough to end.
            allowed = [byte for byte in range(255) if mask[byte >> 3] >> (byte & 7) & 1]
            allowed = [byte for byte in allowed if byte < 127] or allowed
            byte = draw.choice(allowed)
            matcher.consume((byte,))
            text += bytes([byte])
        if matcher.complete():
            found.append(text.decode())
        if len(found) == count:
            break
    return found


@pytest.mark.parametrize(
    ("constraint", "good", "bad"),
    [
        (Constraint.json_schema(PERSON), ['{"name":"a","age":3}'], ['{"name":"a"}', '{"name":"a","age":-1}', "{", ""]),
        (Constraint.json_schema(json.dumps(PERSON)), ['{"name":"a","age":3}'], ['{"name":1,"age":3}']),
        (Constraint.json(), ['{"a":[1,null]}', "3", '"x"'], ["{]", "NaN", "", "[1,]"]),
        (Constraint.regex("[0-9]{3}-[a-c]+"), ["123-abc"], ["12-a", "123-abd", "123-a ", ""]),
        (Constraint.lark('start: "(" start ")" | "x"'), ["((x))", "x"], ["(x", "()", ""]),
        (Constraint.choices(["yes", "no", 'a "quoted" one']), ["yes", 'a "quoted" one'], ["maybe", "", "ye"]),
    ],
    ids=lambda value: value.kind if isinstance(value, Constraint) else "",
)
def test_validate(constraint: Constraint, good: list[str], bad: list[str]) -> None:
    assert [text for text in good if not constraint.validate(text) or not takes(constraint, text)] == []
    assert [text for text in bad if constraint.validate(text) or takes(constraint, text)] == []


def test_of_a_pydantic_model() -> None:
    class Person(BaseModel):
        name: str
        age: int

    constraint = Constraint.json_schema(Person)
    assert constraint.validate('{"name":"a","age":3}')
    assert not constraint.validate('{"name":"a","age":"three"}')


def test_a_text_says_why_it_does_not_conform() -> None:
    assert "$.age" in str(Constraint.json_schema(PERSON).explain('{"name":"a","age":-1}'))


def test_white_space() -> None:
    compact, flexible = Constraint.json_schema(PERSON), Constraint.json_schema(PERSON, whitespace="flexible")
    spaced = '{ "name": "a",\n"age": 3 }'
    assert takes(flexible, spaced)
    assert not takes(compact, spaced)
    assert not takes(flexible, '{     "name":"a","age":3}'), "white space is bounded"
    with pytest.raises(ValueError, match="one of compact, flexible, not 'none'"):
        Constraint.json_schema(PERSON, whitespace="none")


def test_it_is_compiled_once_and_can_be_shared(tokenizers: Callable[[str], Any]) -> None:
    constraint = Constraint.json_schema(PERSON)
    compiled = constraint.compile(tokenizers("byte-level"))
    assert constraint.compile(tokenizers("byte-level")) is compiled
    assert constraint.compile(tokenizers("unigram")) is not compiled
    assert copy.deepcopy(constraint).compile(tokenizers("byte-level")) is compiled
    again = pickle.loads(pickle.dumps(constraint))
    assert again == constraint
    assert again.validate('{"name":"a","age":3}')
    found: list[Any] = []
    other = Constraint.json_schema(PERSON)
    threads = [threading.Thread(target=lambda: found.append(other.compile(tokenizers("unigram")))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert all(one is found[0] for one in found)


def test_the_shortest_text_conforms(tokenizer: Any) -> None:
    for constraint in (
        Constraint.json_schema(PERSON),
        Constraint.json(),
        Constraint.regex("(ab)*m{20}"),
        Constraint.choices(["river", "mill"]),
        Constraint.json_schema({"type": "string", "minLength": 40}),
        Constraint.json_schema({"type": "string", "format": "date-time"}),
        # Many that may be, and one that must: the short text has only that.
        Constraint.json_schema(
            {"properties": {f"k{i}": {"type": "null"} for i in range(9)}, "required": ["k8"], "type": "object"}
        ),
    ):
        compiled = constraint.compile(tokenizer)
        text = compiled.vocabulary.text(compiled.end).decode()
        assert constraint.validate(text), constraint
        assert tokenizer.decode(compiled.end) == text
    assert text == '{"k8":null}'


def test_a_tokenizer_that_cannot_write_any_text(tokenizers: Callable[[str], Any]) -> None:
    with pytest.raises(ValueError, match="no complete text was found that the tokenizer can write"):
        Constraint.choices(["水"]).compile(tokenizers("unigram"))
    compiled = Constraint.choices(["水", "the old mill, and more"]).compile(tokenizers("unigram"))
    assert compiled.vocabulary.text(compiled.end) == b"the old mill, and more"


@pytest.mark.parametrize(
    ("schema", "path"),
    [
        ({"properties": {"tags": {"uniqueItems": True}}}, "#/properties/tags/uniqueItems"),
        ({"items": {"not": {"type": "null"}}}, "#/items/not"),
        ({"if": {"type": "string"}, "then": {"maxLength": 3}}, "#/if"),
        ({"$defs": {"a/b": {"contains": {}}}, "$ref": "#/$defs/a~1b"}, "#/$defs/a~1b/contains"),
        ({"propertyNames": {"maxLength": 3}}, "#/propertyNames"),
        ({"dependentRequired": {"a": ["b"]}}, "#/dependentRequired"),
        ({"dependencies": {"a": ["b"]}}, "#/dependencies"),
        ({"unevaluatedProperties": False}, "#/unevaluatedProperties"),
        ({"prefixItems": [{"format": "phone"}]}, "#/prefixItems/0/format"),
        ({"anyOf": [{"pattern": r"^\W$"}]}, "#/anyOf/0/pattern"),
        ({"type": "object", "minProperties": 3}, "#/minProperties"),
        ({"oneOf": [{"type": "object"}, {"properties": {"a": {"type": "null"}}}]}, "#/oneOf"),
        ({"exclusiveMinimum": 0, "exclusiveMaximum": 0.001}, "#/exclusiveMinimum"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_nothing_is_silently_unenforced(schema: dict[str, Any], path: str) -> None:
    with pytest.raises(ValueError, match="strict=False") as error:
        Constraint.json_schema(schema)
    assert f"{path}: " in str(error.value)
    assert path in Constraint.json_schema(schema, strict=False).unchecked


def test_what_is_unchecked_is_still_judged() -> None:
    constraint = Constraint.json_schema({"type": "array", "uniqueItems": True}, strict=False)
    assert takes(constraint, "[1,1]")
    assert not constraint.validate("[1,1]")
    assert constraint.explain("[1,1]", enforced_only=True) is None


def test_keywords_without_effect_are_no_problem() -> None:
    schema = {"uniqueItems": False, "if": {"type": "null"}, "title": "x", "$comment": "y", "x-mine": {"not": {}}}
    assert (
        Constraint.json_schema({**schema, "unevaluatedItems": True, "$defs": {"unused": {"not": {}}}}).unchecked == ()
    )


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"$ref": "https://example.com/schema.json"}, "other documents are never fetched"),
        ({"$ref": "other.json#/a"}, "other documents are never fetched"),
        ({"$ref": "#/$defs/none"}, "leads to nothing"),
        ({"type": "text"}, "#/type"),
        ({"properties": {"a": {"minimum": "3"}}}, "#/properties/a/minimum"),
        ({"$schema": "http://json-schema.org/draft-03/schema#"}, "not among drafts"),
        ({"properties": {"a": {"$id": "http://x/y", "type": "null"}}}, r"#/properties/a: .*\$id"),
        ("{", "is not JSON"),
        (False, "no text conforms"),
        ([], "not list"),
        ({"allOf": [{"type": "string"}, {"type": "null"}]}, "cannot be enforced: Unsatisfiable"),
        ({"type": "string", "pattern": "("}, "not a 'regex'|no pattern"),
    ],
)
def test_schemas_that_are_refused(schema: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Constraint.json_schema(schema)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Constraint.regex("("), "unclosed group"),
        (lambda: Constraint.regex("(?=a)b"), "look-around"),
        (lambda: Constraint.lark("start: other"), "other"),
        (lambda: Constraint.choices([]), "is empty"),
        (lambda: Constraint.choices("abc"), "list of texts"),
    ],
)
def test_others_that_are_refused(make: Callable[[], Constraint], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("draft", list(DRAFTS))
def test_drafts(draft: str) -> None:
    array = {"prefixItems": [{"type": "integer"}], "items": False}
    if draft != "2020-12":
        array = {"items": [{"type": "integer"}], "additionalItems": False}
    bound: dict[str, Any] = {"minimum": 2, "exclusiveMinimum": True} if draft == "4" else {"exclusiveMinimum": 2}
    constraint = Constraint.json_schema(
        {
            "$schema": DRAFTS[draft],
            "type": "object",
            "properties": {"a": {"type": "array", "minItems": 1, **array}, "n": {"type": "integer", **bound}},
            "required": ["a", "n"],
        }
    )
    for text, valid in (('{"a":[1],"n":3}', True), ('{"a":[1],"n":2}', False), ('{"a":[1,2],"n":3}', False)):
        assert (takes(constraint, text), constraint.validate(text)) == (valid, valid)


def test_neighbours_of_a_reference() -> None:
    schema = {"$defs": {"a": {"type": "integer"}}, "definitions": {"a": {"type": "integer"}}}
    newer = Constraint.json_schema({**schema, "$ref": "#/$defs/a", "minimum": 5})
    older = Constraint.json_schema({**schema, "$schema": DRAFTS["7"], "$ref": "#/definitions/a", "minimum": 5})
    assert not takes(newer, "3")
    assert not newer.validate("3")
    assert takes(older, "3")
    assert older.validate("3")


def test_a_schema_that_contains_itself() -> None:
    tree = {"type": "object", "properties": {"kids": {"type": "array", "items": {"$ref": "#"}}}, "required": ["kids"]}
    constraint = Constraint.json_schema(tree)
    assert takes(constraint, '{"kids":[{"kids":[]}]}')
    assert not takes(constraint, '{"kids":[{"kid":[]}]}')


SCHEMAS = [
    *(
        {"type": "string", "format": name}
        for name in ("date", "time", "date-time", "email", "uuid", "ipv4", "ipv6", "uri")
    ),
    *({"type": "string", "format": name} for name in ("hostname", "duration")),
    *(
        {"type": "string", "pattern": pattern}
        for pattern in (r"^\S+$", r"^a.c$", r"^[\w.-]+@x$", r"[^\s\"]{2}$", r"^[a&b~]$")
    ),
    {"type": "string", "minLength": 2, "maxLength": 4},
    {"type": "number", "minimum": -1.5, "exclusiveMaximum": 20},
    {"type": "number", "multipleOf": 0.01},
    {"type": "integer", "multipleOf": 7, "minimum": 10, "maximum": 100},
    {"enum": [1, "a", None, {"b": [1.5]}]},
    {"type": "object", "patternProperties": {"^n_": {"type": "integer"}}, "additionalProperties": {"type": "null"}},
    {"type": "object", "minProperties": 1, "maxProperties": 2, "additionalProperties": {"type": "boolean"}},
    {"allOf": [{"type": "object", "properties": {"a": {"type": "integer"}}}, {"required": ["a"]}]},
    {"anyOf": [{"type": "array", "maxItems": 1}, {"const": "x"}]},
    {"oneOf": [{"type": "string"}, {"type": "integer"}]},
]


@pytest.mark.parametrize("schema", SCHEMAS, ids=json.dumps)
def test_what_the_engine_takes_is_valid(schema: dict[str, Any]) -> None:
    """Also for jsonschema as it comes. It judges multiples of fractions in binary, and patterns by those of Python."""
    constraint = Constraint.json_schema(schema)
    found = texts_of(constraint, 12)
    assert len(found) > 2
    checker = jsonschema.Draft202012Validator(schema, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER)
    for text in found:
        assert constraint.validate(text), (text, constraint.explain(text))
        assert "multipleOf" in schema or checker.is_valid(json.loads(text)), text


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("date", "2024-02-29", "2023-02-29"),
        ("date", "2000-02-29", "1900-02-29"),
        ("date-time", "2024-02-29T10:00:00Z", "2024-02-30T10:00:00Z"),
        ("time", "23:59:59.5+01:00", "24:00:00Z"),
        ("ipv4", "127.0.0.1", "256.0.0.1"),
        ("ipv6", "::1", "1::2::3"),
        ("uuid", "2eb8aa08-aa98-11ea-b4aa-73b441d16380", "2eb8aa08"),
        ("email", "a.b@c.de", "a@"),
        ("uri", "https://a.b/c?d#e", "a b:c"),
    ],
)
def test_formats(name: str, good: str, bad: str) -> None:
    constraint = Constraint.json_schema({"type": "string", "format": name})
    for text, valid in ((good, True), (bad, False)):
        assert (takes(constraint, f'"{text}"'), constraint.validate(f'"{text}"')) == (valid, valid)


def test_multiples_are_judged_in_decimal() -> None:
    constraint = Constraint.json_schema({"type": "number", "multipleOf": 0.01})
    assert takes(constraint, "19.99")
    assert constraint.validate("19.99")
    assert not constraint.validate("19.995")


def test_patterns_of_the_engine() -> None:
    assert translate(r"^a[&~[]b$") == r"^a[\&\~\[]b$"
    assert translate(r"[^\s]") == r"[^\s\x1c-\x1f\ufeff]"
    for pattern in (r"\W", r"[^\d]", r"(?i)a", r"(?=a)", r"\bx", r"(a)\1", "a" * 6000, "((a{100}){100}){100}"):
        with pytest.raises(ValueError, match="."):
            translate(pattern)
    one_after_another = r"^.{1,200}, [a-z({]{1,200}\{9}(?:ab){2,200}$"
    assert translate(one_after_another)


def test_numbers_are_judged_as_they_are_written() -> None:
    """A float of as many digits would be on the bound, or infinite."""
    constraint = Constraint.json_schema({"type": "number", "exclusiveMaximum": 1})
    assert takes(constraint, "0.99999999999999999999999")
    assert constraint.validate("0.99999999999999999999999")
    assert not constraint.validate("1.0")
    assert Constraint.json().validate("1e99999999999999999999999")


def test_what_it_needs_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "llguidance", None)
    with pytest.raises(ImportError, match=r'pip install "hf_tx\[structured\]"'):
        Constraint.regex("a")


HOSTILE = {
    "deep": lambda: Constraint.json_schema(nested(400)),
    "large": lambda: Constraint.json_schema({"enum": ["x" * 1000 + str(index) for index in range(2000)]}),
    "repetitions": lambda: Constraint.regex("((a{1000}){1000}){1000}"),
    "long pattern": lambda: Constraint.regex("a|" * 4000),
    "endless": lambda: Constraint.json_schema(
        {"type": "object", "properties": {"x": {"$ref": "#"}}, "required": ["x"]}
    ),
    "in itself": lambda: Constraint.json_schema({"$ref": "#"}),
    "product": lambda: Constraint.json_schema(
        {
            "allOf": [
                {"anyOf": [{"properties": {f"k{i}_{j}": {"type": "integer"}}} for j in range(4)]} for i in range(8)
            ]
        }
    ),
    "laughs": lambda: Constraint.json_schema(laughs(20)),
    "long text": lambda: Constraint.json_schema({"type": "string", "minLength": 10**9}),
    "many items": lambda: Constraint.json_schema({"type": "array", "minItems": 10**5, "items": {"type": "integer"}}),
}


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "integer"}
    for _ in range(depth):
        schema = {"type": "array", "items": schema}
    return schema


def laughs(levels: int) -> dict[str, Any]:
    """A schema of a few lines whose shortest text has as many parts as 2 to the number of levels."""
    definitions: dict[str, Any] = {"a0": {"const": "ha"}}
    for level in range(1, levels + 1):
        part = {"$ref": f"#/$defs/a{level - 1}"}
        definitions[f"a{level}"] = {"type": "array", "prefixItems": [part, part], "minItems": 2}
    return {"$defs": definitions, "$ref": f"#/$defs/a{levels}"}


@pytest.mark.parametrize("name", list(HOSTILE))
def test_hostile_constraints_end_with_an_error(name: str, tokenizers: Callable[[str], Any]) -> None:
    began = time.process_time()
    with pytest.raises(ValueError, match="."):
        HOSTILE[name]().compile(tokenizers("byte-level"))
    assert time.process_time() - began < 20


@pytest.mark.parametrize("pattern", ["(x+x+)+y", "(a|b)*a(a|b){30}", "[a-z]{1,10000}"])
def test_patterns_that_are_hard_for_others(pattern: str, tokenizers: Callable[[str], Any]) -> None:
    began = time.process_time()
    compiled = Constraint.regex(pattern).compile(tokenizers("byte-level"))
    assert compiled.constraint.validate(compiled.vocabulary.text(compiled.end).decode())
    assert time.process_time() - began < 5
