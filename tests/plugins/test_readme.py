# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""The plug-in of hf_tx/plugins/README.md, built and installed as a reader would, and used from other processes."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from child_process import child

import hf_tx
from hf_tx import plugins

README = (Path(plugins.__file__).parent / "README.md").read_text("utf-8")
#: The files that the document shows, by name: "`name`, ...:" above a block.
FILES = dict(re.findall(r"^`([\w.]+)`[^\n]*\n\n```\w+\n(.*?)^```", README, flags=re.DOTALL | re.MULTILINE))

TRAIN = """
import importlib.metadata
import sys

find, groups = importlib.metadata.entry_points, []
importlib.metadata.entry_points = lambda **selected: groups.append(selected.get("group")) or find(**selected)
import hf_tx
import torch
from tiny_models import build, tokens

assert "hf_tx.plugins" not in groups and "acme_tx" not in sys.modules, "importing hf_tx looks for plug-ins"

parts = dict(position_type="acme/log", norm_type="acme/softsign", ffn_type="acme/squared")
model = build("decoder", head="lm", mixers="acme/ema,full", **parts).train()
assert "hf_tx.plugins" in groups
before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
optimizer, ids, losses = torch.optim.SGD(model.parameters(), lr=0.02), tokens(4, 12), []
for _ in range(2):
    loss = model(ids, labels=ids).loss
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(float(loss.detach()))
assert losses[1] < losses[0], losses
assert not [name for name, weight in model.named_parameters() if torch.equal(weight, before[name])]
model.save_pretrained("checkpoint")
"""
USE = """
import sys

import torch
from remote_code import Block
from transformers import AutoModelForCausalLM

ids = torch.arange(3, 21).view(2, 9)
inputs = dict(input_ids=ids, attention_mask=(torch.arange(9) >= torch.tensor([[4], [0]])).long())


def use(model, where):
    assert type(model).__module__.startswith(where), type(model).__module__
    assert type(model.model.layers[0].mixer).__module__ == "acme_tx"
    with torch.no_grad():
        logits = model.eval()(**inputs, use_cache=False).logits
    return logits, model.generate(**inputs, max_new_tokens=6, num_beams=2, do_sample=False)


def same(model, where):
    for one, other in zip(use(model, where), torch.load("expected.pt"), strict=True):
        assert torch.equal(one, other)
"""
WITH_HF_TX = f"""{USE}
import hf_tx

model = AutoModelForCausalLM.from_pretrained("checkpoint")
torch.save(use(model, "hf_tx.models"), "expected.pt")
alone = model(ids[:1, 4:]).logits  # padding has changed nothing
torch.testing.assert_close(model(**inputs).logits[:1, 4:], alone, rtol=0, atol=1e-5)
"""
WITHOUT_HF_TX = f"""{USE}
block = Block()
sys.meta_path.insert(0, block)
remote = AutoModelForCausalLM.from_pretrained("checkpoint", trust_remote_code=True)
same(remote, "transformers_modules.")
remote.save_pretrained("again")
same(AutoModelForCausalLM.from_pretrained("again", trust_remote_code=True), "transformers_modules.")

# Two copies of the code in one process have the same plug-in.
sys.meta_path.remove(block)
import hf_tx

same(AutoModelForCausalLM.from_pretrained("again"), "hf_tx.models")
same(remote, "transformers_modules.")
"""
WITHOUT_THE_PLUGIN = """
import sys

import pytest
from remote_code import Block
from transformers import AutoConfig, AutoModelForCausalLM


def refused():
    for auto in (AutoConfig, AutoModelForCausalLM):
        with pytest.raises(ImportError) as error:
            auto.from_pretrained("checkpoint", trust_remote_code=True)
        assert str(error.value) == (
            "this config needs the plug-in 'acme' (for 'acme/squared'), saved with acme-tx 1.2. "
            "It is not installed: pip install acme-tx"
        )


block = Block()
sys.meta_path.insert(0, block)
refused()
sys.meta_path.remove(block)
import hf_tx

refused()
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that the plug-in is installed in: built by its own build backend, without network."""
    folder = tmp_path_factory.mktemp("plugin")
    (folder / "source").mkdir()
    for name, text in FILES.items():
        (folder / "source" / name).write_text(text, "utf-8")
    options = ["--quiet", "--disable-pip-version-check", "--no-index", "--no-deps", "--no-build-isolation"]
    run = child(["-m", "pip", "install", *options, "--target", "site", "./source"], folder)
    assert run.returncode == 0, run.stderr
    return folder / "site"


def ran(code: str, folder: Path, *paths: Path) -> None:
    run = child(["-c", code], folder, *paths)
    assert run.returncode == 0, run.stderr


def test_the_document_shows_a_whole_distribution() -> None:
    assert sorted(FILES) == ["acme_tx.py", "pyproject.toml"]
    lines = [line for line in FILES["acme_tx.py"].splitlines() if line.strip()]
    assert len(lines) <= 115, "about 15 lines a part"
    assert "hf_tx" not in FILES["acme_tx.py"], "it does not import hf_tx"


def test_train_save_and_load(site: Path, tmp_path: Path) -> None:
    """Each in a clean process: with hf_tx, without it, and without the plug-in."""
    ran(TRAIN + WITH_HF_TX, tmp_path, site)
    config = json.loads((tmp_path / "checkpoint" / "config.json").read_text("utf-8"))
    assert config["plugins"] == {"acme": {"distribution": "acme-tx", "version": "1.2"}}
    assert not [path for path in (tmp_path / "checkpoint").rglob("*") if "acme" in path.name], (
        "its code is not saved with the model"
    )
    ran(WITHOUT_HF_TX, tmp_path, site)
    ran(WITHOUT_THE_PLUGIN, tmp_path)


def test_the_commands_of_the_document(site: Path, tmp_path: Path) -> None:
    """That of the three which does most; test_inspection.py runs all."""
    assert re.findall(r"^hf-tx (plugins \w+)", README, flags=re.MULTILINE) == [
        "plugins list",
        "plugins show",
        "plugins check",
    ]
    run = child(["-m", "hf_tx.cli", "plugins", "check", "acme", "--fast"], tmp_path, site)
    assert run.returncode == 0, run.stdout + run.stderr
    lines = run.stdout.splitlines()
    assert lines[:2] == ["acme: acme-tx 1.2 (acme_tx:register)", "  mixer: acme/ema"]
    found = re.findall(r"^  conformance kit, (\w+) '.*': (\d+) ok, \d+ skipped, 0 failed$", run.stdout, re.MULTILINE)
    least = {"mixer": 20, "position_type": 9, "norm_type": 14, "ffn_type": 13, "attn_implementation": 12}
    assert {kind: int(count) >= least[kind] for kind, count in found} == dict.fromkeys(least, True), run.stdout
    assert "not checked: one_graph: skipped by --fast, because they take seconds" in run.stdout
    assert "not checked: backends_agree: the mixer takes no attention backend" in run.stdout


def test_its_mixer_equals_its_reference(site: Path) -> None:
    """Forward and gradient, in float64, where rounding is 1e-15 of values of size 1."""
    namespace: dict[str, Any] = {"__name__": "acme_tx"}
    exec((site / "acme_tx.py").read_text("utf-8"), namespace)
    config = hf_tx.TxDecoderConfig(hidden_size=12, num_attention_heads=2, num_hidden_layers=1)
    torch.manual_seed(0)
    mixer = namespace["Ema"](config, 0, config, True).double()
    mixer.init_parameters()
    states = torch.randn(2, 11, 12, dtype=torch.float64, requires_grad=True)
    weights = torch.randn(2, 11, 12, dtype=torch.float64)
    found = []
    for outputs in (mixer(states)[0], namespace["ema_reference"](mixer, states)):
        inputs = (states, *mixer.parameters())
        found.append((outputs, *torch.autograd.grad((outputs * weights).sum(), inputs)))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)
