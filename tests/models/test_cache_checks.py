# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""A cache that does not belong to the inputs is refused, and one that does is not."""

import copy

import pytest
import torch
from tiny_models import BACKENDS, assert_close, config_of, enlarge, padded, shared, states, tokens
from transformers import DynamicCache, EncoderDecoderCache, StaticCache

import hf_tx


def dynamic(model):
    if model.config.is_encoder_decoder:
        return EncoderDecoderCache(DynamicCache(config=model.decoder.config), DynamicCache())
    return DynamicCache(config=model.config)


def static(model, length=12):
    if model.config.is_encoder_decoder:
        return EncoderDecoderCache(StaticCache(model.decoder.config, max_cache_len=length), DynamicCache())
    return StaticCache(model.config, max_cache_len=length)


CACHES = pytest.mark.parametrize("make", [dynamic, static])
MIXERS = pytest.mark.parametrize("mixers", ["full", "sliding", "sliding,full", "retention", "lstm,full"])


@pytest.mark.parametrize("cross_mixer", ["full", "additive"])
@pytest.mark.parametrize("backend", BACKENDS[:2])
@CACHES
def test_another_source(make, backend, cross_mixer):
    config = config_of("encoder_decoder", attn_implementation=backend)
    config.decoder.cross_mixer = cross_mixer
    model = enlarge(hf_tx.TxEncoderDecoderModel(config)).eval()
    first, other = tokens(2, 7, seed=1), tokens(2, 7, seed=2)
    target = tokens(2, 6, seed=3)
    expected = states(model, target, source=first)
    cache = make(model)
    assert_close(states(model, target[:, :3], source=first, cache=cache, use_cache=True), expected[:, :3])
    for source in (other, torch.cat((first[:, :-1], other[:, -1:]), dim=1), first[:, :6], tokens(2, 9)):
        with pytest.raises(ValueError, match="filled with other encoder_hidden_states.*Begin with a new cache"):
            states(model, target[:, 3:], source=source, cache=cache, use_cache=True)
    # The same source, encoded once more; its states; and none.
    assert_close(states(model, target[:, 3:4], source=first, cache=cache, use_cache=True), expected[:, 3:4])
    with torch.no_grad():
        encoded = model.encoder(first)
    part = states(model, target[:, 4:5], source=None, encoder_outputs=encoded, cache=cache, use_cache=True)
    assert_close(part, expected[:, 4:5])
    copied = states(model, target[:, 5:], source=first, cache=copy.deepcopy(cache), use_cache=True)
    assert_close(copied, expected[:, 5:])
    # Emptied, it takes another.
    cache.reset()
    output = states(model, target, source=other, cache=cache, use_cache=True)
    assert_close(output, states(model, target, source=other))


@CACHES
@pytest.mark.parametrize("cross_mixer", ["full", "multiplicative"])
def test_the_source_follows_the_rows_of_its_cache(make, cross_mixer):
    config = config_of("encoder_decoder")
    config.decoder.cross_mixer = cross_mixer
    model = enlarge(hf_tx.TxEncoderDecoderModel(config)).eval()
    source, target = tokens(2, 7, seed=1), tokens(2, 4, seed=3)
    with torch.no_grad():
        encoded = model.encoder(source).last_hidden_state
    expected = states(model, target, source=source)

    def go_on(cache, encoded, target):
        return states(model, target, source=None, encoder_outputs=(encoded,), cache=cache, use_cache=True)

    order = torch.tensor([1, 0])
    cache = make(model)
    go_on(cache, encoded, target[:, :3])
    cache.reorder_cache(order)
    assert_close(go_on(cache, encoded[order], target[order, 3:]), expected[order, 3:])
    rebuilt = EncoderDecoderCache(cache.self_attention_cache, cache.cross_attention_cache)
    with pytest.raises(ValueError, match="filled with other encoder_hidden_states"):
        go_on(rebuilt, -encoded[order], target[order, 3:])
    if make is dynamic:
        for change, rows in (("batch_select_indices", [1]), ("batch_repeat_interleave", [0, 0, 1, 1])):
            cache = make(model)
            go_on(cache, encoded, target[:, :3])
            getattr(cache, change)(torch.tensor(rows) if "select" in change else 2)
            assert_close(go_on(cache, encoded[rows], target[rows, 3:]), expected[rows, 3:])


def test_the_source_of_a_step_is_known_by_itself(monkeypatch):
    """Generation hands over the same tensor at every step: nothing is compared."""
    model = shared("encoder_decoder", "sdpa", "lm")
    calls = []
    monkeypatch.setattr(torch.Tensor, "amax", lambda *args, **kwargs: calls.append(args) or pytest.fail("compared"))
    for beams in (1, 2):
        model.generate(tokens(2, 5), max_new_tokens=4, num_beams=beams, do_sample=False, eos_token_id=None)
    assert not calls


@CACHES
def test_the_mask_of_another_source(make):
    model = shared("encoder_decoder")
    with torch.no_grad():
        encoded = model.encoder(tokens(2, 7))
    mask = torch.ones(2, 6, dtype=torch.long)
    with pytest.raises(ValueError, match="mask of the source has 6 tokens, but encoder_hidden_states has 7"):
        states(model, tokens(2, 3), source=None, encoder_outputs=encoded, source_mask=mask, cache=make(model))


@pytest.mark.parametrize("family", ["decoder", "encoder_decoder"])
@CACHES
@MIXERS
def test_another_number_of_rows(mixers, make, family):
    model = shared(family, mixers=mixers)
    cache = make(model)
    states(model, tokens(1, 3), cache=cache, use_cache=True)
    for rows in (2, 3):
        with pytest.raises(ValueError, match=f"cache has 1 rows, but the input has {rows}"):
            states(model, tokens(rows, 1), cache=cache, use_cache=True)


@CACHES
def test_repeated_rows_are_taken(make):
    model = shared("decoder", mixers="sliding,full" if make is dynamic else "full")
    row = tokens(1, 6)
    cache = dynamic(model)
    states(model, row[:, :4], cache=cache, use_cache=True)
    cache.batch_repeat_interleave(3)
    output = states(model, row[:, 4:].expand(3, -1), cache=cache, use_cache=True)
    assert_close(output, states(model, row)[:, 4:].expand(3, -1, -1))


@CACHES
def test_another_model(make):
    small, other = shared("decoder"), shared("decoder", head_dim=4)
    cache = make(small)
    states(small, tokens(2, 3), cache=cache, use_cache=True)
    with pytest.raises(ValueError, match="heads of 8 features, but the model of 4: it belongs to another model"):
        states(other, tokens(2, 1), cache=cache, use_cache=True)
    grouped = shared("decoder", num_key_value_heads=1)
    with pytest.raises(ValueError, match=r"cache has \d key heads, but the model has 1: it belongs to another model"):
        states(grouped, tokens(2, 1), cache=cache, use_cache=True)
    deep = shared("decoder", num_hidden_layers=3)
    for cache, model, found, wanted in ((make(deep), small, 3, 2), (make(small), deep, 2, 3)):
        with pytest.raises(ValueError, match=f"cache has {found} layers, but the model has {wanted}"):
            states(model, tokens(2, 3), cache=cache, use_cache=True)


@pytest.mark.parametrize("mixers", ["full", "dilated", "sliding"])
def test_a_cache_that_keeps_less_than_the_model_sees(mixers):
    """Today's tokens would be right, and later ones would miss keys."""
    model = shared("decoder", mixers=mixers, **({"sliding_window": 6} if mixers == "sliding" else {}))
    with pytest.raises(ValueError, match=r"layer 0 sees .* keeps a window of 4.*DynamicCache\(config=model.config\)"):
        states(model, tokens(2, 3), cache=dynamic(shared("decoder", mixers="sliding")), use_cache=True)
    # More than it sees does no harm.
    row = tokens(1, 9)
    cache = DynamicCache()
    parts = [states(model, row[:, part], cache=cache, use_cache=True) for part in (slice(0, 5), slice(5, 9))]
    assert_close(torch.cat(parts, dim=1), states(model, row))


@pytest.mark.parametrize("sizes", [(6,), (4, 2), (5, 1)])
@pytest.mark.parametrize("mixers", ["full", "sliding,full", "chunked", "sliding", "retention,full"])
def test_a_static_cache_without_room(mixers, sizes):
    model = shared("decoder", mixers=mixers, **({"sliding_window": 8} if mixers == "sliding" else {}))
    row, cache = tokens(1, 6), static(model, 5)
    *before, last = row.split(sizes, dim=1)
    for part in before:
        states(model, part, cache=cache, use_cache=True)
    held = sum(sizes[:-1])
    with pytest.raises(
        ValueError, match=f"space for 5 tokens, of which {held} are used, but the input has {sizes[-1]}: .* >= 6"
    ):
        states(model, last, cache=cache, use_cache=True)


def test_generate_says_that_a_static_cache_has_no_room():
    model = shared("decoder", "sdpa", "lm")
    cache = StaticCache(model.config, max_cache_len=5)
    with pytest.raises(ValueError, match="space for 5 tokens, of which 5 are used, but the input has 1"):
        model.generate(tokens(1, 3), cache=cache, max_new_tokens=8, eos_token_id=None, do_sample=False)


@pytest.mark.parametrize("mixers", ["sliding", "sliding,retention"])
def test_windows_need_no_more_room_than_they_have(mixers):
    model = shared("decoder", mixers=mixers)  # a window of four tokens
    row, cache = tokens(1, 9), static(model, 5)
    parts = [states(model, part, cache=cache, use_cache=True) for part in row.split((3, 1, 1, 4), dim=1)]
    assert_close(torch.cat(parts, dim=1), states(model, row))


@pytest.mark.parametrize("backend", BACKENDS[:2])
@pytest.mark.parametrize("mixers", ["full", "sliding,full", "retention,full"])
def test_a_mask_with_a_static_cache(mixers, backend):
    """It covers what is there, or all slots; less is refused."""
    model = shared("decoder", backend, mixers=mixers)
    batch, mask = padded([tokens(6, seed=1), tokens(9, seed=2)], "left")
    expected = states(model, batch, attention_mask=mask)
    for more in (0, 3):
        cache, done, parts = static(model), 0, []
        for size in (4, 1, 4):
            done += size
            covered = torch.nn.functional.pad(mask[:, :done], (0, more))
            inputs = dict(attention_mask=covered, cache=cache, use_cache=True)
            parts.append(states(model, batch[:, done - size : done], **inputs))
        assert_close(torch.cat(parts, dim=1)[mask.bool()], expected[mask.bool()])
    with pytest.raises(ValueError, match="has 1 tokens, but the cache contains 9 and the input 1"):
        states(model, batch[:, :1], attention_mask=mask[:, :1], cache=cache, use_cache=True)
