# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""The text that comes with hf_tx is what its card says."""

import hashlib

import pytest

from hf_tx.common.packaged import PACKAGED, SPEECHES, path_of
from hf_tx.hub import read_data_card
from hf_tx.tokenization import iter_texts


def test_state_of_the_union():
    path = path_of(SPEECHES)
    raw, readme = path.read_bytes(), path.with_suffix(".md").read_text("utf-8")
    assert f"{len(raw):,} bytes" in readme
    assert f"`{hashlib.sha256(raw).hexdigest()}`" in readme
    text = raw.decode("utf-8")
    assert text == text.strip() + "\n"
    assert not {"\r", "\0", "\ufeff", "\ufffd"} & set(text)
    assert PACKAGED == (SPEECHES,)
    assert "".join(iter_texts(SPEECHES)) == text
    assert read_data_card(SPEECHES)["license_name"] == "public domain"


def test_a_name_of_no_text_says_which_there_are():
    with pytest.raises(FileNotFoundError, match=f"hf_tx:nothing: no such text comes with hf_tx; there is {SPEECHES}"):
        iter_texts("hf_tx:nothing")
