# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Every position scheme against the formula that it is named after, or against transformers' own computation of it."""

import logging
import math
from types import SimpleNamespace

import pytest
import reference_model as reference
import torch
from tiny_models import (
    BACKENDS,
    BIASES,
    FAMILIES,
    assert_close,
    assert_differ,
    build,
    padded,
    shared,
    states,
    tokens,
    uncompiled,
)
from transformers import DynamicCache, LlamaConfig, StaticCache
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.cohere.modeling_cohere import apply_rotary_pos_emb as cohere_rotary
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb as llama_rotary
from transformers.models.m2m_100.modeling_m2m_100 import M2M100SinusoidalPositionalEmbedding
from transformers.models.marian.modeling_marian import MarianSinusoidalPositionalEmbedding
from transformers.models.t5.modeling_t5 import T5Attention

from hf_tx.models.positions import (
    POSITIONS,
    SINUSOIDS,
    RotaryEmbedding,
    alibi_slopes,
    apply_rotary,
    relative_position_buckets,
)


@pytest.fixture(autouse=True)
def _uncompiled():
    with uncompiled():
        yield


# ---------------------------------------------------------------------------------------------------- sinusoidal
@pytest.mark.parametrize("offset", [0, 2])
@pytest.mark.parametrize("kind", SINUSOIDS)
@pytest.mark.parametrize("size", [8, 24, 15])
def test_sinusoids_equal_the_formula(size, kind, offset):
    scheme = POSITIONS.get("sinusoidal").module(SimpleNamespace(sinusoidal_type=kind, position_offset=offset))
    positions = torch.tensor([[0, 1, 2, 17, 500, 5000]])
    table = scheme.embed(torch.zeros(1, 6, size), positions)[0]
    expected = torch.stack([reference.sinusoid(int(position) + offset, size, kind) for position in positions[0]])
    # An angle of 5000 has an error of 5e-3 in float32.
    assert (table - expected).abs().amax() < (5e-3 if kind == "tensor2tensor" else 2e-7)
    assert (table[:4] - expected[:4]).abs().amax() < 2e-5


def test_sinusoids_have_no_last_position():
    model = shared("decoder", position_type="sinusoidal", max_position_embeddings=8)
    assert_differ(states(model, tokens(1, 20))[:, -1:], states(model, tokens(1, 20)[:, 1:])[:, -1:])


# -------------------------------------------------------------------------------------------------------- learned
def refuses(**numbers):
    """The message names the position and the limit."""
    return pytest.raises(
        ValueError, match=r"position 16 is beyond the table .*max_position_embeddings = 16, but this text has 17 "
    )


@pytest.mark.parametrize("offset", [0, 2])
@pytest.mark.parametrize("family", FAMILIES)
def test_learned_positions_end_where_the_table_does(family, offset):
    model = build(family, position_type="learned", max_position_embeddings=16, position_offset=offset)
    states(model, tokens(1, 16))
    with refuses():
        states(model, tokens(1, 17))
    states(model, tokens(1, 3), position_ids=torch.tensor([[13, 14, 15]]))
    with refuses():
        states(model, tokens(1, 3), position_ids=torch.tensor([[14, 15, 16]]))
    # Twenty columns, of which sixteen are real.
    for side in ("left", "right"):
        batch, mask = padded([tokens(16), tokens(3)], side, extra=4)
        output = states(model, batch, attention_mask=mask)
        assert_close(output[0][mask[0].bool()], states(model, tokens(1, 16))[0])
        batch, mask = padded([tokens(17), tokens(3)], side, extra=4)
        with refuses():
            states(model, batch, attention_mask=mask)


@pytest.mark.parametrize("family", ["decoder", "encoder_decoder"])
def test_learned_positions_end_for_a_cached_text(family):
    model = build(family, position_type="learned", max_position_embeddings=16)
    source = {} if family == "decoder" else {"input_ids": tokens(1, 7, seed=5)}
    name = "input_ids" if family == "decoder" else "decoder_input_ids"
    with torch.no_grad():
        cache = model(**source, **{name: tokens(1, 15)}, use_cache=True).cache
        cache = model(**source, **{name: tokens(1, 1)}, cache=cache).cache
        with refuses():
            model(**source, **{name: tokens(1, 1)}, cache=cache)
        # A left-padded row goes on until its real tokens fill the table.
        batch, mask = padded([tokens(14)], "left", extra=5)
        mask_name = "attention_mask" if family == "decoder" else "decoder_attention_mask"
        cache = None
        for _ in range(2):
            output = model(**source, **{name: batch, mask_name: mask}, cache=cache, use_cache=True)
            cache, batch, mask = output.cache, tokens(1, 1), torch.nn.functional.pad(mask, (0, 1), value=1)
        output = model(**source, **{name: batch, mask_name: mask}, cache=cache)
        with refuses():
            model(
                **source,
                **{name: batch, mask_name: torch.nn.functional.pad(mask, (0, 1), value=1)},
                cache=output.cache,
            )


@pytest.mark.parametrize("use_cache", [False, True])
@pytest.mark.parametrize("cache", [None, "static"])
def test_learned_positions_end_while_generating(use_cache, cache):
    if cache and not use_cache:
        pytest.skip("no cache at all")
    model = build("decoder", head="lm", position_type="learned", max_position_embeddings=16)
    arguments = dict(do_sample=False, eos_token_id=None, use_cache=use_cache, disable_compile=True)
    if cache:
        arguments["cache_implementation"] = cache
    # The last token that is generated is never read.
    assert model.generate(tokens(1, 10), max_length=16, **arguments).shape == (1, 16)
    assert model.generate(tokens(1, 10), max_length=17, **arguments).shape == (1, 17)
    with refuses():
        model.generate(tokens(1, 10), max_length=18, **arguments)
    batch, mask = padded([tokens(10), tokens(4)], "left", extra=3)
    assert model.generate(batch, attention_mask=mask, max_new_tokens=7, **arguments).shape == (2, 20)
    with refuses():
        model.generate(batch, attention_mask=mask, max_new_tokens=8, **arguments)


@pytest.mark.parametrize("family", ["decoder", "encoder"])
def test_an_offset_moves_the_table_only(family):
    """C54: positions are zero-based whatever the offset, so that a packing collator's positions fit."""
    model = build(family, position_type="learned", position_offset=2)
    plain = build(family, position_type="learned")
    state = model.state_dict()
    key = "positions.learned.embed_positions.weight"
    assert state[key].shape == (64 + 2, 24)
    plain.load_state_dict({**state, key: state[key][2:]})
    for side in ("left", "right"):
        batch, mask = padded([tokens(4), tokens(9)], side)
        real = mask.bool()
        expected = states(plain, batch, attention_mask=mask)[real]
        assert_close(states(model, batch, attention_mask=mask)[real], expected)
        positions = (mask.cumsum(-1) - 1).clamp(min=0)
        assert_close(states(model, batch, attention_mask=mask, position_ids=positions)[real], expected)
    packed = torch.cat([torch.arange(4), torch.arange(5)])[None]
    row = tokens(1, 9)
    expected = torch.cat([states(plain, row[:, :4]), states(plain, row[:, 4:])], dim=1)
    assert_close(states(model, row, position_ids=packed), expected)


# ------------------------------------------------------------------------------------------------ relative and ALiBi
@pytest.mark.parametrize("far", [20, 64, 128, 200, 1000])
@pytest.mark.parametrize("buckets", [4, 8, 16, 32, 64])
@pytest.mark.parametrize("causal", [False, True])
def test_buckets_equal_those_of_t5(causal, buckets, far):
    if far <= buckets // 2:
        pytest.skip("refused by the config")
    distance = torch.arange(-2000, 2001)
    expected = T5Attention._relative_position_bucket(
        distance, bidirectional=not causal, num_buckets=buckets, max_distance=far
    )
    actual = relative_position_buckets(distance, causal, buckets, far)
    assert torch.equal(actual, expected), distance[actual != expected]
    assert actual.min() >= 0
    assert actual.max() == buckets - 1


@pytest.mark.parametrize("heads", [1, 2, 3, 4, 6, 8, 12, 16, 20, 25, 64])
def test_slopes_equal_the_published_recursion(heads):
    assert len(alibi_slopes(heads)) == heads
    assert_close(torch.tensor(alibi_slopes(heads)), torch.tensor(reference.alibi_slopes(heads)), 1e-6)


@pytest.mark.parametrize("size", [8, 15])
def test_sinusoids_equal_those_of_marian_and_m2m(size):
    positions = torch.arange(1000)
    marian = MarianSinusoidalPositionalEmbedding(1000, size)
    expected = {
        "concatenated": marian.create_weight(),
        "tensor2tensor": M2M100SinusoidalPositionalEmbedding.get_embedding(1000, size),
    }
    for kind, table in expected.items():
        scheme = POSITIONS.get("sinusoidal").module(SimpleNamespace(sinusoidal_type=kind, position_offset=0))
        assert_close(scheme.embed(torch.zeros(1, 1000, size), positions[None])[0], table, 1e-6)


def test_relative_biases_are_shared_by_all_layers_or_each_has_its_own():
    def names(**settings):
        model = shared("decoder", position_type="relative", **settings)
        return [name for name, _ in model.named_parameters() if "relative_bias" in name]

    assert names() == ["positions.relative.relative_bias.weight"]
    assert names(relative_attention_per_layer=True) == [
        f"positions.relative_{idx}.relative_bias.weight" for idx in range(shared("decoder").config.num_hidden_layers)
    ]


@pytest.mark.parametrize("position_type", BIASES)
def test_biases_stay_right_far_beyond_the_trained_length(position_type):
    """Cached steps ask for one query at a time, at a distance that no table ends before."""
    model = shared("decoder", position_type=position_type, max_position_embeddings=8)
    row = tokens(1, 30)
    expected = states(model, row, use_cache=False)
    with torch.no_grad():
        cache = model(row[:, :25], use_cache=True).cache
        steps = [model(row[:, i : i + 1], cache=cache).last_hidden_state for i in range(25, 30)]
    assert_close(torch.cat(steps, dim=1), expected[:, 25:])


# ------------------------------------------------------------------------------------------------------------- rope
ROPES = {
    "default": {},
    "linear": dict(factor=4.0),
    "dynamic": dict(factor=2.0),
    "yarn": dict(factor=4.0, original_max_position_embeddings=16),
    "yarn_mscale": dict(
        rope_type="yarn",
        factor=4.0,
        original_max_position_embeddings=16,
        mscale=0.7,
        mscale_all_dim=0.4,
        beta_fast=4.0,
        beta_slow=0.5,
    ),
    "longrope": dict(
        factor=4.0,
        original_max_position_embeddings=16,
        short_factor=[1.0, 1.5, 2.0, 2.5],
        long_factor=[2.0, 4.0, 6.0, 8.0],
    ),
    "llama3": dict(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=16),
    "proportional": dict(partial_rotary_factor=0.5, factor=1.0),
}
LIMIT = 32


def rope(kind):
    return {"rope_type": kind, "rope_theta": 500.0, **ROPES[kind]}


def test_all_kinds_of_the_library_are_here():
    assert {"default", *ROPE_INIT_FUNCTIONS} == {rope(kind)["rope_type"] for kind in ROPES}


def library_rotary(kind):
    theirs = LlamaRotaryEmbedding(
        LlamaConfig(
            hidden_size=24,
            num_attention_heads=6,
            head_dim=8,
            max_position_embeddings=LIMIT,
            rope_parameters=rope(kind),
        )
    )

    def tables(x, positions):
        """As ours: sines with the sign of the rotation."""
        cos, sin = theirs(x, positions)
        half = sin.shape[-1] // 2
        return cos, torch.cat((-sin[..., :half], sin[..., half:]), dim=-1)

    return tables


def own_rope(kind, **settings):
    return build("decoder", max_position_embeddings=LIMIT, rope_parameters=rope(kind), **settings).positions["rope"]


def own_rotary(kind):
    return own_rope(kind).rotary_emb["all"]


@pytest.mark.parametrize("kind", ROPES)
def test_rotations_equal_those_of_llama(kind):
    """Short, beyond the limit, farther beyond, and short again: some kinds change their frequencies on the way."""
    own, library = own_rotary(kind), library_rotary(kind)
    for length in (9, 16, 17, LIMIT, LIMIT + 1, 4 * LIMIT, 2 * LIMIT, 9):
        positions = torch.arange(length)[None]
        x = torch.zeros(1, length, 24)
        for actual, wanted in zip(own(x, positions), library(x, positions), strict=True):
            assert_close(actual, wanted, 1e-6)


@pytest.mark.parametrize("kind", ROPES)
def test_kinds_are_told_apart(kind):
    model = build("decoder", max_position_embeddings=LIMIT, rope_parameters=rope(kind))
    plain = build("decoder", max_position_embeddings=LIMIT, rope_parameters=rope("default"))
    row = tokens(1, LIMIT + 8)
    moved = (states(model, row) - states(plain, row)).abs().amax()
    assert (moved == 0) if kind == "default" else (moved > 1e-2)


def test_default_frequencies_equal_the_formula():
    """Su et al., 2021: theta_i = base ** (-2 i / d), of the rotary dimension, where only a part of a head rotates."""
    for share, size in ((1.0, 8), (0.5, 4), (0.25, 2)):
        model = build("decoder", rope_parameters={**rope("default"), "partial_rotary_factor": share})
        expected = torch.tensor([500.0 ** (-2 * i / size) for i in range(size // 2)])
        assert_close(model.positions["rope"].rotary_emb["all"].inv_freq, expected, 1e-6)


@pytest.mark.parametrize("share", [1.0, 0.5])
def test_rotating_equals_llama_and_cohere(share):
    generator = torch.Generator().manual_seed(0)
    states_ = torch.randn(2, 3, 5, 8, generator=generator)
    size = int(8 * share)
    positions = torch.tensor([[0, 1, 2, 3, 4], [7, 3, 3, 9, 40]])
    for interleaved, theirs in ((False, llama_rotary), (True, cohere_rotary)):
        model = build(
            "decoder",
            rope_interleaved=interleaved,
            rope_parameters={**rope("default"), "partial_rotary_factor": share},
        )
        cos, sin = model.positions["rope"].rotate(torch.zeros(2, 5, 24), positions, "full_attention")
        actual = apply_rotary(states_, cos, sin, interleaved=interleaved)
        angles = positions[..., None].float() * 500.0 ** (-torch.arange(0, size, 2).float() / size)
        angles = angles.repeat_interleave(2, -1) if interleaved else torch.cat((angles, angles), -1)
        expected, _ = theirs(states_[..., :size], states_[..., :size], angles.cos(), angles.sin())
        assert_close(actual[..., :size], expected, 1e-6)
        assert torch.equal(actual[..., size:], states_[..., size:])


@pytest.mark.parametrize("kind", ROPES)
@pytest.mark.parametrize("interleaved", [False, True])
def test_rotations_keep_norms_and_depend_on_distances_only(kind, interleaved):
    own = own_rope(kind, rope_interleaved=interleaved)
    generator = torch.Generator().manual_seed(0)
    query, key = (torch.randn(1, 1, 1, 8, generator=generator).expand(1, 1, 12, 8) for _ in range(2))
    cos, sin = own.rotate(torch.zeros(1, 12, 24), torch.arange(12)[None], "full_attention")
    query, key = (apply_rotary(x, cos, sin, interleaved) for x in (query, key))
    assert_close(query.norm(dim=-1), query[..., :1, :].norm(dim=-1).expand(1, 1, 12))
    scores = (query @ key.transpose(-1, -2))[0, 0]
    for distance in range(-11, 12):
        diagonal = scores.diagonal(distance)
        assert_close(diagonal, diagonal[:1].expand_as(diagonal), 1e-4)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", [kind for kind in ROPES if kind not in ("dynamic", "longrope")])
def test_a_cache_changes_nothing_beyond_the_limit(kind, backend):
    """Not so for kinds whose frequencies depend on the length: keys in a cache keep the rotation that they got, and
    that is warned of."""
    model = build("decoder", backend, max_position_embeddings=8, rope_parameters=rope(kind))
    row = tokens(1, 20)
    expected = states(model, row, use_cache=False)
    with torch.no_grad():
        cache = model(row[:, :6], use_cache=True).cache
        rest = model(row[:, 6:], cache=cache).last_hidden_state
    assert_close(rest, expected[:, 6:])


@pytest.mark.parametrize(
    ("kind", "parts", "room", "warned"),
    [
        *[(kind, (30, 3, 1), None, True) for kind in ("dynamic", "longrope")],
        *[(kind, (30, *(1,) * 4), None, True) for kind in ("dynamic", "longrope")],
        *[(kind, (10, 20, 2), None, False) for kind in ("dynamic", "longrope")],
        # All tokens of a long prompt have the long frequencies, which are one set for `longrope` only.
        ("longrope", (34, 2), None, False),
        ("dynamic", (34, 2), None, True),
        *[(kind, (34,), None, False) for kind in ("dynamic", "longrope")],
        # Of a static cache the device knows how full it is, and everybody how long.
        *[(kind, (30, 3), 36, True) for kind in ("dynamic", "longrope")],
        *[(kind, (30, 2), 32, False) for kind in ("dynamic", "longrope")],
        ("longrope", (34, 2), 36, False),
        ("yarn", (30, 3), None, False),
    ],
)
def test_a_cache_across_a_change_of_frequencies_is_warned_of(kind, parts, room, warned, caplog):
    parameters = rope(kind) | ({"original_max_position_embeddings": LIMIT} if kind == "longrope" else {})
    model = build("decoder", "sdpa", max_position_embeddings=LIMIT, rope_parameters=parameters)
    row = tokens(1, sum(parts))
    logging.Logger.warning_once.cache_clear()
    cache = DynamicCache(config=model.config) if room is None else StaticCache(model.config, max_cache_len=room)
    outputs = [states(model, part, cache=cache, use_cache=True) for part in row.split(parts, dim=1)]
    messages = [record.getMessage() for record in caplog.records if "other frequencies" in record.getMessage()]
    assert len(messages) == int(warned)
    assert all(f"{kind!r}" in message and f"{LIMIT} tokens" in message for message in messages)
    assert all("use_cache=False" in message for message in messages)
    if not warned and len(parts) > 1:
        # The limit of `dynamic` decides by the length of the whole text, which the last of the parts ends.
        assert_close(torch.cat(outputs, dim=1), states(model, row, use_cache=False))


def test_generating_across_a_change_of_frequencies_warns_once(caplog):
    model = build("decoder", "sdpa", "lm", max_position_embeddings=8, rope_parameters=rope("dynamic"))
    for cache in ("dynamic", "static"):
        caplog.clear()
        logging.Logger.warning_once.cache_clear()
        arguments = dict(max_new_tokens=8, do_sample=False, eos_token_id=None, cache_implementation=cache)
        model.generate(tokens(1, 5), **arguments)
        assert sum("other frequencies" in record.getMessage() for record in caplog.records) == 1


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kind", ROPES)
def test_frequencies_stay_exact_in_half_precision(kind, dtype, tmp_path):
    """C22: rounded frequencies let distant positions coincide. The result is rounded once, at the end."""
    positions = torch.arange(8192)[None]
    expected = own_rotary(kind)(torch.zeros(1, 8192, 24), positions)
    for convert in (lambda rotary: rotary.to(dtype), lambda rotary: rotary.half().to(dtype)):
        rotary = convert(own_rotary(kind))
        assert rotary.inv_freq.dtype == rotary.original_inv_freq.dtype == torch.float32
        for of_states in (torch.float32, dtype):
            tables = rotary(torch.zeros(1, 8192, 24, dtype=of_states), positions)
            for table, wanted in zip(tables, expected, strict=True):
                assert table.dtype == of_states
                assert torch.equal(table, wanted.to(of_states))
    assert (expected[1][0, 256] - expected[1][0, 257]).abs().amax() > 0.01
    model = build("decoder", max_position_embeddings=LIMIT, rope_parameters=rope(kind))
    model.save_pretrained(tmp_path, include_code=False)
    loaded = type(model).from_pretrained(tmp_path, dtype=dtype)
    rotary = loaded.positions["rope"].rotary_emb["all"]
    assert rotary.inv_freq.dtype == torch.float32
    with torch.autocast("cpu", torch.bfloat16):
        tables = rotary(torch.zeros(1, 8192, 24), positions)
    for table, wanted in zip(tables, expected, strict=True):
        assert torch.equal(table, wanted)


def test_kinds_of_layers_may_rotate_differently():
    """`rope_parameters` by layer type: each layer equals that of a model where all layers have its parameters."""
    near, far = rope("linear"), {"rope_type": "default", "rope_theta": 30.0}
    both = {"sliding_attention": near, "full_attention": far}
    row = tokens(1, 10)

    def layers(parameters, mixers):
        model = build("decoder", mixers=mixers, sliding_window=4, rope_parameters=parameters)
        with torch.no_grad():
            return model(row, output_hidden_states=True).hidden_states

    for mixers, first in (("sliding,full", near), ("full,sliding", far)):
        mixed, uniform = layers(both, mixers), layers(first, mixers)
        assert_close(mixed[1], uniform[1])
        assert_differ(mixed[2][:, 3:], uniform[2][:, 3:])


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("types", [("alibi", "rope"), ("rope", "none"), ("relative", "alibi"), ("none", "relative")])
@pytest.mark.parametrize("family", FAMILIES)
def test_layers_may_have_positions_of_their_own(family, types, backend):
    """The first layer equals that of a model where all layers have its positions, the second does not, and the
    backends agree on both."""
    own = {idx: {"position_type": name} for idx, name in enumerate(types)}
    mixed = build(family, backend, per_layer_config=own)
    weights = mixed.state_dict()
    uniform = build(family, position_type=types[0])
    uniform.load_state_dict({key: weights[key] for key in uniform.state_dict()})
    row = tokens(2, 9)
    first_layer = {"decoder": "hidden_states", "encoder": "hidden_states", "encoder_decoder": "encoder_hidden_states"}
    inputs = {"input_ids": row} if family != "encoder_decoder" else {"input_ids": row, "decoder_input_ids": row}
    with torch.no_grad():
        name = first_layer[family]
        mine = getattr(mixed(**inputs, output_hidden_states=True), name)
        first = getattr(uniform(**inputs, output_hidden_states=True), name)
        assert_close(mine[1], first[1])
        eager = build(family, "eager", per_layer_config=own)
        eager.load_state_dict(weights)
        assert_close(states(mixed, row), states(eager, row))
    assert_differ(mine[-1][:, 3:], first[-1][:, 3:])


def test_views_of_parameters_do_not_share_a_config():
    model = build(
        "decoder",
        mixers="sliding,full",
        rope_parameters={"sliding_attention": rope("yarn"), "full_attention": rope("llama3")},
        max_position_embeddings=LIMIT,
    )
    rotary = model.positions["rope"].rotary_emb
    assert isinstance(rotary["sliding_attention"], RotaryEmbedding)
    x, positions = torch.zeros(1, 40, 24), torch.arange(40)[None]
    for key, kind in (("sliding_attention", "yarn"), ("full_attention", "llama3")):
        for actual, wanted in zip(rotary[key](x, positions), library_rotary(kind)(x, positions), strict=True):
            assert_close(actual, wanted, 1e-6)
    assert rotary["sliding_attention"].attention_scaling == pytest.approx(0.1 * math.log(4.0) + 1)
