# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""What an objective measures, what its loss is compared with, and the prompts that show what was learnt."""

import math
from collections import Counter

import pytest
import torch
from datasets import Dataset
from objective_data import make, make_texts
from torch import nn

from hf_tx.evaluation import evaluate_texts
from hf_tx.objectives import OBJECTIVES
from hf_tx.training import new_config

TEXTS = make_texts(12)
SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "max_position_embeddings": 32}
BY_HEART = [
    "river mill water stone under quietly the river mill. " * 6,
    "Who remember the brother? Nobody forgotten bread; miller bread. " * 4,
]
OF_TOKENS = [name for name in OBJECTIVES if name != "contrastive"]
OF_TEXT = [name for name, kind in OBJECTIVES.items() if kind.text_task is not None]


def build(objective):
    torch.manual_seed(0)
    config = new_config(objective.families[0], **{**objective.token_fields(), **SIZES})
    return objective.auto_class.from_config(config)


def rows_of(objective, texts=TEXTS):
    return objective.prepare(Dataset.from_dict({"text": texts}))


@pytest.mark.parametrize("name", OF_TOKENS)
def test_a_loss_stands_beside_that_of_the_frequencies_of_its_labels(name, monkeypatch):
    objective = make(name, seed=3)
    rows = rows_of(objective)
    labels = [row[row != -100].tolist() for row in (objective([row])["labels"] for row in rows)]
    for most, said in ((None, "unigram model"), (1, "unigram model of 1 rows")):
        if most is not None:
            monkeypatch.setattr("hf_tx.objectives.objective._MOST_COUNTED", most)
        counts = Counter(token for row in labels[:most] for token in row)
        total = counts.total() + len(objective.tokenizer)
        targets = [token for row in labels for token in row]
        expected = -sum(math.log((counts[token] + 1) / total) for token in targets) / len(targets)
        baseline = objective.baseline(rows, rows)
        assert baseline.loss == pytest.approx(expected)
        assert baseline.name == said


def test_pairs_of_texts_have_no_baseline_and_no_prompts():
    objective = make("contrastive")
    assert objective.baseline([], []) is None
    assert objective.prompts(TEXTS) == []


@pytest.mark.parametrize("name", OF_TEXT)
def test_a_model_that_knows_nothing_scores_a_text_by_its_vocabulary(name):
    objective = make(name)
    model = build(objective)
    nn.init.zeros_(model.lm_head.weight)
    found = evaluate_texts(model, objective.tokenizer, TEXTS, task=objective.text_task, context_length=32)
    tokens = sum(len(ids) for ids in objective.tokenizer(TEXTS, add_special_tokens=False)["input_ids"])
    assert found.score.num_tokens == tokens
    assert found.perplexity == pytest.approx(len(objective.tokenizer), rel=1e-5)
    bits = math.log2(len(objective.tokenizer)) * tokens / sum(len(text.encode()) for text in TEXTS)
    assert found.bits_per_byte == pytest.approx(bits, rel=1e-5)


@pytest.mark.parametrize("name", OF_TEXT)
def test_what_is_learnt_is_what_is_measured(name):
    """By heart: a shift between what is trained and what is scored would leave no trace of it."""
    objective = make(name)
    model, rows = build(objective), rows_of(objective, BY_HEART)
    batch = objective([rows[number] for number in range(len(rows))])
    optimizer = torch.optim.AdamW(model.parameters(), 5e-3)
    for _ in range(100):
        model.train()(**batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    found = evaluate_texts(model, objective.tokenizer, BY_HEART, task=objective.text_task, context_length=32)
    assert found.score.loss < 0.5 * objective.baseline(rows, rows).loss


def test_prompts_are_short_pieces_of_the_text():
    texts = ["short\n" + " ".join(TEXTS), *TEXTS]
    for name in OF_TOKENS:
        objective = make(name)
        prompts = objective.prompts(texts)
        assert len(prompts) == (3 if name == "masked-lm" else 1), name
        for prompt in prompts:
            objective.check_prompt(prompt)
            mask = objective.tokenizer.mask_token if name == "masked-lm" else "<"
            before, _, _ = prompt.partition(mask)
            assert name in ("span-corruption", "denoising") or (before and before.strip() in texts[0]), (name, prompt)
    assert "<extra_id_0>" in make("span-corruption").prompts(texts)[0]
    assert make("causal-lm").prompts(["river"]) == ["river"]
    assert make("causal-lm").prompts(["\n \n"]) == []


@pytest.mark.parametrize("prompt", ["no mask", "[MASK] and [MASK]", "river " * 40 + "[MASK]"])
def test_prompts_that_cannot_be_answered(prompt):
    message = "leaves no room in a context of 32" if prompt.count("[MASK]") == 1 else r"exactly one \[MASK\]"
    with pytest.raises(ValueError, match=message):
        make("masked-lm").check_prompt(prompt)
