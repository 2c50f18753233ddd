# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Heads describe what they take by themselves or in the words of their base model."""

import inspect

import pytest

import hf_tx

HEADS = [getattr(hf_tx, name) for name in dir(hf_tx) if name.startswith("Tx") and "For" in name]


@pytest.mark.parametrize("head", HEADS, ids=lambda head: head.__name__)
def test_every_argument_of_a_head_is_described(head):
    text = inspect.getdoc(head.forward)
    arguments = text.split("Args:")[1].split("Returns:")[0]
    for name in set(inspect.signature(head.forward).parameters) - {"self", "kwargs"}:
        assert f"\n    {name}: " in arguments, name
    assert "**kwargs: " in arguments
    assert "*Shape:* `(batch" in arguments
