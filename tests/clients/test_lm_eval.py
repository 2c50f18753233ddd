# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""The model class of lm-evaluation-harness scores what `hf_tx.evaluation` scores."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from hf_tx.evaluation import evaluate_texts
from hf_tx.evaluation.language_models import score_targets

pytest.importorskip("lm_eval", reason="lm-eval is absent")

TEXTS = ["The miller runs past the river.", "Who runs?", "The river runs past the old mill, and past the miller."]
LENGTH = 64  # the model's


def harness(folder: Path, **settings: Any) -> Any:
    from lm_eval.models.huggingface import HFLM

    return HFLM(pretrained=str(folder), device="cpu", dtype="float32", batch_size=2, add_bos_token=False, **settings)


def ask(harness: Any, kind: str, requests: Sequence[tuple[str, ...]]) -> list[Any]:
    from lm_eval.api.instance import Instance

    instances = [Instance(kind, {}, request, number) for number, request in enumerate(requests)]
    return getattr(harness, kind)(instances, disable_tqdm=True)


def test_rolling_loglikelihood(decoder: Path) -> None:
    model, tokenizer = AutoModelForCausalLM.from_pretrained(decoder), AutoTokenizer.from_pretrained(decoder)
    expected = evaluate_texts(model, tokenizer, TEXTS, task="causal-lm", context_length=LENGTH)
    lm = harness(decoder)
    assert lm.max_length == LENGTH
    assert lm.prefix_token_id == tokenizer.bos_token_id
    found = ask(lm, "loglikelihood_rolling", [(text,) for text in TEXTS])
    assert found == pytest.approx([-score.nats for score in expected.scores], rel=1e-5)

    # Of a text that is longer, its windows after the first begin with the token before them.
    text = " ".join(TEXTS * 2)
    ids = tokenizer(text, add_special_tokens=False).input_ids
    length = len(ids) // 2 + 3
    inputs = [[tokenizer.bos_token_id, *ids[: length - 1]], ids[-length - 1 : -1]]
    targets = [ids[:length], [-100] * (2 * length - len(ids)) + ids[length:]]
    batches = [
        ({"input_ids": torch.tensor([row])}, torch.tensor([wanted]))
        for row, wanted in zip(inputs, targets, strict=True)
    ]
    score = score_targets(model, batches)
    assert score.num_tokens == len(ids)
    found = ask(harness(decoder, max_length=length), "loglikelihood_rolling", [(text,)])
    assert found == pytest.approx([-score.nats], rel=1e-5)


def test_loglikelihood_of_answers(decoder: Path) -> None:
    model, tokenizer = AutoModelForCausalLM.from_pretrained(decoder), AutoTokenizer.from_pretrained(decoder)
    pairs = [("The miller", " runs"), ("The river runs past", " the old mill."), ("Who", " runs past the river?")]
    for (context, answer), (found, greedy) in zip(pairs, ask(harness(decoder), "loglikelihood", pairs), strict=True):
        read, wanted = (tokenizer(text, add_special_tokens=False).input_ids for text in (context, answer))
        targets = torch.tensor([[-100] * (len(read) - 1) + wanted])
        score = score_targets(model, [({"input_ids": torch.tensor([[*read, *wanted][:-1]])}, targets)])
        assert found == pytest.approx(-score.nats, rel=1e-5)
        assert greedy == (score.num_correct == score.num_tokens)
