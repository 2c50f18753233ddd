# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Configs: what they refuse, what they derive, and that nothing is lost on the way to a file and back."""

import copy
import dataclasses
import json
import logging
import math
import pickle
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_hub.errors import StrictDataclassError
from tiny_models import PLACES, TOKENS, build, config_of
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM
from transformers.activations import ACT2FN

import hf_tx
from hf_tx.models.configuration_base import TxStackConfig
from hf_tx.models.feed_forward import FEED_FORWARDS
from hf_tx.models.mixers import CROSS_MIXERS, MIXERS, expand_pattern
from hf_tx.models.norms import NORMS
from hf_tx.models.positions import POSITIONS

CLASSES: dict[str, Any] = {
    "decoder": hf_tx.TxDecoderConfig,
    "encoder": hf_tx.TxEncoderConfig,
    "encoder_decoder": hf_tx.TxEncoderDecoderConfig,
}
SIZES = dict(vocab_size=32, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, max_position_embeddings=64)
DEFAULT = dict(rope_type="default", rope_theta=10_000.0)
HYBRID = dict(mixers="sliding,full", sliding_window=4)


def sized(family: str, **settings: Any) -> dict[str, Any]:
    """Return all keywords of a tiny config."""
    if family == "encoder_decoder":
        return {**dict(encoder=dict(SIZES), decoder=dict(SIZES), pad_token_id=0), **settings}
    return {**SIZES, **settings}


def make(family: str, **settings: Any) -> Any:
    return CLASSES[family](**sized(family, **settings))


def from_file(cls: Any, folder: Path, stored: dict[str, Any]) -> Any:
    (folder / "config.json").write_text(json.dumps(stored))
    return cls.from_pretrained(folder)


def make_from_file(family: str, folder: Path, **settings: Any) -> Any:
    """Build the config that a hand-written file with these keys gives."""
    return from_file(CLASSES[family], folder, {"model_type": CLASSES[family].model_type, **sized(family, **settings)})


def refused(words: Iterable[str], build: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
    """Check that the call raises, and that the message has all the words."""
    with pytest.raises((ValueError, StrictDataclassError)) as error:
        build(*args, **kwargs)
    message = str(error.value)
    assert not [word for word in words if word not in message], message


ROUND_TRIPS: dict[str, tuple[str, dict[str, Any]]] = {
    "decoder": ("decoder", {}),
    "everything": (
        "decoder",
        dict(
            num_key_value_heads=1,
            head_dim=6,
            embedding_size=12,
            embedding_projection="tokens",
            output_projection=True,
            tie_word_embeddings=False,
            attention_bias=True,
            attention_out_bias=False,
            attention_scale=0.25,
            attn_logit_softcapping=30.0,
            qk_norm=True,
            qk_norm_scope="heads",
            rope_interleaved=True,
            type_vocab_size=2,
            embedding_norm=True,
            embedding_scale=4.0,
            norm_type="layernorm",
            norm_position="sandwich",
            norm_eps=1e-3,
            norm_bias=False,
            final_norm=False,
            residual_multiplier=0.5,
            ffn_type="mlp",
            hidden_act="gelu_new",
            intermediate_size=20,
            mlp_bias=True,
            attention_dropout=0.1,
            hidden_dropout=0.2,
            embedding_dropout=0.15,
            ffn_dropout=0.3,
            classifier_dropout=0.4,
            initializer_range=0.5,
            lm_head_bias=True,
            logit_scale=0.125,
            final_logit_softcapping=15.0,
            use_cache=False,
            pad_token_id=0,
            bos_token_id=1,
            eos_token_id=[2, 3],
            num_labels=5,
            problem_type="multi_label_classification",
        ),
    ),
    "parallel": ("decoder", dict(parallel_residual=True, parallel_shared_norm=True)),
    "gemma": ("decoder", dict(norm_unit_offset=True, norm_position="sandwich")),
    "no positions": ("decoder", dict(position_type="none")),
    "alibi": ("encoder", dict(position_type="alibi")),
    "learned": ("encoder", dict(position_type="learned", position_offset=2, add_pooling_layer=True)),
    "relative": (
        "encoder",
        dict(position_type="relative", relative_attention_num_buckets=8, relative_attention_max_distance=20),
    ),
    "labels": (
        "encoder",
        dict(id2label={0: "no", 1: "yes", 2: "perhaps"}, label2id={"no": 0, "yes": 1, "perhaps": 2}),
    ),
    "hybrid": ("decoder", HYBRID),
    "partial rope": ("decoder", dict(rope_parameters=dict(**DEFAULT, partial_rotary_factor=0.5))),
    "yarn": ("decoder", dict(rope_parameters=dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=16))),
    "rope by layer type": (
        "decoder",
        dict(
            **HYBRID,
            rope_parameters=dict(
                sliding_attention=DEFAULT, full_attention=dict(rope_type="linear", rope_theta=1e6, factor=8.0)
            ),
        ),
    ),
    "two windows": (
        "decoder",
        dict(mixers="sliding", sliding_window=4, per_layer_config={1: {"sliding_window": 8}}),
    ),
    "layers of their own": (
        "encoder",
        dict(
            num_hidden_layers=12,
            per_layer_config={
                1: {"intermediate_size": 20, "hidden_act": "relu"},
                11: {"num_key_value_heads": 1, "position_type": "none", "attention_scale": 0.5},
            },
        ),
    ),
    "encoder_decoder": ("encoder_decoder", {}),
    "two stacks": (
        "encoder_decoder",
        dict(
            encoder=dict(SIZES, hidden_size=24, vocab_size=40, position_type="relative", type_vocab_size=0),
            decoder=dict(SIZES, **HYBRID, per_layer_config={1: {"ffn_type": "none"}}),
            share_embeddings=False,
            tie_word_embeddings=False,
            decoder_start_token_id=3,
            eos_token_id=2,
            num_labels=1,
            problem_type="regression",
        ),
    ),
}


def through_file(config: Any, folder: Path) -> Any:
    config.save_pretrained(folder)
    return type(config).from_pretrained(folder)


def through_auto_config(config: Any, folder: Path) -> Any:
    config.save_pretrained(folder)
    return AutoConfig.from_pretrained(folder)


def through_json_file(config: Any, folder: Path) -> Any:
    config.to_json_file(folder / "any.json")
    return type(config).from_json_file(folder / "any.json")


WAYS: dict[str, Callable[[Any, Path], Any]] = {
    "from_dict": lambda config, folder: type(config).from_dict(config.to_dict()),
    "constructor": lambda config, folder: type(config)(**config.to_dict()),
    "json": lambda config, folder: type(config).from_dict(json.loads(config.to_json_string())),
    "whole json": lambda config, folder: type(config).from_dict(json.loads(config.to_json_string(use_diff=False))),
    "json file": through_json_file,
    "file": through_file,
    "AutoConfig": through_auto_config,
    "deepcopy": lambda config, folder: copy.deepcopy(config),
    "copy": lambda config, folder: copy.copy(config),
    "pickle": lambda config, folder: pickle.loads(pickle.dumps(config)),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ROUND_TRIPS)
def test_round_trip(name: str, way: str, tmp_path: Path) -> None:
    family, settings = ROUND_TRIPS[name]
    config = make(family, **copy.deepcopy(settings))
    again = WAYS[way](config, tmp_path)

    assert type(again) is type(config)
    if way == "AutoConfig":  # remembers where it comes from
        again._name_or_path = config._name_or_path
    assert again.to_dict() == config.to_dict()
    assert again.to_diff_dict() == config.to_diff_dict()
    for stack in [again] if family != "encoder_decoder" else [again.encoder, again.decoder]:
        assert isinstance(stack, TxStackConfig)
        assert len(stack.layer_types) == stack.num_hidden_layers
    again.validate()


@pytest.mark.parametrize("name", ROUND_TRIPS)
def test_what_is_given_is_kept(name: str, tmp_path: Path) -> None:
    family, settings = ROUND_TRIPS[name]
    again = through_file(make(family, **copy.deepcopy(settings)), tmp_path)
    derived = ("mixers", "per_layer_config", "encoder", "decoder", "rope_parameters", "sliding_window")
    for field, value in settings.items():
        if field not in derived:
            assert getattr(again, field) == value, field
    for stack, given in (
        [(again, settings)] if family != "encoder_decoder" else [(again.decoder, settings.get("decoder"))]
    ):
        for layer, changes in (given or {}).get("per_layer_config", {}).items():
            for field, value in changes.items():
                assert getattr(stack.layer_config(layer), field) == value, field
        for key, value in ((given or {}).get("rope_parameters") or {}).items():
            assert stack.rope_parameters[key] == value, key


@pytest.mark.parametrize("name", ROUND_TRIPS)
def test_equality(name: str) -> None:
    family, settings = ROUND_TRIPS[name]
    config, changed = (make(family, **copy.deepcopy(settings)) for _ in range(2))
    changed.pad_token_id = 7
    assert config == copy.deepcopy(config)
    assert config != changed
    assert config != "a config"


@pytest.mark.parametrize("family", CLASSES)
def test_equality_does_not_ask_where_a_config_comes_from(family: str, tmp_path: Path) -> None:
    make(family).save_pretrained(tmp_path)
    assert AutoConfig.from_pretrained(tmp_path) == make(family)


def test_equality_of_configs_that_differ_in_a_layer() -> None:
    settings = dict(mixers="sliding", sliding_window=4)
    assert make("decoder", **settings) != make("decoder", **settings, per_layer_config={1: {"sliding_window": 8}})


@pytest.mark.parametrize("family", ["decoder", "encoder_decoder"])
def test_the_settings_of_the_caller_stay_as_they_are(family: str) -> None:
    """One dict may make several configs: yarn takes what is missing from the first one's max_position_embeddings."""
    rope = dict(rope_type="yarn", factor=2.0)
    stack = dict(SIZES, rope_parameters=rope)
    settings = stack if family == "decoder" else dict(encoder=stack, decoder=dict(stack))
    before = copy.deepcopy(settings)
    CLASSES[family](**settings)
    assert settings == before


@pytest.mark.parametrize("way", ["json file", "file"])
def test_infinity_survives_a_file(way: str, tmp_path: Path) -> None:
    """JSON has no such number, and transformers has a spelling of its own for it."""
    config = make("decoder", origin={"config": {"logit_cap": math.inf}})
    assert WAYS[way](config, tmp_path).origin == {"config": {"logit_cap": math.inf}}


def test_hf_tx_version_is_that_of_the_writer(tmp_path: Path) -> None:
    config = make("decoder")
    assert config.hf_tx_version == hf_tx.__version__
    config = make_from_file("decoder", tmp_path, hf_tx_version="0.0.9")
    assert config.hf_tx_version == "0.0.9"
    config.save_pretrained(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["hf_tx_version"] == hf_tx.__version__


def rope(**parameters: Any) -> dict[str, Any]:
    return dict(rope_parameters=parameters)


def nested(**parameters: Any) -> dict[str, Any]:
    return dict(**HYBRID, rope_parameters=parameters)


def layer(**changes: Any) -> dict[str, Any]:
    return dict(per_layer_config={"1": changes})


#: Settings of a decoder, and what the message must say: the field, the value, and the rule.
BAD: list[tuple[dict[str, Any], tuple[str, ...]]] = [
    # heads
    (dict(hidden_size=10, num_attention_heads=3), ("hidden_size = 10", "num_attention_heads = 3", "head_dim")),
    (dict(num_attention_heads=4, num_key_value_heads=3), ("num_key_value_heads = 3", "num_attention_heads = 4")),
    (dict(num_key_value_heads=4), ("num_key_value_heads = 4", "num_attention_heads = 2")),
    (dict(num_key_value_heads=0), ("num_key_value_heads = 0", "num_attention_heads = 2")),
    (dict(num_key_value_heads=-1), ("num_key_value_heads = -1", "num_attention_heads = 2")),
    (dict(num_attention_heads=0), ("num_attention_heads = 0", "above 0")),
    (dict(num_attention_heads=0, head_dim=8, num_key_value_heads=0), ("num_attention_heads = 0", "above 0")),
    (dict(head_dim=0), ("head_dim = 0", "above 0")),
    (dict(head_dim=7), ("head_dim = 7", "even")),
    # sizes
    (dict(vocab_size=0), ("vocab_size = 0", "above 0")),
    (dict(hidden_size=0), ("hidden_size = 0", "above 0")),
    (dict(hidden_size=-16), ("hidden_size = -16", "above 0")),
    (dict(num_hidden_layers=0), ("num_hidden_layers = 0", "above 0")),
    (dict(num_hidden_layers=-1), ("num_hidden_layers = -1", "above 0")),
    (dict(num_hidden_layers=2.0), ("num_hidden_layers", "int", "2.0")),
    (dict(num_hidden_layers="2"), ("num_hidden_layers", "int", "'2'")),
    (dict(num_hidden_layers=True), ("num_hidden_layers", "int", "True")),
    (dict(max_position_embeddings=0), ("max_position_embeddings = 0", "above 0")),
    (dict(intermediate_size=0), ("intermediate_size = 0", "above 0")),
    (dict(embedding_size=0), ("embedding_size = 0", "above 0")),
    (dict(embedding_size=8), ("embedding_size = 8", "hidden_size = 16", "tie_word_embeddings")),
    (dict(type_vocab_size=-1), ("type_vocab_size = -1", "below 0")),
    (dict(embedding_scale=0.0), ("embedding_scale = 0.0", "above 0")),
    (dict(logit_scale=0), ("logit_scale = 0", "above 0")),
    (dict(logit_scale=math.inf), ("logit_scale = inf", "finite")),
    (dict(residual_multiplier=-1.0), ("residual_multiplier = -1.0", "above 0")),
    (dict(norm_eps=0.0), ("norm_eps = 0.0", "above 0")),
    (dict(norm_eps=-1e-5), ("norm_eps = -1e-05", "above 0")),
    (dict(initializer_range=-0.1), ("initializer_range = -0.1", "below 0")),
    (dict(initializer_range=math.inf), ("initializer_range = inf", "finite")),
    # dropout
    (dict(attention_dropout=1.5), ("attention_dropout = 1.5", "[0, 1)")),
    (dict(hidden_dropout=1.0), ("hidden_dropout = 1.0", "[0, 1)")),
    (dict(embedding_dropout=1.0), ("embedding_dropout = 1.0", "[0, 1)")),
    (dict(ffn_dropout=-0.1), ("ffn_dropout = -0.1", "[0, 1)")),
    (dict(classifier_dropout=1), ("classifier_dropout = 1", "[0, 1)")),
    (dict(layerdrop=1), ("layerdrop = 1", "[0, 1)")),
    (dict(hidden_dropout=math.nan), ("hidden_dropout = nan", "[0, 1)")),
    # scales and caps
    (dict(attention_scale=0.0), ("attention_scale = 0.0", "above 0")),
    (dict(attention_scale=-1), ("attention_scale = -1", "above 0")),
    (dict(attention_scale=math.inf), ("attention_scale = inf", "finite")),
    (dict(attn_logit_softcapping=0), ("attn_logit_softcapping = 0", "above 0")),
    (dict(final_logit_softcapping=-5.0), ("final_logit_softcapping = -5.0", "above 0")),
    # mixers and windows
    (dict(mixers="sliding", sliding_window=0), ("sliding_window = 0", "above 0")),
    (dict(mixers="sliding", sliding_window=-3), ("sliding_window = -3", "above 0")),
    (dict(mixers="sliding"), ("sliding_window = None", "sliding")),
    (dict(mixers="full,sliding"), ("sliding_window = None", "sliding")),
    (dict(sliding_window=4), ("sliding_window = 4", "no layer has a window", "full")),
    (dict(mixers=["full"]), ("mixers", "1", "num_hidden_layers = 2")),
    (dict(mixers=["full"] * 3), ("mixers", "3", "num_hidden_layers = 2")),
    (dict(mixers=[]), ("mixers", "0", "num_hidden_layers = 2")),
    (dict(mixers=[1, 2]), ("mixers", "[1, 2]", "str")),
    (dict(mixers="slidng", sliding_window=4), ("mixer", "'slidng'", "Did you mean 'sliding'", *MIXERS)),
    (dict(mixers=["full", "lstn"]), ("mixer", "'lstn'", "Did you mean 'lstm'?", *MIXERS)),
    (dict(mixer_options={"full": {"heads": 3}}), ("mixer_options", "'full'", "no options")),
    (dict(mixer_options={"sliding": {}}), ("mixer_options", "'sliding'", "used by no layer")),
    (dict(layer_types=["full_attention"]), ("layer_types = ['full_attention']", "mixers", "full_attention")),
    (
        dict(layer_types=["full_attention", "sliding_attention"]),
        ("layer_types = ['full_attention', 'sliding_attention']", "does not fit", "mixers"),
    ),
    (dict(layer_types=["full_attention"] * 3), ("layer_types", "does not fit", "mixers")),
    # names
    (dict(position_type="roep"), ("position_type", "'roep'", "Did you mean 'rope'", *POSITIONS)),
    (dict(norm_type="rms"), ("norm_type", "'rms'", "Did you mean 'rmsnorm'", *NORMS)),
    (dict(norm_position="per"), ("norm_position = 'per'", "Did you mean 'pre'", *PLACES)),
    (dict(qk_norm=True, qk_norm_scope="al"), ("qk_norm_scope = 'al'", "Did you mean 'all'", "head, heads, all")),
    (dict(hidden_act="gelo"), ("hidden_act = 'gelo'", "Did you mean 'gelu'", *ACT2FN)),
    (dict(ffn_type="swiglu"), ("ffn_type", "'swiglu'", *FEED_FORWARDS)),
    (dict(problem_type="single_label_classification", num_labels=1), ("problem_type", "num_labels")),
    (dict(problem_type="regresion"), ("problem_type", "'regresion'", "regression")),
    (dict(num_labels=0), ("num_labels", "0")),
    (dict(cross_mixer="ful"), ("cross_mixer", "'ful'", *CROSS_MIXERS)),
    # options that contradict each other
    (dict(position_offset=2), ("position_offset = 2", "learned")),
    (dict(sinusoidal_type="concatenated"), ("sinusoidal_type = 'concatenated'", "sinusoidal")),
    (
        dict(position_type="sinusoidal", sinusoidal_type="concatenate"),
        ("sinusoidal_type = 'concatenate'", "'concatenated'"),
    ),
    (
        dict(position_type="sinusoidal", sinusoidal_type="tensor2tensor", embedding_size=3, tie_word_embeddings=False),
        ("sinusoidal_type = 'tensor2tensor'", "4 features"),
    ),
    (dict(relative_attention_per_layer=True), ("relative_attention_per_layer = True", "relative")),
    (dict(position_type="learned", position_offset=-1), ("position_offset = -1", "below 0")),
    (dict(parallel_residual=True, norm_position="post"), ("parallel_residual = True", "'pre'", "'post'")),
    (dict(qk_norm_scope="all"), ("qk_norm_scope = 'all'", "qk_norm = True")),
    (dict(mixer_norm=False, norm_position="sandwich"), ("mixer_norm = False", "norm_position = 'pre'", "'sandwich'")),
    (dict(norm_affine=False, norm_type="none"), ("norm_affine = False", "'none'")),
    (dict(norm_affine=False, norm_type="layernorm"), ("norm_affine = False", "norm_bias = False")),
    (dict(norm_affine=False, norm_unit_offset=True), ("norm_affine = False", "norm_unit_offset = False")),
    (dict(norm_affine=False, qk_norm=True, qk_norm_scope="heads"), ("norm_affine = False", "qk_norm_scope = 'head'")),
    (dict(embedding_projection="token"), ("embedding_projection = 'token'", "Did you mean 'tokens'", "sum, tokens")),
    (dict(embedding_projection="tokens"), ("embedding_projection = 'tokens'", "embedding_size", "hidden_size = 16")),
    (dict(output_projection=True), ("output_projection = True", "embedding_size", "hidden_size = 16")),
    (dict(mixer_norm=False, norm_type="none"), ("mixer_norm = False", "norm_type")),
    (
        dict(mixer_norm=False, parallel_residual=True, parallel_shared_norm=True),
        ("mixer_norm = False", "parallel_shared_norm = False"),
    ),
    (dict(parallel_shared_norm=True), ("parallel_shared_norm = True", "parallel_residual")),
    (dict(norm_unit_offset=True, norm_type="layernorm"), ("norm_unit_offset = True", "rmsnorm")),
    (dict(position_type="relative", relative_attention_num_buckets=6), ("relative_attention_num_buckets = 6", "4")),
    (dict(position_type="relative", relative_attention_num_buckets=0), ("relative_attention_num_buckets = 0", "4")),
    (dict(position_type="relative", relative_attention_max_distance=16), ("relative_attention_max_distance = 16",)),
    (dict(tie_word_embeddings="yes"), ("tie_word_embeddings", "bool", "'yes'")),
    # rope
    (dict(position_type="none", rope_parameters=DEFAULT), ("rope_parameters", "position_type is none")),
    (dict(position_type="learned", rope_theta=1e4), ("rope_theta", "position_type is learned")),
    (dict(rope_theta=0.0), ("rope_theta = 0.0", "above 0")),
    (rope(rope_theta=-1.0), ("rope_theta = -1.0", "above 0")),
    (rope(rope_type="default", rope_theta=None), ("rope_theta = None", "above 0")),
    (rope(rope_type="default", rope_theta=math.inf), ("rope_theta = inf", "finite")),
    (rope(rope_type="yarn", rope_theta=1.0, factor=2.0), ("rope_theta = 1.0", "not be 1", "yarn")),
    (rope(rope_type="yarn", factor=2.0, attention_factor=[1.0]), ("attention_factor", "[1.0]", "number")),
    (
        rope(rope_type="yarn", factor=2.0, original_max_position_embeddings=0),
        ("original_max_position_embeddings", "0", "integer above 1"),
    ),
    (
        rope(
            rope_type="longrope",
            short_factor=[1.0] * 4,
            long_factor=[2.0] * 4,
            original_max_position_embeddings=1,
        ),
        ("original_max_position_embeddings", "1", "integer above 1"),
    ),
    (
        rope(
            rope_type="longrope",
            short_factor=[1.0] * 4,
            long_factor=[2.0] * 4,
            original_max_position_embeddings=None,
        ),
        ("longrope", "needs original_max_position_embeddings"),
    ),
    (
        rope(rope_type="longrope", short_factor=[0.0] * 4, long_factor=[2.0] * 4),
        ("short_factor", "4 factors", "above 0"),
    ),
    (rope(rope_type="proportional", factor=None), ("factor", "None", "left out")),
    (
        rope(rope_type="dynamic", factor=2.0, partial_rotary_factor=0.25),
        ("head_dim = 8", "dynamic", "above 2"),
    ),
    (rope(rope_type="yarm", factor=2.0), ("rope_type = 'yarm'", "Did you mean 'yarn'", "linear", "llama3")),
    (rope(rope_type="linear", facter=2.0), ("rope_parameters", "'facter'", "Did you mean 'factor'")),
    (rope(rope_type="linear", factor=0.5), ("factor", "0.5", "at least 1")),
    (rope(rope_theta=1e4, partial_rotary_factor=1.5), ("partial_rotary_factor = 1.5", "(0, 1]")),
    (rope(rope_theta=1e4, partial_rotary_factor=0.0), ("partial_rotary_factor = 0.0", "(0, 1]")),
    (rope(rope_theta=1e4, partial_rotary_factor="half"), ("partial_rotary_factor = 'half'", "(0, 1]")),
    (rope(rope_theta=1e4, partial_rotary_factor=0.4), ("head_dim = 8", "= 3", "even")),
    (dict(rope_parameters="linear"), ("rope_parameters", "'linear'", "dict")),
    (rope(rope_type="linear"), ("rope_parameters", "linear", "factor")),
    (rope(rope_type="llama3", factor=2.0), ("rope_parameters", "llama3", "low_freq_factor")),
    (rope(rope_type="linear", factor="2"), ("factor", "'2'")),
    (
        rope(rope_type="longrope", factor=2.0, short_factor=[1.0], long_factor=[1.0] * 4),
        ("short_factor", "4"),
    ),
    (rope(rope_type="yarn", factor=2.0, beta_fast=1, beta_slow=32), ("beta_fast", "beta_slow")),
    (
        rope(
            rope_type="llama3",
            factor=2.0,
            low_freq_factor=4.0,
            high_freq_factor=1.0,
            original_max_position_embeddings=32,
        ),
        ("low_freq_factor", "high_freq_factor"),
    ),
    (nested(full_attention=DEFAULT), ("rope_parameters", "sliding_attention")),
    (nested(full_attention=DEFAULT, sliding_attention=None), ("rope_parameters", "sliding_attention")),
    (nested(full_attention=DEFAULT, slding_attention=DEFAULT), ("slding_attention", "sliding_attention")),
    (nested(full_attention="default", sliding_attention=DEFAULT), ("rope_parameters", "full_attention")),
    (nested(full_attention=DEFAULT, sliding_attention=DEFAULT, rope_theta=5.0), ("rope_parameters", "rope_theta")),
    # layers of their own
    (dict(mixers="sliding", sliding_window=4, **layer(sliding_window=0)), ("sliding_window = 0", "above 0")),
    (dict(**layer(hidden_act="gelo")), ("hidden_act = 'gelo'", "Did you mean 'gelu'")),
    (dict(**layer(attention_dropout=2.0)), ("attention_dropout = 2.0", "[0, 1)")),
    (dict(**layer(num_key_value_heads=3)), ("num_key_value_heads = 3", "num_attention_heads = 2")),
    (dict(**layer(intermediate_size=-1)), ("intermediate_size = -1", "above 0")),
    (dict(**layer(intermediate_size=None)), ("per_layer_config[1]['intermediate_size'] = None", "value")),
    (dict(**layer(position_type=None)), ("per_layer_config[1]['position_type'] = None", "value")),
    (dict(**layer(position_type="learned")), ("position_type", "learned", "rope")),
    (dict(**layer(attention_scale="a")), ("attention_scale", "'a'", "float")),
    (dict(**layer(hidden_dropout=0.5)), ("per_layer_config", "hidden_dropout", "sliding_window")),
    (dict(**layer(sliding_windw=4)), ("sliding_windw",)),
    (dict(per_layer_config={"5": {"hidden_act": "relu"}}), ("per_layer_config", "5", "2")),
    (dict(per_layer_config={"-1": {"hidden_act": "relu"}}), ("per_layer_config", "-1", "2")),
    (dict(**layer(hidden_size=8)), ("per_layer_config", "hidden_size", "only these")),
    (dict(**layer(sliding_window=4)), ("sliding_window = 4", "no")),
    (dict(**layer(skip=["mlp"])), ("per_layer_config", "skip")),
    (dict(per_layer_config={"first": {"hidden_act": "relu"}}), ("per_layer_config", "first")),
    (dict(per_layer_config=[{"hidden_act": "relu"}]), ("per_layer_config",)),
    (dict(per_layer_config={"1": "relu"}), ("per_layer_config", "'relu'", "dict")),
]


def cases(bad: list[tuple[dict[str, Any], tuple[str, ...]]]) -> list[Any]:
    return [pytest.param(settings, words, id=str(settings)[1:70]) for settings, words in bad]


all_bad = pytest.mark.parametrize(("settings", "words"), cases(BAD))


@all_bad
def test_bad_value(settings: dict[str, Any], words: tuple[str, ...]) -> None:
    refused(words, make, "decoder", **copy.deepcopy(settings))


@all_bad
def test_bad_value_in_a_file(settings: dict[str, Any], words: tuple[str, ...], tmp_path: Path) -> None:
    refused(words, make_from_file, "decoder", tmp_path, **settings)


@pytest.mark.parametrize("stack", ["encoder", "decoder"])
@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (dict(num_key_value_heads=4), ("num_key_value_heads = 4", "num_attention_heads = 2")),
        (dict(hidden_act="gelo"), ("hidden_act = 'gelo'",)),
        (dict(mixers="sliding"), ("sliding_window = None",)),
        (dict(hidden_dropout=1.0), ("hidden_dropout = 1.0",)),
    ],
)
def test_bad_value_in_a_stack(stack: str, settings: dict[str, Any], words: tuple[str, ...], tmp_path: Path) -> None:
    refused(words, make, "encoder_decoder", **{stack: {**SIZES, **settings}})
    refused(words, make, "encoder_decoder", **{f"{stack}_{key}": value for key, value in settings.items()})
    refused(words, make_from_file, "encoder_decoder", tmp_path, **{stack: {**SIZES, **settings}})


@pytest.mark.parametrize(
    ("family", "settings", "words"),
    [
        ("encoder", dict(classifier_pooling="maen"), ("classifier_pooling = 'maen'", "'mean'", "first, mean")),
        ("encoder", dict(pooler_act="tahn"), ("pooler_act = 'tahn'", "'tanh'")),
        ("encoder", dict(use_cache=True), ("use_cache = True", "encoder")),
        ("encoder", dict(cross_mixer="full"), ("TxEncoderConfig", "'cross_mixer'")),
        (
            "encoder",
            dict(pooler_pooling="lat"),
            ("pooler_pooling = 'lat'", "Did you mean 'late'", "first, mean, late"),
        ),
        ("encoder", dict(transform_bias=False, mlm_head_transform=False), ("transform_bias = False", "mlm_head_tra")),
        ("encoder", dict(embedding_size=8, mlm_head_transform=False), ("embedding_size = 8", "hidden_size = 16")),
        ("encoder_decoder", dict(decoder_cross_mixer="ful"), ("cross_mixer", "'ful'", *CROSS_MIXERS)),
        ("encoder_decoder", dict(decoder_parallel_residual=True), ("parallel_residual = True", "cross-attention")),
        ("encoder_decoder", dict(encoder_vocab_size=33), ("vocab_size = 33", "= 32", "share_embeddings")),
        ("encoder_decoder", dict(encoder_hidden_size=32), ("hidden_size = 32", "= 16", "share_embeddings")),
        (
            "encoder_decoder",
            dict(encoder_hidden_size=32, decoder_cross_attention_hidden_size=16, share_embeddings=False),
            ("cross_attention_hidden_size = 16", "hidden_size = 32"),
        ),
        ("encoder_decoder", dict(encoder=hf_tx.TxDecoderConfig()), ("encoder", "TxEncoderConfig")),
        ("encoder_decoder", dict(decoder=7), ("decoder", "7")),
    ],
    ids=str,
)
def test_bad_value_of_one_family(family: str, settings: dict[str, Any], words: tuple[str, ...]) -> None:
    refused(words, make, family, **settings)


@dataclass(frozen=True)
class Options:
    size: int = 3

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ValueError(f"size = {self.size}: must be above 0")


def test_a_mixer_says_what_it_can(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which direction it works in, and its options."""
    full = MIXERS.get("full")
    forward = dataclasses.replace(full, is_bidirectional=False, options=Options)
    backward = dataclasses.replace(full, is_causal=False)
    monkeypatch.setattr(MIXERS, "_entries", {"forward": (forward, "test"), "both ways": (backward, "test")})

    refused(["mixers = 'forward'", "bidirectional"], make, "encoder", mixers="forward")
    refused(["mixers = 'both ways'", "causal"], make, "decoder", mixers="both ways")
    config = make("decoder", mixers="forward", mixer_options={"forward": {"size": 5}})
    assert WAYS["json"](config, Path()).mixer_options == {"forward": {"size": 5}}
    refused(["size = 0"], make, "decoder", mixers="forward", mixer_options={"forward": {"size": 0}})
    refused(["sise"], make, "decoder", mixers="forward", mixer_options={"forward": {"sise": 5}})


def test_values_at_the_edge_are_accepted() -> None:
    make("decoder", hidden_dropout=0.99, attention_dropout=0, initializer_range=0.0, vocab_size=1)
    make("decoder", head_dim=2, num_attention_heads=5)  # 10 features of all heads, 16 of the model
    make("decoder", num_attention_heads=4, num_key_value_heads=4)
    make("decoder", mixers="sliding", sliding_window=1)
    make("decoder", head_dim=7, position_type="none")
    make("decoder", rope_parameters=dict(**DEFAULT, partial_rotary_factor=0.25))


def test_an_assigned_value_is_checked_when_it_is_used(tmp_path: Path) -> None:
    config = make("decoder")
    config.num_key_value_heads = 5
    refused(["num_key_value_heads = 5"], hf_tx.TxDecoderModel, config)
    refused(["num_key_value_heads = 5"], config.save_pretrained, tmp_path)
    with pytest.raises(StrictDataclassError, match="num_hidden_layers"):
        config.num_hidden_layers = "many"


TYPOS = {
    "num_hiden_layers": "num_hidden_layers",
    "hiden_size": "hidden_size",
    "mixer": "mixers",
    "sliding_windows": "sliding_window",
    "rope_paramters": "rope_parameters",
    "norm_postion": "norm_position",
    "intermediate_sizes": "intermediate_size",
    "attention_droput": "attention_dropout",
    "tie_word_embedding": "tie_word_embeddings",
}


@pytest.mark.parametrize(("typo", "meant"), TYPOS.items())
def test_misspelt_keyword(typo: str, meant: str, tmp_path: Path) -> None:
    words = (repr(typo), f"Did you mean {meant!r}")
    for family in ("decoder", "encoder"):
        refused(words, make, family, **{typo: 1})
        refused(words, make_from_file, family, tmp_path, **{typo: 1})
        refused([repr(typo)], make, family, **{typo: None})
    for stack in ("encoder", "decoder"):
        refused(words, make, "encoder_decoder", **{f"{stack}_{typo}": 1})
        refused(words, make, "encoder_decoder", **{stack: {**SIZES, typo: 1}})


@pytest.mark.parametrize("family", CLASSES)
def test_unknown_keyword(family: str, tmp_path: Path) -> None:
    name = CLASSES[family].__name__
    refused([name, "'zzz'"], make, family, zzz=1)
    refused([name, "'temperature'"], make, family, temperature=0.5)
    refused([name, "'zzz'"], make_from_file, family, tmp_path, zzz=1)
    assert not hasattr(make_from_file(family, tmp_path, zzz=None), "zzz")


@pytest.mark.parametrize("place", ["top", "encoder", "decoder"])
class TestFiles:
    """What others write into a file, at its top and in the configs inside it."""

    def load(self, place: str, folder: Path, **keys: Any) -> Any:
        if place == "top":
            return make_from_file("decoder", folder, **keys)
        return make_from_file("encoder_decoder", folder, **{place: {**SIZES, **keys}})

    def test_null_is_dropped(self, place: str, tmp_path: Path) -> None:
        self.load(place, tmp_path, of_a_later_version=None)

    def test_keys_of_the_library_pass(self, place: str, tmp_path: Path) -> None:
        self.load(
            place,
            tmp_path,
            _commit_hash="abc",
            transformers_version="5.99.0",
            architectures=["Other"],
            torch_dtype="float32",
            _attn_implementation_autoset=True,
            temperature=0.5,
            num_beams=4,
        )

    def test_a_newer_version_is_named(self, place: str, tmp_path: Path) -> None:
        keys = dict(hf_tx_version="0.99.0", of_a_later_version=1)
        refused(["'of_a_later_version'", "0.99.0", hf_tx.__version__], self.load, place, tmp_path, **keys)


def test_a_newer_version_with_known_keys_loads(tmp_path: Path) -> None:
    assert make_from_file("decoder", tmp_path, hf_tx_version="0.99.0").hidden_size == 16


@pytest.mark.parametrize("family", CLASSES)
def test_a_newer_major_version_is_refused(family: str, tmp_path: Path) -> None:
    words = ("1.0.0", hf_tx.__version__, "upgrade")
    refused(words, make_from_file, family, tmp_path, hf_tx_version="1.0.0")
    for auto in (AutoConfig, AutoModel):
        refused(words, auto.from_pretrained, tmp_path)
    # Whatever else the file holds, since it is the reason.
    refused(words, make_from_file, family, tmp_path, hf_tx_version="1.0.0", of_a_later_version=1)
    refused(words, make, family, hf_tx_version="1.0.0")


def test_a_newer_major_version_of_a_stack_is_refused(tmp_path: Path) -> None:
    decoder = dict(SIZES, hf_tx_version="2.1.0")
    refused(["2.1.0", "upgrade"], make_from_file, "encoder_decoder", tmp_path, decoder=decoder)


@pytest.mark.parametrize("version", ["dev", 2, "v1.0"])
def test_a_version_that_is_none_is_refused_by_name(version: Any, tmp_path: Path) -> None:
    refused(["hf_tx_version", str(version)], make_from_file, "decoder", tmp_path, hf_tx_version=version)


@pytest.mark.parametrize("family", CLASSES)
def test_a_misspelt_change_on_loading_is_refused(family: str, tmp_path: Path) -> None:
    make(family).save_pretrained(tmp_path)
    refused(["'hiden_dropout'", "hidden_dropout"], CLASSES[family].from_pretrained, tmp_path, hiden_dropout=0.5)


#: What may be changed when a checkpoint is loaded gives what a new config with it is.
CHANGES: dict[str, dict[str, Any]] = {
    "dropout": dict(hidden_dropout=0.5),
    "labels": dict(num_labels=7),
    "mixers": dict(mixers=["sliding", "full"], sliding_window=4),
    "scale": dict(per_layer_config={1: {"attention_scale": 0.5}}),
    "pattern": dict(mixers="sliding,full", sliding_window=4),
    "yarn": dict(rope_parameters=dict(rope_type="yarn", rope_theta=1e4, factor=4.0)),
    "rope without theta": dict(rope_parameters=dict(rope_type="linear", factor=4.0)),
    "theta": dict(rope_theta=5.0),
    "no positions": dict(position_type="none"),
}
#: Changes that make no sense, and what the message must say.
BAD_CHANGES: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "idle window": (dict(sliding_window=4), ("sliding_window = 4", "no layer has a window")),
    "unknown part of a layer": (layer(skip=["mlp"]), ("per_layer_config", "skip")),
    "dropout": (dict(hidden_dropout=1.5), ("hidden_dropout = 1.5", "[0, 1)")),
    "layers without mixers": (dict(num_hidden_layers=3), ("mixers", "num_hidden_layers")),
}


@pytest.mark.parametrize("name", CHANGES)
def test_changes_on_loading_are_those_of_a_new_config(name: str, tmp_path: Path) -> None:
    make("decoder").save_pretrained(tmp_path)
    for loader in (hf_tx.TxDecoderConfig, AutoConfig):
        config = loader.from_pretrained(tmp_path, **copy.deepcopy(CHANGES[name]))
        config._name_or_path = ""
        expected = make("decoder", **copy.deepcopy(CHANGES[name])).to_dict()
        assert config.to_dict() == {**expected, "auto_map": config.full_auto_map}


@pytest.mark.parametrize("name", BAD_CHANGES)
def test_bad_changes_on_loading(name: str, tmp_path: Path) -> None:
    changes, words = BAD_CHANGES[name]
    make("decoder").save_pretrained(tmp_path)
    refused(words, AutoConfig.from_pretrained, tmp_path, **copy.deepcopy(changes))


def test_changes_on_loading(tmp_path: Path) -> None:
    make("decoder").save_pretrained(tmp_path)
    assert hf_tx.TxDecoderConfig.from_pretrained(tmp_path, hidden_dropout=0.5).hidden_dropout == 0.5
    assert AutoConfig.from_pretrained(tmp_path, num_labels=7).num_labels == 7
    model = build("decoder", head="lm")
    model.save_pretrained(tmp_path)
    assert AutoModelForCausalLM.from_pretrained(tmp_path, hidden_dropout=0.5).model.layers[0].dropout == 0.5
    with pytest.raises(ValueError, match="hiden_dropout"):
        AutoModelForCausalLM.from_pretrained(tmp_path, hiden_dropout=0.5)
    # Layers cannot be dropped without saying which mixers stay.
    refused(["mixers", "num_hidden_layers = 1"], AutoModelForCausalLM.from_pretrained, tmp_path, num_hidden_layers=1)


def test_attributes_that_are_no_fields_are_not_saved(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = make("decoder")
    config.num_hiden_layers = 7
    config.of_a_client = None
    config.save_pretrained(tmp_path)
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "num_hiden_layers" in caplog.text
    assert "of_a_client" not in caplog.text, "nothing is lost"
    stored = json.loads((tmp_path / "config.json").read_text())
    assert not {"num_hiden_layers", "of_a_client"} & stored.keys()
    assert hf_tx.TxDecoderConfig.from_pretrained(tmp_path).to_dict() == make("decoder").to_dict() | {
        "auto_map": hf_tx.TxDecoderConfig.full_auto_map
    }


def test_saving_says_nothing_otherwise(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for name, (family, settings) in ROUND_TRIPS.items():
        make(family, **copy.deepcopy(settings)).save_pretrained(tmp_path / name)
    assert not caplog.records


@pytest.mark.parametrize("parameter", [dict(top_k=5), dict(temperature=0.5), dict(max_length=9)], ids=str)
def test_generation_parameters_are_refused(parameter: dict[str, Any], tmp_path: Path) -> None:
    config = make("decoder")
    for name, value in parameter.items():
        setattr(config, name, value)
    with pytest.raises(ValueError, match=f"generation_config(.|\n)*{next(iter(parameter))}"):
        config.save_pretrained(tmp_path)
    assert not (tmp_path / "config.json").exists()


@pytest.mark.parametrize("name", ["attn_implementation", "loss_implementation"])
def test_backends_are_not_saved(name: str, tmp_path: Path) -> None:
    config = make("decoder", **({name: "eager"} if name == "attn_implementation" else {}))
    model = hf_tx.TxDecoderForCausalLM(config, **({name: "chunked"} if name == "loss_implementation" else {}))
    model.save_pretrained(tmp_path)
    text = (tmp_path / "config.json").read_text()
    assert name not in text
    assert "eager" not in text
    assert "chunked" not in text


@pytest.mark.parametrize(
    ("pattern", "layers", "expanded"),
    [
        ("full", 3, "full full full"),
        ("sliding,full", 5, "sliding full sliding full sliding"),
        ("sliding*2,full", 7, "sliding sliding full sliding sliding full sliding"),
        ("sliding*5,full", 3, "sliding sliding sliding"),
        (" sliding * 2 , full ", 3, "sliding sliding full"),
        ("full*1", 2, "full full"),
        (["full", "sliding"], 2, "full sliding"),
    ],
)
def test_patterns_of_mixers(pattern: Any, layers: int, expanded: str) -> None:
    assert expand_pattern(pattern, layers) == expanded.split()
    window = dict(sliding_window=4) if "sliding" in expanded else {}
    config = make("decoder", mixers=pattern, num_hidden_layers=layers, **window)
    assert config.mixers == expanded.split()
    types = {"full": "full_attention", "sliding": "sliding_attention"}
    assert config.layer_types == [types[name] for name in expanded.split()]


@pytest.mark.parametrize(
    "pattern", ["", ",", "full,", ",full", "full*", "full*0", "full*-1", "full*x", "full*1.5", "*2", "full**2"]
)
def test_patterns_that_are_none(pattern: str) -> None:
    with pytest.raises(ValueError, match="mixers = .* 'name' or 'name\\*count'"):
        expand_pattern(pattern, 4)
    refused(["mixers", repr(pattern)], make, "decoder", mixers=pattern)


def test_layer_types_that_agree_are_accepted(tmp_path: Path) -> None:
    types = ["sliding_attention", "full_attention"]
    for config in (
        make("decoder", **HYBRID, layer_types=types),
        make_from_file("decoder", tmp_path, **HYBRID, layer_types=types),
    ):
        assert config.layer_types == types
    assert "layer_types" not in make("decoder", **HYBRID).to_dict()


def test_defaults_follow_other_fields() -> None:
    config = make("decoder", num_attention_heads=4)
    assert (config.num_key_value_heads, config.head_dim, config.intermediate_size) == (4, 4, 64)
    assert make("decoder", attention_bias=True).attention_out_bias is True
    assert [make("decoder", norm_position=place).final_norm for place in PLACES] == [
        True,
        False,
        True,
        True,
    ]
    assert make("decoder", norm_position="post", final_norm=True).final_norm is True


@pytest.mark.parametrize("head_dim", [2, 6, 32])
def test_head_dim_is_independent(head_dim: int, tmp_path: Path) -> None:
    config = through_file(make("decoder", head_dim=head_dim), tmp_path)
    assert config.head_dim == head_dim
    attention = hf_tx.TxDecoderModel(config).layers[0].mixer
    assert attention.q_proj.weight.shape == (2 * head_dim, 16)
    assert attention.o_proj.weight.shape == (16, 2 * head_dim)


def test_only_configs_that_rotate_have_rope_parameters() -> None:
    for name in POSITIONS:
        assert hasattr(make("decoder", position_type=name), "rope_parameters") == (name == "rope"), name
    mixed = make("decoder", position_type="none", per_layer_config={1: {"position_type": "rope"}})
    assert mixed.rope_parameters["rope_theta"] == 10_000.0


@pytest.mark.parametrize("family", CLASSES)
def test_a_default_config_has_what_clients_read(family: str, caplog: pytest.LogCaptureFixture) -> None:
    config = CLASSES[family]()
    for name in ("pad_token_id", "bos_token_id", "eos_token_id", "tie_word_embeddings", "use_cache", "num_labels"):
        getattr(config, name)
    for name in ("is_encoder_decoder", "problem_type", "hidden_size", "num_attention_heads", "num_hidden_layers"):
        getattr(config, name)
    assert config.tie_word_embeddings is True
    assert config.vocab_size == 32_000
    assert config.num_labels == 2
    text = config.get_text_config(decoder=True)
    for name in ("num_key_value_heads", "head_dim", "max_position_embeddings", "layer_types", "sliding_window"):
        getattr(text, name)
    assert not caplog.records


@pytest.mark.parametrize(
    ("settings", "queries", "norm", "out"),
    [
        ({}, "colwise", None, "rowwise"),
        (dict(qk_norm=True), "colwise", "replicated_with_grad_allreduce", "rowwise"),
        (dict(qk_norm=True, qk_norm_scope="heads"), "colwise_gather_output", None, "rowwise_split_input"),
        (dict(qk_norm=True, qk_norm_scope="all"), "colwise_gather_output", None, "rowwise_split_input"),
        (dict(position_type="learned_relative"), "colwise_gather_output", None, "rowwise_split_input"),
        (dict(position_type="alibi", qk_norm=True), "colwise_gather_output", None, "rowwise_split_input"),
        (dict(attention_sinks=True), "colwise_gather_output", None, "rowwise_split_input"),
    ],
    ids=["none", "head", "heads", "all", "relative", "alibi", "sinks"],
)
def test_heads_are_sharded_unless_something_differs_from_head_to_head(
    settings: dict[str, Any], queries: str, norm: str | None, out: str
) -> None:
    plan = make("decoder", **settings).base_model_tp_plan
    assert [plan.get(f"layers.*.mixer.{name}") for name in ("q_proj", "k_norm", "o_proj")] == [queries, norm, out]


def test_parts_of_layers_follow_their_own_config(tmp_path: Path) -> None:
    changes = {"intermediate_size": 20, "hidden_act": "relu", "num_key_value_heads": 1, "sliding_window": 3}
    changes |= {"mixer_norm": False}
    settings = dict(mixers="sliding", sliding_window=8, per_layer_config={1: changes})
    model = hf_tx.TxDecoderModel(through_file(make("decoder", **settings), tmp_path))
    assert [block.mlp.up_proj.out_features for block in model.layers] == [64, 20]
    assert [block.mixer.k_proj.out_features for block in model.layers] == [16, 8]
    assert [block.mixer.sliding_window for block in model.layers] == [8, 3]
    assert [block.mixer_norm is None for block in model.layers] == [False, True]
    assert [type(block.mlp.act_fn) for block in model.layers] == [type(ACT2FN["silu"]), type(ACT2FN["relu"])]


def test_fields_of_the_stacks() -> None:
    settings = dict(encoder_hidden_dropout=0.1, decoder_hidden_dropout=0.2, decoder_num_hidden_layers=3)
    config = make("encoder_decoder", **settings)
    assert (config.encoder.hidden_dropout, config.decoder.hidden_dropout) == (0.1, 0.2)
    assert (config.encoder.num_hidden_layers, config.decoder.num_hidden_layers) == (2, 3)
    # A prefix goes before the dict.
    stack = dict(SIZES, hidden_dropout=0.3)
    assert make("encoder_decoder", encoder=stack, **settings).encoder.hidden_dropout == 0.1
    made = make("encoder_decoder", encoder=make("encoder", hidden_dropout=0.3), decoder=make("decoder"))
    assert made.encoder.hidden_dropout == 0.3


FLAT = {
    "hidden_dropout": 0.5,
    "num_hidden_layers": 3,
    "mixers": "full",
    "position_type": "none",
    "rope_parameters": DEFAULT,
    "layer_types": ["full_attention"],
    "rope_theta": 1e6,
    "partial_rotary_factor": 0.5,
    "rope_scaling": dict(rope_type="linear", factor=2.0),
    "per_layer_config": {0: {"hidden_act": "relu"}},
}


@pytest.mark.parametrize(("field", "value"), FLAT.items())
@pytest.mark.filterwarnings("ignore:.rope_scaling. is deprecated:FutureWarning")
def test_flat_fields_are_refused(field: str, value: Any, tmp_path: Path) -> None:
    words = [field] if field == "layer_types" else [repr(field), f"encoder_{field}", f"decoder_{field}"]
    refused(words, make, "encoder_decoder", **{field: value})
    refused([field], make_from_file, "encoder_decoder", tmp_path, **{field: value})


@pytest.mark.parametrize("stack", ["encoder", "decoder"])
def test_a_prefixed_field_beside_a_config_object(stack: str) -> None:
    """Which of the two is meant cannot be known."""
    both = {stack: make(stack, hidden_dropout=0.3), f"{stack}_hidden_dropout": 0.1}
    refused([f"{stack}_hidden_dropout", "0.1"], make, "encoder_decoder", **both)


@pytest.mark.parametrize("stack", ["encoder", "decoder"])
def test_a_prefixed_change_on_loading(stack: str, tmp_path: Path) -> None:
    make("encoder_decoder").save_pretrained(tmp_path)
    config = AutoConfig.from_pretrained(tmp_path, **{f"{stack}_hidden_dropout": 0.1})
    assert getattr(config, stack).hidden_dropout == 0.1


@pytest.mark.parametrize("stack", ["encoder", "decoder"])
def test_a_prefixed_change_of_what_becomes_a_field(stack: str, tmp_path: Path) -> None:
    make("encoder_decoder").save_pretrained(tmp_path)
    changes = {f"{stack}_rope_theta": 5.0, f"{stack}_per_layer_config": {1: {"hidden_act": "relu"}}}
    changed = getattr(AutoConfig.from_pretrained(tmp_path, **changes), stack)
    assert changed.rope_parameters["rope_theta"] == 5.0
    assert changed.layer_config(1).hidden_act == "relu"


@pytest.mark.parametrize("prefixed", [True, False])
@pytest.mark.parametrize("stack", ["encoder", "decoder"])
def test_what_a_change_of_a_stack_leaves_idle_goes(stack: str, prefixed: bool, tmp_path: Path) -> None:
    positions = dict(position_type="sinusoidal", sinusoidal_type="concatenated", position_offset=2)
    stacks = dict.fromkeys(("encoder", "decoder"), dict(SIZES, mixers="sliding,full", sliding_window=4, **positions))
    make("encoder_decoder", **stacks).save_pretrained(tmp_path)
    changes = dict(mixers="full", position_type="rope")
    given = {f"{stack}_{key}": value for key, value in changes.items()} if prefixed else {stack: changes}
    config = AutoConfig.from_pretrained(tmp_path, **given)
    changed, other = config.stacks if stack == "encoder" else config.stacks[::-1]
    assert (changed.mixers, changed.sliding_window) == (["full", "full"], None)
    assert (changed.sinusoidal_type, changed.position_offset) == ("interleaved", 0)
    assert (other.mixers, other.sliding_window) == (["sliding", "full"], 4)
    assert (other.sinusoidal_type, other.position_offset) == ("concatenated", 2)


@pytest.mark.parametrize("stack", ["encoder", "decoder"])
def test_a_prefixed_change_beside_a_config_object(stack: str, tmp_path: Path) -> None:
    make("encoder_decoder").save_pretrained(tmp_path)
    both = {stack: make(stack), f"{stack}_hidden_dropout": 0.1}
    refused([f"{stack}_hidden_dropout", "0.1"], hf_tx.TxEncoderDecoderConfig.from_pretrained, tmp_path, **both)


def test_a_field_of_a_stack_that_belongs_to_both() -> None:
    """Whether the head is tied is said once, and what contradicts it is refused."""
    decoder = dict(SIZES, tie_word_embeddings=False)
    refused(["tie_word_embeddings"], make, "encoder_decoder", decoder=decoder, tie_word_embeddings=True)


def test_token_ids_come_from_the_decoder() -> None:
    config = CLASSES["encoder_decoder"](encoder=SIZES, decoder={**SIZES, **TOKENS})
    assert (config.pad_token_id, config.bos_token_id, config.eos_token_id) == (0, 1, 2)
    assert config.decoder_start_token_id == 0
    assert make("encoder_decoder", pad_token_id=5, decoder_start_token_id=7).decoder_start_token_id == 7


def test_the_encoder_may_be_wider(tmp_path: Path) -> None:
    settings = dict(encoder=dict(SIZES, hidden_size=32), share_embeddings=False)
    config = through_file(make("encoder_decoder", **settings), tmp_path)
    assert config.decoder.cross_attention_hidden_size == 32
    model = hf_tx.TxEncoderDecoderModel(config)
    assert model.decoder.layers[0].cross_mixer.k_proj.in_features == 32


SCALINGS: dict[str, dict[str, Any]] = {
    "none": {},
    "linear": dict(factor=4.0),
    "dynamic": dict(factor=2.0),
    "yarn": dict(factor=4.0, original_max_position_embeddings=16),
    "llama3": dict(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=16),
    "longrope": dict(
        factor=4.0,
        short_factor=[1.0, 1.1, 1.2, 1.3],
        long_factor=[2.0, 3.0, 4.0, 5.0],
        original_max_position_embeddings=16,
    ),
}


@pytest.mark.parametrize("partial", [None, 0.5])
@pytest.mark.parametrize("kind", SCALINGS)
@pytest.mark.filterwarnings("ignore:.rope_scaling. is deprecated:FutureWarning")
def test_rope_in_old_and_new_spelling(kind: str, partial: float | None, tmp_path: Path) -> None:
    scaling = dict(SCALINGS[kind])
    if partial and kind == "longrope":
        scaling |= dict(short_factor=[1.0, 1.1], long_factor=[2.0, 3.0])
    share = {} if partial is None else dict(partial_rotary_factor=partial)
    rope_type = "default" if kind == "none" else kind
    new = dict(rope_parameters=dict(rope_type=rope_type, rope_theta=500.0, **scaling, **share))
    old = [
        dict(rope_theta=500.0, **share, rope_scaling={name: kind, **scaling} if scaling else None)
        for name in ("type", "rope_type")
    ]
    expected = make("decoder", **copy.deepcopy(new))
    frequencies = hf_tx.TxDecoderModel(expected).positions["rope"].rotary_emb["all"].inv_freq

    found = []
    for spelling in (new, *old):
        for first in (True, False):
            parts = [spelling, SIZES] if first else [SIZES, spelling]
            settings = copy.deepcopy({key: value for part in parts for key, value in part.items()})
            found.append(hf_tx.TxDecoderConfig(**copy.deepcopy(settings)))
            found.append(from_file(hf_tx.TxDecoderConfig, tmp_path, settings))
            found.append(from_file(AutoConfig, tmp_path, {**settings, "model_type": "hf_tx_decoder"}))
    for config in found:
        parameters = {key: value for key, value in config.rope_parameters.items() if key != "type"}
        assert parameters == expected.rope_parameters
        again = hf_tx.TxDecoderModel(config).positions["rope"].rotary_emb["all"].inv_freq
        assert torch.equal(again, frequencies)


def test_theta_of_nested_parameters() -> None:
    sliding, full = dict(rope_type="default", rope_theta=10.0), dict(rope_type="default")
    config = make("decoder", **nested(sliding_attention=sliding, full_attention=full), rope_theta=99.0)
    assert config.rope_parameters["sliding_attention"]["rope_theta"] == 10.0
    assert config.rope_parameters["full_attention"]["rope_theta"] == 99.0
    tables = hf_tx.TxDecoderModel(config).positions["rope"].rotary_emb
    for name, theta in (("sliding_attention", 10.0), ("full_attention", 99.0)):
        torch.testing.assert_close(tables[name].inv_freq, theta ** -(torch.arange(0, 8, 2) / 8))


@pytest.mark.parametrize("old_key", [False, True], ids=["dtype", "torch_dtype"])
@pytest.mark.parametrize("family", CLASSES)
def test_dtype_of_a_checkpoint(family: str, old_key: bool, tmp_path: Path) -> None:
    model = build(family, head="lm", dtype=torch.bfloat16)
    model.save_pretrained(tmp_path)
    file = tmp_path / "config.json"
    stored = json.loads(file.read_text())
    assert stored["dtype"] == "bfloat16"
    if old_key:
        stored["torch_dtype"] = stored.pop("dtype")
        file.write_text(json.dumps(stored))
    for key in ("dtype", "torch_dtype"):
        assert AutoConfig.from_pretrained(tmp_path, **{key: "auto"}).dtype == torch.bfloat16
    auto = {"decoder": AutoModelForCausalLM}.get(family, AutoModel)
    for loader in (type(model), auto):
        for wanted, expected in {
            "default": torch.bfloat16,
            "auto": torch.bfloat16,
            "float32": torch.float32,
            torch.float32: torch.float32,
            torch.float16: torch.float16,
        }.items():
            loaded = loader.from_pretrained(tmp_path, **({} if wanted == "default" else dict(dtype=wanted)))
            assert {weight.dtype for weight in loaded.parameters()} == {expected}, wanted
            assert loaded.dtype == loaded.config.dtype == expected
            # Frequencies are no weights: they stay exact.
            assert {buffer.dtype for buffer in loaded.buffers()} == {torch.float32}


def test_dtype_of_the_parts(tmp_path: Path) -> None:
    model = build("encoder_decoder", head="lm")
    model.save_pretrained(tmp_path / "float32")
    model = type(model).from_pretrained(tmp_path / "float32").to(torch.bfloat16)  # the parts remember float32
    model.save_pretrained(tmp_path / "bfloat16")
    loaded = type(model).from_pretrained(tmp_path / "bfloat16")
    assert {weight.dtype for weight in loaded.parameters()} == {torch.bfloat16}
    assert loaded.config.encoder.dtype == loaded.config.decoder.dtype == torch.bfloat16
    for given in (torch.bfloat16, "bfloat16"):
        config = make("encoder_decoder", dtype=given)
        assert config.dtype == torch.bfloat16
        model = hf_tx.TxEncoderDecoderModel._from_config(config)
        assert model.encoder.dtype == model.decoder.dtype == torch.bfloat16


def test_auto_map_is_full_and_local(tmp_path: Path) -> None:
    """A checkpoint that was loaded from elsewhere refers to that place, which its copies must not."""
    elsewhere = {auto: f"someone/model--{name}" for auto, name in hf_tx.TxDecoderConfig.full_auto_map.items()}
    config = make_from_file("decoder", tmp_path, auto_map={"AutoConfig": elsewhere["AutoConfig"]})
    config.save_pretrained(tmp_path)
    stored = json.loads((tmp_path / "config.json").read_text())
    assert stored["auto_map"] == hf_tx.TxDecoderConfig.full_auto_map


def test_the_dict_of_a_nested_config_has_the_sizes_of_the_decoder_and_the_file_has_not(tmp_path):
    config = config_of("encoder_decoder", encoder=dict(num_hidden_layers=1))
    sizes = ("hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim")
    stored = config.to_dict()
    assert {name: stored[name] for name in sizes} == {name: getattr(config.decoder, name) for name in sizes}
    assert hf_tx.TxEncoderDecoderConfig.from_dict(stored) == config
    config.save_pretrained(tmp_path)
    assert not set(sizes) & json.loads((tmp_path / "config.json").read_text()).keys()
    assert hf_tx.TxEncoderDecoderConfig.from_pretrained(tmp_path) == config
    with pytest.raises(ValueError, match="no field 'hidden_size'"):
        hf_tx.TxEncoderDecoderConfig.from_dict({**stored, "hidden_size": 48})
