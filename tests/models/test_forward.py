# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""What every forward must keep, for every position type, place of the norms and backend: padding, batches, caches and
chunks change nothing, causal stacks do not see the future, encoders see everything, and no input is ignored."""

import itertools
import random

import pytest
import torch
from tiny_models import (
    BACKENDS,
    FAMILIES,
    NORM_TYPES,
    PLACES,
    assert_close,
    assert_differ,
    build,
    padded,
    pairwise,
    shared,
    states,
    tokens,
    uncompiled,
)
from transformers import DynamicCache

from hf_tx.models.feed_forward import FEED_FORWARDS
from hf_tx.models.mixers import MIXERS
from hf_tx.models.positions import POSITIONS

AXES = dict(
    position_type=list(POSITIONS),
    norm_position=PLACES,
    backend=BACKENDS,
    mixers=[*MIXERS, "sliding,full"],
)
#: Mixers that do not see everything near: how far they surely do.
GAPS = {"chunked": 0, "dilated": 0}
ROWS = [tokens(length, seed=length) for length in (3, 7, 12)]


@pytest.fixture(autouse=True)
def _uncompiled():
    with uncompiled():
        yield


def least_effect(case):
    """How far a token moves what sees it, of the largest value. Saturated simple networks hardly remember, and the
    saturation of a norm without statistics leaves little of it behind a few layers."""
    if case["mixers"] == "rnn":
        return 1e-5
    return 1e-4 if settings_of(case)["norm_type"] == "dyt" else 1e-3


def exists(case):
    """Whether a model has these settings: positions that act on scores need scores, and those a backend."""
    mixers = [MIXERS.get(name) for name in case["mixers"].split(",")]
    if any(mixer.is_attention for mixer in mixers):
        return True
    scheme = POSITIONS.get(case["position_type"])
    on_scores = scheme.has_bias or (case["position_type"] != "none" and not scheme.has_embedding)
    return case["backend"] == "sdpa" and not on_scores


def over(backends=BACKENDS, **more):
    """Parametrise over the settings of a model, with every pair of them in CI."""
    axes = {**more, **AXES, "backend": backends}
    cases = pairwise(axes, valid=exists)
    return pytest.mark.parametrize(
        "case", [pytest.param(dict(zip(axes, p.values, strict=True)), id=p.id, marks=p.marks) for p in cases]
    )


def settings_of(case):
    """Return the settings of a case. Norm and feed-forward layer, which do not mix positions, are drawn."""
    settings = {key: case[key] for key in AXES if key != "backend"}
    draw = random.Random(repr(settings))
    # without a norm the states of deep stacks explode
    settings |= dict(norm_type=draw.choice(NORM_TYPES), ffn_type=draw.choice(list(FEED_FORWARDS)))
    settings["norm_eps"] = 1e-3  # smaller ones blow up the rounding of a head whose output is nearly zero
    return settings


def model_of(case, **changes):
    settings = {"family": case.get("family", "encoder"), "backend": case["backend"], **settings_of(case)}
    return shared(**settings | changes)


@over(family=FAMILIES, side=["left", "right"])
def test_padding_changes_nothing(case):
    model = model_of(case)
    batch, mask = padded(ROWS, case["side"], extra=2)
    outputs = [states(model, batch, attention_mask=mask)]
    if case["family"] != "encoder":
        outputs = [states(model, batch, attention_mask=mask, use_cache=use_cache) for use_cache in (False, True)]
    for output in outputs:
        for idx, row in enumerate(ROWS):
            assert_close(output[idx][mask[idx].bool()], states(model, row[None])[0])


@pytest.mark.parametrize(
    ("side", "backend", "position_type"),
    pairwise(dict(side=["left", "right"], backend=BACKENDS, position_type=list(POSITIONS))),
)
def test_padding_of_the_source_changes_nothing(side, backend, position_type):
    model = shared("encoder_decoder", backend, position_type=position_type, mixers="sliding,full")
    sources, mask = padded(ROWS, side, extra=2)
    targets = tokens(len(ROWS), 5)
    for use_cache in (False, True):
        output = states(model, targets, source=sources, source_mask=mask, use_cache=use_cache)
        for idx, row in enumerate(ROWS):
            assert_close(output[idx : idx + 1], states(model, targets[idx : idx + 1], source=row[None]))


@over(family=FAMILIES)
def test_a_batch_equals_its_rows(case):
    model = model_of(case)
    batch = tokens(3, 9)
    output = states(model, batch)
    for idx in range(len(batch)):
        assert_close(output[idx], states(model, batch[idx : idx + 1])[0])
    assert_close(states(model, batch, attention_mask=torch.ones_like(batch)), output)


def in_parts(model, batch, sizes, mask=None):
    """Run a batch through a cache in consecutive parts and return the states of all of them."""
    cache, done, outputs = None, 0, []
    for size in sizes:
        part = slice(done, done + size)
        done += size
        inputs = {"input_ids": batch[:, part]}
        if model.config.is_encoder_decoder:
            inputs = {"decoder_input_ids": batch[:, part], "input_ids": tokens(1, 7, seed=5).expand(len(batch), -1)}
        if mask is not None:
            inputs["decoder_attention_mask" if model.config.is_encoder_decoder else "attention_mask"] = mask[:, :done]
        with torch.no_grad():
            output = model(**inputs, cache=cache, use_cache=True)
        cache = output.cache
        outputs.append(output.last_hidden_state)
    assert cache.get_seq_length() == done == batch.shape[1]
    return torch.cat(outputs, dim=1)


@over(family=["decoder", "encoder_decoder"])
def test_a_cache_changes_nothing_wherever_the_text_is_split(case):
    model = model_of(case)
    batch, mask = padded([tokens(6, seed=1), tokens(9, seed=2)], "left")
    length, real = batch.shape[1], mask.bool()
    plain, masked = states(model, batch, use_cache=False), states(model, batch, attention_mask=mask, use_cache=False)
    for split in range(1, length):
        sizes = (split, length - split)
        if split % 2:  # the two kinds of input take turns
            assert_close(in_parts(model, batch, sizes, mask)[real], masked[real])
        else:
            assert_close(in_parts(model, batch, sizes), plain)


@over(family=["decoder", "encoder_decoder"])
def test_chunks_and_single_tokens_change_nothing(case):
    model = model_of(case)
    batch, mask = padded([tokens(8, seed=1), tokens(11, seed=2)], "left")
    plain, masked = states(model, batch, use_cache=False), states(model, batch, attention_mask=mask, use_cache=False)
    real = mask.bool()
    for sizes in ((3, 3, 3, 2), (5, 1, 5), (1,) * 11):
        if case["backend"] != "flex_attention":
            assert_close(in_parts(model, batch, sizes), plain)
        if case["backend"] != "flex_attention" or len(sizes) < 11:
            assert_close(in_parts(model, batch, sizes, mask)[real], masked[real])


@over(family=FAMILIES, side=["left", "right"], backends=BACKENDS[1:])
def test_backends_agree(case):
    batch, mask = padded(ROWS, case["side"])
    model, eager = model_of(case), model_of(case, backend="eager")
    real = mask.bool()
    assert model.config._attn_implementation != eager.config._attn_implementation
    assert_close(states(model, batch, attention_mask=mask)[real], states(eager, batch, attention_mask=mask)[real])
    assert_close(states(model, batch), states(eager, batch))


@over(family=["decoder", "encoder_decoder"])
def test_the_future_is_invisible_and_the_past_is_not(case):
    model = model_of(case)
    row = tokens(1, 8)
    before = states(model, row, use_cache=False)
    reach = {"sliding": 2 * (4 - 1), **GAPS}.get(case["mixers"], 8)  # two layers with a window of 4
    for position in range(8):
        changed = row.clone()
        changed[0, position] = (row[0, position] + 1 - 3) % 50 + 3
        after = states(model, changed, use_cache=False)
        if position:
            assert_close(after[:, :position], before[:, :position], 1e-6)
        seen = slice(position, position + reach + 1)
        assert_differ(after[:, seen], before[:, seen], least_effect(case))


@over()
def test_an_encoder_sees_all_tokens_with_and_without_a_mask(case):
    model = model_of(case)
    row = tokens(1, 7)
    reach = {"sliding": 2 * 4, **GAPS}.get(case["mixers"], 7)
    for mask in (None, torch.ones_like(row)):
        before = states(model, row, attention_mask=mask)
        for position in (0, 3, 6):
            changed = row.clone()
            changed[0, position] = (row[0, position] + 1 - 3) % 50 + 3
            seen = slice(max(position - reach, 0), position + reach + 1)
            after = states(model, changed, attention_mask=mask)
            assert_differ(after[:, seen], before[:, seen], least_effect(case))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("use_mask", [False, True])
@pytest.mark.parametrize("position_type", list(POSITIONS))
def test_cross_attention_sees_all_of_the_source(backend, use_mask, position_type):
    """Also where source and target are equally long, which a backend could take for causal attention."""
    model = shared("encoder_decoder", backend, position_type=position_type, encoder=None)
    source, target = tokens(1, 6), tokens(1, 6, seed=1)
    hidden = torch.randn(1, 6, 24, generator=torch.Generator().manual_seed(0))
    mask = torch.ones_like(source) if use_mask else None

    def run(states_of_source, use_cache):
        with torch.no_grad():
            return model(
                encoder_outputs=(states_of_source,), attention_mask=mask, decoder_input_ids=target, use_cache=use_cache
            ).last_hidden_state

    for use_cache in (False, True):
        before = run(hidden, use_cache)
        for position in range(6):
            changed = hidden.clone()
            changed[:, position] += 1.0
            assert_differ(run(changed, use_cache), before)


@pytest.mark.parametrize(("position_type", "backend"), list(itertools.product(POSITIONS, BACKENDS)))
def test_only_positions_tell_the_order(position_type, backend):
    """Without positions an encoder maps permuted tokens to permuted states; with any positions it does not. Attention
    to an encoder knows no positions of its own."""
    row = tokens(1, 9)
    order = torch.tensor([4, 0, 7, 2, 8, 1, 3, 6, 5])
    for place in PLACES:
        model = shared("encoder", backend, position_type=position_type, norm_position=place)
        first, second = states(model, row)[:, order], states(model, row[:, order])
        if position_type == "none":
            assert_close(second, first)
        else:
            assert_differ(second, first)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("position_type", list(POSITIONS))
def test_a_decoder_without_positions_knows_the_set_of_earlier_tokens_only(position_type, backend):
    model = shared("decoder", backend, position_type=position_type, num_hidden_layers=1)
    row = tokens(1, 9)
    swapped = row[:, [2, 1, 0, 3, 4, 5, 6, 7, 8]]
    first, second = states(model, row)[:, 3:], states(model, swapped)[:, 3:]
    if position_type == "none":
        assert_close(second, first)
    else:
        assert_differ(second, first)


@pytest.mark.parametrize("family", ["decoder", "encoder"])
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("position_type", list(POSITIONS))
def test_explicit_positions_equal_the_default_ones(family, backend, position_type):
    model = shared(family, backend, position_type=position_type)
    batch, mask = padded(ROWS, "left")
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    real = mask.bool()
    given = states(model, batch, attention_mask=mask, position_ids=positions)
    assert_close(given[real], states(model, batch, attention_mask=mask)[real])
    shifted = states(model, batch, attention_mask=mask, position_ids=positions + 5)
    if POSITIONS.get(position_type).has_embedding:
        assert_differ(shifted[real], given[real])
    else:  # distances stay
        assert_close(shifted[real], given[real])


@pytest.mark.parametrize("family", FAMILIES)
def test_embeddings_may_be_given_instead_of_tokens(family):
    model = shared(family, position_type="learned", embedding_scale=3.0)
    row = tokens(1, 6)
    inputs = {"attention_mask": torch.ones_like(row)}
    expected = states(model, row, **inputs)
    with torch.no_grad():
        if family == "encoder_decoder":
            source = tokens(1, 7, seed=5)
            output = model(
                inputs_embeds=model.encoder.embed_tokens(source), decoder_inputs_embeds=model.decoder.embed_tokens(row)
            )
        else:
            output = model(inputs_embeds=model.embed_tokens(row), **inputs)
    assert_close(output.last_hidden_state, expected)
    with pytest.raises(ValueError, match="exactly one of input_ids or inputs_embeds"):
        model(input_ids=row, inputs_embeds=torch.zeros(1, 6, 24), decoder_input_ids=row) if (
            family == "encoder_decoder"
        ) else model(input_ids=row, inputs_embeds=torch.zeros(1, 6, 24))


@pytest.mark.parametrize("head_dim", [4, 16, 64])
@pytest.mark.parametrize("family", ["decoder", "encoder"])
def test_scores_have_unit_variance_whatever_the_size_of_a_head(family, head_dim):
    """Vaswani et al., 2017, section 3.2.1: dot products of independent unit features have variance head_dim, which
    the factor head_dim ** -0.5 takes back."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import eager_mask

    from hf_tx.models.attention import eager_attention_forward

    variances = []

    def recording(module, query, key, value, attention_mask, scaling, **kwargs):
        query, key = (
            torch.randn(x.shape, generator=torch.Generator().manual_seed(i)) for i, x in ((1, query), (2, key))
        )
        variances.append((query @ key.transpose(-1, -2) * scaling).var().item())
        return eager_attention_forward(module, query, key, value, attention_mask, scaling, **kwargs)

    AttentionInterface.register("recording", recording)
    AttentionMaskInterface.register("recording", eager_mask)
    try:
        model = build(family, "recording", head_dim=head_dim, num_key_value_heads=6)
        states(model, tokens(4, 32))
    finally:
        AttentionInterface._global_mapping.pop("recording")
        AttentionMaskInterface._global_mapping.pop("recording")
    assert len(variances) == 2
    assert all(abs(variance - 1) < 0.1 for variance in variances), variances


def test_token_types_without_a_table_are_refused():
    model = shared("encoder")
    row = tokens(1, 4)
    assert_close(states(model, row, token_type_ids=torch.zeros_like(row)), states(model, row))
    with pytest.raises(ValueError, match="type_vocab_size = 0"):
        states(model, row, token_type_ids=torch.ones_like(row))


def test_a_mask_that_does_not_cover_the_cache_is_refused():
    model = shared("decoder")
    row = tokens(1, 6)
    with torch.no_grad():
        cache = model(row[:, :4], use_cache=True).cache
        with pytest.raises(ValueError, match="has 2 tokens, but the cache contains 4 and the input 2"):
            model(row[:, 4:], attention_mask=torch.ones(1, 2, dtype=torch.long), cache=cache)


def test_positions_of_another_length_are_refused():
    for family in ("decoder", "encoder"):
        with pytest.raises(ValueError, match="position_ids has 1 positions, but the input has 4"):
            states(shared(family), tokens(1, 4), position_ids=torch.zeros(1, 1, dtype=torch.long))


def test_an_encoder_takes_no_cache():
    with pytest.raises(ValueError, match="cache is given, but an encoder"):
        states(shared("encoder"), tokens(1, 4), cache=DynamicCache())


def test_a_state_is_not_read_from_a_cache_of_keys():
    for cache in (DynamicCache(), DynamicCache(config=shared("decoder").config)):
        with pytest.raises(ValueError, match="layer 0 needs a state of constant size, but the cache"):
            states(shared("decoder", mixers="retention"), tokens(1, 4), cache=cache)


def test_a_padding_mask_may_be_of_any_type():
    model = shared("decoder", mixers="full,gated_delta")
    batch, mask = padded([tokens(7), tokens(4)], "left")
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    for dtype in (torch.bool, torch.float32):
        found = states(model, batch, attention_mask=mask.to(dtype), position_ids=positions)
        assert_close(found[:, -4:], states(model, batch, attention_mask=mask, position_ids=positions)[:, -4:], 1e-6)


def test_a_decoder_may_be_made_bidirectional_for_a_call():
    decoder = shared("decoder", mixers="sliding,full", type_vocab_size=0)
    row = tokens(1, 9)
    encoder = build(
        "encoder",
        mixers="sliding,full",
        norm_type="rmsnorm",
        norm_eps=decoder.config.norm_eps,
        hidden_act=decoder.config.hidden_act,
    )
    encoder.load_state_dict(decoder.state_dict())
    assert_close(states(decoder, row, is_causal=False, use_cache=False), states(encoder, row))
    with pytest.raises(ValueError, match="bidirectional"):
        states(encoder, row, is_causal=True)
