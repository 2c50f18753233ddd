# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""What is said of installed plug-ins, in Python and on the command line."""

import sys
from typing import Any

import pytest

from hf_tx import conformance
from hf_tx.cli import main
from hf_tx.models.mixers import MIXERS
from hf_tx.models.plugin_api import Plugin
from hf_tx.plugins import check_plugin, list_plugins, load_plugin, resolve_reference, show_plugin

GOOD = """
api.mixer("acme/shift", Shift, state="recurrent", reference="plugin_acme_tx:plain")
api.backend("acme_fast", attention=fast, mask=fast_mask)
"""
WRONG = """
def wrong(mixer, hidden_states, **kwargs):
    return 2 * mixer.proj(hidden_states)
"""
NAMES = {"mixer": ["acme/shift"], "attn_implementation": ["acme_fast"]}
ACME = Plugin("acme", "acme-tx", "1.2", "plugin_acme_tx:register")


def test_listing_imports_nothing(install: Any, capsys: pytest.CaptureFixture[str]) -> None:
    modules = [install(GOOD), install("", vendor="broken", distribution="broken", before="raise RuntimeError")]
    assert list_plugins() == [ACME, Plugin("broken", "broken", "1.2", "plugin_broken:register")]
    assert main(["plugins", "list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines == ["acme: acme-tx 1.2 (plugin_acme_tx:register)", "broken: broken 1.2 (plugin_broken:register)"]
    assert not set(modules) & set(sys.modules)


def test_showing_makes_nothing_known(install: Any, capsys: pytest.CaptureFixture[str]) -> None:
    install(GOOD)
    report = show_plugin("acme")
    assert (report.plugin, report.names, report.problems) == (ACME, NAMES, ())
    assert "acme/shift" not in list(MIXERS)
    assert main(["plugins", "show", "acme"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        "acme: acme-tx 1.2 (plugin_acme_tx:register)",
        "  mixer: acme/shift",
        "  attn_implementation: acme_fast",
    ]


def test_a_good_one(install: Any, capsys: pytest.CaptureFixture[str]) -> None:
    module = install(GOOD)
    for _ in range(2):
        report = check_plugin("acme")
        assert (report.names, report.problems) == (NAMES, ())
        assert main(["plugins", "check", "acme", "--rules-only"]) == 0
        assert "follows the rules" in capsys.readouterr().out
        load_plugin("acme")  # what is loaded already does not stand in its own way
    assert resolve_reference(MIXERS.get("acme/shift")) is sys.modules[module].plain
    assert resolve_reference(MIXERS.get("full")) is None


PROBLEMS = {
    "nothing": ("pass", "registers nothing"),
    "broken": ("raise RuntimeError('boom')", "its register function raises RuntimeError: boom"),
    "no module": (GOOD.replace("plugin_acme_tx:plain", "nowhere:plain"), "'nowhere:plain' raises ModuleNotFoundError"),
    "no function": (GOOD.replace(":plain", ":plane"), "'plugin_acme_tx:plane' raises AttributeError"),
    "no reference": (GOOD.replace(":plain", ":PARTS"), "'plugin_acme_tx:PARTS' is 3, which is not a function"),
    "taken": (
        GOOD.replace("acme/shift", "acme/taken"),
        "'acme/taken' is already registered by a notebook; acme-tx 1.2",
    ),
}


@pytest.mark.parametrize("case", PROBLEMS)
def test_a_bad_one(install: Any, case: str, capsys: pytest.CaptureFixture[str]) -> None:
    body, message = PROBLEMS[case]
    install(body, before="PARTS = 3")
    MIXERS.register("acme/taken", MIXERS.get("full"), origin="a notebook")
    report = check_plugin("acme")
    assert report.plugin == ACME
    assert len(report.problems) == 1
    assert message in report.problems[0]
    assert main(["plugins", "check", "acme", "--rules-only"]) == 1
    assert message in capsys.readouterr().out


@pytest.mark.parametrize("right", [True, False])
def test_the_conformance_kit(install: Any, right: bool, capsys: Any, monkeypatch: Any) -> None:
    """One of its checks is enough to see that it is run, and that its failures count."""
    install(GOOD.splitlines()[1] if right else GOOD.splitlines()[1].replace(":plain", ":wrong"), before=WRONG)
    every = conformance.check_mixer
    monkeypatch.setattr(
        conformance, "check_mixer", lambda name: [check for check in every(name) if check.name == "reference_forward"]
    )
    assert main(["plugins", "check", "acme"]) == (0 if right else 1)
    lines = capsys.readouterr().out.splitlines()
    counts = f"{int(right)} ok, 0 skipped, {int(not right)} failed"
    assert lines[-1] == f"  conformance kit, mixer 'acme/shift': {counts}"
    assert [line for line in lines if "problem: mixer 'acme/shift': reference_forward: " in line] or right


def test_one_that_is_not_there(install: Any, capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    install(GOOD)
    for ask in (show_plugin, check_plugin, load_plugin):
        with pytest.raises(ImportError, match="no plug-in 'emca' is installed. Installed plug-ins: acme"):
            ask("emca")
    assert main(["plugins", "check", "emca"]) == 2
    assert "no plug-in 'emca' is installed" in capsys.readouterr().err
    monkeypatch.setenv("HF_TX_PLUGINS", "0")
    with pytest.raises(ImportError, match="plug-ins are turned off by the environment variable HF_TX_PLUGINS=0"):
        show_plugin("acme")
    assert list_plugins() == []
    assert main(["plugins", "list"]) == 0
    assert "HF_TX_PLUGINS=0 turns plug-ins off" in capsys.readouterr().out
