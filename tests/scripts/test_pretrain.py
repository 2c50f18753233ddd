# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""From raw text to a measured model: every family, the same after a resume, and refusals that leave nothing behind."""

import contextlib
import json
import math
import shutil
import signal
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
import yaml
from datasets import Dataset
from safetensors.torch import load_file
from scripts.scripts import measure_again, results_of, write_rows
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, AutoModelForSeq2SeqLM, AutoTokenizer

from hf_tx.cli import main
from hf_tx.evaluation import evaluate_texts
from hf_tx.hub import RunRecord, check_repository
from hf_tx.objectives import OBJECTIVES
from hf_tx.tokenization import train_tokenizer
from hf_tx.training import TxTrainer

TEXT = "".join(
    f"{first} told {second} that {first} saw {second}, and {second} told {first} so.\n"
    for first in ("Ann", "Bob", "Eve", "Sue", "Tom")
    for second in ("Kim", "Lee", "Max", "Pat", "Zoe")
    for _ in range(4)
)
TINY: dict[str, Any] = {
    "text": "text.txt",
    "context_length": 32,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "vocab_size": 320,
    "max_steps": 12,
    "per_device_train_batch_size": 4,
    "learning_rate": 1e-2,
    "disable_tqdm": True,
    "output": "out",
}
CLASSES = {"decoder": AutoModelForCausalLM, "encoder": AutoModelForMaskedLM, "encoder-decoder": AutoModelForSeq2SeqLM}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    Path("text.txt").write_text(TEXT, "utf-8")
    return tmp_path / "work"


def argv(**changes: Any) -> list[str]:
    options = {**TINY, **changes}
    return [f"--{name}={value}" for name, value in options.items() if value is not None]


@pytest.mark.parametrize(
    ("family", "objective", "changes"),
    [
        ("decoder", "causal-lm", {"mixers": "gated_delta,full"}),
        ("encoder", "masked-lm", {"objective_options": '{"masking": "span"}'}),
        ("encoder-decoder", "span-corruption", {"decoder_mixers": "lstm", "vocab_size": 420}),
    ],
)
def test_a_model_of_each_family(
    script: ModuleType,
    capsys: pytest.CaptureFixture[str],
    family: str,
    objective: str,
    changes: dict[str, Any],
) -> None:
    assert script.main(argv(family=family, objective=objective, **changes)) == 0
    printed = capsys.readouterr().out
    found = results_of("out")
    for metric, result in found.items():
        assert f"{metric:{max(map(len, found))}}  {result['value']:10.4f}" in printed
    assert found["loss"]["value"] < math.log(320)  # less than what knows nothing
    assert check_repository("out") == []
    assert Path("out/loss.png").stat().st_size > 1000
    assert not list(Path("out").glob("_unfinished*"))
    tokenizer, model = AutoTokenizer.from_pretrained("out"), CLASSES[family].from_pretrained("out")
    assert model.config.vocab_size == len(tokenizer)
    if family == "decoder":
        held_out = TEXT.rstrip("\n")
        assert model.config.mixers == ["gated_delta", "full"]
        assert tokenizer.decode(tokenizer(held_out)["input_ids"], skip_special_tokens=True) == held_out
        assert set(found) == {"loss", "bits_per_byte", "perplexity"}
    measure_again("out")
    if family == "encoder-decoder":
        assert model.config.decoder.mixers == ["lstm", "lstm"]


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_every_objective_leaves_a_whole_repository(script: ModuleType, objective: str) -> None:
    kind = OBJECTIVES[objective]
    write_rows("rows.jsonl", [dict.fromkeys(kind.columns, f"{line}\n") for line in TEXT.splitlines()])
    changes = {"text": None, "dataset": "rows.jsonl", "vocab_size": 420, "max_steps": 3}
    assert script.main(argv(family=kind.families[0], objective=objective, **changes)) == 0
    assert check_repository("out") == []
    measure_again("out")
    weights = kind.auto_class.from_pretrained("out").state_dict()
    trained = load_file("out/checkpoint-3/model.safetensors")
    shared = [name for name in weights if any(key.endswith(name) for key in trained)]
    assert len(shared) >= len(weights) - 2  # tied ones are saved once
    for name in shared:
        assert any(torch.equal(weights[name], value) for key, value in trained.items() if key.endswith(name)), name


def test_a_tokenizer_needs_only_what_the_objective_needs(script: ModuleType) -> None:
    tokenizer = train_tokenizer([TEXT], vocab_size=320, family="decoder", show_progress=False)
    assert tokenizer.mask_token is None
    assert tokenizer.pad_token is not None
    tokenizer.save_pretrained("tokenizer")
    write_rows("rows.jsonl", [dict.fromkeys(("anchor", "positive"), f"{line}\n") for line in TEXT.splitlines()])
    given = {"text": None, "dataset": "rows.jsonl", "tokenizer": "tokenizer", "max_steps": 1}
    assert script.main(argv(family="encoder", objective="contrastive", **given)) == 0
    card = Path("out/README.md").read_text("utf-8")
    assert "pipeline_tag: sentence-similarity\n" in card


@pytest.mark.parametrize(
    ("objective", "counted", "name"),
    [("masked-lm", 10_000, "unigram model"), ("span-corruption", 2, "unigram model of 2 rows")],
)
def test_a_loss_stands_beside_that_of_the_frequencies_of_its_labels(
    script: ModuleType, objective: str, counted: int, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hf_tx.objectives.objective._MOST_COUNTED", counted)
    kind, parts = OBJECTIVES[objective], {"train": TEXT.splitlines()[::2], "validation": TEXT.splitlines()[1::2]}
    Path("data").mkdir()
    for split, lines in parts.items():
        write_rows(f"data/{split}.jsonl", [{"text": line} for line in lines])
    changes = {"text": None, "dataset": "data", "vocab_size": 420, "max_steps": 2, "seed": 3}
    assert script.main(argv(family=kind.families[0], objective=objective, **changes)) == 0

    tokenizer = AutoTokenizer.from_pretrained("out")
    collator = kind(tokenizer, TINY["context_length"], seed=3)

    def labels_of(lines: list[str], most: int | None = None) -> torch.Tensor:
        rows = islice(collator.prepare(Dataset.from_dict({"text": lines})), most)
        return torch.cat([labels[labels != -100] for labels in (collator([row])["labels"] for row in rows)])

    counts = labels_of(parts["train"], counted).bincount(minlength=len(tokenizer)) + 1
    loss = -(counts / counts.sum()).log()[labels_of(parts["validation"])].mean()
    found = results_of("out")["loss"]
    assert found["baseline"] == pytest.approx(loss.item(), rel=1e-5)
    assert found["baseline_name"] == name


def test_what_the_card_says_is_measured_again(script: ModuleType) -> None:
    held_out = ["Ann told Kim so.", "Zoe saw Bob, and told him so."]
    Path("data").mkdir()
    write_rows("data/train.jsonl", [{"text": TEXT}] * 2)
    write_rows("data/validation.jsonl", [{"text": text} for text in held_out])
    assert script.main(argv(text=None, dataset="data")) == 0
    model, tokenizer = AutoModelForCausalLM.from_pretrained("out"), AutoTokenizer.from_pretrained("out")
    again = evaluate_texts(model, tokenizer, held_out, task="causal-lm", context_length=TINY["context_length"])
    assert results_of("out")["bits_per_byte"]["value"] == pytest.approx(again.bits_per_byte, rel=1e-5)


def test_what_a_card_says_is_measured_again_as_it_was(script: ModuleType) -> None:
    """Options that change what is measured are in the command too; the rows of a batch, for a contrastive loss."""
    assert script.main(argv(output="texts", held_out=0.3, bf16=True, label_smoothing_factor=0.2, max_steps=2)) == 0
    measure_again("texts")
    lines = TEXT.splitlines()
    write_rows("pairs.jsonl", [{"a": line, "b": other} for line, other in zip(lines, lines[1:], strict=False)])
    unusual = {"text": None, "dataset": "pairs.jsonl", "columns": None, "seed": 7, "held_out": 0.3, "bf16": True}
    unusual |= {"objective_options": '{"temperature": 0.3}', "per_device_eval_batch_size": 3, "max_steps": 2}
    command = argv(family="encoder", objective="contrastive", **unusual)
    assert script.main([*command, "--columns", "a", "b"]) == 0
    measure_again("out")


def test_given_texts_and_another_domain_are_measured_and_their_cards_are_read(script: ModuleType) -> None:
    for name in ("data/train", "data/held-out", "elsewhere"):
        Path(name).mkdir(parents=True)
    held_out, other = "Ann told Kim so.\n", "A whale, Ann, a whale is white.\n" * 9
    Path("data/train/a.txt").write_text(TEXT, "utf-8")
    Path("data/held-out/b.txt").write_text(held_out, "utf-8")
    Path("elsewhere/whale.txt").write_text(other, "utf-8")
    card = "---\npretty_name: Talks\nlicense: other\nlicense_name: ours\nlanguage: [en, de]\nsource: the pub\n---\n"
    Path("data/README.md").write_text(card, "utf-8")
    Path("elsewhere/whale.md").write_text("---\npretty_name: The whale\nlicense: mit\n---\n", "utf-8")
    options = {"text": "data/train", "eval_text": "data/held-out", "other_text": "elsewhere/whale.txt"}
    assert script.main(argv(**options)) == 0
    record = RunRecord.load("out")
    assert [(data.name, data.license, data.source) for data in record.data] == [
        ("Talks", "ours", "the pub"),
        ("The whale", "mit", ""),
    ]
    assert record.language == ["en", "de"]
    assert record.uses
    model, tokenizer = AutoModelForCausalLM.from_pretrained("out"), AutoTokenizer.from_pretrained("out")
    found = [result for result in record.results if result.metric == "bits_per_byte"]
    assert [result.dataset for result in found] == ["Talks", "The whale"]
    for text, result in zip((held_out, other), found, strict=True):
        again = evaluate_texts(model, tokenizer, [text], task="causal-lm", context_length=TINY["context_length"])
        assert result.value == pytest.approx(again.bits_per_byte, rel=1e-5)
    assert [result.command.split("--text ")[1].split()[0] for result in found] == [
        "data/held-out",
        "elsewhere/whale.txt",
    ]
    measure_again("out")
    # The unigram model is that of the training text, which has no whales.
    assert found[1].baseline > found[0].baseline


def test_a_resumed_run_is_the_whole_run(script: ModuleType) -> None:
    dropout = {"config_changes": '{"hidden_dropout": 0.2}', "save_steps": 5, "save_total_limit": 9}
    assert script.main(argv(**dropout)) == 0
    whole, measured = load_file("out/model.safetensors"), results_of("out")
    for name in ("checkpoint-10", "checkpoint-12"):
        shutil.rmtree(Path("out", name))
    Path("out/model.safetensors").unlink()
    assert script.main([*argv(**dropout), "--resume"]) == 0
    again = load_file("out/model.safetensors")
    assert whole.keys() == again.keys()
    assert all(torch.equal(again[name], weight) for name, weight in whole.items())
    assert {name: each["value"] for name, each in results_of("out").items()} == {
        name: each["value"] for name, each in measured.items()
    }


def test_a_run_that_has_done_its_steps_takes_no_more(script: ModuleType) -> None:
    assert script.main(argv()) == 0
    whole = load_file("out/model.safetensors")
    Path("out/model.safetensors").unlink()  # killed after the last checkpoint
    assert script.main([*argv(), "--resume"]) == 0
    again = load_file("out/model.safetensors")
    assert all(torch.equal(again[name], weight) for name, weight in whole.items())
    assert json.loads(Path("out/run.json").read_text("utf-8"))["training"]["steps"] == TINY["max_steps"]


def test_epochs_take_the_place_of_steps(script: ModuleType) -> None:
    assert script.main(argv(max_steps=None, num_train_epochs=2)) == 0
    record = RunRecord.load("out")
    rows = int(record.data[0].size.split()[0])
    assert record.training["steps"] == 2 * math.ceil(rows / TINY["per_device_train_batch_size"])


def test_options_from_a_file_with_the_names_of_the_example_scripts_are_those_of_the_command_line(
    script: ModuleType,
) -> None:
    assert script.main(argv(output="one")) == 0
    theirs = {"text": "train_file", "context_length": "block_size", "output": "output_dir"}
    options = {theirs.get(name, name): value for name, value in {**TINY, "output": "two"}.items()}
    Path("settings.yaml").write_text(yaml.safe_dump(options), "utf-8")
    assert main(["pretrain", "settings.yaml"]) == 0
    one, two = (load_file(f"{name}/model.safetensors") for name in ("one", "two"))
    assert all(torch.equal(two[name], weight) for name, weight in one.items())
    assert "\nhf-tx pretrain settings.yaml\n" in Path("two/README.md").read_text("utf-8")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"text": "gone.txt"}, "gone.txt"),
        ({"text": "empty.txt"}, "empty.txt"),
        (
            {"text": None, "dataset": "rows.jsonl"},
            "the dataset has no column 'text': its columns are body; name yours",
        ),
        ({"text": None, "dataset": "empty.jsonl"}, "empty.jsonl: has no rows"),
        ({"family": "encoder", "objective": "causal-lm"}, "--objective causal-lm: is not for --family encoder"),
        ({"objective_options": '{"pack": 1}'}, "--objective-options"),
        ({"config_changes": "{"}, "--config-changes { is not JSON"),
        ({"config_changes": '{"vocab_size": 9}'}, "the tokenizer decides vocab_size"),
        ({"config_changes": '{"eos_token_id": 9}'}, "the tokenizer decides eos_token_id"),
        ({"learning_rate": "nan"}, "--learning_rate nan: must be a number of at least 0"),
        ({"per_device_train_batch_size": 0}, "--per_device_train_batch_size 0: must be at least 1"),
        ({"num_train_epochs": 2}, "--max-steps, --num-train-epochs: give one of them"),
        ({"gradient_accumulation_steps": 0}, "--gradient_accumulation_steps 0: must be at least 1"),
        ({"mixers": "ful"}, "ful"),
        ({"hidden_size": 33}, "33"),
        ({"tokenizer": "./nowhere"}, "--tokenizer ./nowhere: cannot be loaded"),
        ({"attn_implementation": "banded"}, "banded"),
        ({"resume": True}, "--resume: there is no checkpoint in out"),
        ({"other_text": "gone.txt"}, "gone.txt"),
        (
            {"other_text": "text.txt", "family": "encoder"},
            "--other-text: is measured of causal-lm, continuation",
        ),
        ({"eval_text": "text.txt"}, "--eval-text text.txt: holds a text that is trained on too"),
        ({"held_out": 0.7}, "--held-out 0.7: must be above 0 and at most 0.5"),
        ({"max_steps": 0}, "--max_steps 0: must be at least 1"),
        ({"max_steps": None, "num_train_epochs": 0}, "--num_train_epochs 0.0: must be a number above 0"),
        ({"save_steps": 0}, "--save_steps 0.0: must be above 0"),
        ({"adam_beta2": 1}, "--adam_beta2 1.0: must be from 0 to below 1"),
        ({"lr_scheduler_kwargs": '{"a": 1}'}, "--lr_scheduler_type cosine, --lr_scheduler_kwargs"),
        ({"optim_args": "a"}, "--optim_args a: "),
        ({"metric_for_best_model": "accuracy"}, "--metric_for_best_model accuracy: must be one of loss"),
        ({"output": "text.txt/out"}, "--output text.txt/out: cannot be written to: "),
        ({"objective_options": '{"packed": "no"}'}, "packed = 'no': must be of the type bool"),
        ({"objective_options": '{"paked": true}'}, "causal-lm has no option 'paked' (did you mean packed?)"),
        ({"objective": "causal_lm"}, "(did you mean causal-lm?)"),
        ({"tokenizer": "./folder"}, "--tokenizer ./folder: cannot be loaded"),
        ({"eval_split": "test"}, "--eval-split test: must be a split of --dataset"),
        ({"text": None, "dataset": "rows.jsonl", "eval_split": "test"}, "has no split 'test'"),
        ({"text": None, "dataset": "text.txt"}, "text.txt is not a .json, "),
        ({"text": None, "dataset": "latin.jsonl"}, "latin.jsonl' is not UTF-8 text: invalid continuation byte at"),
        ({"resume_from_checkpoint": "gone"}, "gone"),
        (
            {"family": "encoder", "objective": "contrastive", "label_smoothing_factor": 0.1},
            "--label_smoothing_factor 0.1: --objective contrastive does not support it",
        ),
        (
            {"family": "encoder", "objective": "contrastive", "neftune_noise_alpha": 5},
            "--neftune_noise_alpha 5.0: --objective contrastive does not support it",
        ),
        (
            {"family": "encoder", "objective": "contrastive", "activation_checkpointing": True},
            "--activation_checkpointing True: --objective contrastive does not support it",
        ),
        ({"use_liger_kernel": True}, "--use_liger_kernel True: is not supported"),
        ({"held_out_first": 5}, "--held-out-first: is an option of --streaming"),
        ({"streaming": True, "max_train_samples": 5}, "--max-train-samples: --max-steps says how much of a stream"),
        (
            {"streaming": True, "max_steps": None, "num_train_epochs": 1},
            "--num-train-epochs 1: how long a pass over a stream is",
        ),
        ({"streaming": True, "held_out_first": 99999}, "so that too few would be left to train on"),
        ({"learning_rat": 1}, "unknown option --learning_rat: did you mean --learning_rate?"),
    ],
)
def test_a_refusal_is_one_line_and_leaves_nothing_behind(
    script: ModuleType, here: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, Any], message: str
) -> None:
    Path("empty.txt").write_text("")
    Path("empty.jsonl").write_text("")
    Path("latin.jsonl").write_bytes('{"text": "café"}'.encode("latin-1"))
    Path("folder").mkdir()
    write_rows("rows.jsonl", [{"body": "x"}] * 9)
    before = sorted(here.iterdir())
    assert script.main(argv(**changes)) == 2
    *_, last = capsys.readouterr().err.strip().splitlines()
    assert last.startswith("pretrain.py: error: ")
    assert message in last
    assert sorted(here.iterdir()) == before


def test_a_training_that_diverges_is_one_line_and_keeps_its_batch(
    script: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = {"learning_rate": 1e30, "warmup_steps": 0, "config_changes": '{"norm_type": "none", "qk_norm": false}'}
    assert script.main(argv(**broken)) == 2
    *_, last = capsys.readouterr().err.strip().splitlines()
    assert last.startswith("pretrain.py: error: the loss of step ")
    assert list(Path("out").glob("_nonfinite-step-*/batch-0.safetensors"))


@pytest.fixture(scope="module")
def broken_off(script: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a run of 8 steps leaves that was killed after the sixth, and the weights of the whole run."""
    folder = tmp_path_factory.mktemp("broken-off")
    with contextlib.chdir(folder):
        Path("text.txt").write_text(TEXT, "utf-8")
        assert script.main(argv(max_steps=8, save_steps=6)) == 0
        shutil.rmtree("out/checkpoint-8")
    return folder / "out"


def test_a_model_learns_from_a_stream(script: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    streamed: dict[str, Any] = {"streaming": True, "max_steps": 8, "save_steps": 5, "shuffle_buffer_size": 4}
    assert script.main(argv(**streamed)) == 0
    printed = capsys.readouterr().out
    record = RunRecord.load("out")
    seen = record.training["input tokens"]
    assert 7 * 4 * 32 < seen <= 8 * 4 * 32
    assert f"8 steps and {seen:,} input tokens in " in printed
    assert record.data[0].size == "a stream"
    assert results_of("out")["bits_per_byte"]["baseline_name"] == "unigram model of 10,000,000 characters"
    assert f"--held-out-first {round(0.1 * len(TEXT))}" in record.results[0].command
    measure_again("out")
    whole = load_file("out/model.safetensors")
    shutil.rmtree("out/checkpoint-8")
    assert script.main([*argv(**streamed), "--resume"]) == 0
    assert all(torch.equal(tensor, whole[name]) for name, tensor in load_file("out/model.safetensors").items())
    assert RunRecord.load("out").training["input tokens"] == seen


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"max_steps": 5}, "--max-steps 5: out/checkpoint-6 has done 6 steps already"),
        (
            {"max_steps": 9},
            "--max_steps 9: the run of out/checkpoint-6 began with --max_steps 8; the learning rates of",
        ),
        ({"mixers": "lstm"}, "--mixers lstm: the run of out/checkpoint-6 began with --mixers full"),
        ({"seed": 7}, "--seed 7: the run of out/checkpoint-6 began with --seed 42"),
        ({"held_out": 0.4}, "--held-out 0.4: the run of out/checkpoint-6 began with --held-out 0.1"),
        ({"optim": "sgd"}, "--optim sgd: the run of out/checkpoint-6 began with --optim adamw_torch_fused"),
        ({"per_device_train_batch_size": 8}, "a step would have 8 rows instead of 4"),
        ({"gradient_accumulation_steps": 2}, "a step would have 8 rows instead of 4"),
        ({"objective_options": '{"packed": false}'}, "--objective-options {'packed': False}: the run of out/checkp"),
        ({"text": "more.txt"}, "are not those of the run of out/checkpoint-6: the data, the tokenizer or the model"),
        ({"eval_text": "more.txt"}, "the rows held out are not those of the run of out/checkpoint-6"),
        ({"tokenizer": "./other"}, "the rows to learn from are not those of the run of out/checkpoint-6"),
    ],
)
def test_another_run_does_not_go_on_from_a_checkpoint(
    script: ModuleType, capsys: pytest.CaptureFixture[str], broken_off: Path, changes: dict[str, Any], message: str
) -> None:
    shutil.copytree(broken_off, "out")
    if "more.txt" in changes.values():
        Path("more.txt").write_text(TEXT[: len(TEXT) // 2] + "And so it goes on.\n" * 40, "utf-8")
    if "tokenizer" in changes:
        train_tokenizer([TEXT[::-1]], vocab_size=320, show_progress=False).save_pretrained("other")
    assert script.main([*argv(**{"max_steps": 8, **changes}), "--resume"]) == 2
    assert message in capsys.readouterr().err.strip().splitlines()[-1]
    assert not Path("out/checkpoint-8").exists()


def test_how_a_run_is_logged_and_divided_may_change(script: ModuleType, broken_off: Path) -> None:
    shutil.copytree(broken_off, "out")
    whole = load_file("out/model.safetensors")
    Path("out/model.safetensors").unlink()
    shutil.copy("text.txt", "moved.txt")
    changes = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 2, "text": "moved.txt"}
    assert script.main([*argv(max_steps=8, logging_steps=1, title="Another", **changes), "--resume"]) == 0
    again = load_file("out/model.safetensors")
    for name, weight in whole.items():
        torch.testing.assert_close(again[name], weight, rtol=1e-3, atol=1e-4, msg=name)


@pytest.mark.parametrize("name", ["optimizer.pt", "scheduler.pt", "model.safetensors", "rng_state.pth"])
def test_a_checkpoint_that_is_not_whole_is_refused(
    script: ModuleType, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    assert script.main(argv(max_steps=4, save_steps=2)) == 0
    shutil.rmtree("out/checkpoint-4")
    part = Path("out/checkpoint-2", name)
    part.write_bytes(part.read_bytes()[:9])
    assert script.main([*argv(max_steps=4), "--resume"]) == 2
    said = capsys.readouterr().err.strip().splitlines()[-1]
    assert "out/checkpoint-2: cannot be resumed" in said or f"out/checkpoint-2/{name}: is broken" in said
    if name in ("optimizer.pt", "scheduler.pt"):
        part.unlink()
        assert script.main([*argv(max_steps=4), "--resume"]) == 2
        assert f"holds no {name}" in capsys.readouterr().err.strip().splitlines()[-1]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("seed: 1\nseed: 2\n", "seed occurs twice"),
        ("max-steps: 1\nmax_steps: 2\n", "max_steps occurs twice"),
        ("config_changes: {a: 1, a: 2}\n", "a occurs twice"),
        ("seed: [1, 2]\n", "seed must be one value, not a list"),
        ("seed: true\n", "invalid int value: 'True'"),
        ("config_changes: {a: 2020-01-01}\n", "has no field 'a'"),
        ("title: \xe9\n", "'bad.yaml' cannot be read"),
    ],
)
def test_what_a_file_says_is_said_once(
    script: ModuleType, capsys: pytest.CaptureFixture[str], content: str, message: str
) -> None:
    Path("bad.yaml").write_bytes(f"text: text.txt\n{content}".encode("latin-1"))
    assert script.main(["bad.yaml"]) == 2
    assert message in capsys.readouterr().err.strip().splitlines()[-1]
    assert script.main(["bad.yaml", "--seed=1"]) == 2
    assert "bad.yaml is not an option. Options begin with --; a file with options" in capsys.readouterr().err


def test_ctrl_c_ends_a_run_that_resume_ends_as_the_whole(
    script: ModuleType, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert script.main(argv(output="whole")) == 0

    def press(trainer: Any, *arguments: Any) -> Any:
        if trainer.state.global_step == 3:
            signal.raise_signal(signal.SIGINT)
        return step(trainer, *arguments)

    step = TxTrainer.training_step
    monkeypatch.setattr(TxTrainer, "training_step", press)
    assert script.main(argv(save_steps=10)) == 130
    assert "pretrain.py: interrupted; what was learnt until then is saved" in capsys.readouterr().err
    assert json.loads(Path("out/run.json").read_text("utf-8"))["training"]["steps"] == 4
    monkeypatch.setattr(TxTrainer, "training_step", step)
    assert script.main([*argv(), "--resume"]) == 0
    one, two = (load_file(f"{name}/model.safetensors") for name in ("whole", "out"))
    assert all(torch.equal(two[name], weight) for name, weight in one.items())


def test_a_run_that_was_killed_before_its_first_checkpoint_begins_anew(script: ModuleType) -> None:
    Path("out/_unfinished_run/tokenizer").mkdir(parents=True)
    Path("out/_unfinished_run/tokenizer/tokenizer.json").write_text("of another text")
    assert script.main([*argv(), "--resume"]) == 2
    assert script.main(argv(max_steps=1)) == 0
    assert not Path("out/_unfinished_run").exists()


def test_a_folder_that_holds_something_stays_as_it_is(script: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    Path("out").mkdir()
    Path("out/mine.txt").write_text("mine")
    assert script.main(argv()) == 2
    assert "--output out: is not empty" in capsys.readouterr().err
    assert [path.name for path in Path("out").iterdir()] == ["mine.txt"]
