# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Checks of a processor of constraints, which mutants of it have to fail."""

from typing import Any

import torch

from hf_tx.generation import Constraint, ConstraintLogitsProcessor

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


class Steps:
    """A text of random scores, token by token."""

    def __init__(self, constraint: Constraint, tokenizer: Any, budget: int, seed: int, spread: float = 4.0) -> None:
        draw = torch.Generator().manual_seed(seed)
        self.processor = ConstraintLogitsProcessor(constraint, tokenizer, prompt_length=1, max_new_tokens=budget)
        self.tokens: list[int] = []
        while not self.tokens or self.tokens[-1] != tokenizer.eos_token_id:
            scores = torch.randn(1, len(tokenizer) + 5, generator=draw) * spread
            scores = self.processor(torch.tensor([[0, *self.tokens]]), scores)
            self.tokens.append(torch.multinomial(scores.softmax(-1), 1, generator=draw).item())
            assert len(self.tokens) <= budget, "the budget is not kept"

    def text(self) -> str:
        return self.processor.compiled[0].vocabulary.text(self.tokens[:-1]).decode()


def generated(
    model: Any,
    tokenizer: Any,
    constraint: Constraint,
    rows: int,
    cls: Any = ConstraintLogitsProcessor,
    **settings: Any,
) -> list[str]:
    """What a model writes after prompts of ids, of different lengths and padded on the left."""
    torch.manual_seed(0)
    ids = torch.randint(10, 60, (rows, 6))
    mask = torch.ones_like(ids)
    for row in range(rows):
        ids[row, :row], mask[row, :row] = 0, 0
    budget = settings.pop("max_new_tokens", 24)
    processor = cls(constraint, tokenizer, prompt_length=6, max_new_tokens=budget)
    output = model.generate(ids, attention_mask=mask, max_new_tokens=budget, logits_processor=[processor], **settings)
    assert torch.equal(output[:: len(output) // rows, :6], ids)
    return [tokenizer.decode(row[6:], skip_special_tokens=True) for row in output]


def check_prompt(cls: Any, model: Any, tokenizer: Any) -> None:
    """The first generated token is constrained, and nothing before it."""
    constraint = Constraint.regex("(the|mill)( river)*")
    texts = generated(model, tokenizer, constraint, 3, cls)
    assert all(constraint.validate(text) for text in texts), texts


def check_reordering(cls: Any, model: Any, tokenizer: Any) -> None:
    """Beams that are reordered keep their texts apart: what follows is fixed by what came first."""
    constraint = Constraint.choices([f"{letter * 3}-{letter.upper() * 4}" for letter in "abcdef"] + ["mill-MILL"])
    for seed in range(4):
        torch.manual_seed(seed)
        texts = generated(model, tokenizer, constraint, 2, cls, num_beams=4, num_return_sequences=4)
        assert all(constraint.validate(text) for text in texts), texts


def check_padded_ids(cls: Any, model: Any, tokenizer: Any) -> None:
    """Ids of the model that the tokenizer does not have never pass, whatever their scores."""
    processor = cls(Constraint.json(), tokenizer, prompt_length=1, max_new_tokens=9)
    size = model.config.vocab_size
    assert size > len(tokenizer)
    scores = torch.zeros(1, size)
    scores[:, len(tokenizer) :] = 99.0
    masked = processor(torch.zeros(1, 1, dtype=torch.long), scores)
    assert bool((masked[:, len(tokenizer) :] == -torch.inf).all())
    assert bool((masked > -torch.inf).any())
