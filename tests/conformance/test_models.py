# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""The kit on models of the library and of hf_tx: classes, folders and models in memory."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from transformers import dynamic_module_utils

import hf_tx
from hf_tx.conformance import Check, check_model, parametrize_with_checks
from hf_tx.conformance.model_subject import tiny_config

_PACKING = "positions that begin again keep documents apart only in calls without mask and cache"
_LOSS = "forward() takes num_items_in_batch among its keywords, and does not divide by it"

#: What models of the library are known to get wrong, and why.
LIBRARY: dict[str, dict[str, str]] = {
    "LlamaForCausalLM": {"packed_rows": _PACKING},
    "LlamaModel": {"packed_rows": _PACKING},
    "MistralForCausalLM": {"packed_rows": _PACKING},
    "Gemma2ForCausalLM": {"packed_rows": _PACKING},
    "GPT2LMHeadModel": {"packed_rows": _PACKING},
    "BertModel": {},
    "BertForMaskedLM": {"language_loss": _LOSS},
    "BertForSequenceClassification": {"left_padding": "it reads the first position, which is a pad"},
    "BartForConditionalGeneration": {
        "language_loss": _LOSS,
        "left_padding": "positions count the pads before a text",
        "generates_as_forward": "positions count the pads before a text",
    },
    "T5ForConditionalGeneration": {
        "language_loss": _LOSS,
        "attention_backends": "flex_attention looks for the row of the batch in a bias that has one for all",
    },
}

_HYBRID = "full,sliding,gated_delta,lstm"
OURS: dict[str, Callable[[], list[Check]]] = {
    "decoder": lambda: check_model(hf_tx.TxDecoderForCausalLM, _tiny(hf_tx.TxDecoderForCausalLM, mixers=_HYBRID)),
    "decoder, GPT-2-like": lambda: check_model(
        hf_tx.TxDecoderForCausalLM,
        _tiny(hf_tx.TxDecoderForCausalLM, position_type="learned", tie_word_embeddings=False, ffn_type="mlp"),
    ),
    "encoder": lambda: check_model(hf_tx.TxEncoderForMaskedLM),
    "classifier": lambda: check_model(hf_tx.TxDecoderForSequenceClassification),
    "encoder-decoder": lambda: check_model(hf_tx.TxEncoderDecoderForConditionalGeneration),
}


def _tiny(kind: Any, **fields: Any) -> Any:
    known: dict[str, Any] = dict(tiny_config(kind).to_dict())
    for name in ("mixers", "layer_types", "rope_parameters", "architectures", "position_type"):
        known.pop(name, None)
    sliding = {"sliding_window": 4} if "sliding" in fields.get("mixers", "") else {}
    return kind.config_class(**{**known, "num_hidden_layers": 4, **sliding, **fields})


def _in(checks: list[Check], label: str) -> list[Check]:
    return [Check(label, check.name, check.summary, check.function, check.slow) for check in checks]


@parametrize_with_checks(
    [check for name in LIBRARY for check in _in(check_model(getattr(transformers, name)), name)],
    {f"{name}: {check}": reason for name, reasons in LIBRARY.items() for check, reason in reasons.items()},
)
def test_model_of_the_library(check: Callable[[], None]) -> None:
    check()


@parametrize_with_checks([check for name, make in OURS.items() for check in _in(make(), name)])
def test_model_of_hf_tx(check: Callable[[], None]) -> None:
    check()


def test_a_hybrid_loads_in_a_process_without_hf_tx(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also after this process has loaded code of models itself, and so has their package on its path."""
    monkeypatch.setattr(dynamic_module_utils, "HF_MODULES_CACHE", str(tmp_path))
    monkeypatch.setattr(sys, "path", [*sys.path])
    dynamic_module_utils.create_dynamic_module("transformers_modules/other")
    assert str(tmp_path) in sys.path
    next(check for check in OURS["decoder"]() if check.name == "loads_in_new_process")()


def test_class_folder_and_model_are_checked_alike(tmp_path: Path) -> None:
    config = transformers.LlamaConfig(vocab_size=40, hidden_size=8, num_hidden_layers=1, num_attention_heads=2)
    model = transformers.LlamaForCausalLM(config)
    model.save_pretrained(tmp_path)
    names = [check.name for check in check_model(transformers.LlamaForCausalLM, config)]
    for subject in (model, tmp_path, str(tmp_path)):
        checks = check_model(subject)
        assert [check.name for check in checks] == names
        assert {check.subject for check in checks} == {"model LlamaForCausalLM"}
    before = {name: parameter.clone() for name, parameter in model.named_parameters()}
    next(check for check in check_model(model) if check.name == "rows_are_independent")()
    assert all(torch.equal(parameter, before[name]) for name, parameter in model.named_parameters())


def test_code_that_comes_with_a_folder_runs_only_if_it_is_trusted(tmp_path: Path) -> None:
    hf_tx.TxDecoderForCausalLM(_tiny(hf_tx.TxDecoderForCausalLM)).save_pretrained(tmp_path)
    text = (tmp_path / "config.json").read_text()
    (tmp_path / "config.json").write_text(text.replace('"TxDecoderForCausalLM"', '"NotKnownHere"'))
    with pytest.raises(ValueError, match="no code comes with it"):
        check_model(tmp_path)
    (tmp_path / "config.json").write_text(
        text.replace("TxDecoderForCausalLM", "NotKnownHere")  # in architectures and in auto_map
    )
    with pytest.raises(ValueError, match="trust_remote_code=True runs that code"):
        check_model(tmp_path)
