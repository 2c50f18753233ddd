# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Models with int8 weights by torchao: loading, running, saving and loading again."""

from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_models import assert_close, build, tokens
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, AutoModelForSeq2SeqLM, TorchAoConfig

torchao = pytest.importorskip("torchao.quantization", reason="torchao is absent")

AUTO = {
    "decoder": AutoModelForCausalLM,
    "encoder": AutoModelForMaskedLM,
    "encoder_decoder": AutoModelForSeq2SeqLM,
}


def logits_of(model: Any) -> torch.Tensor:
    ids = tokens(2, 9)
    inputs = dict(input_ids=ids) | (dict(decoder_input_ids=ids) if model.config.is_encoder_decoder else {})
    with torch.no_grad():
        return model(**inputs).logits


def multiplies_int8() -> bool:
    """Whether torch's product of int8 matrices is exact here: without the instructions VNNI its sums overflow."""
    first, second = (torch.full(shape, 127, dtype=torch.int8) for shape in ((32, 64), (64, 32)))
    return bool((torch._int_mm(first, second) == 64 * 127**2).all())


@pytest.mark.parametrize("activations", [False, True], ids=["weights", "weights_and_activations"])
@pytest.mark.parametrize("family", AUTO)
def test_int8(family: str, activations: bool, tmp_path: Path) -> None:
    if activations and not multiplies_int8():
        pytest.skip("torch._int_mm overflows on this CPU")
    auto = AUTO[family]
    mixers = "full,gated_delta" if family == "decoder" else "full"
    original = build(family, "sdpa", "lm", mixers=mixers)
    original.save_pretrained(tmp_path / "original")
    kind = torchao.Int8DynamicActivationInt8WeightConfig if activations else torchao.Int8WeightOnlyConfig
    model = auto.from_pretrained(tmp_path / "original", quantization_config=TorchAoConfig(kind()))
    quantised = {name for name, weight in model.named_parameters() if type(weight) is not torch.nn.Parameter}
    assert {name.rpartition(".")[0].rpartition(".")[2] for name in quantised} >= {"q_proj", "o_proj", "down_proj"}
    found = logits_of(model)

    # Weights alone: exactly the model with those weights, written out.
    if not activations:
        with torch.no_grad():
            for name, weight in original.named_parameters():
                if name in quantised:
                    weight.copy_(model.get_parameter(name).dequantize())
        assert_close(found, logits_of(original), 1e-5)
    else:
        expected = logits_of(original)
        assert (found - expected).norm() < 0.1 * expected.norm()

    model.save_pretrained(tmp_path / "saved")
    loaded = auto.from_pretrained(tmp_path / "saved")
    assert {name for name, weight in loaded.named_parameters() if type(weight) is not torch.nn.Parameter} == quantised
    assert torch.equal(logits_of(loaded), found)
    if family != "encoder":
        settings = dict(max_new_tokens=4, do_sample=False, eos_token_id=None)
        rows = [each.generate(tokens(2, 5), **settings) for each in (model, loaded)]
        assert rows[0].shape[1] == (9 if family == "decoder" else 5)
        assert torch.equal(*rows)
