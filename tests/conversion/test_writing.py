# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""What a family can say, it is told: settings of ours that differ from its defaults are written, not refused."""

from typing import Any

import pytest
import torch
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

import hf_tx
from hf_tx.conversion.families import FAMILIES
from hf_tx.conversion.family import Family, flatten

#: Default rope as our configs have it, without a share of the features.
PLAIN = {"rope_type": "default", "rope_theta": 10_000.0}


def is_rotated(family: Family) -> bool:
    parameters = getattr(family.build(family.read(CONFIG_MAPPING[family.model_type]())), "rope_parameters", None)
    return bool(parameters) and not any(isinstance(own, dict) for own in parameters.values())


@pytest.mark.parametrize("name", [name for name, family in FAMILIES.items() if is_rotated(family)])
@pytest.mark.parametrize("share", [{}, {"partial_rotary_factor": 1.0}], ids=["none", "all"])
def test_plain_rope_is_written_to_every_family_with_rope(name: str, share: dict[str, Any]) -> None:
    family = FAMILIES[name]
    config = family.build(family.read(CONFIG_MAPPING[name]()) | {"rope_parameters": PLAIN | share})
    written = family.write(config, None, family.heads[0])
    assert flatten(family.build(family.read(written)))["rope_parameters"] == PLAIN


@pytest.mark.parametrize("name", ["llama", "mistral", "phi3", "stablelm", "smollm3", "granite"])
def test_a_default_decoder_goes_to_families_with_its_blocks(name: str) -> None:
    sizes = dict(vocab_size=64, hidden_size=32, num_hidden_layers=2, num_attention_heads=4)
    norm = {"norm_type": "layernorm"} if name == "stablelm" else {}
    model = hf_tx.TxDecoderForCausalLM(hf_tx.TxDecoderConfig(**sizes, **norm)).eval()
    tokens = torch.arange(9)[None]
    theirs = hf_tx.to_hf(model, name)
    torch.testing.assert_close(theirs(tokens).logits, model(tokens).logits)
    torch.testing.assert_close(hf_tx.from_hf(theirs)(tokens).logits, model(tokens).logits)
