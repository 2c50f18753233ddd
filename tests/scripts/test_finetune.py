# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""From a model and rows with labels to a model for a task: each task is learnt, and refusals leave nothing behind."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from child_process import environment
from hub.server import TOKEN, running_hub
from safetensors.torch import load_file, save_file
from scripts.scripts import measure_again, results_of, write_rows
from transformers import (
    AutoConfig,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BertConfig,
    BertForMaskedLM,
    GenerationConfig,
    GPT2Config,
    GPT2LMHeadModel,
    pipeline,
)

from hf_tx.hub import check_repository
from hf_tx.objectives import OBJECTIVES, text_objective_of
from hf_tx.tokenization import train_tokenizer
from hf_tx.training import NEW_MODELS, new_config

NAMES, TOWNS, THINGS = ("Ann", "Bob", "Eve"), ("Rome", "Oslo", "Bern"), ("mill", "boat", "bread")
FACTS = [(name, thing, town) for name in NAMES for thing in THINGS for town in TOWNS] * 3
LONG, SHORT = "It is a long way from here.", "It is quite near, and so is the way."
SIZES = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "max_position_embeddings": 64}


def text_of(name: str, thing: str, town: str) -> str:
    return f"{name} saw the {thing} in {town}."


def question_of(name: str, thing: str, town: str) -> dict[str, Any]:
    # Far enough behind for the answer to stand in the last of several windows only.
    context = "Nobody saw it. " * 16 + text_of(name, thing, town)
    answers = {"text": [town], "answer_start": [context.index(town)]}
    return {"question": "In which town?", "context": context, "answers": answers}


def turns_of(name: str, thing: str, town: str) -> list[dict[str, str]]:
    contents = (text_of(name, thing, town), name, "Where?", town)
    return [{"role": role, "content": each} for role, each in zip(("user", "assistant") * 2, contents, strict=True)]


#: Rows by name of the file.
ROWS: dict[str, list[dict[str, Any]]] = {
    "single": [{"text": text_of(*fact), "label": "rome" if "Rome" in fact else "other"} for fact in FACTS],
    "multi": [
        {"text": text_of(*fact), "labels": [each for each in ("Ann", "Rome") if each in fact]} for fact in FACTS
    ],
    "number": [{"text": text_of(*fact), "label": 1.5 if "Ann" in fact else -0.5} for fact in FACTS],
    "tags": [
        {"tokens": text_of(*fact)[:-1].split(), "tags": ["B-PER", "O", "O", "O", "O", "B-LOC"]} for fact in FACTS
    ],
    "answers": [question_of(*fact) for fact in FACTS],
    "pairs": [{"source": text_of(*fact), "target": LONG if "Ann" in fact else SHORT} for fact in FACTS],
    "turns": [{"messages": turns_of(*fact)} for fact in FACTS],
    "prompts": [{"prompt": text_of(*fact), "response": "Yes."} for fact in FACTS],
}


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model of each family, and two of transformers."""
    folder = tmp_path_factory.mktemp("originals")
    texts = [text_of(*fact) for fact in FACTS] + ["Nobody saw it. In which town? Where? Yes.", LONG, SHORT] * 9
    for family in NEW_MODELS:
        tokenizer = train_tokenizer(
            texts, vocab_size=340, family=family, model_max_length=64, extra_ids=0, show_progress=False
        )
        torch.manual_seed(0)
        objective = OBJECTIVES[text_objective_of(family)](tokenizer, 64)
        model = objective.auto_class.from_config(new_config(family, **objective.token_fields(), **SIZES))
        for part in (model, tokenizer):
            part.save_pretrained(folder / family)
        if family == "encoder":
            tokenizer.save_pretrained(folder / "bert")
            config = BertConfig(
                vocab_size=len(tokenizer),
                intermediate_size=32,
                pad_token_id=tokenizer.pad_token_id,
                **SIZES,
            )
            BertForMaskedLM(config).save_pretrained(folder / "bert")
        elif family == "decoder":
            tokenizer.pad_token = None
            tokenizer.save_pretrained(folder / "gpt2")
            gpt2 = GPT2Config(
                vocab_size=len(tokenizer), n_positions=64, n_embd=32, n_layer=1, n_head=2, eos_token_id=2
            )
            GPT2LMHeadModel(gpt2).save_pretrained(folder / "gpt2")
    for name, rows in ROWS.items():
        write_rows(folder / f"{name}.jsonl", rows)
    return folder


@pytest.fixture(autouse=True)
def here(tmp_path: Path, originals: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with models and data."""
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    work = tmp_path / "work"
    work.mkdir()
    for path in originals.iterdir():
        (work / path.name).symlink_to(path)
    monkeypatch.chdir(work)
    return work


def argv(model: str, task: str, rows: str, **changes: Any) -> list[str]:
    options: dict[str, Any] = {
        "model": model,
        "task": task,
        "dataset": f"{rows}.jsonl",
        "output": "out",
        "max_steps": 40,
        "per_device_train_batch_size": 8,
        "learning_rate": 2e-2,
        "eval_strategy": "no",
        "disable_tqdm": True,
    }
    return [f"--{name}={value}" for name, value in (options | changes).items() if value is not None]


@pytest.mark.parametrize(
    ("model", "task", "rows", "measured", "least"),
    [
        ("encoder", "sequence-classification", "single", "accuracy", 1.0),
        ("decoder", "sequence-classification", "multi", "f1_micro", 1.0),
        ("encoder-decoder", "sequence-classification", "number", "r2", 0.9),
        ("encoder", "token-classification", "tags", "overall_f1", 1.0),
        ("encoder", "question-answering", "answers", "exact_match", 100.0),
        ("encoder-decoder", "seq2seq", "pairs", "bleu", 95.0),
        ("decoder", "chat", "prompts", "answer_token_accuracy", 1.0),
        ("bert", "sequence-classification", "single", "accuracy", 1.0),
        ("gpt2", "chat", "prompts", "answer_token_accuracy", 1.0),
    ],
)
def test_each_task_is_learnt(
    script: ModuleType,
    capsys: pytest.CaptureFixture[str],
    model: str,
    task: str,
    rows: str,
    measured: str,
    least: float,
) -> None:
    # Attention to the source is learnt last.
    longer = {"max_steps": 200, "learning_rate": 5e-3} if task == "seq2seq" else {}
    assert script.main(argv(model, task, rows, **longer)) == 0
    found = results_of("out")[measured]
    assert found["value"] >= least
    assert found["baseline"] < 0.9 * least
    usual = "majority" if "classification" in task else "before training"
    assert found["baseline_name"] == {"seq2seq": "the source, copied"}.get(task, usual)
    printed = capsys.readouterr().out
    assert f"{found['value']:.4f}" in printed
    assert f"{found['baseline']:.4f}  {found['baseline_name']}" in printed
    assert check_repository("out") == []
    (snippet,) = re.findall(r"```python\n(.*?)```", Path("out/README.md").read_text("utf-8"), flags=re.DOTALL)
    exec(snippet.replace("FOLDER_OR_NAME", "out"), {})
    measure_again("out")
    assert type(AutoConfig.from_pretrained("out")) is type(AutoConfig.from_pretrained(model))
    assert Path("out/loss.png").stat().st_size > 1000
    assert not list(Path("out").glob("_unfinished*"))


def test_what_a_card_says_is_measured_again_as_it_was(script: ModuleType) -> None:
    """Options that change what is measured are in the command too."""
    rows = [{"from": text_of(*fact), "to": LONG if "Ann" in fact else SHORT} for fact in FACTS]
    write_rows("renamed.jsonl", rows)
    unusual = {"columns": "from", "label_column": "to", "seed": 7, "held_out": 0.3, "max_eval_samples": 11}
    unusual |= {
        "per_device_eval_batch_size": 3,
        "generation_num_beams": 2,
        "task_options": '{"max_target_length": 12}',
        "bf16": True,
    }
    unusual |= {"label_smoothing_factor": 0.2}
    assert script.main(argv("encoder-decoder", "seq2seq", "renamed", max_steps=2, **unusual)) == 0
    measure_again("out")
    writes = GenerationConfig.from_pretrained("out")
    assert (writes.max_length, writes.num_beams) == (13, 2)


def test_what_is_saved_works_in_a_pipeline(script: ModuleType) -> None:
    assert script.main(argv("encoder", "token-classification", "tags", output="tagger")) == 0
    text = text_of("Bob", "boat", "Bern")
    tagged = pipeline("token-classification", model="tagger", aggregation_strategy="first")(text)
    assert [(each["entity_group"], each["word"].strip(" .")) for each in tagged] == [("PER", "Bob"), ("LOC", "Bern")]
    assert script.main(argv("decoder", "chat", "prompts", output="chat")) == 0
    assert "### Assistant" in AutoTokenizer.from_pretrained("chat").chat_template
    answered = pipeline("text-generation", model="chat")([{"role": "user", "content": text}], max_new_tokens=9)
    assert answered[0]["generated_text"][-1] == {"role": "assistant", "content": "Yes."}


def test_beside_words_in_no_order(script: ModuleType) -> None:
    assert (
        script.main(
            argv("encoder", "sequence-classification", "single", max_steps=1, task_options='{"baseline": "tf-idf"}')
        )
        == 0
    )
    assert (results_of("out")["accuracy"]["baseline"], results_of("out")["accuracy"]["baseline_name"]) == (
        1.0,
        "tf-idf",
    )


@pytest.mark.parametrize(("metric", "best"), [("mse", min), ("r2", max)])
def test_the_best_model_is_the_best(script: ModuleType, metric: str, best: Any) -> None:
    steps = {"max_steps": 4, "eval_steps": 1, "save_steps": 1, "save_total_limit": 9, "learning_rate": 0.3}
    steps["eval_strategy"] = "steps"
    options = {"load_best_model_at_end": True, "metric_for_best_model": metric, **steps}
    assert script.main(argv("encoder", "sequence-classification", "number", **options)) == 0
    state = json.loads(Path("out/checkpoint-4/trainer_state.json").read_text("utf-8"))
    found = [entry[f"eval_{metric}"] for entry in state["log_history"] if f"eval_{metric}" in entry]
    assert len(set(found)) > 1
    assert state["best_metric"] == best(found)
    assert results_of("out")[metric]["value"] == pytest.approx(best(found), rel=1e-5)


def test_rows_that_are_cut_are_told_and_measured(script: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"tokens": row["tokens"] * (1 + number % 2), "tags": row["tags"] * (1 + number % 2)}
            for number, row in enumerate(ROWS["tags"])]  # fmt: skip
    write_rows("long.jsonl", rows)
    assert script.main(argv("encoder", "token-classification", "long", max_length=9)) == 0
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "rows that were cut" in line]
    said = line[line.index("rows that were cut") :]
    assert re.fullmatch(r"rows that were cut: \d+ of \d+ \(training data\), \d+ of \d+ \(held-out data\), with "
                        r"--max-length 9\.", said)  # fmt: skip
    card = Path("out/README.md").read_text("utf-8")
    assert f"| rows that were cut | {said.partition(': ')[2].partition(', with')[0]} |" in card
    found = results_of("out")
    assert found["overall_precision"]["value"] > 0.9
    assert found["overall_recall"]["value"] < 0.9
    measure_again("out")


def test_groups_of_one_length_are_measured_as_they_are(script: ModuleType) -> None:
    """transformers measures rows in another order then."""
    rows = [{**row, "context": row["context"] + " Nobody saw it." * (number % 5)}
            for number, row in enumerate(ROWS["answers"])]  # fmt: skip
    write_rows("unequal.jsonl", rows)
    options = argv("encoder", "question-answering", "unequal", train_sampling_strategy="group_by_length")
    assert script.main(options) == 0
    assert results_of("out")["exact_match"]["value"] > 90
    measure_again("out")


@pytest.mark.parametrize("rank", [0, 4])
def test_a_resumed_run_is_the_whole_run(script: ModuleType, rank: int) -> None:
    options = argv(
        "encoder", "sequence-classification", "single", max_steps=6, save_steps=2, save_total_limit=9, lora_r=rank
    )
    assert script.main(options) == 0
    whole, measured = load_file("out/model.safetensors"), results_of("out")
    for step in (4, 6):
        shutil.rmtree(f"out/checkpoint-{step}")
    Path("out/model.safetensors").unlink()
    assert script.main([*options, "--resume"]) == 0
    again = load_file("out/model.safetensors")
    assert whole.keys() == again.keys()
    assert all(torch.equal(again[name], weight) for name, weight in whole.items())
    assert results_of("out") == measured


@pytest.mark.parametrize(
    ("rank", "changes", "message"),
    [
        (0, {"max_length": 20}, "--max-length 20: the run of out/checkpoint-2 began with --max-length None"),
        (0, {"lora_r": 4}, "--lora-r 4: the run of out/checkpoint-2 began with --lora-r 0"),
        (
            0,
            {"label_column": "label"},
            "--label-column label: the run of out/checkpoint-2 began with --label-column N",
        ),
        (4, {}, "the frozen weights are not those of the run of out/checkpoint-2"),
    ],
)
def test_another_run_does_not_go_on(
    script: ModuleType, capsys: pytest.CaptureFixture[str], rank: int, changes: dict[str, Any], message: str
) -> None:
    options = {"max_steps": 2, "lora_r": rank}
    assert script.main(argv("encoder", "sequence-classification", "single", **options)) == 0
    if not changes:  # adapters on other weights
        copy = shutil.copytree("encoder", "changed")
        weights = {name: weight * 1.1 for name, weight in load_file("encoder/model.safetensors").items()}
        save_file(weights, "changed/model.safetensors", {"format": "pt"})
        Path("encoder").unlink()
        Path(copy).rename("encoder")
    again = argv("encoder", "sequence-classification", "single", **{**options, **changes})
    assert script.main([*again, "--resume"]) == 2
    assert message in capsys.readouterr().err.strip().splitlines()[-1]


def test_adapters_are_merged_into_the_weights(script: ModuleType) -> None:
    assert script.main(argv("encoder", "sequence-classification", "single", lora_r=4)) == 0
    assert results_of("out")["accuracy"]["value"] == 1.0
    assert not Path("out/adapter_config.json").exists()
    before, after = load_file("encoder/model.safetensors"), load_file("out/model.safetensors")
    body = before.keys() & after.keys()
    moved = {name.rsplit(".", 2)[-2] for name in body if not torch.equal(before[name], after[name])}
    # Linear layers have moved; norms and embeddings have not.
    assert {"q_proj", "o_proj"} <= moved
    assert not any("norm" in name or "embed" in name for name in moved)
    training = json.loads(Path("out/run.json").read_text("utf-8"))["training"]
    assert training["rank of the adapters"] == 4
    assert training["parameters trained"] < sum(weight.numel() for weight in after.values())


def test_what_is_drawn_at_random_is_said(script: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    """A classifier that is trained on gets a new head for other classes, and keeps its head for the same."""
    assert script.main(argv("encoder", "sequence-classification", "single", output="first", max_steps=1)) == 0
    assert "Drawn at random before: score." in capsys.readouterr().out
    rows = [{"text": text_of(*fact), "label": fact[2]} for fact in FACTS]
    write_rows("towns.jsonl", rows)
    assert script.main(argv("first", "sequence-classification", "towns", output="second", max_steps=1)) == 0
    assert "Drawn at random before: score." in capsys.readouterr().out
    assert AutoConfig.from_pretrained("second").id2label == {0: "Bern", 1: "Oslo", 2: "Rome"}
    assert script.main(argv("first", "sequence-classification", "single", output="third", max_steps=1)) == 0
    assert "at random" not in capsys.readouterr().out


def test_loading_begins_with_the_weights_of_the_model(script: ModuleType) -> None:
    assert script.main(argv("encoder", "sequence-classification", "single", max_steps=1, learning_rate=0.0)) == 0
    before, after = load_file("encoder/model.safetensors"), load_file("out/model.safetensors")
    assert [name for name in after if name not in before] == ["score.bias", "score.weight"]
    assert all(torch.equal(after[name], before[name]) for name in after.keys() & before.keys())


CONTEXT = "The old mill."
BAD: list[tuple[dict[str, Any], list[dict[str, Any]] | None, str]] = [
    # What is wrong with the rows, and with the options: model and task are an encoder that classifies unless given.
    ({}, [{"body": "a", "label": "x"}], "the dataset has no column 'text': its columns are body, label; name yours"),
    ({}, [{"text": "a"}], "the dataset has no column 'label'"),
    ({"columns": "c"}, [{"text": "a", "label": "x"}], "the dataset has no column 'c'"),
    ({"label_column": "c"}, [{"text": "a", "label": "x"}], "the dataset has no column 'c'"),
    ({}, [{"text": "a", "label": 0}, {"text": "b", "label": 1}, {"text": "c", "label": 5}], "5 is out of range"),
    ({}, [{"text": "a", "label": "x"}, {"text": None, "label": "y"}], "text = None is not text"),
    ({}, [], "rows.jsonl: has no rows"),
    ({"dataset": "gone.csv"}, None, "gone.csv: there is no such file"),
    ({"model": "wide"}, None, "the tokenizer has 343 tokens, and the model embeddings for "),
    ({"model": "./nowhere"}, None, "--model ./nowhere: cannot be loaded"),
    ({"model": "encoder-decoder", "task": "token-classification", "dataset": "tags.jsonl"}, None, "has no class for"),
    ({"task": "classification"}, None, "--task classification: must be one of sequence-classification, "),
    ({"max_length": 65}, None, "--max-length 65: the model and its tokenizer read at most 64 tokens"),
    ({"task_options": '{"doc_stride": 3}'}, None,
     "--task-options: sequence-classification has no option 'doc_stride'; it has problem_type, baseline"),
    ({"doc_stride": 3}, None, "unknown option --doc_stride: use --task-options '{\"doc_stride\": 64}'"),
    ({"task_options": '{"max_answer_length": 0}', "task": "question-answering"}, None,
     "--task-options: max_answer_length = 0 must be a whole number of at least 1"),
    ({"task_options": '{"doc_strid": 3}', "task": "question-answering"}, None, "(did you mean doc_stride?)"),
    ({"task_options": "{"}, None, "--task-options { is not JSON"),
    ({"task_options": '{"problem_type": "regression"}'}, None, "is not a finite number"),
    ({"task_options": '{"problem_type": "multi_label_classification"}'}, None, "'label' holds no lists"),
    ({}, [{"text": "a", "labels": [0, 1, 1]}], "names a class twice"),
    ({}, [{"text": "a", "labels": [0, 1]}, {"text": "b", "labels": [1, 0]}], "all labels are "),
    ({}, [{"text": "a", "label": {"x": 1}}], "no label is a name, or the number of a class"),
    ({"max_length": 2}, None, "--max-length 2: must be above 2, which are the special tokens of a row"),
    ({"metric_for_best_model": "f2"}, None, "--metric_for_best_model f2: must be one of loss, accuracy"),
    ({"metric_for_best_model": "mse"}, None, "--metric_for_best_model mse: must be one of loss, accuracy"),
    ({"metric_for_best_model": "accuracy", "greater_is_better": False}, None,
     "metric_for_best_model = accuracy: a greater value is better"),
    ({"task": "question-answering", "dataset": "answers.jsonl", "metric_for_best_model": "bleu"}, None,
     "--metric_for_best_model bleu: must be one of loss, exact_match, f1."),
    ({"model": "encoder-decoder", "task": "seq2seq", "dataset": "pairs.jsonl", "generation_num_beams": 0}, None,
     "--generation_num_beams 0: must be at least 1"),
    ({"model": "encoder-decoder", "task": "seq2seq", "dataset": "pairs.jsonl",
      "task_options": '{"max_target_length": 65}'}, None,
     "--task-options: max_target_length = 65: the model and its tokenizer take at most 64 tokens"),
    ({"lora_r": -1}, None, "--lora-r -1"),
    ({"label_smoothing_factor": 0.1}, [{"text": "a", "label": 0.5}, {"text": "b", "label": 1.5}],
     "--label_smoothing_factor 0.1: --task sequence-classification (regression) does not support it"),
    ({"label_smoothing_factor": 0.1}, [{"text": "a", "labels": ["x"]}, {"text": "b", "labels": ["x", "y"]}],
     "--label_smoothing_factor 0.1: --task sequence-classification (multi_label_classification) does not support it"),
    ({"task": "question-answering", "dataset": "answers.jsonl", "label_smoothing_factor": 0.1}, None,
     "--label_smoothing_factor 0.1: --task question-answering does not support it"),
    ({"predict_with_generate": True}, None, "--predict_with_generate True: --task sequence-classification (single"),
    ({"generation_num_beams": 2}, None, "--generation_num_beams 2: --task sequence-classification (single"),
    ({"prediction_loss_only": True}, None, "--prediction_loss_only True: --task sequence-classification (single"),
    ({"batch_eval_metrics": True}, None, "--batch_eval_metrics True: is not supported, because measures"),
    ({"label_names": "text"}, None, "--label_names ['text']: is not supported"),
    ({"include_for_metrics": "inputs"}, None, "--include_for_metrics ['inputs']: is not supported"),
    ({"remove_unused_columns": True}, None, "--remove_unused_columns True: is not supported"),
    ({"sortish_sampler": True}, None, "--sortish_sampler True: is not supported"),
    ({"task_options": '{"baseline": "svm"}'}, None, "baseline = 'svm' must be one of majority, tf-idf"),
    ({"task_options": '{"baseline": "tf-idf"}', "task": "seq2seq"}, None,
     "seq2seq has no option 'baseline'; it has max_target_length"),
    ({"task_options": '{"baseline": "tf-idf"}'}, [{"text": "a", "labels": [0, 1]}],
     "baseline = tf-idf is for texts with one right"),
    ({"task": "token-classification"}, [{"tokens": ["a", "b"], "tags": ["O", "B-X"]}, {"tokens": ["a"], "tags": []}],
     "has 1 words and 0 labels"),
    ({"task": "question-answering"},
     [{"question": "Q", "context": CONTEXT, "answers": {"text": ["mill"], "answer_start": [4]}}],
     "the answer 'mill' is not at character 4 of the text, which has 'old ' there"),
    ({"task": "question-answering"}, [{"question": "Q", "context": CONTEXT, "answers": "mill"}],
     "answers = 'mill' must be lists"),
    ({"task": "question-answering", "dataset": "answers.jsonl", "task_options": '{"doc_stride": 60}'}, None,
     "there is no room for the"),
    ({"model": "decoder", "task": "chat"}, [{"prompt": "a", "response": ""}], "response = '' is not text"),
    ({"model": "decoder", "task": "chat"}, [{"messages": [{"role": "robot", "content": "a"}]}],
     "must have a `role` (system, user, assistant or tool)"),
    ({"model": "decoder", "task": "chat"}, [{"messages": [{"role": "user", "content": "a"}]}],
     "must hold an answer of the assistant"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "rows", "message"), BAD)
def test_a_refusal_is_one_line_and_leaves_nothing_behind(
    script: ModuleType,
    here: Path,
    capsys: pytest.CaptureFixture[str],
    changes: dict[str, Any],
    rows: list[dict[str, Any]] | None,
    message: str,
) -> None:
    if rows is not None:
        write_rows("rows.jsonl", rows * 6)
    if changes.get("model") == "wide":
        tokenizer = AutoTokenizer.from_pretrained("encoder")
        tokenizer.add_tokens([f"<{number}>" for number in range(343 - len(tokenizer))])
        shutil.copytree("encoder", "wide")
        tokenizer.save_pretrained("wide")
    options = {"model": "encoder", "task": "sequence-classification", **changes}
    before = sorted(here.iterdir())
    code = script.main(
        argv(options.pop("model"), options.pop("task"), "single" if rows is None else "rows", **options)
    )
    *_, last = capsys.readouterr().err.strip().splitlines()
    assert last.startswith("finetune.py: error: ")
    assert message in last
    assert code == 2
    assert sorted(here.iterdir()) == before


def test_a_row_is_named_as_it_is_numbered_in_the_file(script: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"text": f"text {number}", "label": number % 2} for number in range(40)]
    rows[17]["text"] = " "
    assert script.main(argv("encoder", "sequence-classification", write_rows("rows.jsonl", rows)[:-6])) == 2
    assert "row 17 of the data (" in capsys.readouterr().err


def test_a_label_of_the_held_out_data_alone_is_refused(script: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    Path("data").mkdir()
    write_rows("data/train.jsonl", ROWS["single"][:20])
    write_rows("data/validation.jsonl", [*ROWS["single"][:4], {"text": "a", "label": "paris"}])
    assert script.main(argv("encoder", "sequence-classification", "single", dataset="data")) == 2
    assert "row 4 of the held-out data: label 'paris' is not one of the 2 classes" in capsys.readouterr().err
    assert not Path("out").exists()


PUSH = """
import sys
from pathlib import Path
from scripts.scripts import loaded

with loaded("finetune") as script:
    assert script.main([*sys.argv[1:], "--hub-token", "hf_wrong"]) == 2
    assert not Path("out").exists()
    assert script.main([*sys.argv[1:], "--hub-token", "RIGHT"]) == 0
""".replace("RIGHT", TOKEN)


@pytest.mark.slow
def test_the_result_is_pushed_when_it_is_whole() -> None:
    options = argv("decoder", "chat", "prompts", max_steps=4, save_steps=2, push_to_hub=True, hub_model_id="answers")
    with running_hub() as hub:
        own = {"HF_ENDPOINT": hub.endpoint, "HF_HOME": "home", "HF_HUB_OFFLINE": "0", "HF_HUB_DISABLE_XET": "1"}
        env = environment(**own)
        env.pop("HF_TOKEN", None)
        run = subprocess.run([sys.executable, "-c", PUSH, *options], env=env, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr[-3000:]
    ((name, repository),) = hub.repositories.items()
    assert name == "tester/answers"
    assert len(repository.branches["main"]) <= 2  # what the Hub begins with, and the result
    files = {file: content for file, content in repository.files.items() if not file.endswith(".py")}
    assert {"README.md", "model.safetensors", "tokenizer.json", "chat_template.jinja", "loss.png"} <= files.keys()
    assert not [file for file in files if file.startswith(("checkpoint", "_"))]
    assert b"\nhf-tx evaluate --model tester/answers --task chat " in files["README.md"]
    assert not [file for file, content in files.items() if TOKEN.encode() in content]


@pytest.mark.distributed
@pytest.mark.parametrize(
    ("launcher", "processes"),
    [("torch.distributed.run --nproc-per-node 2", 2), ("accelerate.commands.launch --cpu --num_processes 1", 1)],
)
def test_launchers(launcher: str, processes: int) -> None:
    command = [sys.executable, "-m", *launcher.split(), "-m", "hf_tx.cli", "finetune"]
    options = argv("encoder", "sequence-classification", "single", per_device_train_batch_size=8 // processes)
    env = environment(HF_DATASETS_CACHE="cache")
    run = subprocess.run([*command, *options], env=env, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr[-3000:]
    record = json.loads(Path("out/run.json").read_text("utf-8"))
    assert record["training"]["processes"] == processes
    assert record["training"]["rows of a step"] == 8
    assert results_of("out")["accuracy"]["value"] == 1.0
    assert run.stdout.count("fine-tuned for sequence-classification") == 1
    assert AutoModelForSequenceClassification.from_pretrained("out").config.num_labels == 2
