# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""What passes the processor: one step at a time, and in generate()."""

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
import torch
from structured_checks import PERSON, Steps, check_padded_ids, check_prompt, check_reordering, generated
from transformers import LogitsProcessor, LogitsProcessorList

from hf_tx.generation import Constraint, ConstraintLogitsProcessor

Tiny = Callable[..., tuple[Any, Any]]


@pytest.fixture
def person() -> Constraint:
    return Constraint.json_schema(PERSON)


def test_the_prompt_is_not_constrained(tiny: Tiny) -> None:
    check_prompt(ConstraintLogitsProcessor, *tiny())


def test_states_follow_the_beams(tiny: Tiny) -> None:
    check_reordering(ConstraintLogitsProcessor, *tiny())


def test_padded_ids_never_appear(tiny: Tiny) -> None:
    check_padded_ids(ConstraintLogitsProcessor, *tiny())


class OffByOne(ConstraintLogitsProcessor):
    """Takes the first generated token for the last of the prompt."""

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        prompt, generated = input_ids[:, : self.prompt_length], input_ids[:, self.prompt_length + 1 :]
        return super().__call__(torch.cat([prompt, generated], 1), scores)


class ForgetsToReorder(ConstraintLogitsProcessor):
    """Keeps what each row had, and adds the newest token, as if rows stayed in their places."""

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        if input_ids.shape[1] == self.prompt_length:
            self.kept = input_ids
        else:
            self.kept = torch.cat([self.kept, input_ids[:, -1:]], 1)
        return super().__call__(self.kept, scores)


class IgnoresPaddedIds(ConstraintLogitsProcessor):
    """Masks the tokens of the tokenizer, and lets the others of the model pass."""

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        masked = super().__call__(input_ids, scores)
        size = len(self.compiled[0].vocabulary.pieces)
        return torch.cat([masked[:, :size], scores[:, size:]], 1)


@pytest.mark.parametrize(
    ("mutant", "check"),
    [(OffByOne, check_prompt), (ForgetsToReorder, check_reordering), (IgnoresPaddedIds, check_padded_ids)],
    ids=lambda value: value.__name__,
)
def test_mutants_are_caught(mutant: Any, check: Any, tiny: Tiny) -> None:
    with pytest.raises((AssertionError, ValueError)):
        check(mutant, *tiny())


def test_only_what_can_end_in_time_passes(tokenizer: Any, person: Constraint) -> None:
    """Whatever is drawn, the text ends within the budget; also if the budget is only just enough."""
    shortest = len(person.compile(tokenizer).end) + 1
    for budget in (shortest, shortest + 1, shortest + 5, 50):
        for seed in range(3):
            steps = Steps(person, tokenizer, budget, seed)
            assert person.validate(steps.text()), (budget, seed)
            assert len(steps.tokens) <= budget


def test_a_budget_that_holds_nothing(tokenizer: Any, person: Constraint) -> None:
    shortest = len(person.compile(tokenizer).end) + 1
    with pytest.raises(ValueError, match=rf"max_new_tokens={shortest - 1} cannot hold .* takes {shortest} tokens"):
        ConstraintLogitsProcessor(person, tokenizer, prompt_length=1, max_new_tokens=shortest - 1)


def test_it_remembers_nothing_that_it_needs(tokenizer: Any, person: Constraint) -> None:
    """A row that comes from nowhere is treated as if its beginning had been seen."""
    torch.manual_seed(0)
    steps = Steps(person, tokenizer, 40, 0)
    fresh = copy.deepcopy(steps.processor)
    for length in reversed(range(len(steps.tokens))):
        ids = torch.tensor([[0, *steps.tokens[:length]]])
        scores = torch.zeros(1, len(tokenizer))
        scores[0, steps.tokens[length]] = 9.0
        assert fresh(ids, scores)[0, steps.tokens[length]] == 9.0, length


def test_rows_of_several_constraints(tokenizers: Callable[[str], Any]) -> None:
    tokenizer = tokenizers("byte-level")
    both = [Constraint.choices(["mill"]), Constraint.choices(["river"])]
    processor = ConstraintLogitsProcessor(both, tokenizer, prompt_length=1, max_new_tokens=9, rows_per_prompt=2)
    allowed = processor(torch.zeros(4, 1, dtype=torch.long), torch.zeros(4, len(tokenizer))) > -torch.inf
    assert [tokenizer.decode(row.nonzero()[0])[0] for row in allowed] == ["m", "m", "r", "r"]
    with pytest.raises(ValueError, match="2 constraints for 3 rows"):
        processor(torch.zeros(3, 1, dtype=torch.long), torch.zeros(3, len(tokenizer)))


def test_several_ids_end_a_text(tokenizers: Callable[[str], Any]) -> None:
    tokenizer = tokenizers("byte-level")
    processor = ConstraintLogitsProcessor(
        Constraint.regex("a*"), tokenizer, prompt_length=0, max_new_tokens=9, eos_token_id=[2, 1]
    )
    scores = torch.zeros(1, len(tokenizer))
    allowed = (processor(torch.zeros(1, 0, dtype=torch.long), scores)[0] > -torch.inf).nonzero().flatten().tolist()
    assert {1, 2} < set(allowed)
    for end in (1, 2):  # a row that has ended goes on with an end
        masked = processor(torch.tensor([[end, 0]]), scores)[0]
        assert (masked > -torch.inf).nonzero().flatten().tolist() == [2]
        masked = processor(torch.tensor([[end, 0]]), torch.full_like(scores, torch.nan))[0]
        assert (masked > -torch.inf).nonzero().flatten().tolist() == [2], "whatever the model says after the end"


def test_a_tokenizer_without_eos(tokenizers: Callable[[str], Any]) -> None:
    tokenizer = copy.deepcopy(tokenizers("byte-level"))
    tokenizer.eos_token = None
    with pytest.raises(ValueError, match="there is no eos token"):
        ConstraintLogitsProcessor(Constraint.regex("a"), tokenizer, prompt_length=0, max_new_tokens=9)
    far = dict(prompt_length=0, max_new_tokens=9, eos_token_id=400)
    processor = ConstraintLogitsProcessor(Constraint.regex("a"), tokenizer, **far)
    with pytest.raises(ValueError, match="past the 330 tokens of the model"):
        processor(torch.zeros(1, 0, dtype=torch.long), torch.zeros(1, 330))


def test_scores_that_are_not_numbers(tokenizers: Callable[[str], Any], person: Constraint) -> None:
    tokenizer = tokenizers("byte-level")
    processor = ConstraintLogitsProcessor(person, tokenizer, prompt_length=2, max_new_tokens=40)
    scores = torch.zeros(2, len(tokenizer))
    scores[1, 5] = torch.nan
    with pytest.raises(ValueError, match=r"step 1, row 1: the model gives scores that are not numbers \(NaN\)"):
        processor(torch.zeros(2, 2, dtype=torch.long), scores)


def test_all_that_is_allowed_is_forbidden(tokenizers: Callable[[str], Any], person: Constraint) -> None:
    tokenizer = tokenizers("byte-level")
    processor = ConstraintLogitsProcessor(person, tokenizer, prompt_length=1, max_new_tokens=40)
    first = processor.compiled[0].end[0]
    scores = torch.where(torch.arange(len(tokenizer)) == first + 1, 0.0, -torch.inf)[None]
    with pytest.raises(ValueError, match="step 1, row 0: all tokens that .* allows have a score of minus infinity"):
        processor(torch.zeros(1, 1, dtype=torch.long), scores)


def test_a_row_that_left_the_constraint(tokenizers: Callable[[str], Any], person: Constraint) -> None:
    tokenizer = tokenizers("byte-level")
    wrong = torch.tensor([[0, tokenizer.convert_tokens_to_ids("x")]])
    scores = torch.zeros(1, len(tokenizer))
    processor = ConstraintLogitsProcessor(person, tokenizer, prompt_length=1, max_new_tokens=40)
    with pytest.raises(ValueError, match="step 2, row 0: b'x' is no beginning"):
        processor(wrong, scores)
    with pytest.raises(ValueError, match="prompt_length=1, but the rows have 0 ids"):
        processor(wrong[:, :0], scores)
    lenient = ConstraintLogitsProcessor(person, tokenizer, prompt_length=1, max_new_tokens=40, lenient_rows=True)
    assert (lenient(wrong, scores) > -torch.inf).sum() == 1


class Recorded(LogitsProcessor):
    """Keeps what it is given."""

    def __init__(self) -> None:
        self.given: list[torch.Tensor] = []

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        self.given.append(scores.clone())
        return scores


def test_its_place_among_the_processors(tiny: Tiny, person: Constraint) -> None:
    """After the penalties, and before what narrows the distribution, which keeps an allowed token."""
    model, tokenizer = tiny()
    prompt = torch.tensor([[5, 6, 7]])
    before, after = Recorded(), Recorded()
    processor = ConstraintLogitsProcessor(person, tokenizer, prompt_length=3, max_new_tokens=30)
    own = LogitsProcessorList([before, processor, after])
    settings = dict(do_sample=True, temperature=0.5, top_k=2, top_p=0.5, repetition_penalty=2.0)
    torch.manual_seed(0)
    output = model.generate(
        prompt,
        max_new_tokens=30,
        logits_processor=own,
        output_scores=True,
        output_logits=True,
        return_dict_in_generate=True,
        **settings,
    )
    raw = output.logits[0][0]
    seen = prompt[0].unique()
    penalised = torch.where(raw[seen] > 0, raw[seen] / 2.0, raw[seen] * 2.0)
    torch.testing.assert_close(before.given[0][0, seen], penalised)
    kept = output.scores[0][0] > -torch.inf
    allowed = after.given[0][0] > -torch.inf
    assert 1 <= kept.sum() <= 2
    assert bool((allowed | ~kept).all()), "what is kept is allowed"
    torch.testing.assert_close(output.scores[0][0][kept], after.given[0][0][kept] / 0.5)
    assert person.validate(tokenizer.decode(output.sequences[0, 3:], skip_special_tokens=True))


@pytest.mark.parametrize(
    "settings",
    [
        dict(do_sample=True, typical_p=0.3),
        dict(do_sample=True, min_p=0.5),
        dict(do_sample=True, eta_cutoff=0.1),
        dict(do_sample=True, epsilon_cutoff=0.1),
        dict(do_sample=True, top_k=1, temperature=10.0),
        dict(repetition_penalty=5.0),
        dict(cache_implementation="static"),
        dict(use_cache=False),
        dict(renormalize_logits=True, remove_invalid_values=True),
    ],
    ids=json.dumps,
)
def test_with_the_options_of_generate(settings: dict[str, Any], tiny: Tiny, person: Constraint) -> None:
    model, tokenizer = tiny()
    assert all(person.validate(text) for text in generated(model, tokenizer, person, 2, **settings))


def test_of_a_prompt_of_embeddings(tiny: Tiny, person: Constraint) -> None:
    model, tokenizer = tiny()
    embeddings = model.get_input_embeddings()(torch.tensor([[5, 6, 7]]))
    processor = ConstraintLogitsProcessor(person, tokenizer, prompt_length=0, max_new_tokens=24)
    ids = model.generate(inputs_embeds=embeddings, max_new_tokens=24, logits_processor=[processor])
    assert person.validate(tokenizer.decode(ids[0], skip_special_tokens=True))


def test_with_an_assistant(tiny: Tiny, person: Constraint) -> None:
    """The assistant has the same constraint, and gives what the model alone would write."""
    model, tokenizer = tiny()

    def write(**settings: Any) -> list[int]:
        processor = ConstraintLogitsProcessor(person, tokenizer, prompt_length=3, max_new_tokens=24, lenient_rows=True)
        prompt = torch.tensor([[5, 6, 7]])
        return model.generate(prompt, max_new_tokens=24, do_sample=False, logits_processor=[processor], **settings)[
            0
        ].tolist()

    alone = write()
    assert person.validate(tokenizer.decode(alone[3:], skip_special_tokens=True))
    assert write(assistant_model=copy.deepcopy(model)) == alone
    assert write(prompt_lookup_num_tokens=3) == alone
