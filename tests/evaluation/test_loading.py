# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
import sys
import types

import pytest
from tiny_models import build

import hf_tx
from hf_tx.evaluation import load_metric, load_model
from hf_tx.tokenization import train_tokenizer

TEXTS = [
    "The river runs past the old mill.",
    "Hello.",
    "Nobody said hello to the miller, and the miller said nothing.",
    "river",
    "A mill?",
    "To the mill, to the mill, to the mill!",
]
TOKENIZER = train_tokenizer(TEXTS, family="encoder", vocab_size=300, model_max_length=40, show_progress=False)


def test_a_model_is_loaded_for_its_task_and_no_other(tmp_path):
    build("encoder", head="lm", vocab_size=len(TOKENIZER)).save_pretrained(tmp_path)
    TOKENIZER.save_pretrained(tmp_path)
    model, tokenizer = load_model(str(tmp_path), "masked-lm", device="cpu", attn_implementation="eager")
    assert isinstance(model, hf_tx.TxEncoderForMaskedLM)
    assert (model.training, model.config._attn_implementation) == (False, "eager")
    assert len(tokenizer) == len(TOKENIZER)
    with pytest.raises(ValueError, match="has no class for the task causal-lm"):
        load_model(str(tmp_path), "causal-lm")
    with pytest.raises(ValueError, match="task = 'lm': must be one of causal-lm"):
        load_model(str(tmp_path), "lm")


def test_a_head_that_was_never_trained_is_refused(tmp_path):
    build("encoder", vocab_size=len(TOKENIZER)).save_pretrained(tmp_path)
    TOKENIZER.save_pretrained(tmp_path)
    with pytest.raises(
        ValueError, match="does not have 2 weights .*'score.bias', which would be random: it was not trained for"
    ):
        load_model(str(tmp_path), "sequence-classification")


def test_a_script_of_the_name_of_the_library_is_named(monkeypatch):
    other = types.ModuleType("evaluate")
    other.__file__ = "scripts/evaluate.py"
    monkeypatch.setitem(sys.modules, "evaluate", other)
    with pytest.raises(ImportError, match="scripts/evaluate.py hides the library `evaluate`"):
        load_metric("perplexity")
