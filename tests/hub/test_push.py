# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Pushing to a Hub on 127.0.0.1 with the real client, and loading from there in clean processes."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from child_process import environment
from hub.server import TOKEN, Hub, running_hub
from tiny_models import assert_close, tokens

HERE = Path(__file__).parent

PUSH = """
import json, sys
from pathlib import Path
import torch
from huggingface_hub.errors import HfHubHTTPError
from tiny_models import build, enlarge, tokens
from training.runs import run_for
from transformers import TrainerCallback
import hf_tx
from hf_tx.hub import RunRecord, check_repository, push_folder, write_card

ids, found = tokens(2, 7), {}
def logits(model):
    with torch.no_grad():
        return model.eval()(ids).logits.tolist()

model = build("decoder", head="lm")
folder = Path("model")
model.save_pretrained(folder)

# By the model, with a token that is none, and with the right one.
try:
    model.push_to_hub("by-model", token="hf_wrong")
except HfHubHTTPError as error:
    found["wrong token"] = error.response.status_code
model.push_to_hub("by-model")
found["by-model"] = logits(model)

# By the folder: refused as it is, broken off once, and then twice, to two revisions.
try:
    push_folder(folder, "by-folder")
except ValueError as error:
    found["refused"] = str(error)
(folder / "README.md").write_text("---\\nlicense: apache-2.0\\n---\\n# A model\\n")
(folder / "checkpoint-1").mkdir()
(folder / "checkpoint-1" / "optimizer.pt").write_text("")
first = push_folder(folder, "by-folder", private=True)
found["first"], found["first logits"] = first.oid, logits(model)
enlarge(model, seed=3)
model.save_pretrained(folder)
second = push_folder(folder, "by-folder", commit_message="Better weights")
found["second"], found["second logits"] = second.oid, logits(model)
push_folder(folder, "by-folder", revision="trial")

# By the trainer, which has pushed checkpoints on the way. Its pushes run beside the training and read the folder that
# the next save writes to, so that their commits are those of the steps only where each has ended before the next.
class EachPushEnds(TrainerCallback):
    def on_save(self, *_, **__):
        trainer.push_in_progress.wait_until_done()

options = {"push_to_hub": True, "hub_model_id": "by-trainer", "max_steps": 4, "save_steps": 2}
trainer = run_for("by-trainer", **options)
trainer.add_callback(EachPushEnds)
trainer.train()
trainer.push_to_hub(license="apache-2.0")
found["by-trainer"] = logits(trainer.model)
found["problems of by-trainer"] = [str(problem) for problem in check_repository("by-trainer")]
# What is there of a run's own card stays.
card = write_card("by-trainer", RunRecord("By hand", "A card.", "text-generation", "", {}, [], {}, [], 1.0))
card = card.read_text()
trainer.push_to_hub()
found["own card"] = Path("by-trainer", "README.md").read_text() == card
Path("found.json").write_text(json.dumps(found))
"""

LOAD = """
import json
from pathlib import Path
import torch
{first}
from transformers import AutoModelForCausalLM

ids = torch.tensor(json.loads(Path("ids.json").read_text()))
loaded = {{}}
for name, repo, revision in json.loads(Path("wanted.json").read_text()):
    model = AutoModelForCausalLM.from_pretrained(repo, revision=revision, trust_remote_code={trust}).eval()
    loaded[name] = model(ids).logits.tolist()
Path("loaded.json").write_text(json.dumps(loaded))
"""

BLOCK = "import sys, remote_code; sys.meta_path.insert(0, remote_code.Block())"


def run(code: str, folder: Path, hub: Hub) -> None:
    """Run code in a process whose Hub is the one of the test."""
    own = {"HF_ENDPOINT": hub.endpoint, "HF_TOKEN": TOKEN, "HF_HUB_DISABLE_XET": "1", "HF_HUB_OFFLINE": "0"}
    env = environment(**own, HF_HOME=str(folder / "home"))
    done = subprocess.run([sys.executable, "-c", code], env=env, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.fixture(scope="module")
def pushed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Hub, dict[str, Any]]]:
    folder = tmp_path_factory.mktemp("pushed")
    with running_hub() as hub:
        run(PUSH, folder, hub)
        yield hub, json.loads((folder / "found.json").read_text("utf-8"))


def test_a_wrong_token_is_refused_and_makes_nothing(pushed: Any) -> None:
    hub, found = pushed
    assert found["wrong token"] == 401
    assert set(hub.repositories) == {"tester/by-model", "tester/by-folder", "tester/by-trainer"}


def test_a_folder_is_checked_before_it_is_pushed(pushed: Any) -> None:
    hub, found = pushed
    assert "nothing was pushed" in found["refused"]
    assert "card: README.md: is missing" in found["refused"]
    # Made by the first push that was right, and private as it asked.
    assert hub.repositories["tester/by-folder"].private


def test_repositories_hold_what_loads_and_nothing_else(pushed: Any) -> None:
    hub, _ = pushed
    for name, repository in hub.repositories.items():
        files = set(repository.files)
        assert {"config.json", "model.safetensors", "modeling_decoder.py", "README.md"} <= files, name
        left = {file for file in files if file.startswith(("checkpoint", "_"))}
        assert not left, name
    assert not [file for file in hub.repositories["tester/by-folder"].files if file.endswith((".pt", ".bin"))]


def test_the_trainer_pushes_no_pickles_and_a_card(pushed: Any) -> None:
    hub, found = pushed
    repository = hub.repositories["tester/by-trainer"]
    assert found["problems of by-trainer"] == []
    messages = [repository.messages[sha] for sha in repository.branches["main"]]
    assert messages[1:] == ["Training in progress, step 2", "Training in progress, step 4", *["End of training"] * 2]
    for sha in repository.branches["main"][1:]:
        files = repository.commits[sha].keys()
        assert {"model.safetensors", "modeling_decoder.py", ".gitignore"} <= files
        assert not [file for file in files if file.endswith((".bin", ".pt", ".pth"))], repository.messages[sha]
    drafted = repository.commits[repository.branches["main"][3]]["README.md"].decode()
    assert "license: apache-2.0" in drafted
    assert found["own card"]
    assert b"# By hand" in repository.files["README.md"]


def test_every_push_is_a_commit(pushed: Any) -> None:
    hub, found = pushed
    repository = hub.repositories["tester/by-folder"]
    assert repository.branches["main"][1:] == [found["first"], found["second"]]
    assert repository.messages[found["second"]] == "Better weights"
    assert len(repository.branches["trial"]) == 4


@pytest.mark.parametrize("with_hf_tx", [True, False])
def test_clean_processes_load_it_by_name_and_by_revision(with_hf_tx: bool, pushed: Any, tmp_path: Path) -> None:
    hub, found = pushed
    wanted = {
        "by-model": ("tester/by-model", "main"),
        "first logits": ("tester/by-folder", found["first"]),
        "second logits": ("tester/by-folder", "main"),
        "by-trainer": ("tester/by-trainer", "main"),
    }
    (tmp_path / "ids.json").write_text(json.dumps(tokens(2, 7).tolist()))
    (tmp_path / "wanted.json").write_text(json.dumps([(name, *where) for name, where in wanted.items()]))
    run(LOAD.format(first="import hf_tx" if with_hf_tx else BLOCK, trust=not with_hf_tx), tmp_path, hub)
    loaded = json.loads((tmp_path / "loaded.json").read_text("utf-8"))
    for name in wanted:
        assert_close(torch.tensor(loaded[name]), torch.tensor(found[name]))


def test_an_upload_that_breaks_off_leaves_the_repository_as_it_was(pushed: Any, tmp_path: Path) -> None:
    hub, _ = pushed
    repository = hub.repositories["tester/by-model"]
    before = list(repository.branches["main"])
    hub.drop_uploads = 100
    code = """
import time
time.sleep = lambda seconds: None  # the client tries again, and waits longer each time
import hf_tx
from tiny_models import build, enlarge
model = enlarge(build("decoder", head="lm"), seed=5)
try:
    model.push_to_hub("by-model")
except Exception as error:
    print(type(error).__name__, error)
else:
    raise SystemExit("the push did not fail")
"""
    run(code, tmp_path, hub)
    hub.drop_uploads = 0
    assert repository.branches["main"] == before
