# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tiny_models import build

import hf_tx
from hf_tx import evaluation
from hf_tx.evaluation import evaluate_texts, load_metric, load_model
from hf_tx.tokenization import train_tokenizer

FOLDER = Path(evaluation.__file__).parent / "metrics"
TEXTS = ["The river runs past the old mill.", "Nobody said hello to the miller, and the miller said nothing."]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A causal and a masked model, with their tokenizers."""
    found = {}
    for family in ("decoder", "encoder"):
        folder = tmp_path_factory.mktemp(family)
        tokenizer = train_tokenizer(TEXTS, family=family, vocab_size=300, show_progress=False)
        tokenizer.save_pretrained(folder)
        build(family, head="lm", vocab_size=len(tokenizer)).save_pretrained(folder)
        found[family] = str(folder)
    return found


def test_perplexity(folders):
    found = load_metric("perplexity").compute(predictions=TEXTS, model_id=folders["decoder"], max_length=16, stride=4)
    model, tokenizer = load_model(folders["decoder"], "causal-lm")
    result = evaluate_texts(model, tokenizer, TEXTS, task="causal-lm", context_length=16, stride=4)
    assert found["perplexities"] == pytest.approx([score.perplexity for score in result.scores])
    assert found["mean_perplexity"] == pytest.approx(sum(found["perplexities"]) / 2)
    assert (found["perplexity"], found["bits_per_byte"]) == pytest.approx((result.perplexity, result.bits_per_byte))
    assert (found["tokens"], found["bytes"]) == (result.score.num_tokens, len("".join(TEXTS)))


def test_pseudo_perplexity(folders):
    found = load_metric("pseudo_perplexity").compute(predictions=TEXTS, model_id=folders["encoder"], max_length=16)
    model, tokenizer = load_model(folders["encoder"], "masked-lm")
    result = evaluate_texts(model, tokenizer, TEXTS, task="masked-lm", context_length=16)
    assert found["perplexity"] == pytest.approx(result.perplexity)


CASES = {
    "classification": ([0, 1, 1], [0, 1, 0], {"label_names": ["no", "yes"]}),
    "token_classification": ([["B-PER", "O"]], [["B-PER", "B-LOC"]], {"scheme": "IOB2"}),
    "seq2seq": (["a mill"], [["the mill", "a mill"]], {"use_stemmer": True}),
}


@pytest.mark.parametrize("name", CASES)
def test_modules_give_what_the_functions_give(name):
    for module in evaluation.task_metrics.NEEDS[name]:
        pytest.importorskip(module)
    predictions, references, options = CASES[name]
    expected = getattr(evaluation, f"{name}_metrics")(predictions, references, **options)
    assert load_metric(name).compute(predictions=predictions, references=references, **options) == expected


def test_classes_of_which_several_are_right_and_texts_of_one_reference():
    pytest.importorskip("sklearn")
    pytest.importorskip("sacrebleu")
    found = load_metric("classification").compute(predictions=[[0, 1], [1, 1]], references=[[0, 1], [1, 0]])
    assert found == evaluation.classification_metrics([[0, 1], [1, 1]], [[0, 1], [1, 0]])
    assert load_metric("seq2seq").compute(predictions=["a mill"], references=["a mill"])["rougeL"] == 1.0


def test_answers_one_by_one_and_with_all_columns_of_squad():
    metric = load_metric("question_answering")
    metric.add(prediction={"id": 7, "prediction_text": "mill"}, reference={"id": 7, "answers": {"text": ["mill"]}})
    metric.add_batch(
        predictions=[{"id": "8", "prediction_text": "mill", "no_answer_probability": 0.9}],
        references=[{"id": "8", "answers": {"text": [], "answer_start": []}, "context": "A mill."}],
    )
    assert metric.compute(no_answer_threshold=0.5)["exact_match"] == 100.0


def test_each_module_says_what_it_takes():
    names = sorted(folder.name for folder in FOLDER.iterdir() if folder.name != "__pycache__")
    assert names == sorted({*CASES, "perplexity", "pseudo_perplexity", "question_answering"})
    for name in names:
        for module in evaluation.task_metrics.NEEDS.get(name, {}):
            pytest.importorskip(module)
        metric = load_metric(name)
        assert metric.inputs_description.strip().startswith("Args:")
        assert metric.description


def test_an_unknown_metric_is_refused():
    with pytest.raises(
        ValueError, match="there is no metric 'perplexiti': choose one of .*Did you mean 'perplexity'?"
    ):
        load_metric("perplexiti")


def test_a_fresh_process_without_network_loads_the_folder(tmp_path):
    script = """
import socket, sys
def refuse(*args, **kwargs):
    raise AssertionError("the network was asked for")
socket.socket.connect = socket.getaddrinfo = refuse
sys.path.insert(0, sys.argv[1])
import evaluate, json
predictions, references = [{"id": "1", "prediction_text": "a mill"}], [{"id": "1", "answers": {"text": ["mill"]}}]
print(json.dumps(evaluate.load(sys.argv[2]).compute(predictions=predictions, references=references)))
"""
    environment = {**os.environ, "HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": "1", "HF_EVALUATE_OFFLINE": "1"}
    arguments = [str(Path(hf_tx.__file__).parents[1]), str(FOLDER / "question_answering")]
    child = subprocess.run(
        [sys.executable, "-c", script, *arguments], capture_output=True, text=True, cwd=tmp_path, env=environment
    )
    assert child.returncode == 0, child.stderr
    assert json.loads(child.stdout.splitlines()[-1]) == {"exact_match": 100.0, "f1": 100.0, "total": 1}
