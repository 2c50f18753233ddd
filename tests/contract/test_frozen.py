# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""What users and checkpoints hold on to: a change here breaks them, and needs a new major version."""

import importlib
import json
from pathlib import Path
from typing import Any

import pytest
import transformers
from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

import hf_tx

PUBLIC = """
    TxDecoderConfig TxDecoderForCausalLM TxDecoderForQuestionAnswering TxDecoderForSequenceClassification
    TxDecoderForTokenClassification TxDecoderModel
    TxEncoderConfig TxEncoderForMaskedLM TxEncoderForMultipleChoice TxEncoderForQuestionAnswering
    TxEncoderForSequenceClassification TxEncoderForTokenClassification TxEncoderModel
    TxEncoderDecoderConfig TxEncoderDecoderForConditionalGeneration TxEncoderDecoderForQuestionAnswering
    TxEncoderDecoderForSequenceClassification TxEncoderDecoderModel
    __version__ extend_context from_hf parameter_count tie_embeddings to_hf untie_embeddings
    warm_start_decoder warm_start_encoder_decoder
"""

# One layer, with every part that has weights in one of the three.
SIZES = dict(vocab_size=8, hidden_size=4, num_hidden_layers=1, num_attention_heads=2, max_position_embeddings=5)
BUCKETS = dict(position_type="relative", relative_attention_num_buckets=4, relative_attention_max_distance=8)
MODELS: dict[str, tuple[type, Any, str]] = {
    "decoder": (
        hf_tx.TxDecoderForCausalLM,
        lambda: hf_tx.TxDecoderConfig(**SIZES, qk_norm=True, attention_bias=True, mlp_bias=True, lm_head_bias=True),
        """
        lm_head.bias
        lm_head.weight
        model.embed_tokens.weight
        model.layers.0.mixer.k_norm.weight
        model.layers.0.mixer.k_proj.bias
        model.layers.0.mixer.k_proj.weight
        model.layers.0.mixer.o_proj.bias
        model.layers.0.mixer.o_proj.weight
        model.layers.0.mixer.q_norm.weight
        model.layers.0.mixer.q_proj.bias
        model.layers.0.mixer.q_proj.weight
        model.layers.0.mixer.v_proj.bias
        model.layers.0.mixer.v_proj.weight
        model.layers.0.mixer_norm.weight
        model.layers.0.mlp.down_proj.bias
        model.layers.0.mlp.down_proj.weight
        model.layers.0.mlp.gate_proj.bias
        model.layers.0.mlp.gate_proj.weight
        model.layers.0.mlp.up_proj.bias
        model.layers.0.mlp.up_proj.weight
        model.layers.0.mlp_norm.weight
        model.norm.weight
        """,
    ),
    "encoder": (
        hf_tx.TxEncoderForMaskedLM,
        lambda: hf_tx.TxEncoderConfig(
            **SIZES, position_type="learned", embedding_norm=True, embedding_size=6, ffn_type="mlp"
        ),
        """
        lm_head.bias
        lm_head.weight
        model.embed_norm.bias
        model.embed_norm.weight
        model.embed_proj.bias
        model.embed_proj.weight
        model.embed_tokens.weight
        model.embed_types.weight
        model.layers.0.mixer.k_proj.weight
        model.layers.0.mixer.o_proj.weight
        model.layers.0.mixer.q_proj.weight
        model.layers.0.mixer.v_proj.weight
        model.layers.0.mixer_norm.bias
        model.layers.0.mixer_norm.weight
        model.layers.0.mlp.down_proj.weight
        model.layers.0.mlp.up_proj.weight
        model.layers.0.mlp_norm.bias
        model.layers.0.mlp_norm.weight
        model.norm.bias
        model.norm.weight
        model.positions.learned.embed_positions.weight
        transform.dense.bias
        transform.dense.weight
        transform.norm.bias
        transform.norm.weight
        """,
    ),
    "encoder_decoder": (
        hf_tx.TxEncoderDecoderForConditionalGeneration,
        lambda: hf_tx.TxEncoderDecoderConfig(
            encoder=dict(**SIZES, **BUCKETS, type_vocab_size=0, norm_type="rmsnorm"),
            decoder=dict(**SIZES, **BUCKETS, norm_position="sandwich"),
        ),
        """
        lm_head.weight
        model.decoder.embed_tokens.weight
        model.decoder.layers.0.cross_mixer.k_proj.weight
        model.decoder.layers.0.cross_mixer.o_proj.weight
        model.decoder.layers.0.cross_mixer.q_proj.weight
        model.decoder.layers.0.cross_mixer.v_proj.weight
        model.decoder.layers.0.cross_norm.weight
        model.decoder.layers.0.cross_post_norm.weight
        model.decoder.layers.0.mixer.k_proj.weight
        model.decoder.layers.0.mixer.o_proj.weight
        model.decoder.layers.0.mixer.q_proj.weight
        model.decoder.layers.0.mixer.v_proj.weight
        model.decoder.layers.0.mixer_norm.weight
        model.decoder.layers.0.mixer_post_norm.weight
        model.decoder.layers.0.mlp.down_proj.weight
        model.decoder.layers.0.mlp.gate_proj.weight
        model.decoder.layers.0.mlp.up_proj.weight
        model.decoder.layers.0.mlp_norm.weight
        model.decoder.layers.0.mlp_post_norm.weight
        model.decoder.norm.weight
        model.decoder.positions.relative.relative_bias.weight
        model.encoder.embed_tokens.weight
        model.encoder.layers.0.mixer.k_proj.weight
        model.encoder.layers.0.mixer.o_proj.weight
        model.encoder.layers.0.mixer.q_proj.weight
        model.encoder.layers.0.mixer.v_proj.weight
        model.encoder.layers.0.mixer_norm.weight
        model.encoder.layers.0.mlp.down_proj.weight
        model.encoder.layers.0.mlp.gate_proj.weight
        model.encoder.layers.0.mlp.up_proj.weight
        model.encoder.layers.0.mlp_norm.weight
        model.encoder.norm.weight
        model.encoder.positions.relative.relative_bias.weight
        """,
    ),
}
# What the other heads of a family have beside the base model.
HEADS = {
    "TxDecoderForSequenceClassification": "score.weight",
    "TxDecoderForTokenClassification": "score.bias score.weight",
    "TxDecoderForQuestionAnswering": "qa_outputs.bias qa_outputs.weight",
    "TxEncoderForSequenceClassification": "score.bias score.weight",
    "TxEncoderForTokenClassification": "score.bias score.weight",
    "TxEncoderForQuestionAnswering": "qa_outputs.bias qa_outputs.weight",
    "TxEncoderForMultipleChoice": "score.bias score.weight",
    "TxEncoderDecoderForSequenceClassification": "score.bias score.weight",
    "TxEncoderDecoderForQuestionAnswering": "qa_outputs.bias qa_outputs.weight",
}
AUTO_CLASSES = {
    "hf_tx_decoder": "AutoConfig AutoModel AutoModelForCausalLM AutoModelForQuestionAnswering "
    "AutoModelForSequenceClassification AutoModelForTokenClassification",
    "hf_tx_encoder": "AutoConfig AutoModel AutoModelForMaskedLM AutoModelForMultipleChoice "
    "AutoModelForQuestionAnswering AutoModelForSequenceClassification AutoModelForTokenClassification",
    "hf_tx_encoder_decoder": "AutoConfig AutoModel AutoModelForQuestionAnswering AutoModelForSeq2SeqLM "
    "AutoModelForSequenceClassification",
}
CONFIGS = {cls.model_type: cls for cls in (hf_tx.TxDecoderConfig, hf_tx.TxEncoderConfig, hf_tx.TxEncoderDecoderConfig)}
# Config files as version 0.1.0 wrote them, by the class of the model.
OLD_CONFIGS = json.loads((Path(__file__).parent / "configs_0_1_0.json").read_text("utf-8"))


def family_of(name: str) -> str:
    return "encoder_decoder" if "EncoderDecoder" in name else "decoder" if "Decoder" in name else "encoder"


def test_public_names() -> None:
    assert sorted(hf_tx.__all__) == sorted(PUBLIC.split())
    assert not [name for name in hf_tx.__all__ if not hasattr(hf_tx, name)]


@pytest.mark.parametrize("family", MODELS)
def test_keys_of_the_weights(family: str) -> None:
    cls, config, keys = MODELS[family]
    assert sorted(cls(config()).state_dict()) == sorted(keys.split())


@pytest.mark.parametrize("name", HEADS)
def test_keys_of_the_other_heads(name: str) -> None:
    keys = getattr(hf_tx, name)(MODELS[family_of(name)][1]()).state_dict()
    assert sorted(key for key in keys if not key.startswith("model.")) == HEADS[name].split()


def test_keys_of_the_pooling_layer() -> None:
    model = hf_tx.TxEncoderModel(hf_tx.TxEncoderConfig(**SIZES, add_pooling_layer=True))
    assert [key for key in model.state_dict() if "pooler" in key] == ["pooler.dense.weight", "pooler.dense.bias"]


# Shapes of the weights that an option adds or changes; None: it takes them away.
OPTIONS: dict[str, tuple[dict[str, Any], dict[str, tuple[int, ...] | None]]] = {
    "heads": (
        dict(qk_norm=True, qk_norm_scope="heads"),
        {"layers.0.mixer.q_norm.weight": (2, 2), "layers.0.mixer.k_norm.weight": (2, 2)},
    ),
    "all": (
        dict(qk_norm=True, qk_norm_scope="all"),
        {"layers.0.mixer.q_norm.weight": (4,), "layers.0.mixer.k_norm.weight": (4,)},
    ),
    "residual_post": (
        dict(norm_position="residual_post"),
        {
            "layers.0.mixer_norm.weight": None,
            "layers.0.mixer_post_norm.weight": (4,),
            "layers.0.mlp_norm.weight": None,
            "layers.0.mlp_post_norm.weight": (4,),
        },
    ),
    "no_mixer_norm": (dict(mixer_norm=False), {"layers.0.mixer_norm.weight": None}),
    "no_norm_affine": (
        dict(norm_affine=False),
        {"layers.0.mixer_norm.weight": None, "layers.0.mlp_norm.weight": None, "norm.weight": None},
    ),
    "learned_relative": (
        BUCKETS | dict(position_type="learned_relative"),
        {
            "positions.learned_relative.embed_positions.weight": (5, 4),
            "positions.learned_relative.relative_bias.weight": (4, 2),
        },
    ),
    "projections": (
        dict(embedding_size=6, embedding_projection="tokens", output_projection=True),
        {"embed_tokens.weight": (8, 6), "embed_proj.weight": (4, 6), "output_proj.weight": (6, 4)},
    ),
}


@pytest.mark.parametrize("option", OPTIONS)
def test_keys_that_an_option_changes(option: str) -> None:
    settings, expected = OPTIONS[option]
    with_it, without = (
        {key: tuple(weight.shape) for key, weight in hf_tx.TxDecoderModel(config).state_dict().items()}
        for config in (hf_tx.TxDecoderConfig(**SIZES, **settings), hf_tx.TxDecoderConfig(**SIZES))
    )
    keys = with_it.keys() | without.keys()
    assert {key: with_it.get(key) for key in keys if with_it.get(key) != without.get(key)} == expected


@pytest.mark.parametrize("name", [name for name in HEADS if family_of(name) == "encoder"])
def test_keys_of_a_classifier_with_a_transform(name: str) -> None:
    model = getattr(hf_tx, name)(hf_tx.TxEncoderConfig(**SIZES, classifier_transform=True))
    keys = [key for key in model.state_dict() if key.startswith("transform.")]
    assert keys == [f"transform.{part}.{kind}" for part in ("dense", "norm") for kind in ("weight", "bias")]


def test_keys_of_the_transform_of_a_classifier() -> None:
    config = hf_tx.TxEncoderDecoderConfig(encoder=SIZES, decoder=SIZES, classifier_transform=True)
    keys = hf_tx.TxEncoderDecoderForSequenceClassification(config).state_dict()
    assert [key for key in keys if "transform" in key] == ["transform.weight", "transform.bias"]


def test_keys_of_biases_of_every_layer() -> None:
    model = hf_tx.TxEncoderModel(hf_tx.TxEncoderConfig(**SIZES, **BUCKETS, relative_attention_per_layer=True))
    assert [key for key in model.state_dict() if "bias" in key and "norm" not in key] == [
        "positions.relative_0.relative_bias.weight"
    ]


@pytest.mark.parametrize("model_type", AUTO_CLASSES)
def test_auto_classes(model_type: str) -> None:
    config = CONFIGS[model_type]
    assert sorted(config.full_auto_map) == AUTO_CLASSES[model_type].split()
    for reference in config.full_auto_map.values():
        module, name = reference.split(".")
        assert getattr(importlib.import_module(f"hf_tx.models.{module}"), name) is getattr(hf_tx, name)


def test_every_public_model_has_an_auto_class() -> None:
    mapped = {reference.split(".")[1] for config in CONFIGS.values() for reference in config.full_auto_map.values()}
    assert mapped == {name for name in hf_tx.__all__ if name.startswith("Tx")}


def test_no_name_is_taken_by_the_library() -> None:
    """Its own code would be chosen for our checkpoints, or ours for its."""
    assert not set(CONFIGS) & set(CONFIG_MAPPING_NAMES)
    assert not [name for name in hf_tx.__all__ if name.startswith("Tx") and hasattr(transformers, name)]


@pytest.mark.parametrize("name", OLD_CONFIGS)
def test_configs_of_earlier_versions_load(name: str) -> None:
    stored = OLD_CONFIGS[name]
    config = CONFIGS[stored["config"]["model_type"]].from_dict(dict(stored["config"]))
    assert sum(weight.numel() for weight in getattr(hf_tx, name)(config).parameters()) == stored["parameters"]
    assert only(json.loads(config.to_json_string()), stored["config"]) == written_now(stored["config"])


def written_now(old: dict[str, Any]) -> dict[str, Any]:
    """Say `logit_scale` as it is written since clients multiply by what they find: 1 when it is unused, not null."""
    unused = {"logit_scale": 1.0} if "logit_scale" in old and old["logit_scale"] is None else {}
    return {key: written_now(value) if isinstance(value, dict) else value for key, value in old.items()} | unused


def only(new: dict[str, Any], old: dict[str, Any]) -> dict[str, Any]:
    """Leave out what later versions have added, and transformers' version."""
    kept = {key: only(new[key], value) if isinstance(value, dict) else new[key] for key, value in old.items()}
    return kept | ({"transformers_version": old["transformers_version"]} if "transformers_version" in old else {})
