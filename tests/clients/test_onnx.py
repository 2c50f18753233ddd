# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""transformers' ONNX exporter: programs for any batch and length, run by onnxruntime."""

from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_models import assert_close, build, tokens

for library in ("onnxruntime", "onnxscript"):
    pytest.importorskip(library, reason=f"{library} is absent")

from transformers import DynamicCache  # noqa: E402
from transformers.exporters import ExportedModel, OnnxConfig, OnnxExporter  # noqa: E402


def inputs_of(family: str, batch: int, length: int) -> dict[str, torch.Tensor]:
    """Rows of which the first is padded on the left, where that leaves something."""
    ids = tokens(batch, length)
    mask = torch.ones_like(ids)
    mask[0, : length // 3] = 0
    inputs = dict(input_ids=ids, attention_mask=mask)
    if family == "encoder_decoder":
        inputs["decoder_input_ids"] = tokens(batch, length - 1, seed=2)
    return inputs


def export(model: Any, inputs: dict[str, torch.Tensor]) -> ExportedModel:
    return OnnxExporter().export(model, inputs, OnnxConfig(dynamic=True))


@pytest.mark.parametrize(
    ("family", "mixers"),
    [
        ("decoder", "sliding,full"),
        ("encoder_decoder", "full"),
        pytest.param("encoder", "sliding,full", marks=pytest.mark.slow),
        pytest.param("decoder", "chunked,global_local", marks=pytest.mark.slow),
    ],
)
def test_a_program_computes_what_the_model_does(family: str, mixers: str, tmp_path: Path) -> None:
    layers = dict(num_hidden_layers=1) if family == "encoder_decoder" else {}
    model = build(family, "sdpa", "lm", mixers=mixers, **layers)
    exported = export(model, inputs_of(family, 2, 7))
    exported.save_pretrained(tmp_path)
    loaded = ExportedModel.from_pretrained(tmp_path)
    for batch, length in ((2, 7), (3, 12), (1, 5), (1, 40)):
        inputs = inputs_of(family, batch, length)
        with torch.no_grad():
            expected = model(**inputs).logits
        real = inputs["attention_mask"].bool() if family != "encoder_decoder" else slice(None)
        for program in (exported, loaded):
            assert_close(torch.as_tensor(program(**inputs).logits)[real], expected[real], 1e-5)


@pytest.mark.slow
def test_programs_that_write_a_text() -> None:
    """One reads the text, the other goes on token by token with the cache; the text grows past the window."""
    model = build("decoder", "sdpa", "lm", mixers="sliding,full")
    greedy = dict(max_new_tokens=5, do_sample=False, eos_token_id=None)
    programs = (
        OnnxExporter().export_for_generation(model, inputs_of("decoder", 2, 7), OnnxConfig(dynamic=True)).runners
    )
    for batch, length in ((2, 7), (3, 12)):
        text = tokens(batch, length)
        expected = model.generate(text, attention_mask=torch.ones_like(text), **greedy)
        inputs, cache, positions = text, DynamicCache(config=model.config), torch.arange(length)
        for step in range(5):
            outputs = programs["decode" if step else "prefill"](
                input_ids=inputs,
                attention_mask=torch.ones_like(text),
                position_ids=positions.expand(batch, -1),
                cache=cache,
            )
            inputs, cache = torch.as_tensor(outputs.logits)[:, -1:].argmax(-1), outputs.cache
            text, positions = torch.cat([text, inputs], dim=1), positions[-1:] + 1
        assert torch.equal(text, expected)


@pytest.mark.parametrize(
    ("mixers", "message"),
    [
        ("lstm", "LstmMixer uses a kernel that torch.compile does not support"),
        ("full,retention", "loop over chunks of a linear mixer can only be exported for one length"),
        ("gated_delta", "loop over chunks of a linear mixer can only be exported for one length"),
    ],
)
def test_what_cannot_be_a_program_for_any_length_is_refused(mixers: str, message: str) -> None:
    with pytest.raises((RuntimeError, ValueError), match=message):
        export(build("decoder", "sdpa", "lm", mixers=mixers), inputs_of("decoder", 2, 7))


@pytest.mark.slow
def test_linear_mixers_at_one_length() -> None:
    model = build("decoder", "sdpa", "lm", mixers="linear,gated_linear")
    inputs = inputs_of("decoder", 2, 40)
    program = OnnxExporter().export(model, inputs, OnnxConfig())
    with torch.no_grad():
        expected = model(**inputs).logits
    real = inputs["attention_mask"].bool()
    assert_close(torch.as_tensor(program(**inputs).logits)[real], expected[real], 1e-5)


@pytest.mark.slow
def test_the_delta_rule_has_no_operator_in_onnx() -> None:
    model = build("decoder", "sdpa", "lm", mixers="gated_delta")
    with pytest.raises(Exception, match="No ONNX function found.*linalg_solve_triangular"):
        OnnxExporter().export(model, inputs_of("decoder", 2, 7), OnnxConfig())
