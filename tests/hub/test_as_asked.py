# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""What a push is asked for - visibility, branch, account, what may be replaced - holds, or nothing is sent."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hub.server import Hub, Repository, running_hub
from hub.test_push import run

#: Tries each way to push into each repository, and tells what came of it.
TRY = """
import contextlib, json, sys
from pathlib import Path
from tiny_models import build, config_of
from training.runs import run_for
import hf_tx
from hf_tx.cli import main
from hf_tx.hub import push_folder
from hf_tx.training.runs import RunArguments, RunOptions

model = build("decoder", head="lm")
folder = Path("model")
model.save_pretrained(folder)
(folder / "README.md").write_text("---\\nlicense: apache-2.0\\n---\\n# A model\\n")

def run(repository, private, **options):
    arguments = RunArguments(text=["text"], output="out")
    options |= dict(output_dir="out", push_to_hub=True, hub_model_id=repository, hub_private_repo=private)
    arguments.prepare_push(RunOptions(use_cpu=True, **options), model)

def trainer(repository, private, **options):
    options |= dict(push_to_hub=True, hub_model_id=repository, hub_private_repo=private)
    return run_for(f"by-trainer-{repository}", **options)

def again(repository, private):
    run_for("again", push_to_hub=True, hub_model_id=repository).push_to_hub(private=private)

WAYS = {
    "folder": lambda repository, private: push_folder(folder, repository, private=private),
    "model": lambda repository, private: model.push_to_hub(repository, private=private),
    "config": lambda repository, private: model.config.push_to_hub(repository, private=private),
    "saved model": lambda repository, private: model.save_pretrained(
        "saved", push_to_hub=True, repo_id=repository, private=private
    ),
    "saved config": lambda repository, private: model.config.save_pretrained(
        "saved", push_to_hub=True, repo_id=repository, private=private
    ),
    "run": run,
    "trainer": trainer,
    "trainer, again": again,
}
found = {}
def note(what, act):
    try:
        act()
    except (ValueError, OSError) as error:
        found[what] = str(error)
    else:
        found[what] = ""

for way, push in WAYS.items():
    note(f"{way}: private", lambda: push("public", True))
    note(f"{way}: public", lambda: push("private", False))
note("run: account", lambda: run("other/model", None))
note("trainer: account", lambda: trainer("other/model", None))
note("folder: account", lambda: push_folder(folder, "other/model"))
note("folder: moved", lambda: push_folder(folder, "moved"))
note("folder: tag", lambda: push_folder(folder, "tagged", revision="v1"))
note("folder: commit", lambda: push_folder(folder, "tagged", revision="0" * 40))
note("folder: another model", lambda: push_folder(folder, "bert"))
note("folder: another model, on a new branch", lambda: push_folder(folder, "bert", revision="trial"))
note("folder: left", lambda: push_folder(folder, "adapter"))
note("run: another model", lambda: run("bert", None))
note("trainer: another model", lambda: trainer("bert", None))
note("run: branch", lambda: run("branch", None, hub_revision="trial"))
note("run: strategy", lambda: run("branch", None, hub_strategy="checkpoint"))
note("run: no push", lambda: RunOptions(output_dir="out", hub_revision="trial", use_cpu=True))
found["cli"] = main(["push", "model", "public", "--private"])
Path("refused.json").write_text(json.dumps(found))

found = {name: main(["push", "model", name, "--private"]) for name in ("new", "private")}
found["overwrite"] = main(["push", "model", "bert", "--overwrite"])
note("branch", lambda: trainer("by-trainer", True, hub_revision="trial", max_steps=1, save_steps=1).train())
Path("done.json").write_text(json.dumps(found))
"""

HOLDS = {
    "public": {},
    "private": {},
    "moved": {},
    "tagged": {},
    "bert": {"config.json": b'{"model_type": "bert", "architectures": ["BertModel"]}', "vocab.txt": b"a"},
    "adapter": {"adapter_config.json": b"{}", "notes.md": b"stays"},
}


@pytest.fixture(scope="module")
def tried(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Hub, dict[str, str], dict[str, Any]]]:
    folder = tmp_path_factory.mktemp("tried")
    with running_hub() as hub:
        for name, files in HOLDS.items():
            made = hub.repositories[f"tester/{name}"] = Repository(private=name == "private")
            made.commit("main", {".gitattributes": b"", **files}, "initial commit")
        hub.repositories["other/model"] = Repository()
        hub.repositories["other/model"].commit("main", {}, "initial commit")
        hub.repositories["tester/moved"].moved_to = "other/moved"
        hub.repositories["tester/tagged"].tags["v1"] = hub.repositories["tester/tagged"].branches["main"][-1]
        run(TRY, folder, hub)
        yield hub, *(json.loads((folder / name).read_text("utf-8")) for name in ("refused.json", "done.json"))


def test_a_repository_is_as_visible_as_is_asked_for(tried: Any) -> None:
    hub, refused, done = tried
    ways = [name for name in refused if name.endswith((": private", ": public"))]
    assert len(ways) == 16
    for way in ways:
        there, asked = ("public", "private") if way.endswith("private") else ("private", "public")
        wanted = f"tester/{there}: nothing was pushed, because the repository is {there}, but should be {asked}."
        assert refused[way].startswith(wanted), way
    assert refused["cli"] == 2
    assert not hub.repositories["tester/public"].private
    assert list(hub.repositories["tester/public"].files) == [".gitattributes"]
    # What is as it is asked for is pushed to.
    assert (done["new"], done["private"]) == (0, 0)
    assert hub.repositories["tester/new"].private
    assert "model.safetensors" in hub.repositories["tester/private"].files


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("run: account", "other/model: nothing was pushed, because the token has no write access."),
        ("trainer: account", "other/model: nothing was pushed, because the token has no write access"),
        ("folder: account", "other/model: nothing was pushed, because the token has no write access"),
        ("folder: moved", "tester/moved: nothing was pushed, because the repository has been renamed to other/moved"),
        ("folder: tag", "revision = 'v1' is a tag of tester/tagged: only a branch can be pushed to."),
        ("folder: commit", f"revision = '{'0' * 40}' is a commit: only a branch can be pushed to."),
        (
            "folder: another model",
            "tester/bert: nothing was pushed, because the repository contains another model (bert BertModel) than "
            "the one",
        ),
        (
            "folder: another model, on a new branch",
            "tester/bert: nothing was pushed, because the repository contains another model",
        ),
        ("run: another model", "tester/bert: nothing was pushed, because the repository contains another model"),
        ("trainer: another model", "tester/bert: nothing was pushed, because the repository contains another model"),
        (
            "folder: left",
            "tester/adapter: nothing was pushed, because the repository contains adapter_config.json, which would",
        ),
        ("run: strategy", "--hub_strategy checkpoint, --hub_always_push False: a run pushes its result alone"),
        ("run: no push", "--hub_revision: is an option of --push_to_hub; give it, or leave it out."),
    ],
)
def test_what_would_not_hold_is_refused(what: str, message: str, tried: Any) -> None:
    hub, refused, _ = tried
    assert refused[what].startswith(message)
    assert len(hub.repositories["tester/adapter"].branches["main"]) == 1
    assert "trial" not in hub.repositories["tester/bert"].branches


def test_what_holds_is_done(tried: Any) -> None:
    hub, refused, done = tried
    assert refused["run: branch"] == ""
    assert "trial" in hub.repositories["tester/branch"].branches
    assert done["branch"] == ""
    by_trainer = hub.repositories["tester/by-trainer"]
    assert by_trainer.private
    assert {name: len(commits) for name, commits in by_trainer.branches.items()} == {"main": 1, "trial": 2}
    # Nothing is left of the other model.
    assert done["overwrite"] == 0
    files = hub.repositories["tester/bert"].files
    assert "vocab.txt" not in files
    assert b"hf_tx_decoder" in files["config.json"]
