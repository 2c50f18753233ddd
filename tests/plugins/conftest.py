# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Plug-ins on disk, as an installer leaves them, for one test."""

import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from transformers.masking_utils import AttentionMaskInterface
from transformers.modeling_utils import AttentionInterface

from hf_tx.models import backend_rules, plugin_loading
from hf_tx.models.plugin_api import REGISTRIES

#: A mixer, and a backend, that do nothing wrong; tests put them under other names.
PARTS = """
import torch
from torch import nn
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

class Shift(nn.Module):
    def __init__(self, config, layer_idx, backend_config, is_causal):
        super().__init__()
        self.proj = nn.Linear(config.hidden_size, config.hidden_size)
    def forward(self, hidden_states, **kwargs):
        return self.proj(hidden_states), None

def plain(mixer, hidden_states, **kwargs):
    return mixer.proj(hidden_states)

def fast(*args, **kwargs):
    return sdpa_attention_forward(*args, **kwargs)

def fast_mask(*args, **kwargs):
    return sdpa_mask(*args, **kwargs)
"""

Install = Callable[..., str]


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make this copy of the code what it is in a process that has loaded no plug-in."""
    monkeypatch.setattr(plugin_loading, "_loaded", {})
    for registry in REGISTRIES:
        own = {name: entry for name, entry in registry._entries.items() if "/" not in name}
        monkeypatch.setattr(registry, "_entries", own)
    known = {name: backend for name, backend in backend_rules.BACKENDS.items() if not name.startswith("acme_")}
    for module in (backend_rules, plugin_loading):
        monkeypatch.setattr(module, "BACKENDS", known)


@pytest.fixture
def another_copy(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Makes this copy of the code one that has loaded no plug-in, while transformers' tables stay as they are."""
    return lambda: forget(monkeypatch)


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Installs a plug-in: `install(body of register, vendor=..., distribution=..., version=...)`; returns the name of
    its module."""
    monkeypatch.delenv("HF_TX_PLUGINS", raising=False)
    forget(monkeypatch)
    for interface in (AttentionInterface, AttentionMaskInterface):
        monkeypatch.setattr(interface, "_global_mapping", dict(interface._global_mapping))
    modules: list[str] = []

    def installed(
        body: str,
        vendor: str = "acme",
        distribution: str = "acme-tx",
        version: str = "1.2",
        target: str | None = None,
        before: str = "",
        after: str = "",
    ) -> str:
        module = f"plugin_{distribution.replace('-', '_')}"
        modules.append(module)
        folder = tmp_path / f"{distribution}-{version}"
        info = folder / f"{distribution.replace('-', '_')}-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n")
        target = target or f"{module}:register"
        (info / "entry_points.txt").write_text(f"[hf_tx.plugins]\n{vendor} = {target}\n")
        code = (
            f"{PARTS}\n{textwrap.dedent(before)}\ndef register(api):\n{textwrap.indent(textwrap.dedent(body), '    ')}"
        )
        code = f"{code}\n{after}\n"
        (folder / f"{module}.py").write_text(code)
        monkeypatch.syspath_prepend(folder)
        return module

    yield installed
    for module in modules:
        sys.modules.pop(module, None)
