# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Other mixers for a model that was loaded: which weights stay, what is new, and that the report says so."""

from typing import Any

import pytest
import torch
import transformers as hf
from huggingface_hub.errors import StrictDataclassError
from peers.decoders import CAUSAL
from peers.encoder_decoders import SEQ2SEQ
from peers.encoders import ENCODERS
from peers.parity import build
from peers.tables import VOCABULARY

import hf_tx
from hf_tx.models.mixers import MIXERS

# What a layer of a mixer has beside the projections of queries, keys, values and outputs of `full`; or what it has
# instead of them.
NEW = {
    **dict.fromkeys(("full", "sliding", "chunked", "dilated", "global_local", "linear"), ""),
    "retention": "g_proj out_norm",
    "gated_linear": "g_proj out_norm decay_down_proj decay_up_proj",
    "delta": "out_norm beta_proj",
    "gated_delta": "g_proj out_norm beta_proj decay_proj rate_bias step_bias",
}
INSTEAD = dict.fromkeys(("rnn", "lstm", "gru"), "weight_ih_l0 weight_hh_l0 bias_ih_l0 bias_hh_l0")
# One of each kind of setting that some mixers do not read: scales, caps and norms of scores, biases, windows, rope by
# type of layer or in some layers only, positions that work on scores, and embedded ones.
SOURCES = {
    name: (CAUSAL | SEQ2SEQ | ENCODERS)[name]
    for name in (
        *("llama_gqa_biases", "qwen3_windows_biases_tied", "gpt2_unscaled", "gemma2", "gemma3", "smollm3", "bloom"),
        *("t5", "bart", "bert_masked_lm"),
    )
}
TOKENS = torch.randint(3, VOCABULARY, (2, 9), generator=torch.Generator().manual_seed(0))


def windows(model: Any) -> dict[str, int]:
    names = ("encoder_sliding_window", "decoder_sliding_window") if model.config.is_encoder_decoder else None
    return dict.fromkeys(names or ("sliding_window",), 4)


def part(name: str) -> str:
    """The part of a mixer that a tensor belongs to."""
    return name.split(".mixer.")[1].split(".")[0].removesuffix("_reverse")


def test_every_mixer_is_listed() -> None:
    assert {*NEW, *INSTEAD} == set(MIXERS)


# Every mixer once, and one of each kind for every source.
CASES = [("llama_gqa_biases", mixer) for mixer in (*NEW, *INSTEAD)]
CASES += [(source, mixer) for source in list(SOURCES)[1:] for mixer in ("full", "sliding", "gated_delta", "lstm")]


@pytest.mark.parametrize(("source", "mixer"), CASES)
def test_weights_stay_and_the_report_names_the_new_ones(source: str, mixer: str) -> None:
    theirs = build(SOURCES[source])
    changes = windows(theirs) if "sliding_window" in MIXERS.get(mixer).needs else {}
    ours, info = hf_tx.from_hf(theirs, mixers=mixer, config_changes=changes, output_loading_info=True)
    plain, changed = hf_tx.from_hf(theirs).state_dict(), ours.state_dict()
    assert set(info["missing_keys"]) == changed.keys() - plain.keys()
    # What is read by scores of one kind only goes with the last layer that has them.
    of_scores = {name for name in plain if "relative_bias" in name or "_norm." in name.partition(".mixer.")[2]}
    assert {part(name) for name in info["missing_keys"]} == set((NEW | INSTEAD)[mixer].split())
    left = {"q_proj", "k_proj", "v_proj", "o_proj"} if mixer in INSTEAD else set()
    assert set(info["unexpected_keys"]) == plain.keys() - changed.keys()
    assert {part(name) for name in set(info["unexpected_keys"]) - of_scores} == left
    assert all(torch.equal(weight, plain[name]) for name, weight in changed.items() if name in plain)
    target = dict(decoder_input_ids=TOKENS) if theirs.config.is_encoder_decoder else {}
    assert torch.isfinite(ours(TOKENS, **target).logits).all()


@pytest.mark.parametrize("mixer", [*NEW, *INSTEAD])
def test_the_library_reports_the_same_of_a_folder(mixer: str, tmp_path: Any) -> None:
    theirs = build(SOURCES["llama_gqa_biases"])
    changes = windows(theirs) if "sliding_window" in MIXERS.get(mixer).needs else {}
    hf_tx.from_hf(theirs).save_pretrained(tmp_path)
    _, info = hf_tx.from_hf(theirs, mixers=f"full,{mixer}", config_changes=changes, output_loading_info=True)
    load = hf_tx.TxDecoderForCausalLM.from_pretrained
    model, report = load(tmp_path, mixers=f"full,{mixer}", output_loading_info=True, **changes)
    assert model.config.mixers == ["full", mixer, "full"]
    assert set(report["missing_keys"]) == set(info["missing_keys"])
    assert set(report["unexpected_keys"]) == set(info["unexpected_keys"])


def test_the_log_names_what_is_new(monkeypatch: Any) -> None:
    said: list[str] = []
    logger = hf.utils.logging.get_logger("transformers.modeling_utils")
    monkeypatch.setattr(logger, "warning", lambda message, *args, **kwargs: said.append(str(message)))
    hf_tx.from_hf(build(SOURCES["llama_gqa_biases"]), mixers="gated_delta,full")
    [report] = said
    assert "newly initialized" in report
    for name in NEW["gated_delta"].split():
        assert f"model.layers.{{0, 2}}.mixer.{name}" in report
    assert "q_proj" not in report


def test_what_is_new_is_drawn_as_in_a_new_model() -> None:
    """Projections by `initializer_range`, norms of one, gates as their papers say."""
    config = hf.LlamaConfig(
        hidden_size=256, intermediate_size=8, num_attention_heads=8, num_hidden_layers=1, vocab_size=9
    )
    changes = dict(initializer_range=0.1)
    mixer = (
        hf_tx.from_hf(hf.LlamaForCausalLM(config), mixers="gated_delta", config_changes=changes).model.layers[0].mixer
    )
    assert mixer.g_proj.weight.std().item() == pytest.approx(0.1, rel=0.05)
    assert torch.equal(mixer.out_norm.weight, torch.ones(32))
    assert mixer.rate_bias.exp().min() >= 1
    assert mixer.rate_bias.exp().max() <= 16


def test_settings_of_a_change_win_over_what_becomes_idle() -> None:
    theirs = build(SOURCES["gemma2"])
    with pytest.raises(
        StrictDataclassError,
        match="attn_logit_softcapping = 5.0: no layer has attention scores: the mixers are linear",
    ):
        hf_tx.from_hf(theirs, mixers="linear", config_changes=dict(attn_logit_softcapping=5.0))


def test_attention_to_an_encoder_keeps_the_scale_of_its_scores() -> None:
    ours = hf_tx.from_hf(build(SOURCES["t5"]), config_changes=dict(decoder_mixers="linear"))
    assert ours.config.decoder.attention_scale == 1.0
    assert ours.model.decoder.layers[0].cross_mixer.scaling == 1.0
    assert ours.config.encoder.position_type == "relative"


def test_settings_of_single_layers_go_with_those_that_read_them() -> None:
    windows = {0: dict(sliding_window=2), 1: dict(sliding_window=3)}
    config = hf_tx.TxDecoderConfig(num_hidden_layers=2, mixers="sliding", per_layer_config=windows)
    changed = hf_tx.TxDecoderConfig.from_dict(config.to_dict(), mixers="sliding,full")
    assert changed.layer_config(0).sliding_window == 2
    assert changed.layer_config(1).sliding_window is None
    plain = hf_tx.TxDecoderConfig.from_dict(config.to_dict(), mixers="full")
    assert not plain.is_heterogeneous
    with pytest.raises(ValueError, match="per_layer_config = '1': must be the index of one of 1 layers"):
        hf_tx.TxDecoderConfig.from_dict(config.to_dict(), mixers="sliding", num_hidden_layers=1)


def test_a_stack_that_is_a_config_is_changed_there() -> None:
    stored = hf_tx.TxEncoderDecoderConfig(encoder={}, decoder={}).to_dict()
    with pytest.raises(ValueError, match="encoder_mixers = 'full': encoder is already a config: set mixers there"):
        hf_tx.TxEncoderDecoderConfig.from_dict(stored, encoder=hf_tx.TxEncoderConfig(), encoder_mixers="full")


@pytest.mark.parametrize(("name", "field"), [("gpt2_unscaled", "mixers"), ("t5", "decoder_mixers")])
def test_mixers_are_named_once(name: str, field: str) -> None:
    with pytest.raises(ValueError, match=f"both set {field}; pass only one"):
        hf_tx.from_hf(build(SOURCES[name]), mixers="linear", config_changes={field: "lstm"})
