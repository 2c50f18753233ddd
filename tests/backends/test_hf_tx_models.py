# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""The backends inside the models of hf_tx: every mixer that is attention, every mechanism, against `eager`."""

import pytest
import torch
from tiny_models import FAMILIES, assert_close, build, config_of, padded, pairwise, states, tokens
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode
from transformers import StaticCache

from hf_tx.backends.mask_rule import MaskRule
from hf_tx.models import backend_rules
from hf_tx.models.backend_rules import BACKENDS, refusal
from hf_tx.models.mixers import MIXERS

MIXERS_OF_ATTENTION = {
    "full": {},
    "sliding": dict(sliding_window=4),
    "chunked": dict(mixer_options={"chunked": {"chunk_size": 5}}),
    "dilated": dict(sliding_window=3, mixer_options={"dilated": {"dilation": 2}}),
    "global_local": dict(
        sliding_window=3,
        mixer_options={"global_local": {"global_positions": [0, 6], "random_blocks": 1, "block_size": 2}},
    ),
    "sliding,full": dict(sliding_window=4),
    "global_local,lstm": dict(
        sliding_window=2, position_type="none", mixer_options={"global_local": {"global_positions": [0]}}
    ),
}
FEATURES = {
    "plain": {},
    "softcap": dict(attn_logit_softcapping=1.5),
    "relative": dict(position_type="relative"),
    "alibi": dict(position_type="alibi"),
    "sinks": dict(attention_sinks=True),
}
ROWS = [tokens(length, seed=length) for length in (4, 13, 19)]


def settings_of(mixer, feature="plain"):
    settings = dict(mixers=mixer, **MIXERS_OF_ATTENTION[mixer])
    if "lstm" in mixer and "position_type" in FEATURES[feature]:
        return settings
    return settings | FEATURES[feature]


def result(model, batch, **inputs):
    """Return the last states at real tokens, and the gradients of a weighted sum of them."""
    if model.config.is_encoder_decoder:
        mask = inputs.pop("attention_mask", torch.ones_like(batch))
        inputs |= dict(decoder_input_ids=batch, decoder_attention_mask=mask)
    else:
        mask = inputs.get("attention_mask", torch.ones_like(batch))
    model.zero_grad()
    last = model(input_ids=batch, **inputs).last_hidden_state[mask.bool()]
    (last * torch.randn(last.shape, generator=torch.Generator().manual_seed(0))).sum().backward()
    return last.detach(), {key: weight.grad for key, weight in model.named_parameters() if weight.grad is not None}


def assert_equal(actual, expected):
    assert_close(actual[0], expected[0])
    assert actual[1].keys() == expected[1].keys()
    for key, gradient in expected[1].items():
        assert_close(actual[1][key], gradient, 1e-4)


def usable(case):
    bands = case["mixer"] != "full" or case["backend"] != "banded"
    if case.get("side") == "packed" and case["family"] == "encoder_decoder":
        return False  # takes no packed documents
    return bands and not ("lstm" in case["mixer"] and case["feature"] in ("relative", "alibi"))


@pytest.mark.parametrize(
    ("backend", "mixer", "feature", "family", "side"),
    pairwise(
        dict(
            backend=["tiled", "banded"],
            mixer=list(MIXERS_OF_ATTENTION),
            feature=list(FEATURES),
            family=FAMILIES,
            side=["left", "right", "packed"],
        ),
        ["mixer", "feature"],
        usable,
    ),
)
def test_equals_eager_in_forward_and_gradient(backend, mixer, feature, family, side):
    settings = settings_of(mixer, feature)
    if family == "encoder_decoder" and backend == "banded":
        settings["encoder"] = dict(mixers="sliding", sliding_window=2)
        settings["encoder"] |= dict(mixer_options=None)
    model, eager = build(family, backend, **settings), build(family, "eager", **settings)
    if side == "packed":
        batch = torch.cat(ROWS)[None]
        inputs = dict(position_ids=torch.cat([torch.arange(len(row)) for row in ROWS])[None])
    else:
        batch, mask = padded(ROWS, side, extra=1)
        inputs = dict(attention_mask=mask)
    assert_equal(result(model, batch, **inputs), result(eager, batch, **inputs))


@pytest.mark.parametrize("backend", ["tiled", "banded"])
@pytest.mark.parametrize("reentrant", [False, True])
def test_gradients_of_the_bias_pass_through_checkpointing(backend, reentrant):
    settings = dict(mixers="sliding", sliding_window=4, position_type="relative", attention_sinks=True)
    model, eager = build("decoder", backend, **settings), build("decoder", "eager", **settings)
    expected = result(eager, tokens(2, 17), use_cache=False)
    model.train()
    model.gradient_checkpointing_enable(dict(use_reentrant=reentrant))
    actual = result(model, tokens(2, 17), use_cache=False)
    assert any("positions" in key for key in actual[1])
    assert_equal(actual, expected)


@pytest.mark.parametrize(
    ("mixer", "feature", "cache", "backend"),
    pairwise(
        dict(
            mixer=list(MIXERS_OF_ATTENTION),
            feature=list(FEATURES),
            cache=["dynamic", "static"],
            backend=["tiled", "banded"],
        ),
        ["mixer", "cache"],
        usable,
    ),
)
def test_a_text_in_parts(mixer, feature, cache, backend):
    settings = settings_of(mixer, feature)
    model, eager = build("decoder", backend, **settings), build("decoder", "eager", **settings)
    batch, mask = padded(ROWS, "left")
    expected = states(eager, batch, attention_mask=mask, use_cache=False)
    own = StaticCache(config=model.config, max_cache_len=24) if cache == "static" else None
    outputs, done = [], 0
    for part in (6, 1, 8, 4):
        done += part
        with torch.no_grad():
            output = model(batch[:, done - part : done], attention_mask=mask[:, :done], cache=own, use_cache=True)
        own = output.cache
        outputs.append(output.last_hidden_state)
    assert_close(torch.cat(outputs, 1)[mask.bool()], expected[mask.bool()])


@pytest.mark.parametrize("backend", ["tiled", "banded"])
@pytest.mark.parametrize("mixer", MIXERS_OF_ATTENTION)
@pytest.mark.parametrize("how", [{}, dict(num_beams=3), dict(cache_implementation="static")])
def test_generation(mixer, how, backend):
    if not usable(dict(mixer=mixer, backend=backend, feature="plain")):
        pytest.skip("no band")
    arguments = dict(max_new_tokens=6, do_sample=False, eos_token_id=None, disable_compile=True, **how)
    batch, mask = padded(ROWS, "left")
    model, eager = (build("decoder", name, "lm", **settings_of(mixer)) for name in (backend, "eager"))
    expected = eager.generate(batch, attention_mask=mask, **arguments)
    assert torch.equal(model.generate(batch, attention_mask=mask, **arguments), expected)


# --------------------------------------------------------------------------------------------------------- the rules
@pytest.mark.parametrize("family", FAMILIES)
def test_banded_refuses_a_stack_without_a_band(family):
    with pytest.raises(
        ValueError,
        match=r"a band \(windows, chunks\), and no layer has one; use one of 'eager', 'sdpa'",
    ):
        build(family, "banded")
    model = build(family)
    with pytest.raises(ValueError, match="no layer has one"):
        model.set_attn_implementation("banded")


@pytest.mark.parametrize("family", ["decoder", "encoder"])
def test_global_positions_and_random_blocks_cost_by_the_length(family):
    """Operations of a forward and backward pass of four times the length. Blocks that see more keys are padded to the
    largest of their group, which is at most twice as large; if every query met every key, it would be 16 times."""
    options = dict(global_positions=[0, 9], random_blocks=2, block_size=32)
    settings = dict(
        mixers="global_local", sliding_window=32, mixer_options={"global_local": options}, num_hidden_layers=1
    )
    model = build(family, "banded", **settings)
    counts = []
    for length in (500, 2000):
        with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:  # the only one with formulas
            model(input_ids=tokens(1, length)).last_hidden_state.sum().backward()
        counts.append(counter.get_total_flops())
    assert counts[1] <= 2 * 4 * counts[0]


@pytest.mark.parametrize("mixer", ["chunked", "dilated", "global_local"])
def test_flash_functions_read_no_mask_and_are_refused_patterns(mixer):
    config = config_of("decoder", **settings_of(mixer))
    reason = refusal(config, "flash_attention_2")
    assert f"cannot compute layer 0 ({mixer!r}): it has no mask of this pattern" in reason
    assert "'banded'" in reason
    for backend in ("eager", "sdpa", "flex_attention", "tiled", "banded"):
        assert refusal(config, backend) is None


@pytest.mark.parametrize("backend", BACKENDS)
def test_sinks(backend):
    able = ("eager", "flex_attention", "flash_attention_3", "flash_attention_4", "tiled", "banded", "paged|eager")
    config = config_of("decoder", mixers="sliding", attention_sinks=True)
    reason = refusal(config, backend)
    assert (reason is None) == (backend in able)
    assert reason is None or "it has no attention sinks" in reason


def test_flex_has_no_sinks_on_cpu():
    model = build("decoder", "flex_attention", attention_sinks=True)
    with pytest.raises(ValueError, match="'flex_attention' has no attention sinks on CPU; use 'eager'"):
        states(model, tokens(1, 4))


@pytest.mark.parametrize(
    ("name", "can"),
    [("kernels-community/vllm-flash-attn3", True), ("kernels-community/flash-attn2", False), ("acme/kernel", False)],
)
def test_kernels_from_the_hub_are_flash_of_their_version(name, can, monkeypatch):
    monkeypatch.setitem(backend_rules.AttentionMaskInterface._global_mapping, name, lambda **kwargs: None)
    reason = refusal(config_of("decoder", attention_sinks=True), name)
    assert (reason is None) == can


def test_a_mixer_that_is_no_attention_asks_nothing_of_a_backend():
    for mixer in ("lstm", "delta"):
        assert refusal(config_of("decoder", mixers=mixer), "flash_attention_2") is None
        assert refusal(config_of("decoder", mixers=mixer), "banded") is None
        assert not MIXERS.get(mixer).is_attention


@pytest.fixture
def acme(monkeypatch):
    """Undo what a test registers."""
    for table in (backend_rules.AttentionInterface, backend_rules.AttentionMaskInterface):
        monkeypatch.setattr(table, "_global_mapping", dict(table._global_mapping))
    monkeypatch.setattr(backend_rules, "BACKENDS", dict(BACKENDS))
    from hf_tx.backends import mask_rule, tiled_attention

    return tiled_attention, mask_rule


def test_a_registered_backend_serves_what_it_declares(acme):
    backend_rules.register_backend("acme_soft", *acme, computes=["softcap"])
    softcap = dict(attn_logit_softcapping=1.5)
    assert_close(
        states(build("decoder", "acme_soft", **softcap), tokens(2, 9)),
        states(build("decoder", **softcap), tokens(2, 9)),
    )
    for settings, words in ((dict(position_type="alibi"), "position bias"), (dict(attention_sinks=True), "sinks")):
        with pytest.raises(ValueError, match=words):
            build("decoder", "acme_soft", **settings)
    assert "'acme_soft'" in refusal(config_of("decoder", **softcap), "sdpa")


def test_a_registered_backend_may_refuse_by_a_function(acme):
    def refuses(layer, features):
        return f"head_dim = {layer.head_dim} is not 16" if layer.head_dim != 16 else None

    backend_rules.register_backend("acme_heads", *acme, refuses)
    build("decoder", "acme_heads", head_dim=16, attention_sinks=True)
    with pytest.raises(
        ValueError, match=r"cannot compute layer 0 \('full'\): head_dim = 8 is not 16; use one of 'eager'"
    ):
        build("decoder", "acme_heads")


def test_a_feature_that_does_not_exist_is_refused(acme):
    with pytest.raises(
        ValueError, match="computes has the unknown features \\['softcaps'\\]; the features are softcap"
    ):
        backend_rules.register_backend("acme_soft", *acme, computes=["softcaps"])


@pytest.mark.parametrize("family", ["decoder", "encoder"])
@pytest.mark.parametrize("mixer", [name for name in MIXERS_OF_ATTENTION if "," not in name])
def test_a_rule_that_broadcasts_says_of_all_pairs_what_it_says_of_each(family, mixer, monkeypatch):
    """`tiled` evaluates it so; the library, under `torch.vmap`, for one pair at a time."""
    visible, compared = MaskRule.visible, []

    def both(rule, query, key):
        found = visible(rule, query, key)
        if rule._arguments["config"].broadcasts:
            rule._use_vmap = True
            assert torch.equal(found.expand(3, *found.shape[1:]), visible(rule, query, key))
            rule._use_vmap = False
            compared.append(found)
        return found

    monkeypatch.setattr(MaskRule, "visible", both)
    model = build(family, "tiled", **settings_of(mixer))
    inner, packed = torch.ones(3, 19, dtype=torch.long), torch.arange(19).remainder(7).expand(3, -1)
    inner[1, 5:9] = 0
    for inputs in (
        dict(attention_mask=padded(ROWS, "left")[1]),
        dict(attention_mask=inner),
        dict(position_ids=packed),
        dict(position_ids=packed, attention_mask=padded(ROWS, "right")[1]),
    ):
        compared.clear()
        model(tokens(3, 19), **inputs)
        assert compared
