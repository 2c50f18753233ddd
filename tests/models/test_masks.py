# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Which keys a query sees: exact windows, packed documents, masks of the caller, and rows that see nothing."""

import contextlib
import itertools
from functools import partial

import pytest
import torch
from tiny_models import (
    BACKENDS,
    FAMILIES,
    OF_SCORES,
    VOCABULARY,
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
from transformers import DynamicCache, EncoderDecoderCache, StaticCache

from hf_tx.models.attention import Attention
from hf_tx.models.documents import find_documents
from hf_tx.models.masks import check_packing
from hf_tx.models.mixer import MIXERS, Mixer, Pattern
from hf_tx.models.positions import POSITIONS

LENGTH = 12


@pytest.fixture(autouse=True)
def _uncompiled():
    with uncompiled():
        yield


# ------------------------------------------------------------------------------------------------- windows, exactly
@contextlib.contextmanager
def one_value_changed_a_row(mixer):
    """In a batch of equal rows, change the value vector of token j in row j, token 0 being the first that the layer
    reads. What moves in row j shows who sees key j: values, unlike keys, act only where they are seen."""
    done = 0

    def change(module, inputs, output):
        nonlocal done
        length = output.shape[1]
        output = output.clone()
        for row in range(done, min(done + length, len(output))):
            output[row, row - done] += 1.0
        done += length
        return output

    seen = []
    handles = [
        mixer.v_proj.register_forward_hook(change),
        mixer.o_proj.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0].detach().clone())),
    ]
    try:
        yield seen
    finally:
        for handle in handles:
            handle.remove()


def stack_of(model):
    return model.decoder if model.config.is_encoder_decoder else model


def visible_keys(model, layer, parts=(LENGTH,), cache=None):
    """Return who sees whom in one layer. *Shape:* `(queries, keys)`, bool."""
    length = sum(parts)
    batch = tokens(1, length).expand(length, -1)
    mixer = stack_of(model).layers[layer].mixer
    results = []
    for changed in (False, True):
        own = cache() if cache is not None else None
        with one_value_changed_a_row(mixer) if changed else _recorded(mixer) as seen, torch.no_grad():
            done = 0
            for part in parts:
                inputs = {"input_ids": batch[:, done : done + part]}
                if model.config.is_encoder_decoder:
                    source = tokens(1, 7, seed=5).expand(length, -1)
                    inputs = {"input_ids": source, "decoder_input_ids": inputs["input_ids"]}
                done += part
                if len(parts) > 1:
                    inputs |= {"cache": own, "use_cache": True}
                output = model(**inputs)
                own = getattr(output, "cache", None)
        results.append(torch.cat(seen, dim=1))
    plain, moved = results
    if len(parts) > 1:  # slots of the cache that nothing was written to show here only
        with _recorded(mixer) as seen:
            states(model, batch, use_cache=False)
        assert_close(plain, seen[0])
    return ((moved - plain).abs().amax(-1) > 1e-6).T


@contextlib.contextmanager
def _recorded(mixer):
    seen = []
    handle = mixer.o_proj.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0].detach().clone()))
    try:
        yield seen
    finally:
        handle.remove()


def expected_keys(length, window, causal):
    """Write the rule out: causal: w keys, itself included; bidirectional: w keys on each side."""
    table = torch.zeros(length, length, dtype=torch.bool)
    for query, key in itertools.product(range(length), range(length)):
        if causal:
            table[query, key] = 0 <= query - key < window
        else:
            table[query, key] = abs(query - key) <= window
    return table


WINDOWS = (1, 4, LENGTH - 1, LENGTH, 30)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_window_holds_exactly_its_keys(family, window, backend):
    model = shared(family, backend, mixers="sliding", sliding_window=window)
    expected = expected_keys(LENGTH, window, causal=family != "encoder")
    for layer in range(2):
        assert torch.equal(visible_keys(model, layer), expected)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("family", FAMILIES)
def test_full_layers_see_all_they_may(family, backend):
    model = shared(family, backend, mixers="full")
    assert torch.equal(visible_keys(model, 1), expected_keys(LENGTH, LENGTH, causal=family != "encoder"))


def dynamic(model):
    config = stack_of(model).config
    if model.config.is_encoder_decoder:
        return EncoderDecoderCache(DynamicCache(config=config), DynamicCache())
    return DynamicCache(config=config)


def static(model, length=LENGTH):
    config = stack_of(model).config
    if model.config.is_encoder_decoder:
        return EncoderDecoderCache(StaticCache(config=config, max_cache_len=length), DynamicCache())
    return StaticCache(config=config, max_cache_len=length)


@pytest.mark.parametrize(
    ("family", "window", "backend", "cache", "parts"),
    pairwise(
        dict(
            family=["decoder", "encoder_decoder"],
            window=(1, 2, 4, LENGTH, 30),
            backend=BACKENDS,
            cache=["dynamic", "static"],
            parts=[(5, 7), (3, 1, 1, 4, 3), (1,) * LENGTH, (10, 1, 1)],
        ),
    ),
)
def test_a_window_holds_exactly_its_keys_beyond_the_cache(family, window, backend, cache, parts):
    model = shared(family, backend, mixers="sliding,full", sliding_window=window)
    make = {"dynamic": dynamic, "static": static}[cache]
    for layer, reach in ((0, window), (1, LENGTH)):
        seen = visible_keys(model, layer, parts, cache=lambda: make(model))
        assert torch.equal(seen, expected_keys(LENGTH, reach, causal=True))


TWO_WINDOWS = {0: {"sliding_window": 3}, 1: {"sliding_window": 6}}


def two_windows(family, backend="eager", head="base"):
    return build(family, backend, head, mixers="sliding", sliding_window=3, per_layer_config=TWO_WINDOWS)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("cache", [None, "dynamic", "static"])
@pytest.mark.parametrize("family", ["decoder", "encoder"])
def test_two_windows_in_one_model(family, cache, backend):
    if family == "encoder" and cache:
        pytest.skip("an encoder has no cache")
    model = two_windows(family, backend)
    make = {None: None, "dynamic": partial(dynamic, model), "static": partial(static, model)}[cache]
    for layer, window in ((0, 3), (1, 6)):
        seen = visible_keys(model, layer, (7, 1, 4) if cache else (LENGTH,), make)
        assert torch.equal(seen, expected_keys(LENGTH, window, causal=family == "decoder"))


def even_keys(options, window, is_causal, origin, past):
    """A pattern of the keys at an even distance."""
    return Pattern(lambda b, h, q, kv: (q - kv) % 2 == 0, band=None)


@pytest.fixture
def even_mixer():
    """A second mixer whose cache is that of `full` layers."""
    mixer = Mixer(Attention, "full_attention", cost="quadratic", is_bidirectional=False, pattern=even_keys)
    MIXERS.register("even", mixer, origin="test")
    yield
    del MIXERS._entries["even"]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("cache", [None, "dynamic", "static"])
@pytest.mark.parametrize("mixers", [["full", "even"], ["even", "full"]], ids="-".join)
def test_two_mixers_of_one_layer_type(mixers, cache, backend, even_mixer):
    model = build("decoder", backend, mixers=mixers)
    assert model.config.layer_types == ["full_attention"] * 2
    full = expected_keys(LENGTH, LENGTH, causal=True)
    index = torch.arange(LENGTH)
    even = full & ((index[:, None] - index) % 2 == 0)
    make = {None: None, "dynamic": partial(dynamic, model), "static": partial(static, model)}[cache]
    for layer, mixer in enumerate(mixers):
        seen = visible_keys(model, layer, (7, 1, 4) if cache else (LENGTH,), make)
        assert torch.equal(seen, {"full": full, "even": even}[mixer]), mixer


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", ["two windows", "two mixers"])
def test_a_static_cache_generates_what_no_cache_does(kind, backend, even_mixer):
    if kind == "two windows":
        model = two_windows("decoder", backend, "lm")
    else:
        model = build("decoder", backend, "lm", mixers=["even", "full"])
    batch, mask = padded([tokens(5, seed=1), tokens(9, seed=2)], "left")
    arguments = dict(attention_mask=mask, max_new_tokens=8, do_sample=False, eos_token_id=None, disable_compile=True)
    plain = model.generate(batch, use_cache=False, **arguments)
    for implementation in ("static", "dynamic"):
        assert torch.equal(model.generate(batch, cache_implementation=implementation, **arguments), plain)


@pytest.mark.parametrize(
    ("position_type", "backend", "cache"),
    pairwise(dict(position_type=list(POSITIONS), backend=BACKENDS, cache=["dynamic", "static"])),
)
def test_a_static_cache_by_hand(position_type, backend, cache):
    """Prefill, chunk and steps beyond the window, with padding, and room left in the cache."""
    model = shared("decoder", backend, position_type=position_type, mixers="sliding,full")
    batch, mask = padded([tokens(6, seed=1), tokens(11, seed=2)], "left")
    expected = states(model, batch, attention_mask=mask, use_cache=False)
    own = {"dynamic": dynamic(model), "static": static(model, 17)}[cache]
    outputs, done = [], 0
    for part in (5, 3, 1, 1, 1):
        done += part
        with torch.no_grad():
            output = model(batch[:, done - part : done], attention_mask=mask[:, :done], cache=own, use_cache=True)
        outputs.append(output.last_hidden_state)
    assert_close(torch.cat(outputs, dim=1)[mask.bool()], expected[mask.bool()])


# ---------------------------------------------------------------------------------------------------------- packing
LAYOUTS = [(5, 3, 6), (4, 10), (14,), (1, 1, 12)]


def packed_batch():
    """Rows of documents: tokens, positions that begin again, document numbers, and the documents."""
    batch = tokens(len(LAYOUTS), 14, seed=9)
    positions = torch.stack([torch.cat([torch.arange(size) for size in layout]) for layout in LAYOUTS])
    numbers = torch.stack(
        [torch.cat([torch.full((size,), idx) for idx, size in enumerate(layout)]) for layout in LAYOUTS]
    )
    documents = [row.split(layout) for row, layout in zip(batch, LAYOUTS, strict=True)]
    return batch, positions, numbers, documents


def alone(model, documents):
    """Return the states of every row's documents, each run alone, one after the other."""
    with torch.no_grad():
        rows = [torch.cat([states(model, document[None])[0] for document in row]) for row in documents]
    return torch.stack(rows)


@pytest.mark.parametrize(
    ("family", "backend", "use_cache", "mask", "mixers", "given", "position_type"),
    pairwise(
        dict(
            family=["decoder", "encoder"],
            backend=BACKENDS,
            use_cache=[False, True],
            mask=["none", "ones", "right", "left"],
            mixers=["full", "sliding"],
            given=["positions", "numbers", "both"],
            position_type=list(POSITIONS),
        ),
        together=["family", "backend", "use_cache"],
        valid=lambda case: not (case["family"] == "encoder" and case["use_cache"]),
    ),
)
def test_packed_documents_do_not_see_each_other(family, backend, use_cache, mask, mixers, given, position_type):
    model = shared(family, backend, mixers=mixers, position_type=position_type)
    batch, positions, numbers, documents = packed_batch()
    real = torch.ones_like(batch).bool()
    inputs = {}
    if mask in ("right", "left"):
        widths = (0, 3) if mask == "right" else (3, 0)
        pad = partial(torch.nn.functional.pad, pad=widths)
        batch, positions, numbers, real = pad(batch, value=7), pad(positions), pad(numbers, value=-1), pad(real)
    if mask != "none":
        inputs["attention_mask"] = real.long()
    if given in ("positions", "both"):
        inputs["position_ids"] = positions
    if given in ("numbers", "both"):
        inputs["seq_idx"] = numbers
    if family == "decoder":
        inputs["use_cache"] = use_cache
    output = states(model, batch, **inputs)
    assert_close(output[real], alone(model, documents).flatten(0, 1))


@pytest.mark.parametrize(
    ("mixers", "backend", "mask", "cache"),
    pairwise(
        dict(
            mixers=["full", "sliding", "sliding,full"],
            backend=BACKENDS,
            mask=["none", "ones", "left"],
            cache=["dynamic", "static"],
        ),
    ),
)
def test_a_packed_row_goes_on_with_its_cache(mixers, backend, mask, cache):
    """Wherever the row is cut: within a document, at its end, and so that a later part holds several."""
    model = shared("decoder", backend, mixers=mixers, position_type="rope")
    batch, positions, _, documents = packed_batch()
    expected = alone(model, documents)
    real = torch.ones_like(batch)
    if mask == "left":
        pad = partial(torch.nn.functional.pad, pad=(2, 0))
        batch, positions, real = pad(batch, value=7), pad(positions), pad(real)
    length = batch.shape[1]
    for parts in ((6, length - 6), (4, 4, 1, length - 9), (8, *[1] * (length - 8))):
        own = {"dynamic": dynamic(model), "static": static(model, length)}[cache]
        outputs, done = [], 0
        for part in parts:
            done += part
            inputs = dict(position_ids=positions[:, done - part : done], cache=own, use_cache=True)
            if mask != "none":
                inputs["attention_mask"] = real[:, :done]
            outputs.append(states(model, batch[:, done - part : done], **inputs))
        assert_close(torch.cat(outputs, dim=1)[real.bool()], expected.flatten(0, 1))


def test_documents_of_a_decoder_made_bidirectional():
    model = shared("decoder", mixers="sliding,full")
    row, positions = tokens(1, 9), torch.tensor([[0, 1, 2, 3, 0, 1, 2, 3, 4]])
    inputs = dict(is_causal=False, use_cache=False)
    expected = torch.cat([states(model, part, **inputs) for part in row.split((4, 5), dim=1)], dim=1)
    assert_close(states(model, row, position_ids=positions, **inputs), expected)


@pytest.mark.parametrize("packed", [False, True])
def test_a_bidirectional_call_with_a_filled_cache_is_refused(packed):
    """What the cache holds has not seen the new tokens, and a window keeps one key less than both sides need."""
    model = shared("decoder", mixers="sliding,full")
    row, positions = tokens(1, 9), torch.tensor([[0, 1, 2, 3, 0, 1, 2, 3, 4]])
    given = [{"position_ids": part} for part in positions.split((6, 3), dim=1)] if packed else [{}, {}]
    with torch.no_grad():
        cache = model(row[:, :6], is_causal=False, use_cache=True, **given[0]).cache
        with pytest.raises(ValueError, match="is_causal"):
            model(row[:, 6:], is_causal=False, cache=cache, **given[1])


def test_positions_of_one_row_serve_the_whole_batch():
    model = shared("decoder")
    batch = tokens(3, 10)
    positions = torch.tensor([[0, 1, 2, 3, 0, 1, 2, 3, 4, 5]])
    expected = torch.cat([states(model, batch[:, :4]), states(model, batch[:, 4:])], dim=1)
    assert_close(states(model, batch, position_ids=positions), expected)
    assert_close(states(model, batch, position_ids=positions, attention_mask=torch.ones_like(batch)), expected)


@pytest.mark.parametrize("family", ["decoder", "encoder"])
@pytest.mark.parametrize(
    "positions", [[0, 1, 2, 2, 3, 4], [6, 5, 4, 3, 2, 1], [0, 1, 2, 1, 2, 3]], ids=["repeated", "backwards", "back"]
)
def test_only_a_position_of_zero_begins_a_document(family, positions):
    """In a model that reads no positions, others change nothing; refusing them is right as well."""
    model = shared(family, position_type="none")
    row = tokens(1, 6)
    try:
        output = states(model, row, position_ids=torch.tensor([positions]))
    except ValueError:
        return
    assert_close(output, states(model, row))


def test_numbers_that_contradict_positions_are_refused():
    model = shared("decoder")
    row = tokens(1, 6)
    with pytest.raises(ValueError, match="seq_idx or cu_seq_lens_q and position_ids contradict each other"):
        states(model, row, position_ids=torch.arange(6)[None], seq_idx=torch.tensor([[0, 0, 0, 1, 1, 1]]))


def test_numbers_with_a_filled_cache_need_positions():
    model = shared("decoder")
    row, numbers = tokens(1, 6), torch.tensor([[0, 0, 0, 1, 1, 1]])
    with torch.no_grad():
        cache = model(row, seq_idx=numbers, use_cache=True).cache
    with pytest.raises(ValueError, match="needs position_ids"):
        states(model, row[:, :1], seq_idx=numbers[:, :1], cache=cache)


@pytest.mark.parametrize(
    ("rows", "mask", "cached", "refused"),
    [(1, False, False, False), (2, False, False, True), (1, True, False, True), (1, False, True, True)],
)
def test_flash_isolates_documents_of_one_plain_row_only(rows, mask, cached, refused):
    inputs = torch.zeros(rows, 5, 2)
    given = torch.ones(rows, 5, dtype=torch.long) if mask else None
    documents = find_documents(torch.tensor([[0, 1, 2, 0, 1]]), given, inputs, past=0, looks=True)
    for backend in ("flash_attention_2", "flash_attention_3", "kernels-community/flash-attn2"):
        if refused:
            with pytest.raises(ValueError, match="only isolates packed documents in a batch of one row"):
                check_packing(backend, inputs, given, cached, documents)
        else:
            check_packing(backend, inputs, given, cached, documents)
    for backend in BACKENDS:
        check_packing(backend, inputs, given, cached, documents)


@pytest.mark.parametrize(
    "inputs",
    [
        dict(decoder_position_ids=torch.tensor([[0, 1, 2, 0, 1, 2]])),
        dict(position_ids=torch.tensor([[0, 1, 2, 3, 0, 1]])),
        dict(seq_idx=torch.tensor([[0, 0, 0, 1, 1, 1]])),
        dict(decoder_position_ids=torch.tensor([[0, 1, 0, 1, 2, 3]])),
        dict(decoder_position_ids=torch.tensor([[0, 0, 1, 2, 0, 1]]), decoder_attention_mask=torch.ones(1, 6).long()),
    ],
    ids=["target", "source", "numbers", "short documents", "shortest documents"],
)
def test_an_encoder_decoder_refuses_packed_documents(inputs):
    model = shared("encoder_decoder")
    with pytest.raises(ValueError, match="do not support packed documents"):
        model(input_ids=tokens(1, 6), decoder_input_ids=tokens(1, 6), **inputs)


@pytest.mark.parametrize(
    "positions",
    [
        [[0, 0, 0, 1, 2, 3]],  # what generate() makes of left padding
        [[1, 1, 0, 1, 2, 3]],  # what older clients make of it
        [[0, 1, 2, 3, 4, 5]],
    ],
)
def test_an_encoder_decoder_takes_positions_of_padded_rows(positions):
    model = shared("encoder_decoder", position_type="learned")
    positions = torch.tensor(positions)
    mask = torch.ones_like(positions)
    if positions[0, 1] != 1 or positions[0, 0] == 1:
        mask[0, :2] = 0
    row = tokens(1, 6)
    output = states(model, row, position_ids=positions, attention_mask=mask)[mask.bool()]
    assert_close(output, states(model, row, attention_mask=mask)[mask.bool()])


# --------------------------------------------------------------------------------------- masks of the caller (4-D)
def block_diagonal(sizes):
    return torch.block_diag(*[torch.ones(size, size) for size in sizes]).bool()


def as_kind(mask, kind, dtype=torch.float32):
    if kind == "bool":
        return mask
    lowest = {"lowest": torch.finfo(dtype).min, "infinite": float("-inf"), "large": -1e4}[kind]
    return torch.zeros(mask.shape, dtype=dtype).masked_fill(~mask, lowest)


KINDS = ["bool", "lowest", "infinite", "large"]


@pytest.mark.parametrize(
    ("family", "backend", "kind", "shape", "position_type", "mixers"),
    pairwise(
        dict(
            family=["decoder", "encoder"],
            backend=BACKENDS,
            kind=KINDS,
            shape=["one", "batch"],
            position_type=list(POSITIONS),
            mixers=["full", "sliding"],
        ),
    ),
)
def test_a_mask_of_the_caller_replaces_all_others(family, backend, kind, shape, position_type, mixers):
    """With blocks on the diagonal, and positions that begin again, a row equals its parts run alone. The window of
    sliding layers is replaced as well: the parts are no longer than a window."""
    model = shared(family, backend, position_type=position_type, mixers=mixers)
    sizes = (4, 3, 2)
    batch = tokens(2, 9)
    blocks = block_diagonal(sizes)
    if family == "decoder":
        blocks = blocks.tril()
    mask = as_kind(blocks, kind)[None, None].expand(1 if shape == "one" else 2, 1, -1, -1)
    positions = torch.cat([torch.arange(size) for size in sizes])[None]
    expected = torch.cat([states(model, part) for part in batch.split(sizes, dim=1)], dim=1)
    assert_close(states(model, batch, attention_mask=mask, position_ids=positions), expected)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("family", ["decoder", "encoder"])
def test_a_mask_of_the_caller_is_taken_as_it_is(family, kind, backend):
    """No causal mask or window comes on top of it: a decoder looks at the future where the caller says so."""
    model = shared(family, backend, mixers="sliding", sliding_window=2)
    wanted = torch.rand(2, 1, LENGTH, LENGTH, generator=torch.Generator().manual_seed(0)) > 0.5
    wanted |= torch.eye(LENGTH).bool()
    for row in range(2):
        mask = as_kind(wanted[row : row + 1], kind)
        batch = tokens(1, LENGTH).expand(LENGTH, -1)
        with _recorded(model.layers[1].mixer) as plain:
            states(model, batch, attention_mask=mask)
        with one_value_changed_a_row(model.layers[1].mixer) as moved:
            states(model, batch, attention_mask=mask)
        assert torch.equal(((moved[0] - plain[0]).abs().amax(-1) > 1e-6).T, wanted[row, 0])


@pytest.mark.parametrize("backend", ["eager", "sdpa"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_mask_of_the_caller_may_differ_between_heads(kind, backend):
    heads = 6
    wanted = torch.rand(1, heads, LENGTH, LENGTH, generator=torch.Generator().manual_seed(0)) > 0.5
    wanted |= torch.eye(LENGTH).bool()
    model = shared("decoder", backend)
    batch = tokens(1, LENGTH).expand(LENGTH, -1)
    with _recorded(model.layers[1].mixer) as plain:
        states(model, batch, attention_mask=as_kind(wanted, kind))
    with one_value_changed_a_row(model.layers[1].mixer) as moved:
        states(model, batch, attention_mask=as_kind(wanted, kind))
    seen = (moved[0] - plain[0]).unflatten(-1, (heads, -1)).abs().amax(-1) > 1e-6  # (changed key, query, head)
    assert torch.equal(seen.permute(2, 1, 0), wanted[0])


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("cache", ["dynamic", "static"])
def test_a_mask_of_the_caller_with_a_cache(kind, backend, cache):
    model = shared("decoder", backend)
    batch = tokens(2, 9)
    blocks = block_diagonal((6, 3)).tril()
    positions = torch.tensor([[0, 1, 2, 3, 4, 5, 0, 1, 2]])
    expected = torch.cat([states(model, batch[:, :6]), states(model, batch[:, 6:])], dim=1)
    room = 9 if cache == "dynamic" else 11
    own = {"dynamic": dynamic(model), "static": static(model, room)}[cache]
    outputs, done = [], 0
    for part in (4, 3, 1, 1):
        keys = room if cache == "static" else done + part
        rows = torch.nn.functional.pad(blocks, (0, room - 9))[done : done + part, :keys]
        mask = as_kind(rows, kind)[None, None]
        done += part
        inputs = dict(attention_mask=mask, position_ids=positions[:, done - part : done], cache=own, use_cache=True)
        outputs.append(states(model, batch[:, done - part : done], **inputs))
    assert_close(torch.cat(outputs, dim=1), expected)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("family", ["decoder", "encoder"])
@pytest.mark.parametrize(
    ("shape", "dtype", "message"),
    [
        ((2, 5, 5), torch.bool, r"shape \(2, 5, 5\)"),
        ((3, 1, 5, 5), torch.bool, r"shape \(3, 1, 5, 5\)"),
        ((2, 2, 5, 5), torch.bool, r"shape \(2, 2, 5, 5\)"),
        ((2, 1, 4, 5), torch.bool, r"shape \(2, 1, 4, 5\)"),
        ((2, 1, 1, 5), torch.float32, r"shape \(2, 1, 1, 5\)"),
        ((2, 1, 5, 6), torch.float32, r"shape \(2, 1, 5, 6\)"),
        ((2, 1, 5, 5), torch.long, "must be bool"),
        ((2, 1, 5, 5), torch.int32, "must be bool"),
    ],
)
def test_other_masks_are_refused(family, backend, shape, dtype, message):
    model = shared(family, backend)
    with pytest.raises(ValueError, match=message):
        states(model, tokens(2, 5), attention_mask=torch.ones(shape).to(dtype))


def test_flex_refuses_a_mask_by_heads():
    model = shared("decoder", "flex_attention")
    with pytest.raises(ValueError, match=r"1 or 1"):
        states(model, tokens(2, 5), attention_mask=torch.ones(1, 6, 5, 5).bool())


def test_a_mask_that_fits_no_layer_of_two_kinds_is_refused():
    """Beyond the window, full and sliding layers hold different numbers of keys."""
    model = shared("decoder", mixers="sliding,full")
    batch = tokens(1, 9)
    with torch.no_grad():
        cache = model(batch[:, :8], use_cache=True).cache
        with pytest.raises(ValueError, match="attention_mask has the shape"):
            model(batch[:, 8:], attention_mask=torch.ones(1, 1, 1, 9).bool(), cache=cache)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_mask_of_the_caller_for_the_target_of_an_encoder_decoder(kind, backend):
    model = shared("encoder_decoder", backend)
    batch = tokens(2, 6)
    mask = as_kind(torch.ones(6, 6).bool().tril(), kind)[None, None]
    assert_close(states(model, batch, attention_mask=mask), states(model, batch))


def test_a_mask_of_the_caller_for_the_source_is_refused():
    """It says nothing about which source tokens the target sees; the encoder takes it when it is called alone."""
    model = shared("encoder_decoder")
    source, target = tokens(1, 6), tokens(1, 6, seed=1)
    mask = torch.ones(1, 1, 6, 6).bool().tril()
    with pytest.raises(ValueError, match="pass encoder_outputs"):
        states(model, target, source=source, source_mask=mask)
    encoded = states(model.encoder, source, attention_mask=mask)
    with torch.no_grad():
        changed = model(encoder_outputs=(encoded,), decoder_input_ids=target).last_hidden_state
    assert_differ(changed, states(model, target, source=source))


# ------------------------------------------------------------------------------------------ rows that see nothing
def rows_with_nothing_to_see():
    """A batch with a row of padding only, a left-padded, a right-padded and a whole row."""
    batch, mask = padded([tokens(5, seed=1)] * 2, "left", extra=3)
    mask[0] = 0
    other, other_mask = padded([tokens(6, seed=3)], "right", extra=2)
    batch = torch.cat([batch, other, tokens(1, 8, seed=4)])
    mask = torch.cat([mask, other_mask, torch.ones(1, 8, dtype=torch.long)])
    return batch, mask


#: Norms and rotations compute in float32, whatever the dtype of the model.
TOLERANCE = {torch.float64: 2e-5, torch.float32: 2e-5, torch.bfloat16: 0.06, torch.float16: 0.01}


@pytest.mark.parametrize(
    ("family", "backend", "dtype", "position_type", "mixers"),
    pairwise(
        dict(
            family=FAMILIES,
            backend=BACKENDS,
            dtype=list(TOLERANCE),
            position_type=list(POSITIONS),
            mixers=["full", "sliding"],
        ),
    ),
)
def test_rows_that_see_nothing_give_no_nan(family, backend, dtype, position_type, mixers):
    model = build(
        family, backend, "lm", dtype=dtype, position_type=position_type, mixers=mixers, tie_word_embeddings=False
    )
    batch, mask = rows_with_nothing_to_see()
    labels = batch.masked_fill(mask == 0, -100)
    inputs = dict(input_ids=batch, attention_mask=mask)
    if family == "encoder_decoder":
        inputs |= dict(decoder_input_ids=tokens(4, 5, seed=8))
        labels = tokens(4, 5, seed=9)
        labels[0] = -100
    trains = backend != "flex_attention"
    model.train(trains)
    with torch.set_grad_enabled(trains):
        output = model(**inputs, labels=labels)
    real = mask.bool() if family != "encoder_decoder" else torch.ones(4, 5).bool()
    assert torch.isfinite(output.loss)
    if output.logits is not None:
        assert torch.isfinite(output.logits[real]).all()
    if trains:
        output.loss.backward()
        for name, parameter in model.named_parameters():
            if parameter.grad is not None:
                assert torch.isfinite(parameter.grad).all(), name

    model.eval()
    with torch.no_grad():
        logits = model(**inputs).logits
        for row in range(1, 4):
            kept = mask[row].bool()
            single = dict(input_ids=batch[row : row + 1, kept])
            if family == "encoder_decoder":
                single |= dict(decoder_input_ids=inputs["decoder_input_ids"][row : row + 1])
                kept = slice(None)
            expected = model(**single).logits[0]
            assert_close(logits[row, kept].float(), expected.float(), TOLERANCE[dtype])


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("position_type", OF_SCORES)
def test_large_scores_and_biases_give_no_nan_where_a_row_sees_nothing(backend, dtype, position_type):
    """In half precision the lowest number and a negative bias add up to minus infinity, and a row of nothing else
    has no softmax."""
    model = build("decoder", backend, dtype=dtype, position_type=position_type, attention_scale=4.0)
    if position_type == "relative":
        model.positions["relative"].relative_bias.weight.data -= 40.0
    batch, mask = padded([tokens(4, seed=1), tokens(9, seed=2)], "left", extra=6)
    mask[1] = 0
    with torch.no_grad():
        output = model(batch, attention_mask=mask, use_cache=False).last_hidden_state
        alone = model(batch[:1, -4:], use_cache=False).last_hidden_state
    assert torch.isfinite(output[mask.bool()]).all()
    assert_close(output[0, -4:].float(), alone[0].float(), 10 * TOLERANCE[dtype])
    if backend != "flex_attention":
        model.train()
        states_of = model(batch, attention_mask=mask, use_cache=False).last_hidden_state
        states_of[mask.bool()].float().square().mean().backward()
        for name, parameter in model.named_parameters():
            assert parameter.grad is None or torch.isfinite(parameter.grad).all(), name


def test_logits_cover_the_vocabulary():
    assert shared("decoder", head="lm")(tokens(1, 3)).logits.shape == (1, 3, VOCABULARY)
