# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""generate_structured, and that all it returns conforms: models, tokenizers, and ways of decoding."""

import json
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from structured_checks import PERSON
from transformers import TextStreamer

from hf_tx.generation import Constraint, generate_structured

Tiny = Callable[..., tuple[Any, Any]]
DECODING: dict[str, dict[str, Any]] = {
    "greedy": {},
    "sample": dict(do_sample=True, temperature=3.0, top_k=0, num_return_sequences=2),
    "beam": dict(num_beams=3, num_return_sequences=2),
    "beam-sample": dict(num_beams=2, do_sample=True, top_k=0),
}
PROMPTS = ["The river", "The miller runs past the old mill"]


def random_schema(draw: random.Random, depth: int = 2) -> dict[str, Any]:
    kinds = ["string", "integer", "number", "boolean", "null", "enum"] + ["array", "object", "anyOf"] * (depth > 0)
    kind = draw.choice(kinds)
    if kind == "string":
        return {
            "type": kind,
            **draw.choice([{}, {"minLength": 2, "maxLength": 5}, {"pattern": "^[a-e]+$"}, {"format": "date"}]),
        }
    if kind in ("integer", "number"):
        return {
            "type": kind,
            **draw.choice([{}, {"minimum": -3, "maximum": 20}, {"exclusiveMinimum": 1.5}, {"multipleOf": 3}]),
        }
    if kind == "enum":
        return {"enum": draw.sample(["a", 1, None, "mill", [2], True], 3)}
    if kind == "array":
        return {"type": kind, "items": random_schema(draw, depth - 1), "minItems": draw.randrange(2), "maxItems": 3}
    if kind == "object":
        names = draw.sample(["a", "b", "age", "name"], 2)
        properties = {name: random_schema(draw, depth - 1) for name in names}
        more = draw.choice([{}, {"additionalProperties": False}])
        return {"type": kind, "properties": properties, "required": names[: draw.randrange(3)], **more}
    if kind == "anyOf":
        return {"anyOf": [random_schema(draw, depth - 1) for _ in range(2)]}
    return {"type": kind}


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("llama", "byte-level"),
        ("llama", "unigram"),
        ("llama", "byte-fallback"),
        ("gpt2", "byte-level"),
        ("t5", "unigram"),
        ("bart", "byte-level"),
        ("tx-decoder", "unigram"),
        ("tx-encoder-decoder", "byte-fallback"),
    ],
)
def test_all_that_comes_back_conforms(name: str, kind: str, tiny: Tiny) -> None:
    """Random schemas, random weights, and every way of decoding: valid, and in the budget."""
    model, tokenizer = tiny(name, kind)
    draw = random.Random(f"{name} {kind}")
    for decoding in DECODING.values():
        constraint = Constraint.json_schema(random_schema(draw))
        shortest = len(constraint.compile(tokenizer).end) + 1
        budget = shortest + draw.choice([0, 4, 12])
        torch.manual_seed(0)
        found = generate_structured(model, tokenizer, PROMPTS, constraint, max_new_tokens=budget, **decoding)
        assert len(found.texts) == 2 * decoding.get("num_return_sequences", 1)
        prompt = 1 if model.config.is_encoder_decoder else max(len(ids) for ids in tokenizer(PROMPTS)["input_ids"])
        assert found.sequences.shape[1] <= prompt + budget
        for text, value in zip(found.texts, found.parsed, strict=True):
            assert constraint.validate(text), (constraint, text)
            assert value == json.loads(text)


def test_what_the_tokenizer_decodes_is_the_text(tiny: Tiny, tokenizer: Any) -> None:
    model, tokenizer = tiny("llama", "unigram" if tokenizer is None else _kind(tokenizer))
    found = generate_structured(
        model, tokenizer, "The", Constraint.json(), max_new_tokens=20, do_sample=True, num_return_sequences=3
    )
    length = len(tokenizer("The")["input_ids"])
    assert [tokenizer.decode(row[length:], skip_special_tokens=True) for row in found.sequences] == found.texts


def _kind(tokenizer: Any) -> str:
    from hf_tx.generation.vocabulary import vocabulary_of

    if not vocabulary_of(tokenizer).drops_first_space:
        return "byte-level"
    return "byte-fallback" if "<0x41>" in tokenizer.get_vocab() else "unigram"


def test_other_constraints(tiny: Tiny) -> None:
    model, tokenizer = tiny()
    settings = dict(do_sample=True, num_return_sequences=3, max_new_tokens=12, temperature=4.0)
    for constraint in (
        Constraint.regex("[0-9]{2,4}-[a-f]+"),
        Constraint.lark('start: item ("+" item)*\nitem: /[0-9]/ | "(" start ")"'),
        Constraint.choices(["river", "mill", "the old mill"]),
    ):
        found = generate_structured(model, tokenizer, "The", constraint, **settings)
        assert found.parsed == found.texts
        assert all(constraint.validate(text) for text in found.texts)
    assert len(set(found.texts)) > 1


def test_one_constraint_for_each_prompt(tiny: Tiny) -> None:
    model, tokenizer = tiny()
    both = [Constraint.choices(["mill", "river"]), Constraint.json_schema({"type": "integer"})]
    found = generate_structured(model, tokenizer, PROMPTS, both, num_beams=2, num_return_sequences=2, max_new_tokens=8)
    assert all(text in ("mill", "river") for text in found.texts[:2])
    assert all(isinstance(value, int) for value in found.parsed[2:])
    with pytest.raises(ValueError, match="2 constraints for 1 prompts"):
        generate_structured(model, tokenizer, "The", both)


def test_a_row_does_not_depend_on_its_neighbours(tiny: Tiny) -> None:
    """Nor on how it is padded."""
    model, tokenizer = tiny()
    constraint = Constraint.json_schema(PERSON)
    together = generate_structured(model, tokenizer, PROMPTS, constraint, max_new_tokens=24).texts
    alone = [
        generate_structured(model, tokenizer, prompt, constraint, max_new_tokens=24).texts[0] for prompt in PROMPTS
    ]
    assert together == alone


def test_a_seed_gives_the_same_text(tiny: Tiny) -> None:
    model, tokenizer = tiny()

    def write(seed: int) -> list[str]:
        torch.manual_seed(seed)
        settings = dict(do_sample=True, temperature=2.0, max_new_tokens=24)
        return generate_structured(model, tokenizer, PROMPTS, Constraint.json_schema(PERSON), **settings).texts

    assert write(1) == write(1) != write(2)


def test_greedy_takes_the_best_token_that_is_allowed(tiny: Tiny) -> None:
    """However few candidates are tried."""
    model, tokenizer = tiny()
    constraint = Constraint.json_schema({"type": "string"})
    found = [
        generate_structured(model, tokenizer, "The", constraint, max_new_tokens=16, candidates=number).texts
        for number in (1, 16, None)
    ]
    assert found[0] == found[1] == found[2]


def test_streaming(tiny: Tiny, capsys: pytest.CaptureFixture[str]) -> None:
    model, tokenizer = tiny()
    streamer = TextStreamer(tokenizer, skip_prompt=True, skip_special_tokens=True)
    found = generate_structured(
        model, tokenizer, "The", Constraint.json_schema(PERSON), max_new_tokens=20, streamer=streamer
    )
    assert capsys.readouterr().out.strip() == found.texts[0]


def test_assisted(tiny: Tiny) -> None:
    model, tokenizer = tiny()
    constraint = Constraint.json_schema(PERSON)
    found = generate_structured(model, tokenizer, "The", constraint, max_new_tokens=20, prompt_lookup_num_tokens=2)
    assert found.texts == generate_structured(model, tokenizer, "The", constraint, max_new_tokens=20).texts


def test_a_first_token_that_the_model_wants(tiny: Tiny) -> None:
    """As of translation models whose language it is: it is not part of the text."""
    model, tokenizer = tiny("bart")
    constraint = Constraint.choices(["mill", "river"])
    found = generate_structured(model, tokenizer, PROMPTS, constraint, forced_bos_token_id=1, max_new_tokens=8)
    assert found.sequences[:, :2].tolist() == [[2, 1]] * 2
    assert all(text in ("mill", "river") for text in found.texts)


def test_fewer_texts_than_sequences(tiny: Tiny) -> None:
    model, tokenizer = tiny()
    constraint = Constraint.choices(["mill"])
    settings = dict(num_beams=4, num_return_sequences=4, max_new_tokens=8)
    assert generate_structured(model, tokenizer, "The", constraint, **settings).texts == ["mill"] * 4


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (dict(max_length=9), "max_length: give max_new_tokens"),
        (dict(stop_strings=["x"]), "stop_strings: they would end a text before it is complete"),
        (dict(max_time=1.0), "max_time"),
        (dict(max_new_tokens=2), "cannot hold a complete text"),
        (dict(suppress_tokens=list(range(300))), "step 1, row 0: all tokens that"),
    ],
)
def test_what_contradicts(settings: dict[str, Any], message: str, tiny: Tiny) -> None:
    model, tokenizer = tiny()
    with pytest.raises(ValueError, match=message):
        generate_structured(model, tokenizer, "The", Constraint.json_schema(PERSON), **settings)


def test_a_text_from_several_threads(tiny: Tiny) -> None:
    from concurrent.futures import ThreadPoolExecutor

    model, tokenizer = tiny()
    constraint = Constraint.json_schema(PERSON)
    with ThreadPoolExecutor(3) as pool:
        write = lambda _: generate_structured(model, tokenizer, "The", constraint, max_new_tokens=20).texts  # noqa: E731
        found = list(pool.map(write, range(3)))
    assert found[0] == found[1] == found[2]
