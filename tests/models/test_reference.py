# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Every model equals the plain reference of tests/reference_model.py: its states, and the gradient of every weight."""

import itertools

import pytest
import reference_model as reference
import torch
from tiny_models import FAMILIES, NORM_TYPES, PLACES, VOCABULARY, assert_close, build, pairwise, tokens

from hf_tx.models.feed_forward import FEED_FORWARDS
from hf_tx.models.norms import NORMS
from hf_tx.models.positions import POSITIONS

LENGTH, SOURCE_LENGTH = 9, 7


def check(model, **inputs):
    """Compare states and gradients of a base model on one row of odd length."""
    row, source_row = tokens(LENGTH), tokens(SOURCE_LENGTH, seed=1)
    weights = dict(model.named_parameters())
    inputs = {key: value[None] for key, value in inputs.items()}
    if model.config.is_encoder_decoder:
        inputs |= {"input_ids": source_row[None], "decoder_input_ids": row[None]}
    else:
        inputs |= {"input_ids": row[None]}
    actual = model(**inputs).last_hidden_state[0]
    given = {"token_types": inputs["token_type_ids"][0]} if "token_type_ids" in inputs else {}
    expected = reference.model(model.config, _with_shared(model, weights), row, source_row, **given)
    assert_close(actual.detach(), expected.detach())

    direction = torch.randn(expected.shape, generator=torch.Generator().manual_seed(3))
    used = list(weights)
    ours = torch.autograd.grad((actual * direction).sum(), [weights[name] for name in used], allow_unused=True)
    theirs = torch.autograd.grad((expected * direction).sum(), [weights[name] for name in used], allow_unused=True)
    largest = max(grad.abs().amax() for grad in theirs if grad is not None)
    for name, our, their in zip(used, ours, theirs, strict=True):
        assert (our is None) == (their is None), f"{name}: only one of both uses it"
        if our is None:
            continue
        # Some gradients vanish but for rounding: a bias of the keys shifts all scores of a query alike.
        error = (our - their).abs().amax() / torch.maximum(their.abs().amax(), 1e-2 * largest)
        assert error < 1e-4, f"the gradient of {name} differs by {error:.1e}"


def _with_shared(model, weights):
    """named_parameters() names a shared weight once; the reference looks for both names."""
    if "decoder.embed_tokens.weight" not in weights and "encoder.embed_tokens.weight" in weights:
        return {**weights, "decoder.embed_tokens.weight": weights["encoder.embed_tokens.weight"]}
    return weights


@pytest.mark.parametrize(
    ("family", "position_type", "norm_position", "norm_type", "ffn_type", "mixers"),
    pairwise(
        dict(
            family=FAMILIES,
            position_type=list(POSITIONS),
            norm_position=PLACES,
            norm_type=NORM_TYPES,
            ffn_type=list(FEED_FORWARDS),
            mixers=["full", "sliding", "sliding,full"],  # the others have references of their own
        )
    ),
)
def test_states_and_gradients_equal_the_reference(family, position_type, norm_position, norm_type, ffn_type, mixers):
    settings = dict(
        position_type=position_type,
        norm_position=norm_position,
        norm_type=norm_type,
        ffn_type=ffn_type,
        mixers=mixers,
        attention_bias=True,
        mlp_bias=True,
    )
    check(build(family, **settings))


FEATURES = {
    "qk_norm": dict(qk_norm=True),
    "qk_norm_layernorm": dict(qk_norm=True, norm_type="layernorm", position_type="alibi"),
    **{
        f"qk_norm_{scope}_{kind}": dict(qk_norm=True, qk_norm_scope=scope, norm_type=kind)
        for scope in ("heads", "all")
        for kind in NORM_TYPES
        if scope != "heads" or NORMS.get(kind).of_heads is not None
    },
    "qk_norm_heads_unit_offset": dict(qk_norm=True, qk_norm_scope="heads", norm_unit_offset=True, norm_type="rmsnorm"),
    "attention_scale": dict(attention_scale=0.9),
    "softcap": dict(attn_logit_softcapping=1.5),
    "softcap_and_bias": dict(attn_logit_softcapping=1.5, position_type="relative"),
    "parallel": dict(parallel_residual=True),
    "parallel_shared_norm": dict(parallel_residual=True, parallel_shared_norm=True),
    "parallel_without_ffn": dict(parallel_residual=True, ffn_type="none"),
    "residual_multiplier": dict(residual_multiplier=0.4),
    "residual_multiplier_post": dict(residual_multiplier=0.4, norm_position="post"),
    "residual_multiplier_residual_post": dict(residual_multiplier=0.4, norm_position="residual_post"),
    "residual_multiplier_sandwich": dict(residual_multiplier=0.4, norm_position="sandwich"),
    "residual_multiplier_parallel": dict(residual_multiplier=0.4, parallel_residual=True),
    "embedding_norm": dict(embedding_norm=True, position_type="learned"),
    "embedding_scale": dict(embedding_scale=3.0, position_type="sinusoidal"),
    "embedding_size": dict(embedding_size=14, tie_word_embeddings=False),
    "embedding_size_odd": dict(
        embedding_size=15, tie_word_embeddings=False, position_type="sinusoidal", embedding_norm=True
    ),
    "token_projection": dict(
        embedding_size=14, embedding_projection="tokens", tie_word_embeddings=False, position_type="learned"
    ),
    "token_projection_normed": dict(
        embedding_size=14,
        embedding_projection="tokens",
        embedding_norm=True,
        embedding_scale=3.0,
        output_projection=True,
        type_vocab_size=3,
    ),
    "output_projection": dict(embedding_size=14, output_projection=True, position_type="learned"),
    "position_offset": dict(position_type="learned", position_offset=2),
    "concatenated": dict(position_type="sinusoidal", sinusoidal_type="concatenated", position_offset=3),
    "tensor2tensor": dict(position_type="sinusoidal", sinusoidal_type="tensor2tensor"),
    "relative_per_layer": dict(position_type="relative", relative_attention_per_layer=True, mixers="sliding,full"),
    "norm_unit_offset": dict(norm_unit_offset=True, norm_type="rmsnorm", qk_norm=True),
    "norm_without_weights": dict(norm_type="layernorm", norm_affine=False, norm_bias=False, qk_norm=True),
    "norm_without_weights_rmsnorm": dict(norm_type="rmsnorm", norm_affine=False, qk_norm=True, qk_norm_scope="all"),
    "norm_without_bias": dict(norm_type="layernorm", norm_bias=False),
    "no_mixer_norm": dict(mixer_norm=False),
    "no_first_norm": dict(per_layer_config={0: {"mixer_norm": False}}, embedding_norm=True),
    "no_mixer_norm_parallel": dict(mixer_norm=False, parallel_residual=True),
    "no_final_norm": dict(final_norm=False),
    "final_norm_post": dict(final_norm=True, norm_position="post"),
    "interleaved": dict(rope_interleaved=True),
    "partial": dict(rope_parameters={"rope_theta": 100.0, "rope_type": "default", "partial_rotary_factor": 0.5}),
    "partial_interleaved": dict(
        rope_interleaved=True,
        rope_parameters={"rope_theta": 100.0, "rope_type": "default", "partial_rotary_factor": 0.5},
    ),
    "mha": dict(num_key_value_heads=6),
    "mqa": dict(num_key_value_heads=1),
    "mqa_relative": dict(num_key_value_heads=1, position_type="relative"),
    "qkv_bias_only": dict(attention_bias=True, attention_out_bias=False),
    "out_bias_only": dict(attention_bias=False, attention_out_bias=True),
    "relu": dict(hidden_act="relu", ffn_type="mlp"),
    "gelu": dict(hidden_act="gelu", ffn_type="glu"),
    "gelu_new": dict(hidden_act="gelu_new", ffn_type="mlp"),
    "token_types": dict(type_vocab_size=3),
}


@pytest.mark.parametrize(
    ("feature", "family"),
    [
        pytest.param(feature, family, id=f"{feature}-{family}")
        for feature, family in itertools.product(FEATURES, FAMILIES)
        if not (family == "encoder_decoder" and FEATURES[feature].get("parallel_residual"))
    ],
)
def test_features_equal_the_reference(feature, family):
    check(build(family, **FEATURES[feature]))


@pytest.mark.parametrize("family", ["decoder", "encoder"])
def test_token_types_are_added(family):
    types = torch.tensor([0, 1, 2, 2, 1, 0, 0, 2, 1])
    check(build(family, type_vocab_size=3), token_type_ids=types)


def test_the_stacks_of_an_encoder_decoder_may_differ():
    check(
        build(
            "encoder_decoder",
            encoder=dict(hidden_size=18, norm_position="post", norm_type="layernorm", position_type="learned"),
            share_embeddings=False,
            norm_position="sandwich",
            position_type="relative",
        )
    )


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    "settings",
    [
        {},
        dict(logit_scale=0.3),
        dict(final_logit_softcapping=2.0),
        dict(logit_scale=0.3, final_logit_softcapping=2.0, lm_head_bias=True),
    ],
    ids=lambda settings: "-".join(settings) or "plain",
)
def test_logits_equal_the_reference(family, settings):
    extra = {"mlm_head_transform": False} if family == "encoder" else {}
    model = build(family, head="lm", tie_word_embeddings=False, **settings, **extra)
    row, source_row = tokens(LENGTH), tokens(SOURCE_LENGTH, seed=1)
    inputs = {"input_ids": row[None]}
    if family == "encoder_decoder":
        inputs = {"input_ids": source_row[None], "decoder_input_ids": row[None]}
    with torch.no_grad():
        actual = model(**inputs).logits[0]
        weights = dict(model.named_parameters())
        base = _with_shared(model.model, reference.under(weights, "model."))
        stack = model.config.decoder if family == "encoder_decoder" else model.config
        expected = reference.logits(reference.model(model.config, base, row, source_row), stack, weights)
    assert actual.shape == (LENGTH, VOCABULARY)
    assert_close(actual, expected)
    if "final_logit_softcapping" in settings:
        assert actual.abs().amax() <= 2.0
