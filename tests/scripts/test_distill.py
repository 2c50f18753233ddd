# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
import json
import signal
from pathlib import Path

import pytest
import torch
import transformers
from tiny_models import enlarge
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, default_data_collator
from transformers.utils import logging

import hf_tx
from hf_tx.cli import main
from hf_tx.evaluation import evaluate_texts
from hf_tx.objectives import OBJECTIVES, text_objective_of
from hf_tx.objectives.texts import encode_texts
from hf_tx.tokenization import train_tokenizer
from hf_tx.training import (
    NEW_MODELS,
    healing,
    load_language_model,
    logits_loss,
    new_config,
    split_documents,
    transfer_loss,
)

# What comes next depends on what stands several tokens before, which a window of one token does not see.
TEXT = "".join(
    f"{first} told {second} that {first} saw {second}, and {second} told {first} so.\n"
    for first in ("Ann", "Bob", "Eve", "Sue", "Tom")
    for second in ("Kim", "Lee", "Max", "Pat", "Zoe")
    for _ in range(8)
)
SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "max_position_embeddings": 32}
TINY = ["--batch-size", "8", "--transfer-steps", "20", "--steps", "20", "--text", "text.txt", "--output", "out"]
TINY += ["--transfer-learning-rate", "1e-2", "--learning-rate", "5e-3"]
CHANGES = ["--mixers", "gated_linear,sliding", "--config-changes", '{"sliding_window": 1}']


@pytest.fixture(scope="module")
def originals(tmp_path_factory):
    """A decoder that knows the text, and models of the other families with weights so large that they attend."""
    folder = tmp_path_factory.mktemp("originals")
    train, _ = split_documents([TEXT], 0.1)
    for family in NEW_MODELS:
        tokenizer = train_tokenizer(
            train, vocab_size=300, family=family, model_max_length=32, extra_ids=0, show_progress=False
        )
        objective = objective_of(family, tokenizer)
        fields = {**objective.token_fields(), **SIZES}
        if family != "decoder":
            fields["position_type"] = "learned"
        torch.manual_seed(0)
        model = objective.auto_class.from_config(new_config(family, **fields))
        if family == "decoder":
            learn(model, list(objective.rows(encode_texts(tokenizer, train))))
        else:
            enlarge(model)
        for part in (model, tokenizer):
            part.save_pretrained(folder / family)
    return folder


def objective_of(family, tokenizer):
    return OBJECTIVES[text_objective_of(family)](tokenizer, 32)


def learn(model, rows):
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    for step in range(80):
        batch = [rows[(8 * step + idx) % len(rows)] for idx in range(8)]
        model.train()(**default_data_collator(batch)).loss.backward()
        optimizer.step()
        optimizer.zero_grad()


@pytest.fixture
def here(tmp_path, monkeypatch, originals):
    """A working directory with a text and the originals."""
    (tmp_path / "text.txt").write_text(TEXT, encoding="utf-8")
    for family in NEW_MODELS:
        (tmp_path / family).symlink_to(originals / family)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    logging.enable_progress_bar()


def results() -> dict:
    return json.loads(Path("out/results.json").read_text("utf-8"))


def test_healing_closes_the_gap(script, here, capfd):
    assert script.main(["--model", "decoder", *CHANGES, *TINY]) == 0
    found, printed = results(), capfd.readouterr()
    gap = found["gap"]
    assert gap["changed"] > 0.1
    assert gap["healed"] < gap["transferred"] < gap["changed"]
    assert gap["healed"] < 0.25 * gap["changed"]
    for name in ("original", "changed", "transferred", "healed"):
        assert f"{found[name]['bits_per_byte']:.3f}" in printed.out
        assert found[name]["bits_per_byte"] - found["original"]["bits_per_byte"] == gap[name]
    assert "20/20" in printed.err
    assert printed.out.splitlines()[-1] == f"saved to      {here / 'out'}"


@pytest.mark.parametrize(("family", "stacks"), [("encoder", [""]), ("encoder-decoder", ["encoder_", "decoder_"])])
def test_other_families_come_near_their_originals(script, here, family, stacks):
    windows = dict.fromkeys([f"{stack}sliding_window" for stack in stacks], 1)
    change = {"mixers": "sliding", "config_changes": windows}
    original, _ = load_language_model(family)
    changed, _ = load_language_model(family, **change)
    given = ["--mixers", "sliding", "--config-changes", json.dumps(windows)]
    assert script.main(["--model", family, *given, *TINY]) == 0
    healed, _ = load_language_model("out")
    objective = objective_of(family, transformers.AutoTokenizer.from_pretrained(family))
    held_out = encode_texts(objective.tokenizer, split_documents([TEXT], 0.1)[1])
    batch = objective(list(objective.rows(held_out))[:8])
    with torch.no_grad():
        before, after = (logits_loss(model, original, batch).item() for model in (changed, healed))
    assert before > 0.5
    assert after < 0.3 * before
    assert results()["measure"] == ("loss" if family == "encoder" else "bits_per_byte")


def test_what_was_measured_is_what_is_saved(script, here):
    assert script.main(["--model", "decoder", *CHANGES, *TINY]) == 0
    found = results()
    assert {path.name for path in here.iterdir()} == {"text.txt", "out", *NEW_MODELS}
    model = transformers.AutoModelForCausalLM.from_pretrained("out")
    tokenizer = transformers.AutoTokenizer.from_pretrained("out")
    assert (model.config.mixers, model.config.sliding_window) == (["gated_linear", "sliding"], 1)
    assert model.config.use_cache
    assert {name.split(".")[4] for name in found["new_tensors"]} >= {"g_proj", "out_norm"}
    assert all(name in model.state_dict() for name in found["new_tensors"])
    _, held_out = split_documents([TEXT], 0.1)
    measured = evaluate_texts(model, tokenizer, held_out, task="causal-lm", context_length=32).as_dict()
    assert found["healed"] == pytest.approx({name: measured[name] for name in found["healed"]}, rel=1e-5)
    for stage, learning_rate in (("transferred", 1e-2), ("healed", 5e-3)):
        state = json.loads(Path(f"out/trainer_state_{stage}.json").read_text("utf-8"))
        assert state["global_step"] == found["steps"][stage] == 20
        losses = [entry["loss"] for entry in state["log_history"] if "loss" in entry]
        assert losses[-1] < losses[0]
        assert max(entry.get("learning_rate", 0) for entry in state["log_history"]) <= learning_rate
    assert main(["sample", "out", "--prompt", "Ann told", "--max-new-tokens", "4"]) == 0


def test_one_stage_may_be_left_out_and_a_checkpoint_replaced(script, here):
    common = ["--model", "decoder", *CHANGES, *TINY]
    assert script.main([*common, "--transfer-steps", "0"]) == 0
    assert set(results()["gap"]) == {"original", "changed", "healed"}
    assert script.main([*common, "--steps", "0", "--overwrite"]) == 0
    assert set(results()["gap"]) == {"original", "changed", "transferred"}
    assert results()["gap"]["transferred"] < results()["gap"]["changed"]
    assert not Path("out/trainer_state_healed.json").exists()


@pytest.mark.parametrize(
    ("theirs", "config"),
    [
        (LlamaForCausalLM, LlamaConfig(num_key_value_heads=1, intermediate_size=48, **SIZES)),
        (GPT2LMHeadModel, GPT2Config(n_embd=32, n_layer=2, n_head=2, n_positions=32)),
    ],
)
def test_an_original_of_the_library(script, here, theirs, config):
    """Its tokenizer has no padding, as is usual there."""
    tokenizer = transformers.AutoTokenizer.from_pretrained("decoder")
    tokenizer.pad_token = None
    config.vocab_size, config.bos_token_id, config.eos_token_id = 300, tokenizer.bos_token_id, tokenizer.eos_token_id
    torch.manual_seed(0)
    model = theirs(config)
    for part in (model, tokenizer):
        part.save_pretrained("theirs")
    assert script.main(["--model", "theirs", "--mixers", "linear,full", *TINY]) == 0
    found = results()
    assert found["changed_layers"] == [0]
    assert abs(found["gap"]["healed"]) < 0.02
    assert hf_tx.TxDecoderForCausalLM.from_pretrained("out").config.origin["architecture"] == theirs.__name__


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "the model would be the original"),
        (["--mixers", "slidding"], "unknown mixer 'slidding'. Did you mean 'sliding'?"),
        (["--mixers", "sliding"], "sliding_window"),
        (["--mixers", "full"], "no layer of the changed model computes anything else in 32 tokens"),
        (["--config-changes", "{"], "--config-changes { is not JSON"),
        (["--config-changes", "[1]"], "--config-changes [1] must be a JSON object"),
        (["--config-changes", '{"hiden_size": 8}'], "has no field 'hiden_size'. Did you mean 'hidden_size'?"),
        (["--config-changes", '{"colour": 8}'], "has no field 'colour'"),
        (["--config-changes", '{"hidden_size": 64}'], "Sizes of tensors that the original has cannot be changed"),
        (
            ["--config-changes", '{"num_hidden_layers": 1, "mixers": "full"}'],
            "the student has 1 layers and the teacher 2",
        ),
        (["--mixers", "linear", "--model", "no/where/"], "model no/where/: cannot be loaded"),
        (["--mixers", "linear", "--model", "headless"], "is a TxDecoderModel, which is not a language model"),
        (["--mixers", "linear", "--model", "without-weights"], "has no weights for"),
        (
            ["--mixers", "linear", "--model", "speechless"],
            "speechless: causal-lm needs a eos_token",
        ),
        (["--mixers", "linear", "--model", "wordless"], "tokenizer wordless: cannot be loaded"),
        (["--mixers", "linear", "--model", "small"], "the tokenizer has 300 tokens, which are more than the model's"),
        (["--mixers", "linear", "--text", "missing.txt"], "text file 'missing.txt' does not exist"),
        (["--mixers", "linear", "--text", "short.txt"], "too little text"),
        (["--mixers", "linear", "--context-length", "33"], "context_length = 33: must be at least 8 and at most 32"),
        (["--mixers", "linear", "--held-out", "0"], "held_out = 0.0: must be above 0"),
        (["--mixers", "linear", "--steps", "-1"], "steps = -1: must be at least 0"),
        (["--mixers", "linear", "--steps", "0", "--transfer-steps", "0"], "nothing would be trained"),
        (["--mixers", "linear", "--batch-size", "0"], "batch_size = 0: must be at least 1"),
        (["--mixers", "linear", "--temperature", "0"], "temperature = 0.0: must be above 0"),
        (["--mixers", "linear", "--learning-rate", "nan"], "learning_rate = nan: must be above 0"),
        (["--mixers", "linear", "--labels-weight", "2"], "labels_weight = 2.0: must be from 0 to 1"),
        (["--mixers", "linear", "--step", "many"], "--step"),
        (["--mixers", "linear", "--attn-implementation", "sdpaa"], "sdpaa"),
        (["--mixers", "linear", "--output", "mine"], "mine' is not empty: choose another"),
        (["--mixers", "linear", "--output", "decoder", "--overwrite"], "is the folder of the original"),
        (["--mixers", "linear", "--output", "text.txt"], "text.txt' is a file, not a folder"),
    ],
)
def test_what_does_not_serve_writes_nothing(script, here, capfd, arguments, message):
    model = transformers.AutoModelForCausalLM.from_pretrained("decoder")
    tokenizer = transformers.AutoTokenizer.from_pretrained("decoder")
    Path("short.txt").write_text("Ann told Bob.\n")
    Path("mine").mkdir()
    Path("mine/config.json").touch()
    if "headless" in arguments:
        model.model.save_pretrained("headless")
    elif "without-weights" in arguments:
        weights = {name: weight for name, weight in model.state_dict().items() if "k_proj" not in name}
        model.save_pretrained("without-weights", state_dict=weights)
    elif "wordless" in arguments:
        model.save_pretrained("wordless")
    elif "small" in arguments:
        model.resize_token_embeddings(200)
        model.save_pretrained("small")
        tokenizer.save_pretrained("small")
    elif "speechless" in arguments:
        model.save_pretrained("speechless")
        tokenizer.eos_token = None
        tokenizer.save_pretrained("speechless")
    before = sorted(str(path) for path in here.rglob("*"))
    capfd.readouterr()
    # The last of an option counts, but texts are collected.
    text = [] if "--text" in arguments else ["--text", "text.txt"]
    given = ["--model", "decoder", "--output", "new/out", "--steps", "2", "--transfer-steps", "2", *text, *arguments]
    assert script.main(given) == 2
    printed = capfd.readouterr()
    assert printed.out == ""
    last = printed.err.splitlines()[-1]
    assert last.startswith("distill.py: error: ")
    assert message in last
    assert sorted(str(path) for path in here.rglob("*")) == before


def test_weights_that_are_not_finite_are_not_saved(script, here, capfd):
    common = ["--model", "decoder", "--mixers", "linear", *TINY, "--transfer-steps", "0"]
    assert script.main([*common, "--learning-rate", "1e30"]) == 2
    assert "training diverged, and nothing was saved: lower the learning rates" in capfd.readouterr().err
    assert not Path("out").exists()


def test_ctrl_c_saves_what_was_learnt(script, here, capfd, monkeypatch):
    def pressed(*arguments, **keywords):
        if not Path("pressed").exists():
            Path("pressed").touch()
            signal.raise_signal(signal.SIGINT)
        return transfer_loss(*arguments, **keywords)

    monkeypatch.setattr(healing, "transfer_loss", pressed)
    assert script.main(["--model", "decoder", "--mixers", "linear", *TINY]) == 130
    assert capfd.readouterr().err.endswith("distill.py: interrupted; what was learnt until then is saved\n")
    found = results()
    assert found["steps"] == {"transferred": 1}
    assert set(found["gap"]) == {"original", "changed"}
    assert transformers.AutoModelForCausalLM.from_pretrained("out").config.mixers == ["linear", "linear"]


def test_several_processes_are_refused(script, here, capfd, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert script.main(["--model", "decoder", "--mixers", "linear", *TINY]) == 2
    assert "runs in one process" in capfd.readouterr().err
