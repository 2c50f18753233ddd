# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""A backend computes what the config asks for, equal to `eager`, or it is refused with a reason: when a model is
built, when its backend is switched, and at the latest before the first layer of a call."""

import concurrent.futures
import contextlib
import logging

import flash_emulation
import pytest
import torch
from tiny_models import (
    BACKENDS,
    FAMILIES,
    assert_close,
    assert_differ,
    build,
    config_of,
    padded,
    pairwise,
    shared,
    states,
    tokens,
    uncompiled,
)
from transformers import AttentionInterface, AttentionMaskInterface, StaticCache
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, eager_mask, flash_attention_mask, sdpa_mask

import hf_tx
from hf_tx.models import backend_rules
from hf_tx.models.attention import Attention, CrossAttention, eager_attention_forward
from hf_tx.models.backend_rules import refusal
from hf_tx.models.positions import POSITIONS

ROWS = [tokens(length, seed=length) for length in (3, 7, 12)]
FLASH = ("flash_attention_2", "flash_attention_3", "flash_attention_4")


@pytest.fixture(autouse=True)
def _uncompiled():
    with uncompiled():
        yield


@pytest.fixture
def flash(monkeypatch):
    """Makes flash_attention_2 available."""
    flash_emulation.install(monkeypatch)


@contextlib.contextmanager
def registered(name, function, mask):
    """Register a backend for a while. `mask=None` leaves it without a mask function."""
    AttentionInterface.register(name, function)
    if mask is not None:
        AttentionMaskInterface.register(name, mask)
    try:
        yield
    finally:
        AttentionInterface._global_mapping.pop(name, None)
        AttentionMaskInterface._global_mapping.pop(name, None)


def in_use(model):
    """Return the backends of a model and of its stacks."""
    return [
        module.config._attn_implementation for module in model.modules() if hasattr(module, "set_attn_implementation")
    ]


# -------------------------------------------------------------------------------------- features x backends (C26)
FEATURES = {
    "plain": {},
    "window": dict(mixers="sliding"),
    "scale": dict(attention_scale=0.9),
    "softcap": dict(attn_logit_softcapping=1.5),
    "softcap of one layer": dict(per_layer_config={1: {"attn_logit_softcapping": 1.5}}),
    "scale of one layer": dict(per_layer_config={1: {"attention_scale": 0.9}}),
    "relative": dict(position_type="relative"),
    "alibi": dict(position_type="alibi"),
    "alibi of one layer": dict(per_layer_config={1: {"position_type": "alibi"}}),
    "mha": dict(num_key_value_heads=6),
    "gqa": dict(num_key_value_heads=2),
    "mqa": dict(num_key_value_heads=1),
    "odd heads": dict(num_attention_heads=3, num_key_value_heads=1),
    "four heads": dict(num_attention_heads=4, num_key_value_heads=2),
    "qk norm": dict(qk_norm=True),
    "interleaved": dict(rope_interleaved=True),
    "everything": dict(
        mixers="sliding", attention_scale=0.9, position_type="alibi", qk_norm=True, attention_bias=True
    ),
    "softcap and bias": dict(attn_logit_softcapping=1.5, position_type="relative", mixers="sliding"),
}
#: What the backends cannot do: (part of the settings, backends, words of the message).
CANNOT = [
    ("attn_logit_softcapping", ("sdpa",), "no softcap"),
    ("relative", FLASH, "no position bias"),
    ("alibi", FLASH, "no position bias"),
]


def refused_for(settings, backend):
    return next((words for part, backends, words in CANNOT if part in str(settings) and backend in backends), None)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("backend", BACKENDS[1:])
@pytest.mark.parametrize("feature", FEATURES)
def test_a_feature_equals_eager_or_is_refused(feature, backend, family):
    settings = FEATURES[feature]
    eager = build(family, "eager", **settings)
    before = in_use(eager)
    reason = refused_for(settings, backend)
    if reason:
        with pytest.raises(ValueError, match=reason) as built:
            build(family, backend, **settings)
        with pytest.raises(ValueError, match=reason) as switched:
            eager.set_attn_implementation(backend)
        assert in_use(eager) == before == ["eager"] * len(before)
        layer = 1 if "one layer" in feature else 0
        for error in (built, switched):
            assert f"attn_implementation='{backend}' cannot compute layer {layer} (" in str(error.value)
            assert "use one of 'eager'" in str(error.value)
        return
    batch, mask = padded(ROWS, "left")
    real = mask.bool()
    expected, expected_plain = states(eager, batch, attention_mask=mask)[real], states(eager, batch)
    assert_close(states(build(family, backend, **settings), batch, attention_mask=mask)[real], expected)
    eager.set_attn_implementation(backend)
    assert in_use(eager) == [backend] * len(before)
    assert_close(states(eager, batch, attention_mask=mask)[real], expected)
    assert_close(states(eager, batch), expected_plain)


@pytest.mark.parametrize("backend", FLASH)
@pytest.mark.parametrize("feature", FEATURES)
def test_what_flash_cannot_compute_is_refused_without_having_it(feature, backend):
    reason = refusal(config_of("decoder", **FEATURES[feature]), backend)
    words = refused_for(FEATURES[feature], backend)
    assert (reason is None) == (words is None)
    if words is not None:
        assert words in reason
        assert "'eager'" in reason
        assert ("'sdpa'" in reason) == ("softcap" not in feature)  # who is named can do the whole layer


@pytest.mark.parametrize("feature", FEATURES)
@pytest.mark.parametrize("family", FAMILIES)
def test_without_a_name_the_first_backend_that_can_is_taken(feature, family):
    model = build(family, None, **FEATURES[feature])
    wanted = "eager" if "softcap" in feature else "sdpa"
    assert in_use(model) == [wanted] * len(in_use(model))


def test_each_stack_takes_the_first_backend_that_can():
    model = build("encoder_decoder", None, attn_logit_softcapping=1.5, encoder=dict(attn_logit_softcapping=None))
    assert model.encoder.config._attn_implementation == "sdpa"
    assert model.decoder.config._attn_implementation == "eager"


@pytest.mark.parametrize(
    ("settings", "able"),
    [(dict(attn_logit_softcapping=1.5), "flex_attention"), (dict(attention_sinks=True), "tiled")],
    ids=["softcap", "sinks"],
)
def test_attention_to_an_encoder_asks_for_what_it_has_where_no_layer_is_attention(settings, able):
    plain = dict(attn_logit_softcapping=None, attention_sinks=False)
    settings = dict(mixers="lstm", **settings, encoder=dict(mixers="full", **plain))
    with pytest.raises(ValueError, match=r"'sdpa' cannot compute layer 0 \('lstm'\): it has no .*'eager'"):
        build("encoder_decoder", "sdpa", **settings)
    eager = build("encoder_decoder", None, **settings)
    assert eager.decoder.config._attn_implementation == "eager"
    assert_close(states(build("encoder_decoder", able, **settings), tokens(2, 6)), states(eager, tokens(2, 6)))


@pytest.mark.parametrize("head", ["base", "lm"])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_backend_is_switched_for_heads_and_their_base_models(family, head):
    model = build(family, "eager", head)
    for backend in ("sdpa", "flex_attention", "eager"):
        model.set_attn_implementation(backend)
        assert set(in_use(model)) == {backend}
    if head == "lm":
        model.model.set_attn_implementation("sdpa")
        assert set(in_use(model.model)) == {"sdpa"}
        assert model.config._attn_implementation == "sdpa"


@pytest.mark.parametrize("head", ["base", "lm"])
def test_stacks_may_have_backends_of_their_own(head):
    wanted = {"encoder": "flex_attention", "decoder": "eager"}
    built = build("encoder_decoder", wanted, head)
    switched = build("encoder_decoder", "sdpa", head)
    switched.set_attn_implementation(wanted)
    for model in (built, switched):
        base = model if head == "base" else model.model
        assert base.encoder.config._attn_implementation == "flex_attention"
        assert base.decoder.config._attn_implementation == "eager"
    if head == "base":
        row = tokens(2, 5)
        expected = states(shared("encoder_decoder", "eager"), row)
        assert_close(states(built, row), expected)
        assert_close(states(switched, row), expected)


def test_a_stack_that_cannot_is_refused_in_a_dict_as_well():
    settings = dict(attn_logit_softcapping=1.5, encoder=dict(attn_logit_softcapping=None))
    with pytest.raises(ValueError, match="no softcap"):
        build("encoder_decoder", {"encoder": "sdpa", "decoder": "sdpa"}, **settings)
    model = build("encoder_decoder", "eager", **settings)
    with pytest.raises(ValueError, match="no softcap"):
        model.set_attn_implementation({"decoder": "sdpa"})
    assert set(in_use(model)) == {"eager"}
    model.set_attn_implementation({"encoder": "sdpa"})
    assert model.encoder.config._attn_implementation == "sdpa"


def test_a_refusal_leaves_all_stacks_as_they_were():
    model = build("encoder_decoder", "eager", attn_logit_softcapping=1.5, encoder=dict(attn_logit_softcapping=None))
    with pytest.raises(ValueError, match="no softcap"):
        model.set_attn_implementation({"encoder": "sdpa", "decoder": "sdpa"})
    assert set(in_use(model)) == {"eager"}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_backend_is_chosen_while_loading(family, tmp_path):
    build(family, "eager", attn_logit_softcapping=1.5).save_pretrained(tmp_path, include_code=False)
    cls = type(shared(family))
    assert "attn_implementation" not in (tmp_path / "config.json").read_text().replace("_attn_implementation", "")
    expected = states(cls.from_pretrained(tmp_path, attn_implementation="eager"), tokens(2, 7))
    loaded = cls.from_pretrained(tmp_path, attn_implementation="flex_attention")
    assert set(in_use(loaded)) == {"flex_attention"}
    assert_close(states(loaded, tokens(2, 7)), expected)
    assert set(in_use(cls.from_pretrained(tmp_path))) == {"eager"}
    with pytest.raises(ValueError, match="no softcap"):
        cls.from_pretrained(tmp_path, attn_implementation="sdpa")
    if family == "encoder_decoder":
        mixed = cls.from_pretrained(tmp_path, attn_implementation={"encoder": "eager", "decoder": "flex_attention"})
        assert mixed.encoder.config._attn_implementation == "eager"
        assert mixed.decoder.config._attn_implementation == "flex_attention"
        assert_close(states(mixed, tokens(2, 7)), expected)


def test_an_unknown_backend_is_refused():
    with pytest.raises(ValueError, match="nosuch"):
        build("decoder", "nosuch")
    model = build("decoder")
    with pytest.raises(ValueError, match="nosuch"):
        model.set_attn_implementation("nosuch")
    assert in_use(model) == ["eager"]


# ----------------------------------------------------------------------------------------- backends of others (C77)
class Recorder:
    """A backend that computes like eager and writes down how it is called."""

    def __init__(self):
        self.calls = []

    def __call__(self, module, query, key, value, attention_mask, scaling, dropout=0.0, **kwargs):
        self.calls.append(dict(module=module, scaling=scaling, dropout=dropout, mask=attention_mask, **kwargs))
        return eager_attention_forward(module, query, key, value, attention_mask, scaling, dropout, **kwargs)


HEADS = [
    cls
    for config in (hf_tx.TxDecoderConfig, hf_tx.TxEncoderConfig, hf_tx.TxEncoderDecoderConfig)
    for auto, cls in hf_tx.registration.classes_of(config).items()
    if auto != "AutoConfig"
]


@pytest.mark.parametrize("cls", HEADS, ids=lambda cls: cls.__name__)
def test_every_attention_layer_calls_the_interface(cls):
    family = next(f for f in ("encoder_decoder", "decoder", "encoder") if f in cls.config_class.model_type)
    settings = dict(attention_scale=0.3, per_layer_config={1: {"attention_scale": 0.7}})
    recorder = Recorder()
    with registered("acme_fast", recorder, eager_mask):
        model = cls(config_of(family, attn_implementation="acme_fast", **settings)).eval()
        layers = [module for module in model.modules() if isinstance(module, Attention)]
        batch = tokens(1, 6)
        inputs = dict(input_ids=batch[None] if "MultipleChoice" in cls.__name__ else batch)
        if family == "encoder_decoder":
            inputs["decoder_input_ids"] = tokens(1, 5)
        with torch.no_grad():
            model(**inputs, acme_option="passed on")
    assert [id(call["module"]) for call in recorder.calls] == [id(layer) for layer in layers]
    assert len(layers) == {"decoder": 2, "encoder": 2, "encoder_decoder": 6}[family]
    for call in recorder.calls:
        module = call["module"]
        assert type(module.layer_idx) is int
        assert call["scaling"] == module.scaling == (0.3, 0.7)[module.layer_idx]
        assert call["acme_option"] == "passed on"
        assert call["dropout"] == 0.0
        causal = family != "encoder" and not isinstance(module, CrossAttention) and module.is_causal
        assert call["is_causal"] is causal
        assert module.num_key_value_groups == 3


def test_keywords_of_features_are_passed_only_where_a_layer_has_them():
    """So that a backend need not know what it is never asked for, and never misses what it is."""
    recorder = Recorder()
    with registered("acme_fast", recorder, eager_mask):
        states(build("decoder", "acme_fast", mixers="sliding,full"), tokens(1, 6))
        with pytest.raises(ValueError, match="no softcap"):  # nothing says that a foreign backend has it
            build("decoder", "acme_fast", attn_logit_softcapping=2.0)
    first, second = recorder.calls
    assert first["sliding_window"] == 4
    assert not {"softcap", "position_bias", "sliding_window"} & second.keys()


@pytest.mark.parametrize("family", FAMILIES)
def test_a_backend_without_a_mask_function_is_refused(family):
    with registered("acme_blind", Recorder(), None):
        model = build(family)
        with pytest.raises(ValueError, match="has no mask function, so padding would be ignored"):
            build(family, "acme_blind")
        with pytest.raises(ValueError, match="has no mask function"):
            model.set_attn_implementation("acme_blind")
        assert set(in_use(model)) == {"eager"}
        AttentionMaskInterface.register("acme_blind", eager_mask)
        model.set_attn_implementation("acme_blind")
        assert_close(states(model, tokens(2, 6)), states(shared(family), tokens(2, 6)))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("position_type", list(POSITIONS))
def test_a_foreign_backend_keeps_padding_chunks_and_causality(family, position_type):
    """C05: what goes wrong silently where a backend gets no mask."""
    has_bias = POSITIONS.get(position_type).has_bias
    with registered("acme_fast", Recorder(), eager_mask):
        if has_bias:
            with pytest.raises(ValueError, match="no position bias"):
                build(family, "acme_fast", position_type=position_type)
            return
        model = build(family, "acme_fast", position_type=position_type)
        batch, mask = padded(ROWS, "left")
        for idx, row in enumerate(ROWS):
            assert_close(states(model, batch, attention_mask=mask)[idx][mask[idx].bool()], states(model, row[None])[0])
        if family != "decoder":
            return
        whole = states(model, tokens(1, 10), use_cache=False)
        with torch.no_grad():
            first = model(tokens(1, 10)[:, :5], use_cache=True)
            second = model(tokens(1, 10)[:, 5:], cache=first.cache)
        assert_close(torch.cat([first.last_hidden_state, second.last_hidden_state], dim=1), whole)
        changed = tokens(1, 10)
        changed[0, -1] = 3 + (changed[0, -1] - 2) % 50
        assert_close(states(model, changed)[:, :-1], whole[:, :-1])


def test_a_mask_of_the_caller_is_refused_for_foreign_backends():
    with registered("acme_fast", Recorder(), eager_mask):
        model = build("decoder", "acme_fast")
        with pytest.raises(ValueError, match="does not support a 4-D attention_mask; use one of 'eager'"):
            states(model, tokens(1, 4), attention_mask=torch.ones(1, 1, 4, 4).bool())


def test_a_mask_of_the_caller_is_refused_for_flash(flash):
    with pytest.raises(
        ValueError, match="'flash_attention_2' does not support a 4-D attention_mask; use one of 'eager'"
    ):
        states(build("decoder", "flash_attention_2"), tokens(1, 4), attention_mask=torch.ones(1, 1, 4, 4).bool())


def test_masks_of_another_kind_are_passed_as_they_are():
    """A backend's mask function may return an object of its own, which generate() hands back."""

    class Rule:
        ndim = 4
        shape = (1, 1, 6, 6)

    seen = []

    def forward(module, query, key, value, attention_mask, scaling, **kwargs):
        seen.append(attention_mask)
        return eager_attention_forward(module, query, key, value, None, scaling, **kwargs)

    with registered("acme_rules", forward, lambda *args, **kwargs: Rule()):
        model = build("decoder", "acme_rules")
        states(model, tokens(1, 6))
        own = Rule()
        states(model, tokens(1, 6), attention_mask=own)
    assert all(isinstance(mask, Rule) for mask in seen[:2])
    assert seen[2:] == [own, own]


# ------------------------------------------------------------------------------------------------------------ flash
FLASH_FEATURES = {
    name: settings for name, settings in FEATURES.items() if not refused_for(settings, "flash_attention_2")
}


@pytest.mark.parametrize(
    ("feature", "family", "side"),
    pairwise(dict(feature=list(FLASH_FEATURES), family=FAMILIES, side=["left", "right"]), ["feature", "family"]),
)
def test_flash_equals_eager(feature, family, side, flash):
    settings = FLASH_FEATURES[feature]
    model, eager = build(family, "flash_attention_2", **settings), build(family, "eager", **settings)
    batch, mask = padded(ROWS, side, extra=1)
    real = mask.bool()
    assert_close(states(model, batch, attention_mask=mask)[real], states(eager, batch, attention_mask=mask)[real])
    assert_close(states(model, batch), states(eager, batch))
    model.set_attn_implementation("eager")
    assert_close(states(model, batch), states(eager, batch))


@pytest.mark.parametrize("window", [1, 2, 4, 11, 12, 30])
@pytest.mark.parametrize("family", FAMILIES)
def test_flash_has_the_same_window(family, window, flash):
    settings = dict(mixers="sliding", sliding_window=window)
    model, eager = build(family, "flash_attention_2", **settings), build(family, "eager", **settings)
    assert_close(states(model, tokens(2, 12), **_no_cache(family)), states(eager, tokens(2, 12), **_no_cache(family)))


def _no_cache(family):
    return {} if family == "encoder" else {"use_cache": False}


@pytest.mark.parametrize("parts", [(10, 1), (4, 4, 3), (1,) * 11, (2, 9)])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("cache", ["dynamic", "static"])
def test_flash_with_a_cache(parts, masked, cache, flash):
    model = build("decoder", "flash_attention_2", mixers="sliding,full")
    if cache == "static" and not masked:
        # transformers' flash functions would read the empty slots as well.
        with pytest.raises(ValueError, match="with a static cache needs a 2-D attention_mask"):
            states(model, tokens(1, 4), cache=StaticCache(config=model.config, max_cache_len=14))
        return
    batch, mask = padded([tokens(6, seed=1), tokens(11, seed=2)], "left")
    given = {"attention_mask": mask} if masked else {}
    real = mask.bool() if masked else torch.ones_like(mask).bool()
    expected = states(shared("decoder", mixers="sliding,full"), batch, use_cache=False, **given)
    own, outputs, done = StaticCache(config=model.config, max_cache_len=14) if cache == "static" else None, [], 0
    for part in parts:
        done += part
        inputs = {"attention_mask": mask[:, :done]} if masked else {}
        with torch.no_grad():
            output = model(batch[:, done - part : done], cache=own, use_cache=True, **inputs)
        own = output.cache
        outputs.append(output.last_hidden_state)
    assert_close(torch.cat(outputs, dim=1)[real], expected[real])


@pytest.mark.parametrize("cache", ["dynamic", "static"])
def test_flash_generates_what_eager_does(cache, flash):
    arguments = dict(max_new_tokens=8, do_sample=False, eos_token_id=None, disable_compile=True)
    batch, mask = padded(ROWS, "left")
    expected = shared("decoder", head="lm").generate(batch, attention_mask=mask, use_cache=False, **arguments)
    model = build("decoder", "flash_attention_2", "lm")
    assert torch.equal(model.generate(batch, attention_mask=mask, cache_implementation=cache, **arguments), expected)


@pytest.mark.parametrize("length", [1, 5, 13])
@pytest.mark.parametrize("side", ["left", "right"])
def test_flash_with_a_padded_source(side, length, flash):
    """transformers unpads the queries by the mask of the keys, so that only a single query comes out right."""
    model, eager = build("encoder_decoder", "flash_attention_2"), shared("encoder_decoder")
    source, mask = padded(ROWS, side, extra=1)
    target = tokens(3, length)
    if length > 1:
        with pytest.raises(ValueError, match="flash_attention_2 does not support padding in the source"):
            states(model, target, source=source, source_mask=mask)
        model.set_attn_implementation({"decoder": "sdpa"})
    expected = states(eager, target, source=source, source_mask=mask)
    assert_close(states(model, target, source=source, source_mask=mask), expected)
    whole = torch.ones_like(mask)
    expected = states(eager, target, source=source, source_mask=whole)
    model.set_attn_implementation("flash_attention_2")
    assert_close(states(model, target, source=source, source_mask=whole), expected)


@pytest.mark.parametrize("family", ["decoder", "encoder"])
def test_flash_isolates_the_documents_of_one_row(family, flash):
    model = build(family, "flash_attention_2", mixers="sliding,full")
    eager = shared(family, mixers="sliding,full")
    row, positions = tokens(1, 9), torch.tensor([[0, 1, 2, 3, 0, 1, 2, 0, 1]])
    expected = torch.cat([states(eager, part) for part in row.split((4, 3, 2), dim=1)], dim=1)
    assert_close(states(model, row, position_ids=positions), expected)
    assert_close(states(model, row, seq_idx=(positions == 0).cumsum(-1)), expected)
    two = row.expand(2, -1)
    for inputs in (
        dict(input_ids=two, position_ids=positions),
        dict(input_ids=row, position_ids=positions, attention_mask=torch.ones_like(row)),
        dict(input_ids=two, seq_idx=(positions == 0).cumsum(-1).expand(2, -1)),
    ):
        with pytest.raises(ValueError, match="only isolates packed documents in a batch of one row"):
            states(model, **inputs)


def test_flash_does_not_go_on_with_a_packed_row(flash):
    model = build("decoder", "flash_attention_2")
    row, positions = tokens(1, 9), torch.tensor([[0, 1, 2, 3, 0, 1, 2, 3, 4]])
    with torch.no_grad():
        cache = model(row[:, :6], position_ids=positions[:, :6], use_cache=True).cache
        with pytest.raises(ValueError, match="only isolates packed documents"):
            model(row[:, 6:], position_ids=positions[:, 6:], cache=cache)


@pytest.mark.parametrize(
    "positions",
    [list(range(3, 12)), list(range(0, 18, 2)), [5, 5, 5, 6, 7, 8, 9, 10, 11]],
    ids=["later", "spread", "repeated"],
)
def test_flash_with_positions_of_the_caller(positions, flash):
    """transformers takes any positions that do not count up for packed documents; here documents begin at 0."""
    model, eager = build("decoder", "flash_attention_2"), shared("decoder")
    inputs = dict(position_ids=torch.tensor([positions]), use_cache=False)
    assert_close(states(model, tokens(1, 9), **inputs), states(eager, tokens(1, 9), **inputs))


@pytest.mark.parametrize("mixers", ["full", "sliding"])
def test_flash_with_a_decoder_made_bidirectional(mixers, flash):
    model, eager = build("decoder", "flash_attention_2", mixers=mixers), shared("decoder", mixers=mixers)
    inputs = dict(is_causal=False, use_cache=False)
    assert_close(states(model, tokens(2, 9), **inputs), states(eager, tokens(2, 9), **inputs))


def test_flash_without_the_package_is_refused_by_the_library():
    model = build("decoder")
    for name in FLASH:
        with pytest.raises((ImportError, ValueError), match="(?i)flash"):
            build("decoder", name)
        with pytest.raises((ImportError, ValueError), match="(?i)flash"):
            model.set_attn_implementation(name)
    assert in_use(model) == ["eager"]


@pytest.fixture
def kernel(monkeypatch):
    """A kernel from the Hub, as far as transformers' loader is concerned."""
    recorder = Recorder()

    def load(name, *args, **kwargs):
        AttentionInterface.register(name, recorder)
        # The mask function that transformers registers for kernels; eager's, since the recorder computes like it.
        AttentionMaskInterface.register(name, eager_mask)

    monkeypatch.setattr("transformers.modeling_utils.lazy_import_flash_attention", load)
    yield recorder
    for name in ("kernels-community/flash-attn2", "acme/attention:forward"):
        AttentionInterface._global_mapping.pop(name, None)
        AttentionMaskInterface._global_mapping.pop(name, None)


@pytest.mark.parametrize("name", ["kernels-community/flash-attn2", "acme/attention:forward"])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_kernel_from_the_hub_passes_through_the_library(family, name, kernel):
    model = build(family, name)
    assert set(in_use(model)) == {name}
    assert_close(states(model, tokens(2, 6)), states(shared(family), tokens(2, 6)))
    assert len(kernel.calls) == {"decoder": 2, "encoder": 2, "encoder_decoder": 6}[family]
    switched = build(family)
    switched.set_attn_implementation(name)
    assert set(in_use(switched)) == {name}


@pytest.mark.parametrize("name", ["kernels-community/flash-attn2", "acme/attention:forward"])
def test_a_kernel_from_the_hub_is_refused_what_it_cannot_compute(name, kernel):
    model = build("decoder", position_type="alibi")
    with pytest.raises(ValueError, match="no position bias"):
        build("decoder", name, position_type="alibi")
    with pytest.raises(ValueError, match="no position bias"):
        model.set_attn_implementation(name)
    assert in_use(model) == ["eager"]
    if "flash" in name:
        build("decoder", name, attn_logit_softcapping=2.0)
    else:
        with pytest.raises(ValueError, match="no softcap"):
            build("decoder", name, attn_logit_softcapping=2.0)


def test_flash_masks_are_what_the_library_expects(flash):
    """A 2-D mask, or none where nothing is padded: a 4-D one would be misread."""
    seen = []

    def forward(module, query, key, value, attention_mask, scaling, **kwargs):
        seen.append(attention_mask)
        return query.transpose(1, 2).contiguous(), None

    with registered("acme_flash", forward, flash_attention_mask):
        model = build("decoder", "acme_flash")
        batch, mask = padded(ROWS, "left")
        states(model, batch, attention_mask=mask)
        states(model, batch)
        states(model, batch, attention_mask=torch.ones_like(mask))
    assert all(torch.equal(given.long(), mask) for given in seen[:2])
    assert seen[2:] == [None] * 4


# ---------------------------------------------------------------------------------------------------- dropout (C30)
DROPOUTS = dict(attention_dropout=0.5, hidden_dropout=0.3, embedding_dropout=0.3, ffn_dropout=0.4)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("family", FAMILIES)
def test_nothing_is_dropped_in_eval_mode(family, backend):
    model = build(family, backend, **DROPOUTS)
    first = states(model, tokens(2, 6))
    assert torch.equal(states(model, tokens(2, 6)), first)
    assert_close(first, states(shared(family), tokens(2, 6)))


@pytest.mark.parametrize("backend", ["eager", "sdpa"])
@pytest.mark.parametrize("dropout", DROPOUTS)
@pytest.mark.parametrize("family", FAMILIES)
def test_dropout_follows_the_seed_in_train_mode(family, dropout, backend):
    model = build(family, backend, **{dropout: DROPOUTS[dropout]}).train()

    def run(seed):
        torch.manual_seed(seed)
        return states(model, tokens(2, 6))

    assert torch.equal(run(0), run(0))
    assert (run(0) - run(1)).abs().amax() > 1e-2
    assert (run(0) - states(model.eval(), tokens(2, 6))).abs().amax() > 1e-2


@pytest.mark.parametrize("family", ["decoder", "encoder_decoder"])
def test_layers_are_left_out_in_train_mode_and_pass_on_what_they_read(family):
    model = build(family, layerdrop=0.25, num_hidden_layers=4)
    stack = model.decoder if family == "encoder_decoder" else model
    read, written = [], []

    def record(layer, inputs, output):
        read.append((list(stack.layers).index(layer), inputs[0]))
        written.append(output)

    for layer in stack.layers:
        layer.register_forward_hook(record)
    states(model, tokens(2, 6))
    assert [idx for idx, _ in read] == [0, 1, 2, 3]
    count = 0
    torch.manual_seed(0)
    for _ in range(25):
        read.clear()
        written.clear()
        last = states(model.train(), tokens(2, 6))
        count += len(read)
        for (_, state), before in zip(read[1:], written, strict=False):
            assert torch.equal(state, before)
        if written:
            assert torch.equal(stack.norm(written[-1]), last)
    assert 65 < count < 85  # of 100


@pytest.mark.parametrize("backend", ["eager", "sdpa"])
@pytest.mark.parametrize("cross", [False, True])
def test_attention_dropout_keeps_the_mean(backend, cross):
    """Weights are dropped and the others scaled up, so that the mean over many draws is what eval mode computes."""
    family = "encoder_decoder" if cross else "decoder"
    model = build(family, backend, attention_dropout=0.5, num_hidden_layers=1)
    layer = model.decoder.layers[0].cross_mixer if cross else model.layers[0].mixer
    mixed = []
    handle = layer.o_proj.register_forward_pre_hook(lambda module, inputs: mixed.append(inputs[0]))
    if cross:  # what enters must not vary between the draws
        model.decoder.layers[0].mixer.attention_dropout = 0.0
        model.encoder.layers[0].mixer.attention_dropout = 0.0
    row = tokens(1, 5).expand(4000, -1)
    states(model, row[:1])
    torch.manual_seed(0)
    states(model.train(), row, use_cache=False)
    handle.remove()
    expected, drawn = mixed
    error = (drawn.mean(0) - expected[0]).abs() / (drawn.std(0) / 4000**0.5 + 1e-6)
    assert drawn.std(0).amax() > 0.1
    assert error.amax() < 5  # standard errors; 240 numbers


@pytest.mark.parametrize("family", FAMILIES)
def test_flex_refuses_to_train_where_it_cannot(family):
    model = build(family, "flex_attention").train()
    inputs = {"input_ids": tokens(1, 5)}
    if family == "encoder_decoder":
        inputs["decoder_input_ids"] = tokens(1, 5)
    with pytest.raises(ValueError, match="no backward pass on CPU; train with 'sdpa' or 'eager'"):
        model(**inputs)
    with torch.no_grad():  # train mode without gradients, as some loops generate
        model(**inputs)
    model = build(family, "flex_attention", attention_dropout=0.1).train()
    with torch.no_grad(), pytest.raises(ValueError, match="has no dropout, and layer 0 has attention_dropout = 0.1"):
        model(**inputs)
    model.eval()
    states(model, tokens(1, 5))


def test_flex_gives_no_wrong_gradients_in_eval_mode():
    with pytest.raises(NotImplementedError, match="does not support backward on CPU"):
        build("decoder", "flex_attention")(tokens(1, 5), use_cache=False)


# -------------------------------------------------------------------------------------- attention weights (C58)
@pytest.fixture
def warnings_of_the_stack():
    """The messages that hf_tx.models.modeling_stack logs, as if none had been logged before."""
    messages = []

    class Handler(logging.Handler):
        def emit(self, record):
            messages.append(record.getMessage())

    logger = logging.getLogger("hf_tx.models.modeling_stack")
    logging.Logger.warning_once.cache_clear()
    handler = Handler()
    logger.addHandler(handler)
    yield messages
    logger.removeHandler(handler)


WEIGHTS = {
    "decoder": {"attentions": (6, 6)},
    "encoder": {"attentions": (6, 6)},
    "encoder_decoder": {"decoder_attentions": (6, 6), "cross_attentions": (6, 7), "encoder_attentions": (7, 7)},
}


def run_with_weights(model, family, **flags):
    inputs = dict(input_ids=tokens(2, 6))
    if family == "encoder_decoder":
        inputs = dict(input_ids=tokens(2, 7, seed=5), decoder_input_ids=tokens(2, 6))
    with torch.no_grad():
        return model(**inputs, **flags)


@pytest.mark.parametrize("how", ["call", "config"])
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("family", FAMILIES)
def test_attention_weights(family, backend, how, warnings_of_the_stack):
    model = build(family, backend, mixers="sliding,full", position_type="alibi")
    plain = run_with_weights(model, family)
    assert all(getattr(plain, name) is None for name in WEIGHTS[family])
    flags = {"output_attentions": True} if how == "call" else {}
    if how == "config":
        if backend != "eager":
            # transformers itself refuses this flag on a config whose backend has no weights, or passes it on.
            with contextlib.suppress(ValueError):
                for config in (model.config, *(getattr(model.config, name) for name in model.config.sub_configs)):
                    config.output_attentions = True
            if not model.config.output_attentions:
                return
        else:
            for config in (model.config, *(getattr(model.config, name) for name in model.config.sub_configs)):
                config.output_attentions = True
    for _ in range(2):
        output = run_with_weights(model, family, **flags)
        for name, shape in WEIGHTS[family].items():
            weights = getattr(output, name)
            assert len(weights) == 2, name
            for layer in weights:
                assert layer.shape == (2, 6, *shape)
                assert_close(layer.sum(-1), torch.ones(2, 6, shape[0]))
    assert_close(output.last_hidden_state, plain.last_hidden_state)
    assert set(in_use(model)) == {backend}
    assert len(warnings_of_the_stack) == (0 if backend == "eager" else 1)


@pytest.mark.parametrize("family", FAMILIES)
def test_weights_are_those_of_the_mask(family):
    output = run_with_weights(shared(family, mixers="sliding,full"), family, output_attentions=True)
    name = "decoder_attentions" if family == "encoder_decoder" else "attentions"
    sliding, full = getattr(output, name)
    index = torch.arange(6)
    distance = index[:, None] - index
    causal = distance >= 0 if family != "encoder" else torch.ones(6, 6).bool()
    near = distance.abs() < 4 if family != "encoder" else distance.abs() <= 4
    assert ((sliding > 0).any(0).any(0) == (causal & near)).all()
    assert ((full > 0).any(0).any(0) == causal).all()


@pytest.mark.parametrize("backend", ["sdpa", "flex_attention"])
def test_weights_of_generated_tokens(backend):
    arguments = dict(max_new_tokens=4, do_sample=False, eos_token_id=None, return_dict_in_generate=True)
    plain = shared("decoder", backend, "lm").generate(tokens(1, 5), **arguments)
    output = shared("decoder", backend, "lm").generate(tokens(1, 5), output_attentions=True, **arguments)
    assert torch.equal(output.sequences, plain.sequences)
    assert [step[0].shape for step in output.attentions] == [(1, 6, 5, 5), *((1, 6, 1, 5 + i) for i in (1, 2, 3))]


@pytest.mark.parametrize("reentrant", [False, True])
def test_weights_of_layers_that_are_computed_again(reentrant):
    """The backward pass computes a layer by the backend of its call, although the model has another."""
    model, eager = build("decoder", "sdpa").train(), build("decoder", "eager").train()
    model.gradient_checkpointing_enable({"use_reentrant": reentrant})
    for each in (model, eager):
        output = each(tokens(1, 5), output_attentions=True, use_cache=False)
        assert len(output.attentions) == 2
        output.last_hidden_state.square().sum().backward()
    for ours, theirs in zip(model.parameters(), eager.parameters(), strict=True):
        assert torch.equal(ours.grad, theirs.grad)


def test_weights_are_refused_where_the_backend_cannot_change():
    model = build("decoder", "sdpa")
    masks = model.create_masks_for_generate(model.config, torch.zeros(1, 5, 24), None, None)
    with pytest.raises(ValueError, match="does not return attention weights"):
        model(tokens(1, 5), attention_mask=masks, output_attentions=True)


def test_a_failing_call_leaves_the_backend_as_it_was():
    model = build("decoder", "sdpa")
    with pytest.raises(ValueError, match="attention_mask has the shape"):
        model(tokens(1, 5), attention_mask=torch.ones(1, 1, 3, 3).bool(), output_attentions=True)
    assert in_use(model) == ["sdpa"]


@pytest.fixture
def recorded():
    """A backend without weights, and the layers that it has computed."""
    layers: list[int] = []

    def recording(module, *inputs, **keywords):
        layers.append(module.layer_idx)
        return AttentionInterface()["sdpa"](module, *inputs, **keywords)

    backend_rules.register_backend("recording", recording, sdpa_mask)
    yield layers
    for table in (AttentionInterface._global_mapping, AttentionMaskInterface._global_mapping, backend_rules.BACKENDS):
        table.pop("recording")


def in_a_thread(call):
    with concurrent.futures.ThreadPoolExecutor(1) as threads:
        return threads.submit(call).result()


def test_a_call_that_gives_weights_leaves_other_calls_their_backend(recorded):
    """Two models share a config, and one is called by another thread while the other computes by `eager`."""
    config = config_of("decoder", attn_implementation="recording")
    first, second = hf_tx.TxDecoderModel(config).eval(), hf_tx.TxDecoderModel(config).eval()
    first.layers[0].register_forward_hook(lambda *_: in_a_thread(lambda: second(tokens(1, 5))) and None)
    assert len(first(tokens(1, 5), output_attentions=True).attentions) == 2
    assert recorded == [0, 1]


def test_a_backend_is_read_once_a_call(recorded):
    """Masks and layers of a call are of one backend, although another thread switches it meanwhile."""
    model = build("decoder", "recording")
    expected = states(model, tokens(1, 5))
    recorded.clear()
    model.layers[0].register_forward_hook(lambda *_: in_a_thread(lambda: model.set_attn_implementation("eager")))
    assert torch.equal(states(model, tokens(1, 5)), expected)
    assert recorded == [0, 1]


@pytest.mark.parametrize("family", FAMILIES)
def test_models_that_are_built_from_one_config_have_their_own_backends(family):
    config = config_of(family)
    kind = type(shared(family))
    models = {backend: kind._from_config(config, attn_implementation=backend) for backend in ("eager", "sdpa")}
    for backend, model in models.items():
        assert set(in_use(model)) == {backend}
    assert config._attn_implementation is None


# ----------------------------------------------------------------------------------------------------- flex (C59)
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("position_type", ["rope", "relative"])
def test_flex_at_all_lengths_in_one_process(family, position_type):
    """The block masks of flex are made of blocks of 128; they must follow the length and the padding of a batch."""
    settings = dict(position_type=position_type, max_position_embeddings=256)
    model, eager = shared(family, "flex_attention", **settings), shared(family, "eager", **settings)
    for length in (1, 7, 128, 129, 7):
        batch = tokens(2, length, seed=length)
        assert_close(states(model, batch), states(eager, batch))
        for pads in (length // 3, length // 2):
            mask = torch.ones_like(batch)
            mask[0, :pads] = 0
            real = mask.bool()
            output = states(model, batch, attention_mask=mask)
            assert_close(output[real], states(eager, batch, attention_mask=mask)[real])


def test_all_mask_functions_of_the_library_are_known():
    """A backend that transformers adds needs a line in the rules, or it is refused features that it has."""
    assert set(ALL_MASK_ATTENTION_FUNCTIONS.keys()) == {*BACKENDS, *FLASH, "tiled", "banded"}


def test_features_are_told_apart():
    """Every feature changes the result, so that a backend which drops it is noticed."""
    plain = states(shared("decoder"), tokens(1, 9))
    for name in ("window", "scale", "softcap", "relative", "alibi", "qk norm", "interleaved", "softcap of one layer"):
        assert_differ(states(build("decoder", **FEATURES[name]), tokens(1, 9))[:, 6:], plain[:, 6:])
