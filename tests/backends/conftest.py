# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Tiles and blocks so small that short texts have several of them, with a rest."""

import pytest

from hf_tx.backends import banded, tiled


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    monkeypatch.setattr(tiled, "_TILE_ROWS", 5)
    monkeypatch.setattr(tiled, "_LEAST_COLUMNS", 4)
    monkeypatch.setattr(tiled, "_TILE_SCORES", 1)
    monkeypatch.setattr(banded, "_LEAST_ROWS", 3)
