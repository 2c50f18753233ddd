# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""The kit on models of transformers and of hf_tx: classes, folders and models in memory."""

import dataclasses
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from transformers import dynamic_module_utils

import hf_tx
from hf_tx.conformance import Check, CheckResult, check_model, parametrize_with_checks, run_checks, saving_checks
from hf_tx.conformance.model_subject import LEAST_EPSILON, model_subject, tiny_config

_LOSS = "forward() takes num_items_in_batch among its keywords, and does not divide by it"

#: What models of transformers are known to get wrong, and why.
LIBRARY: dict[str, dict[str, str]] = {
    "LlamaForCausalLM": {},
    "LlamaModel": {},
    "LlamaForSequenceClassification": {},
    "Qwen3ForCausalLM": {},
    "MistralForCausalLM": {},
    "MixtralForCausalLM": {},
    "Gemma2ForCausalLM": {},
    "GPT2LMHeadModel": {},
    "OPTForCausalLM": {"packed_rows": "positions that begin again do not isolate documents"},
    "Qwen3NextForCausalLM": {"packed_rows": "the state of linear layers goes on into the next document"},
    "BertModel": {},
    "BertForMaskedLM": {"loss_of_accumulated_batches": _LOSS},
    "BertForSequenceClassification": {},
    "ModernBertForMaskedLM": {},
    "BartForConditionalGeneration": {"loss_of_accumulated_batches": _LOSS},
    "T5ForConditionalGeneration": {
        "loss_of_accumulated_batches": _LOSS,
        "attention_backends": "flex_attention looks for the row of the batch in a bias that has one for all",
    },
}

#: Those that run always, one of every kind of stack and head.
ALWAYS = {
    *("LlamaForCausalLM", "Gemma2ForCausalLM", "GPT2LMHeadModel", "T5ForConditionalGeneration"),
    *("BertForMaskedLM", "LlamaForSequenceClassification"),
}

_HYBRID = "full,sliding,gated_delta,lstm"
OURS: dict[str, Callable[[], list[Check]]] = {
    "decoder": lambda: _check(hf_tx.TxDecoderForCausalLM, _tiny(hf_tx.TxDecoderForCausalLM, mixers=_HYBRID)),
    "decoder, GPT-2-like": lambda: _check(
        hf_tx.TxDecoderForCausalLM,
        _tiny(hf_tx.TxDecoderForCausalLM, position_type="learned", tie_word_embeddings=False, ffn_type="mlp"),
    ),
    "encoder": lambda: _check(hf_tx.TxEncoderForMaskedLM),
    "classifier": lambda: _check(hf_tx.TxDecoderForSequenceClassification),
    "encoder-decoder": lambda: _check(hf_tx.TxEncoderDecoderForConditionalGeneration),
}


def _check(*arguments: Any) -> list[Check]:
    """The checks of a model that keeps what transformers does not promise too."""
    optional = [check.name for check in check_model(*arguments) if check.optional]
    return check_model(*arguments, offers=optional)


def _tiny(kind: Any, **fields: Any) -> Any:
    known: dict[str, Any] = dict(tiny_config(kind).to_dict())
    for name in ("mixers", "layer_types", "rope_parameters", "architectures", "position_type"):
        known.pop(name, None)
    sliding = {"sliding_window": 4} if "sliding" in fields.get("mixers", "") else {}
    return kind.config_class(**{**known, "num_hidden_layers": 4, **sliding, **fields})


def _in(checks: list[Check], label: str) -> list[Check]:
    slow = label in LIBRARY and label not in ALWAYS
    return [dataclasses.replace(check, subject=label, slow=check.slow or slow) for check in checks]


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


def _outcome(name: str, checks: list[Check]) -> CheckResult:
    (result,) = run_checks([check for check in checks if check.name == name])
    return result


def test_what_the_library_does_not_promise_is_not_offered_unless_it_is_claimed() -> None:
    name = "packed_rows_with_mask_or_cache"
    result = _outcome(name, check_model(transformers.LlamaForCausalLM))
    assert (result.outcome, result.error) == ("not offered", None)
    assert "differs by" in result.message
    assert _outcome(name, check_model(transformers.LlamaForCausalLM, offers=[name])).outcome == "failed"
    with pytest.raises(ValueError, match="the optional checks are .*packed_rows_with_mask_or_cache"):
        check_model(transformers.LlamaForCausalLM, offers=["packed_rows"])


@pytest.mark.parametrize("name", ["Qwen3NextForCausalLM", "JambaForCausalLM", "Gemma3ForCausalLM"])
def test_a_tiny_config_has_a_layer_of_every_kind(name: str) -> None:
    kind = getattr(transformers, name)
    tiny, default = tiny_config(kind), kind.config_class()
    of_layers = "layer_types" if getattr(default, "layer_types", None) else "layers_block_type"
    assert set(getattr(tiny, of_layers)) == set(getattr(default, of_layers))
    assert tiny.num_hidden_layers < 9


def test_a_tiny_config_of_a_state_space_model_is_valid() -> None:
    config: Any = tiny_config(transformers.Mamba2ForCausalLM)
    assert config.num_heads * config.head_dim == config.expand * config.hidden_size


def test_a_config_that_refuses_the_tiny_sizes_is_named() -> None:
    class Config(transformers.LlamaConfig):
        def __post_init__(self, **kwargs: Any) -> None:
            raise ValueError("hidden_size must be 4096")

    class Model(transformers.LlamaForCausalLM):
        config_class: Any = Config

    with pytest.raises(ValueError, match="give a config of a few tiny layers.*It says: hidden_size must be 4096"):
        check_model(Model)


class _OwnConfig(transformers.LlamaConfig):
    model_type = "own_llama"


class _Own(transformers.LlamaForCausalLM):
    config_class: Any = _OwnConfig


def test_a_model_whose_code_does_not_travel_says_what_to_call(monkeypatch: pytest.MonkeyPatch) -> None:
    result = _outcome("loads_in_new_process", check_model(_Own))
    assert result.outcome == "skipped"
    assert "_Own.register_for_auto_class" in result.message
    monkeypatch.setattr(saving_checks, "_auto_class", lambda subject: "AutoModelForCausalLM")
    result = _outcome("loads_in_new_process", check_model(_Own))
    assert result.outcome == "failed"
    assert "_OwnConfig.register_for_auto_class() and _Own.register_for_auto_class('AutoModelForCausalLM')" in (
        result.message
    )


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


def test_no_norm_of_a_checked_model_blows_up_rounding() -> None:
    """In float32 the gated norms of Qwen3-Next differ by 3e-5 from float64, in one call as in two with a cache."""
    config = transformers.LlamaConfig(rms_norm_eps=1e-6)
    assert model_subject(transformers.LlamaForCausalLM, config, None, False).config.rms_norm_eps == LEAST_EPSILON
    assert config.rms_norm_eps == 1e-6


@pytest.mark.slow
def test_backends_agree_where_thousands_of_units_have_a_kink() -> None:
    """With 3072 units and 200 tokens, the input of one is 3e-8 with `sdpa` and -9e-8 with `eager`."""
    config = transformers.OPTConfig(**tiny_config(transformers.OPTForCausalLM).to_diff_dict() | {"ffn_dim": 3072})
    checks = [
        check for check in check_model(transformers.OPTForCausalLM, config) if check.name == "attention_backends"
    ]
    assert [result.outcome for result in run_checks(checks)] == ["ok"]
