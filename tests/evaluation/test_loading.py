# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
import sys
import types

import pytest
import torch
from tiny_models import SIZES, TOKENS, build, enlarge

import hf_tx
from hf_tx.evaluation import evaluate_classifier, load_metric, load_model
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


def classifier(**settings):
    sizes = {**SIZES, "vocab_size": len(TOKENIZER), "num_labels": 3, **settings}
    return enlarge(hf_tx.TxEncoderForSequenceClassification(hf_tx.TxEncoderConfig(**sizes, **TOKENS))).eval()


def test_a_model_is_loaded_for_its_task_and_no_other(tmp_path):
    build("encoder", head="lm", vocab_size=len(TOKENIZER)).save_pretrained(tmp_path)
    TOKENIZER.save_pretrained(tmp_path)
    model, tokenizer = load_model(str(tmp_path), "masked-lm", device="cpu", attn_implementation="eager")
    assert isinstance(model, hf_tx.TxEncoderForMaskedLM)
    assert (model.training, model.config._attn_implementation) == (False, "eager")
    assert len(tokenizer) == len(TOKENIZER)
    with pytest.raises(ValueError, match="is of a kind that has no model for causal-lm"):
        load_model(str(tmp_path), "causal-lm")
    with pytest.raises(ValueError, match="task = 'lm': must be one of causal-lm"):
        load_model(str(tmp_path), "lm")


def test_a_head_that_was_never_trained_is_refused(tmp_path):
    build("encoder", vocab_size=len(TOKENIZER)).save_pretrained(tmp_path)
    TOKENIZER.save_pretrained(tmp_path)
    with pytest.raises(
        ValueError, match="lacks 2 weights .*'score.bias', which would be random: it was not trained for"
    ):
        load_model(str(tmp_path), "sequence-classification")


def test_a_script_of_the_name_of_the_library_is_named(monkeypatch):
    other = types.ModuleType("evaluate")
    other.__file__ = "scripts/evaluate.py"
    monkeypatch.setitem(sys.modules, "evaluate", other)
    with pytest.raises(ImportError, match="scripts/evaluate.py hides the library `evaluate`"):
        load_metric("perplexity")


@pytest.mark.parametrize("batch_size", [1, 2])
def test_a_classifier_reads_texts_one_by_one(batch_size):
    pytest.importorskip("sklearn")
    model = classifier()
    with torch.no_grad():
        # As it is, one class is the likeliest for all texts.
        rows = [model(torch.tensor([TOKENIZER(text)["input_ids"]])).logits[0] for text in TEXTS]
        model.score.bias -= torch.stack(rows).mean(0)
        expected = []
        for text in TEXTS:
            ids = TOKENIZER(text)["input_ids"]
            ids = ids if len(ids) <= 20 else [*ids[:19], TOKENIZER.sep_token_id]
            expected.append(model(torch.tensor([ids])).logits.argmax().item())
    # Numbers and names of classes.
    for right in (expected, [f"LABEL_{label}" for label in expected]):
        found = evaluate_classifier(model, TOKENIZER, TEXTS, right, context_length=20, batch_size=batch_size)
        assert found["accuracy"] == 1.0
    assert len(set(expected)) > 1
    assert sum(row["support"] for row in found["per_class"].values()) == len(TEXTS)
    cut = sum(len(TOKENIZER(text)["input_ids"]) > 20 for text in TEXTS)
    assert cut > 0
    assert (found["texts"], found["cut_texts"]) == (len(TEXTS), cut)


@pytest.mark.parametrize(
    ("settings", "texts", "labels", "message"),
    [
        ({"num_labels": 1}, TEXTS, [0, 0, 0], "has 1 labels and problem_type = None"),
        ({"problem_type": "multi_label_classification"}, TEXTS, [0, 0, 0], "only models with one right class"),
        ({}, TEXTS, [0, 3, 0, 0, 0, 0], "label 1 is 3: the classes are 0 to 2, or LABEL_0, LABEL_1, LABEL_2"),
        ({}, TEXTS, [0, None, 0, 0, 0, 0], "label 1 is None"),
        ({}, ["a", "b", None], [0, 1, 0], "text 2 is None: texts must be strings"),
        ({}, TEXTS, [0], "6 texts and 1 labels"),
        ({}, [], [], "0 texts and 0 labels"),
    ],
)
def test_what_cannot_be_classified_is_refused(settings, texts, labels, message):
    pytest.importorskip("sklearn")
    with pytest.raises(ValueError, match=message):
        evaluate_classifier(classifier(**settings), TOKENIZER, texts, labels)
