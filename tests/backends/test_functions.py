# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""The attention functions against attention written out: forward and gradient, at odd lengths."""

import types

import pytest
import torch
from tiny_models import assert_close, pairwise
from torch.utils._python_dispatch import TorchDispatchMode
from transformers.masking_utils import (
    and_masks,
    bidirectional_mask_function,
    causal_mask_function,
    chunked_causal_mask_function,
    eager_mask,
    or_masks,
    sliding_window_bidirectional_mask_function,
    sliding_window_causal_mask_function,
)

from hf_tx.backends import banded_attention, mask_rule, tiled_attention
from hf_tx.models.attention import eager_attention_forward
from hf_tx.models.mixer import Band
from hf_tx.models.patterns import GlobalLocalOptions, global_local

BATCH, HEADS, SIZE = 2, 4, 8
FUNCTIONS = {"tiled": tiled_attention, "banded": banded_attention}


def document_rule(b, h, q, kv):
    return (q >= 13) == (kv >= 13)


def global_rule(b, h, q, kv):
    return ((q - kv).abs() <= 3) | (kv == 2) | (q == 2)


def random_blocks(is_causal):
    options = GlobalLocalOptions(global_positions=[2], random_blocks=1, block_size=4, seed=5)
    pattern = global_local(options, 3, is_causal, None, 0)
    base, name = (
        (causal_mask_function, "allow_is_causal_skip")
        if is_causal
        else (bidirectional_mask_function, "allow_is_bidirectional_skip")
    )
    said = {name: False, "use_vmap": True, "config": types.SimpleNamespace(band=pattern.band)}
    return and_masks(base, pattern.rule), said


#: Name: (rule, what transformers says of it).
RULES = {
    "causal": (causal_mask_function, {}),
    "bidirectional": (bidirectional_mask_function, dict(allow_is_bidirectional_skip=True)),
    "window": (sliding_window_causal_mask_function(7), dict(local_size=7)),
    "window of one": (sliding_window_causal_mask_function(1), dict(local_size=1)),
    "window of both sides": (
        sliding_window_bidirectional_mask_function(3),
        dict(local_size=3, allow_is_bidirectional_skip=True),
    ),
    "chunks": (chunked_causal_mask_function(6, torch.tensor([0, 2])), dict(local_size=6)),
    "documents": (and_masks(causal_mask_function, document_rule), dict(allow_is_causal_skip=False)),
    "documents by vmap": (
        and_masks(sliding_window_causal_mask_function(7), document_rule),
        dict(local_size=7, allow_is_causal_skip=False, use_vmap=True),
    ),
    "widened": (
        or_masks(sliding_window_causal_mask_function(3), lambda b, h, q, kv: kv == 20),
        dict(local_size=3, allow_is_causal_skip=False),
    ),
    "global": (
        and_masks(bidirectional_mask_function, global_rule),
        dict(
            allow_is_bidirectional_skip=False,
            use_vmap=True,
            config=types.SimpleNamespace(
                band=Band(3, 3, far=lambda length: torch.tensor([[2, 2, 0, length], [0, length, 2, 2]]))
            ),
        ),
    ),
    "random blocks": random_blocks(True),
    "random blocks of both sides": random_blocks(False),
}
KINDS = ("plain", "softcap", "bias", "distance", "sinks", "all")


def inputs_of(kind, queries, keys, kv_heads=2, seed=0):
    """Draw queries, keys, values, bias and sinks, as transposed views like those of a model."""
    generator = torch.Generator().manual_seed(seed)
    draw = lambda *shape: torch.randn(*shape, generator=generator)  # noqa: E731
    q, k, v = (
        draw(BATCH, n, h, SIZE).transpose(1, 2) for n, h in ((queries, HEADS), (keys, kv_heads), (keys, kv_heads))
    )
    bias = draw(HEADS, queries + keys - 1) if kind in ("distance", "all") else None
    if kind == "bias":
        bias = draw(1, HEADS, queries, keys)
    return q, k, v, bias, draw(HEADS) if kind in ("sinks", "all") else None


def by_pair(bias, queries, keys):
    """A bias by distance, written out."""
    if bias is None or bias.ndim == 4:
        return bias
    distance = torch.arange(keys)[None] - torch.arange(queries)[:, None]
    return bias[:, distance + queries - 1][None]


def attend(function, tensors, mask, weight, softcap=None, dense=False, **kwargs):
    """Return the output and the gradients of a weighted sum of it."""
    q, k, v, bias, sinks = leaves = [None if x is None else x.detach().clone().requires_grad_() for x in tensors]
    module = types.SimpleNamespace(
        num_key_value_groups=q.shape[1] // k.shape[1], training=kwargs.get("dropout", 0) > 0, is_causal=True
    )
    extras = dict(softcap=softcap, s_aux=sinks)
    extras["position_bias"] = by_pair(bias, q.shape[2], k.shape[2]) if dense else bias
    output, _ = function(module, q, k, v, mask, scaling=0.4, **extras, **kwargs)
    (output * weight).sum().backward()
    return [output.detach(), *(leaf.grad for leaf in leaves if leaf is not None)]


def compare(backend, rule, kind, queries=23, keys=23, padding=None, kv_heads=2):
    function, said = RULES[rule]
    arguments = (BATCH, queries, keys, keys - queries, 0, function, padding)
    dense = eager_mask(*arguments, use_vmap=said.get("use_vmap", False))
    seen = (dense == 0).any(-1).transpose(1, 2)[..., None]  # rows that see nothing may hold anything finite
    tensors = inputs_of(kind, queries, keys, kv_heads)
    weight = torch.randn(BATCH, queries, HEADS, SIZE, generator=torch.Generator().manual_seed(1)) * seen
    softcap = 1.5 if kind in ("softcap", "all") else None
    expected = attend(eager_attention_forward, tensors, dense, weight, softcap, dense=True)
    actual = attend(FUNCTIONS[backend], tensors, mask_rule(*arguments, **said), weight, softcap)
    assert torch.isfinite(actual[0]).all()
    for ours, wanted in zip([actual[0] * seen, *actual[1:]], [expected[0] * seen, *expected[1:]], strict=True):
        # With a single key, the gradients of queries and keys are nothing but rounding of terms of about one.
        assert_close(ours, wanted, least=0.1 if keys == 1 else 1e-3)


@pytest.mark.parametrize(
    ("backend", "rule", "kind", "padded"),
    pairwise(dict(backend=list(FUNCTIONS), rule=list(RULES), kind=KINDS, padded=["", "left", "right"])),
)
def test_equals_attention_written_out(backend, rule, kind, padded):
    padding = torch.ones(BATCH, 23, dtype=torch.bool) if padded else None
    if padded:
        padding[1, slice(0, 9) if padded == "left" else slice(17, None)] = False
    compare(backend, rule, kind, padding=padding)


@pytest.mark.parametrize(
    ("backend", "sizes", "case"),
    pairwise(
        dict(
            backend=list(FUNCTIONS),
            sizes=[(1, 1), (1, 23), (2, 23), (11, 23), (15, 15), (16, 16), (5, 40)],
            case=[("causal", "distance"), ("window", "plain"), ("window", "all"), ("random blocks", "plain")],
        )
    ),
)
def test_any_length_and_a_past(backend, sizes, case):
    compare(backend, *case, *sizes)


@pytest.mark.parametrize("backend", FUNCTIONS)
@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_shared_heads(backend, kv_heads):
    compare(backend, "window", "plain", kv_heads=kv_heads)
    compare(backend, "causal", "all", kv_heads=kv_heads)


@pytest.mark.parametrize("backend", FUNCTIONS)
def test_masks_of_the_caller(backend):
    tensors = inputs_of("plain", 9, 9)
    weight = torch.randn(BATCH, 9, HEADS, SIZE)
    seen = torch.rand(BATCH, 1, 9, 9) > 0.4
    seen[..., 0] = True
    added = torch.zeros(seen.shape).masked_fill(~seen, torch.finfo(torch.float32).min)
    expected = attend(eager_attention_forward, tensors, added, weight)
    for mask in (seen, added):
        for ours, wanted in zip(attend(FUNCTIONS[backend], tensors, mask, weight), expected, strict=True):
            assert_close(ours, wanted)


@pytest.mark.parametrize("backend", FUNCTIONS)
@pytest.mark.parametrize("is_causal", [True, False])
def test_no_mask_at_all(backend, is_causal):
    tensors, weight = inputs_of("plain", 9, 9), torch.randn(BATCH, 9, HEADS, SIZE)
    mask = eager_mask(BATCH, 9, 9) if is_causal else None
    expected = attend(eager_attention_forward, tensors, mask, weight)
    actual = attend(FUNCTIONS[backend], tensors, None, weight, is_causal=is_causal)
    for ours, wanted in zip(actual, expected, strict=True):
        assert_close(ours, wanted)


def test_queries_that_see_nothing_give_zeros_and_no_gradient():
    padding = torch.ones(BATCH, 9, dtype=torch.bool)
    padding[1, :4] = False
    rule = mask_rule(BATCH, 9, 9, attention_mask=padding)
    output, *gradients = attend(tiled_attention, inputs_of("plain", 9, 9), rule, torch.ones(BATCH, 9, HEADS, SIZE))
    assert (output[1, :4] == 0).all()
    assert (output[1, 4:] != 0).all()
    for gradient in gradients:
        assert torch.isfinite(gradient).all()
    assert (gradients[0][1, :, :4] == 0).all()


def test_dropout_is_drawn_again_in_the_backward_pass():
    """The weights that the forward pass dropped have no gradient, and the others that of the scaled weight."""
    tensors, rule = inputs_of("all", 23, 23), mask_rule(BATCH, 23, 23)
    eye = torch.eye(23).expand(BATCH, 2, -1, -1)  # values that make the output the weights themselves
    module = types.SimpleNamespace(is_causal=True)

    def output(value, probability=0.4):
        torch.manual_seed(3)
        query, key, _, bias, sinks = tensors
        return tiled_attention(
            module, query, key, value, rule, 0.4, probability, softcap=1.5, position_bias=bias, s_aux=sinks
        )[0].transpose(1, 2)

    kept, whole = output(eye), output(eye, 0.0)
    used = (whole > 0).float().sum()
    assert 0.5 < ((kept != 0).float().sum() / used).item() < 0.7
    factors = torch.where(kept != 0, 1 / 0.6, 0.0)
    assert_close(kept, whole * factors)

    weight = torch.randn(BATCH, 23, HEADS, SIZE)
    torch.manual_seed(3)
    actual = attend(tiled_attention, tensors, rule, weight, 1.5, dropout=0.4)

    def with_factors(module, q, k, v, mask, scaling, softcap, position_bias, s_aux, **kwargs):
        _, weights = eager_attention_forward(module, q, k, v, mask, scaling, 0.0, softcap, position_bias, s_aux)
        return torch.matmul(weights * factors, v.repeat_interleave(2, 1)).transpose(1, 2), None

    expected = attend(with_factors, tensors, eager_mask(BATCH, 23, 23), weight, 1.5, dense=True)
    for ours, wanted in zip(actual, expected, strict=True):
        assert_close(ours, wanted)


@pytest.mark.parametrize("backend", FUNCTIONS)
def test_dropout_of_a_window_keeps_the_mean(backend):
    function, said = RULES["window"]
    tensors, module = inputs_of("plain", 23, 23), types.SimpleNamespace(is_causal=True)
    rule = mask_rule(BATCH, 23, 23, mask_function=function, **said)
    draws = [FUNCTIONS[backend](module, *tensors[:3], rule, 0.4, 0.3)[0] for _ in range(400)]
    mean = torch.stack(draws).mean(0)
    expected = FUNCTIONS[backend](module, *tensors[:3], rule, 0.4)[0]
    assert not torch.equal(draws[0], draws[1])
    assert (mean - expected).abs().mean() < 0.05 * expected.abs().mean() + 0.02


@pytest.mark.parametrize("backend", FUNCTIONS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kind", ["plain", "all"])
def test_low_precision_stays_close_and_finite(backend, dtype, kind):
    """Within a few units of the last place of the exact result, with scores near the largest number too."""
    function, said = RULES["window"]
    arguments = (BATCH, 23, 23, 0, 0, function)
    tensors = [None if x is None else x.to(dtype) for x in inputs_of(kind, 23, 23)]
    weight, softcap = torch.ones(BATCH, 23, HEADS, SIZE, dtype=dtype), 1.5 if kind == "all" else None
    exact = [None if x is None else x.float() for x in tensors]
    expected = attend(eager_attention_forward, exact, eager_mask(*arguments), weight.float(), softcap, dense=True)
    for ours, wanted in zip(
        attend(FUNCTIONS[backend], tensors, mask_rule(*arguments, **said), weight, softcap), expected, strict=True
    ):
        assert ours.dtype == dtype
        assert_close(ours.float(), wanted, 8 * torch.finfo(dtype).eps)
    huge = [tensors[0] * 100, tensors[1] * 100, *tensors[2:]]
    for value in attend(FUNCTIONS[backend], huge, mask_rule(*arguments, **said), weight, softcap):
        assert torch.isfinite(value).all()


@pytest.mark.parametrize("backend", FUNCTIONS)
@pytest.mark.parametrize("kind", ["plain", "sinks"])
def test_autocast(backend, kind):
    function, said = RULES["window"]
    rule = mask_rule(BATCH, 23, 23, mask_function=function, **said)
    tensors, weight = inputs_of(kind, 23, 23), torch.ones(BATCH, 23, HEADS, SIZE)
    expected = attend(FUNCTIONS[backend], tensors, rule, weight)
    with torch.autocast("cpu", torch.bfloat16):
        actual = attend(FUNCTIONS[backend], tensors, rule, weight)
    assert actual[0].dtype == torch.bfloat16
    for ours, wanted in zip(actual, expected, strict=True):
        assert_close(ours.float(), wanted, 8 * torch.finfo(torch.bfloat16).eps)


class _Largest(TorchDispatchMode):
    """Notes the largest tensor that any operation makes."""

    numel = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for value in result if isinstance(result, tuple | list) else (result,):
            if isinstance(value, torch.Tensor):
                self.numel = max(self.numel, value.untyped_storage().nbytes() // value.element_size())
        return result


@pytest.mark.parametrize(
    ("backend", "rule", "kind"),
    [("tiled", "causal", "distance"), ("tiled", "documents", "all"), ("banded", "window", "plain")]
    + [("banded", "window", "all"), ("banded", "documents by vmap", "plain"), ("banded", "global", "plain")]
    + [("banded", "random blocks of both sides", "plain")],
)
def test_nothing_grows_with_the_square_of_the_length(backend, rule, kind):
    function, said = RULES[rule]
    sizes, first = [], 400 if rule.startswith("random") else 200  # how often a block is drawn evens out
    for length in (first, 2 * first):
        largest, tensors = _Largest(), inputs_of(kind, length, length)
        with largest:
            padding = torch.ones(BATCH, length, dtype=torch.bool)
            padding[0, 0] = False
            mask = mask_rule(BATCH, length, length, mask_function=function, attention_mask=padding, **said)
            attend(FUNCTIONS[backend], tensors, mask, torch.ones(BATCH, length, HEADS, SIZE))
        sizes.append(largest.numel)
    assert sizes[1] <= 2.1 * sizes[0]
