# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""The text in scripts/data is what its README says."""

import hashlib
from pathlib import Path

DATA = Path(__file__).parents[1] / "scripts" / "data"


def test_state_of_the_union():
    raw = (DATA / "state_of_the_union.txt").read_bytes()
    readme = (DATA / "README.md").read_text(encoding="utf-8")
    assert f"{len(raw):,} bytes" in readme
    assert f"`{hashlib.sha256(raw).hexdigest()}`" in readme
    text = raw.decode("utf-8")
    assert text == text.strip() + "\n"
    assert not {"\r", "\0", "\ufeff", "\ufffd"} & set(text)
