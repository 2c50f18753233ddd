# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""On an accelerator a forward reads no values, and computes what it computes on CPU, where it reads them."""

import pytest
import torch
from tiny_models import FAMILIES, assert_close, build, padded, pairwise, shared, states, tokens
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import DynamicCache, EncoderDecoderCache, StaticCache

from hf_tx.models import values

#: Operations that make the host wait for the device: values are read, or a shape depends on them.
READS = {
    "_local_scalar_dense",
    "item",
    "is_nonzero",
    "nonzero",
    "equal",
    "masked_select",
    "unique",
    "unique2",
    "_unique2",
}


class _NoReading(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        by_mask = name == "index" and any(part is not None and part.dtype == torch.bool for part in args[1])
        reads = name in READS or by_mask
        assert not reads, f"{name} waits for the device"
        return func(*args, **(kwargs or {}))


@pytest.fixture
def accelerator(monkeypatch):
    """Pretend that tensors are not on CPU, and that reading them is an error."""

    def refuse(tensor):
        raise AssertionError("tolist waits for the device")

    def enter():
        monkeypatch.setattr(values, "_is_on_host", lambda tensor: False)
        monkeypatch.setattr(torch.Tensor, "tolist", refuse)
        return _NoReading()

    return enter


ROWS = [tokens(5, seed=1), tokens(9, seed=2), tokens(7, seed=3)]
INNER = torch.tensor([[1, 1, 1, 0, 0, 1, 1, 1, 1], [0, 1, 1, 1, 1, 1, 1, 1, 1], [1, 1, 0, 1, 1, 1, 1, 0, 1]])
PACKED = torch.tensor([[0, 1, 2, 3, 0, 1, 2, 0, 1], [0, 1, 2, 3, 4, 5, 6, 7, 8], [0, 0, 1, 2, 3, 4, 5, 6, 0]])
INPUTS = {
    "plain": {},
    "left": dict(attention_mask=padded(ROWS, "left")[1]),
    "right": dict(attention_mask=padded(ROWS, "right")[1]),
    "inner": dict(attention_mask=INNER),
    "unpadded": dict(attention_mask=torch.ones_like(INNER)),
    "positions": dict(position_ids=torch.arange(9)[None]),
    "shifted positions": dict(position_ids=torch.arange(9)[None] + 3),
    "positions of padded": dict(
        attention_mask=padded(ROWS, "left")[1], position_ids=(padded(ROWS, "left")[1].cumsum(-1) - 1).clamp(min=0)
    ),
    "packed": dict(position_ids=PACKED),
    "numbers": dict(seq_idx=(PACKED == 0).cumsum(-1)),
    "borders": dict(cu_seq_lens_q=torch.tensor([0, 4, 7, 9], dtype=torch.int32)),
}


@pytest.mark.parametrize(
    ("family", "mixers", "position_type", "backend", "inputs"),
    pairwise(
        dict(
            family=FAMILIES,
            mixers=["full", "sliding,full", "chunked", "dilated", "global_local", "gated_delta,full"],
            position_type=["rope", "learned", "relative", "alibi"],
            backend=["eager", "sdpa"],
            inputs=list(INPUTS),
        ),
        together=["mixers", "inputs"],
        valid=lambda case: (
            case["family"] != "encoder_decoder" or case["inputs"] not in ("packed", "numbers", "borders")
        ),
    ),
)
def test_a_forward_reads_no_values(family, mixers, position_type, backend, inputs, accelerator):
    model, given = shared(family, backend, mixers=mixers, position_type=position_type), dict(INPUTS[inputs])
    batch = tokens(3, 9, seed=4)
    if inputs == "borders":
        batch = batch[:1]
    if family == "encoder_decoder":
        given["source_mask"] = torch.tensor([[1] * 7, [1] * 5 + [0] * 2, [0] + [1] * 6])
    real = given.get("attention_mask", torch.ones_like(batch)).bool()
    expected = states(model, batch, use_cache=False, **given)
    with accelerator():
        found = states(model, batch, use_cache=False, **given)
    assert_close(found[real], expected[real])


def caches(model, kind):
    config = model.config.decoder if model.config.is_encoder_decoder else model.config
    own = DynamicCache(config=config) if kind == "dynamic" else StaticCache(config, max_cache_len=12)
    return EncoderDecoderCache(own, DynamicCache()) if model.config.is_encoder_decoder else own


@pytest.mark.parametrize(
    ("family", "mixers", "position_type", "backend", "cache", "inputs"),
    pairwise(
        dict(
            family=["decoder", "encoder_decoder"],
            mixers=["full", "sliding,full", "chunked", "gated_delta,full", "lstm,full"],
            position_type=["rope", "learned", "relative", "alibi"],
            backend=["eager", "sdpa"],
            cache=["dynamic", "static"],
            inputs=["plain", "mask", "mask and positions"],
        ),
        together=["mixers", "cache", "inputs"],
        valid=lambda case: "lstm" not in case["mixers"] or case["position_type"] not in ("relative", "alibi"),
    ),
)
def test_steps_of_decoding_read_no_values(family, mixers, position_type, backend, cache, inputs, accelerator):
    model = shared(family, backend, mixers=mixers, position_type=position_type)
    batch, mask = padded([tokens(6, seed=1), tokens(9, seed=2)], "left")
    positions = (mask.cumsum(-1) - 1).clamp(min=0)

    def steps(kept):
        outputs = []
        for first, last in ((0, 7), (7, 8), (8, 9)):
            given = {} if inputs == "plain" else dict(attention_mask=mask[:, :last])
            if inputs == "mask and positions":
                given["position_ids"] = positions[:, first:last]
            if first == 0 and "lstm" in mixers:  # kernels for padded rows need their lengths on the host
                outputs.append(states(model, batch[:, :7], cache=kept, use_cache=True, **given))
                continue
            with inside():
                outputs.append(states(model, batch[:, first:last], cache=kept, use_cache=True, **given))
        return torch.cat(outputs, dim=1)

    inside = torch.no_grad
    expected = steps(caches(model, cache))
    inside = accelerator
    found = steps(caches(model, cache))
    real = mask.bool() if inputs != "plain" else torch.ones_like(batch).bool()
    assert_close(found[real], expected[real])


def test_a_training_step_reads_no_values(accelerator):
    model = build("decoder", "sdpa", "lm").train()
    batch, mask = padded(ROWS, "right")
    for how in ("full", "chunked"):
        model.loss_implementation = how
        expected = model(batch, attention_mask=mask, labels=batch).loss
        with accelerator():
            loss = model(batch, attention_mask=mask, labels=batch).loss
            loss.backward()
        assert_close(loss, expected)
        values._is_on_host = lambda tensor: True


def test_checks_are_made_where_they_are_asked_for(accelerator):
    model = shared("encoder")
    types = torch.ones(1, 4, dtype=torch.long)
    with accelerator():
        states(model, tokens(1, 4), token_type_ids=types)
    with torch.autograd.set_detect_anomaly(True), pytest.raises(ValueError, match="type_vocab_size = 0"):
        states(model, tokens(1, 4), token_type_ids=types)
