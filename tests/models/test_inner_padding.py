# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Padding between the tokens of a row, as when second turns of unequal length are batched: what is counted is real."""

import flash_emulation
import pytest
import torch
from tiny_models import (
    ATTENTION,
    BACKENDS,
    BIASES,
    FAMILIES,
    OF_SCORES,
    POSITION_TYPES,
    assert_close,
    build,
    pairwise,
    shared,
    states,
    tokens,
    uncompiled,
)
from transformers import BloomConfig, BloomForCausalLM, DynamicCache, EncoderDecoderCache, StaticCache

from hf_tx.conversion import from_hf

#: Where the tokens of two turns stand in rows that were padded before, between and behind them, at several places.
MASK = torch.tensor(
    [
        [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1],
        [0, 0, 1, 1, 1, 0, 0, 0, 1, 1, 1, 0, 1, 1, 1],
        [1, 1, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 0, 1],
        [1, 0, 1, 1, 0, 1, 1, 0, 1, 1, 1, 1, 1, 1, 0],
    ]
)


@pytest.fixture(autouse=True)
def _uncompiled():
    with uncompiled():
        yield


def rows_of(mask):
    return [tokens(int(row.sum()), seed=idx) for idx, row in enumerate(mask)]


def batch_of(rows=None, mask=MASK):
    """Pads hold tokens, so that what is in them shows where it leaks."""
    rows = rows_of(mask) if rows is None else rows
    batch = tokens(*mask.shape, seed=77)
    for row, real, text in zip(batch, mask.bool(), rows, strict=True):
        row[real] = text
    return batch


def assert_equals_rows(model, output, mask=MASK, **inputs):
    for idx, row in enumerate(rows_of(mask)):
        assert_close(output[idx, mask[idx].bool()], states(model, row[None], **inputs)[0])


@pytest.mark.parametrize(
    ("family", "mixers", "position_type", "backend"),
    pairwise(
        dict(
            family=FAMILIES,
            mixers=[*ATTENTION, "sliding,full"],
            position_type=POSITION_TYPES,
            backend=(*BACKENDS, "tiled", "banded"),
        ),
        valid=lambda case: case["backend"] != "banded" or case["mixers"] != "full",
    ),
)
def test_a_batch_equals_its_rows(family, mixers, position_type, backend):
    model = shared(family, backend, mixers=mixers, position_type=position_type)
    assert_equals_rows(model, states(model, batch_of(), attention_mask=MASK))


def all_kept(model):
    """A cache that keeps all keys of every layer."""
    return EncoderDecoderCache(DynamicCache(), DynamicCache()) if model.config.is_encoder_decoder else DynamicCache()


def kept_by_layer(model):
    """What `generate()` makes: layers with a window keep that window."""
    if model.config.is_encoder_decoder:
        return EncoderDecoderCache(DynamicCache(config=model.decoder.config), DynamicCache())
    return DynamicCache(config=model.config)


def static(model):
    config, length = model.config, MASK.shape[1] + 2
    if config.is_encoder_decoder:
        return EncoderDecoderCache(StaticCache(model.decoder.config, max_cache_len=length), DynamicCache())
    return StaticCache(config, max_cache_len=length)


def in_parts(model, sizes, cache, mask=MASK):
    batch, done, outputs = batch_of(mask=mask), 0, []
    for size in sizes:
        done += size
        part = states(model, batch[:, done - size : done], attention_mask=mask[:, :done], cache=cache, use_cache=True)
        outputs.append(part)
    return torch.cat(outputs, dim=1)


@pytest.mark.parametrize(
    ("family", "mixers", "position_type", "backend", "cache", "sizes"),
    pairwise(
        dict(
            family=["decoder", "encoder_decoder"],
            mixers=ATTENTION,
            position_type=OF_SCORES,
            backend=(*BACKENDS, "tiled", "banded"),
            cache=["dynamic", "static"],
            sizes=[(7, 8), (3, 1, 5, 1, 1, 4), (1,) * 15],
        ),
        valid=lambda case: (
            (case["backend"] != "banded" or case["mixers"] != "full")
            and (case["cache"] != "static" or case["mixers"] != "sliding")
            and (case["backend"] != "flex_attention" or len(case["sizes"]) < 15)
        ),
    ),
)
def test_a_cache_changes_nothing(family, mixers, position_type, backend, cache, sizes):
    model = shared(family, backend, mixers=mixers, position_type=position_type)
    cache = static(model) if cache == "static" else all_kept(model)
    assert_equals_rows(model, in_parts(model, sizes, cache), use_cache=False)


@pytest.mark.parametrize("backend", ["eager", "sdpa", "tiled"])
@pytest.mark.parametrize("cache", [kept_by_layer, static])
@pytest.mark.parametrize("family", ["decoder", "encoder_decoder"])
def test_a_cache_that_has_lost_what_a_window_reaches_is_refused(family, cache, backend):
    model = shared(family, backend, mixers="sliding,full")
    # A window of four tokens, of which the cache has three, of any kind.
    whole = torch.tensor([[0, 0, 1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1, 1, 1]])
    plain = in_parts(model, (5, 2, 1), cache(model), whole)  # padding on the left takes nothing away
    assert_equals_rows(model, plain, whole, use_cache=False)
    # A window that has not begun to slide, and one that has lost padding only.
    for row in ([1, 0, 1, 1, 1, 1], [0, 1, 0, 1, 1, 1], [1, 1, 1, 1, 0, 1]):
        mask = torch.tensor([row, [1] * 6])
        lost = row == [1, 1, 1, 1, 0, 1]
        sizes = (5, 1) if lost else (3, 3)
        if lost:
            with pytest.raises(ValueError, match=r"rows \[0\] have padding between their tokens.*DynamicCache\(\)"):
                in_parts(model, sizes, cache(model), mask)
        else:
            assert_equals_rows(model, in_parts(model, sizes, cache(model), mask), mask, use_cache=False)


@pytest.mark.parametrize(
    ("position_type", "mixers", "backend"),
    pairwise(
        dict(
            position_type=BIASES,
            mixers=ATTENTION,
            backend=["eager", "sdpa", "tiled", "banded"],
        ),
        valid=lambda case: case["backend"] != "banded" or case["mixers"] != "full",
    ),
)
def test_packed_documents_with_padding_between_tokens(position_type, mixers, backend):
    model = shared("decoder", backend, mixers=mixers, position_type=position_type)
    sizes = (6, 5)
    rows = [tokens(sum(sizes), seed=idx) for idx in range(2)]
    mask = torch.tensor([[1, 1, 0, 1, 1, 1, 1, 1, 0, 1, 1, 0, 1, 1], [0, 1, 1, 1, 1, 1, 0, 0, 1, 1, 1, 1, 1, 1]])
    positions = torch.cat([torch.arange(size) for size in sizes])
    position_ids = torch.zeros_like(mask)
    for row, real in zip(position_ids, mask.bool(), strict=True):
        row[real] = positions
    batch = batch_of(rows, mask)
    expected = [torch.cat([states(model, part[None])[0] for part in row.split(sizes)]) for row in rows]
    whole = states(model, batch, attention_mask=mask, position_ids=position_ids, use_cache=False)
    cache, parts = DynamicCache(), []
    for part in (slice(0, 9), slice(9, 14)):
        inputs = dict(attention_mask=mask[:, : part.stop], position_ids=position_ids[:, part], cache=cache)
        parts.append(states(model, batch[:, part], **inputs, use_cache=True))
    for output in (whole, torch.cat(parts, dim=1)):
        for idx, real in enumerate(mask.bool()):
            assert_close(output[idx, real], expected[idx])


@pytest.mark.parametrize(
    ("mixers", "position_type", "backend", "cache"),
    pairwise(
        dict(
            mixers=["full", "chunked"],
            position_type=OF_SCORES,
            backend=["eager", "sdpa", "tiled"],
            cache=["dynamic", "static"],
        ),
        together=["position_type", "cache"],
    ),
)
def test_a_second_turn_generates_what_it_does_alone(mixers, position_type, backend, cache):
    model = shared("decoder", backend, "lm", mixers=mixers, position_type=position_type)
    arguments = dict(max_new_tokens=6, do_sample=False, cache_implementation=cache, eos_token_id=None)
    mask = MASK[:3]
    together = model.generate(batch_of(mask=mask), attention_mask=mask, **arguments)[:, -6:]
    for idx, row in enumerate(rows_of(mask)):
        alone = model.generate(row[None], attention_mask=torch.ones_like(row[None]), **arguments)[:, -6:]
        assert torch.equal(together[idx : idx + 1], alone)


@pytest.mark.parametrize(
    ("mixers", "position_type"),
    [("sliding,full", "rope"), ("sliding", "alibi"), ("chunked", "rope"), ("full", "alibi")],
)
def test_a_conversation_of_two_turns_goes_on_with_a_cache_of_all_tokens(mixers, position_type):
    model = shared("decoder", "sdpa", "lm", mixers=mixers, position_type=position_type)
    arguments = dict(do_sample=False, eos_token_id=None, return_dict_in_generate=True)
    first, second = [tokens(5), tokens(3, seed=1)], [tokens(5, seed=2), tokens(2, seed=3)]
    # Padded on the left: a pad before the second turn of the second row is one between its tokens.
    masks = [torch.tensor(mask) for mask in ([[1] * 5, [0, 0, 1, 1, 1]], [[1] * 5, [0, 0, 0, 1, 1]])]

    def answers(cache):
        turn = model.generate(
            batch_of(first, masks[0]), attention_mask=masks[0], cache=cache, max_new_tokens=2, **arguments
        )
        text = torch.cat((turn.sequences, batch_of(second, masks[1])), dim=1)
        mask = torch.cat((masks[0], torch.ones_like(masks[0][:, :2]), masks[1]), dim=1)
        turn = model.generate(text, attention_mask=mask, cache=turn.past_key_values, max_new_tokens=6, **arguments)
        return turn.sequences[:, -6:]

    together = answers(DynamicCache())
    for idx in range(2):
        answer = model.generate(first[idx][None], max_new_tokens=2, **arguments).sequences
        text = torch.cat((answer, second[idx][None]), dim=1)
        assert torch.equal(
            model.generate(text, max_new_tokens=6, **arguments).sequences[:, -6:], together[idx : idx + 1]
        )
    if "sliding" in mixers:
        with pytest.raises(ValueError, match=r"Pass cache=DynamicCache\(\) in the first call, also to generate\(\)"):
            answers(None)
    else:
        assert torch.equal(answers(None), together)


@pytest.mark.parametrize("mixers", ["full", "sliding"])
@pytest.mark.parametrize("backend", ["sdpa", "tiled"])
def test_the_bias_learns_the_same(mixers, backend):
    gradients = []
    for name in ("eager", backend):
        model = build("decoder", name, mixers=mixers, position_type="relative")
        output = model(batch_of(), attention_mask=MASK).last_hidden_state[MASK.bool()]
        output.square().mean().backward()
        gradients.append(model.positions["relative"].relative_bias.weight.grad)
    assert_close(gradients[1], gradients[0])


def test_flash_counts_the_same(monkeypatch):
    flash_emulation.install(monkeypatch)
    model = shared("decoder", "flash_attention_2", mixers="sliding,full")
    assert_equals_rows(model, states(model, batch_of(), attention_mask=MASK))


def test_a_converted_bloom_equals_its_original():
    torch.manual_seed(0)
    original = BloomForCausalLM(BloomConfig(vocab_size=60, hidden_size=32, n_layer=2, n_head=4)).eval()
    for weight in original.parameters():
        weight.data += torch.randn_like(weight) * 0.2
    batch, mask = batch_of(), MASK
    with torch.no_grad():
        ours = from_hf(original)(batch % 60, attention_mask=mask).logits
        assert_close(ours[mask.bool()], original(batch % 60, attention_mask=mask).logits[mask.bool()])
