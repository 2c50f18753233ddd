# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Counting parameters and cache from a config."""

import pytest
import torch
from peer_cases import CASES
from transformers import DynamicCache, LlamaConfig

import hf_tx
from hf_tx.analysis import match_parameters, parameter_count
from hf_tx.models.mixers import MIXERS


@pytest.mark.parametrize("name", CASES)
def test_count_equals_the_built_model(name):
    case = CASES[name]
    for cls in case["heads"].values():
        built = cls(case["config"]())
        count = parameter_count(case["config"](), cls)
        assert count.total == sum(parameter.numel() for parameter in built.parameters())
        assert count.total == sum(count.by_part.values())


def test_parts_by_hand():
    config = hf_tx.TxDecoderConfig(
        vocab_size=50, hidden_size=8, num_hidden_layers=3, num_attention_heads=2, num_key_value_heads=1,
        intermediate_size=10, tie_word_embeddings=False, lm_head_bias=True,
    )  # fmt: skip
    count = parameter_count(config)
    assert count.by_part == {
        "embeddings": 50 * 8,
        "mixers": 3 * (8 * 8 + 8 * 4 + 8 * 4 + 8 * 8),
        "feed_forwards": 3 * 3 * 8 * 10,
        "norms": (3 * 2 + 1) * 8,
        "head": 50 * 8 + 50,
    }
    assert count.rule_of_thumb == 12 * 3 * 8**2


def test_nothing_is_built(monkeypatch):
    big = hf_tx.TxDecoderConfig(hidden_size=8192, num_hidden_layers=80, num_attention_heads=64, vocab_size=128_000)
    assert parameter_count(big).total > 80e9  # 160 GB in bf16, which no test machine holds


@pytest.mark.parametrize("mixers", ["sliding,full,full", "chunked,gated_delta,lstm", "linear,sliding,full"])
def test_cache_bytes_equal_a_real_cache(mixers):
    config = hf_tx.TxDecoderConfig(
        vocab_size=50, hidden_size=32, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
        mixers=mixers, sliding_window=4 if "sliding" in mixers else None,
    )  # fmt: skip
    model = hf_tx.TxDecoderForCausalLM(config).eval()

    def bytes_after(length):
        cache = DynamicCache(config=config)
        with torch.no_grad():
            model(torch.ones(1, length, dtype=torch.long), cache=cache)
        states = [layer.recurrent_states[0] for layer in cache.layers if hasattr(layer, "recurrent_states")]
        keys = [part for layer in cache.layers if layer.keys is not None for part in (layer.keys, layer.values)]
        return sum(part.nbytes for part in states + keys)

    count = parameter_count(config, cache_dtype=torch.float32)
    assert bytes_after(11) - bytes_after(10) == count.cache_bytes_per_token
    assert bytes_after(10) == 10 * count.cache_bytes_per_token + count.cache_bytes_limit


def test_encoder_decoder_keeps_the_source():
    size = dict(vocab_size=50, hidden_size=32, num_hidden_layers=2, num_attention_heads=4)
    config = hf_tx.TxEncoderDecoderConfig(encoder=size, decoder=size)
    count = parameter_count(config, cache_dtype=torch.float32)
    assert count.cache_bytes_per_source_token == count.cache_bytes_per_token == 2 * 2 * 32 * 4
    assert count.rule_of_thumb == (12 + 16) * 2 * 32**2
    assert parameter_count(hf_tx.TxEncoderConfig(**size)).cache_bytes_per_token == 0


def test_foreign_config_is_refused():
    with pytest.raises(ValueError, match="LlamaConfig"):
        parameter_count(LlamaConfig())


@pytest.mark.parametrize("mixer", list(MIXERS))
def test_every_mixer_can_have_as_many_parameters_as_full(mixer):
    sizes = dict(vocab_size=300, hidden_size=64, num_hidden_layers=2, num_attention_heads=4)
    window = 8 if "sliding_window" in MIXERS.get(mixer).needs else None
    total = parameter_count(hf_tx.TxDecoderConfig(**sizes, intermediate_size=176)).total
    config = hf_tx.TxDecoderConfig(**sizes, mixers=mixer, sliding_window=window)
    matched = match_parameters(config, total)
    built = hf_tx.TxDecoderForCausalLM(matched)
    assert abs(sum(parameter.numel() for parameter in built.parameters()) - total) <= 0.01 * total
    assert matched.to_dict() == {**config.to_dict(), "intermediate_size": matched.intermediate_size}


def test_the_nearest_width_where_no_multiple_of_8_will_do():
    config = hf_tx.TxDecoderConfig(vocab_size=50, hidden_size=16, num_hidden_layers=1, num_attention_heads=2)
    total = parameter_count(hf_tx.TxDecoderConfig.from_dict(config.to_dict(), intermediate_size=21)).total
    assert match_parameters(config, total + 5).intermediate_size == 21


@pytest.mark.parametrize(("changes", "least"), [({}, "narrowest"), ({"ffn_type": "none"}, "always")])
def test_a_number_of_parameters_that_no_width_gives(changes, least):
    config = hf_tx.TxDecoderConfig(
        vocab_size=50, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, **changes
    )
    with pytest.raises(ValueError, match=f"lstm: no intermediate_size results in 1,000 parameters.*{least}"):
        match_parameters(type(config).from_dict(config.to_dict(), mixers="lstm"), 1000)
