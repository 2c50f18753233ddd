# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Estimates against what torch counts in real passes, and against the bytes of real caches."""

import copy

import pytest
import tiny_models
import torch
import transformers
from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop_count, sdpa_flop_count
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForMaskedLM, AutoModelForSeq2SeqLM

import hf_tx
from hf_tx.analysis import cost, estimate
from hf_tx.analysis.counting import _float_bytes
from hf_tx.models.mixers import MIXERS

SIZES = dict(vocab_size=101, hidden_size=48, num_hidden_layers=3, num_attention_heads=4, intermediate_size=80)
SHARED = dict(**SIZES, num_key_value_heads=2, head_dim=16)
SPECIAL = {f"{name}_token_id": 0 for name in ("pad", "bos", "eos", "cls", "sep")}
PAIR = dict(
    vocab_size=101, d_model=48, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
    decoder_attention_heads=4, encoder_ffn_dim=80, decoder_ffn_dim=64,
)  # fmt: skip
LIBRARY = {
    "llama": (AutoModelForCausalLM, SHARED),
    "mistral": (AutoModelForCausalLM, dict(SHARED, sliding_window=8)),
    "qwen3": (AutoModelForCausalLM, SHARED),
    "gemma2": (AutoModelForCausalLM, dict(SHARED, sliding_window=8)),
    "gpt2": (AutoModelForCausalLM, dict(vocab_size=101, n_embd=48, n_layer=3, n_head=4, n_positions=64)),
    "bloom": (AutoModelForCausalLM, dict(vocab_size=101, hidden_size=48, n_layer=3, n_head=4)),
    "mixtral": (AutoModelForCausalLM, dict(SHARED, num_local_experts=4, sliding_window=None)),
    "mamba": (AutoModelForCausalLM, dict(vocab_size=101, hidden_size=48, num_hidden_layers=1, state_size=4)),
    "mamba2": (
        AutoModelForCausalLM,
        dict(vocab_size=101, hidden_size=48, num_hidden_layers=2, state_size=4, num_heads=6, head_dim=16, n_groups=1),
    ),
    "bert": (AutoModelForMaskedLM, SIZES),
    "roberta": (AutoModelForMaskedLM, dict(SIZES, max_position_embeddings=66)),
    "modernbert": (AutoModelForMaskedLM, dict(SIZES, local_attention=8, **SPECIAL)),
    "t5": (
        AutoModelForSeq2SeqLM,
        dict(vocab_size=101, d_model=48, num_layers=2, num_heads=4, d_kv=8, d_ff=80, decoder_start_token_id=0),
    ),
    "bart": (AutoModelForSeq2SeqLM, PAIR),
}  # fmt: skip


def measure(model, context, batch, attn_implementation="eager"):
    """Count real passes and real bytes: operations forward and backward, and the bytes of the cache."""
    model = model.eval()
    model.set_attn_implementation(attn_implementation)
    model.set_experts_implementation("eager")  # torch has no formula for the grouped kernels
    tokens = torch.randint(3, model.config.get_text_config().vocab_size, (batch, context))
    inputs = {"input_ids": tokens}
    if model.config.is_encoder_decoder:
        inputs["decoder_input_ids"] = tokens
    # torch has no formula for the LSTM of mkldnn, for the attention kernel of CPUs, and for products added in place.
    aten = torch.ops.aten
    formulas = {
        aten.baddbmm_: lambda total, a, b, **_: 2 * a.numel() * b[2],
        aten._scaled_dot_product_flash_attention_for_cpu: lambda q, k, v, *_, **__: sdpa_flop_count(q, k, v),
        aten._scaled_dot_product_flash_attention_for_cpu_backward: (
            lambda grad, q, k, v, *_, **__: sdpa_backward_flop_count(grad, q, k, v)
        ),
    }
    with torch.backends.mkldnn.flags(enabled=False):
        with FlopCounterMode(display=False, custom_mapping=formulas) as forward:
            outputs = model(**inputs)
        with FlopCounterMode(display=False, custom_mapping=formulas) as backward:
            outputs[0].sum().backward()
    cache = outputs["cache"] if "cache" in outputs else outputs.get("past_key_values", outputs.get("cache_params"))
    return forward.get_total_flops(), backward.get_total_flops(), cache_bytes(cache)


def cache_bytes(cache):
    if cache is None:
        return 0
    if hasattr(cache, "self_attention_cache"):
        return cache_bytes(cache.self_attention_cache) + cache_bytes(cache.cross_attention_cache)
    return sum(sum(_float_bytes(vars(layer))) for layer in cache.layers)


def assert_within(actual, expected, part):
    assert expected > 0
    assert abs(actual - expected) <= part * expected, (actual, expected)


def build(name):
    auto, settings = LIBRARY[name]
    torch.manual_seed(0)
    return auto.from_config(AutoConfig.for_model(name, **settings))


#: A window, experts, a state, an encoder, and an encoder-decoder with biases of positions; the others are variants.
OF_EACH_KIND = ("gemma2", "mixtral", "mamba2", "bert", "t5")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in OF_EACH_KIND else [pytest.mark.slow]) for name in LIBRARY]
)
def test_library_models(name):
    model = build(name)
    forward, backward, cache = measure(model, 40, 3)
    costs = estimate(copy.deepcopy(model.config), context=40, batch=3)
    assert costs.model_class == type(model).__name__
    assert costs.parameters == model.num_parameters()
    assert_within(costs.forward_flops, forward, 0.005)
    assert_within(costs.backward_flops, backward, 0.005)
    assert costs.cache_bytes == cache


FAMILIES = {"decoder": "ForCausalLM", "encoder": "ForMaskedLM", "encoder_decoder": "ForConditionalGeneration"}


# A mixer of each kind in decoders, and one in each of the other families; the others are slow.
ALWAYS = [
    *((name, "decoder") for name in ("full", "global_local", "gated_delta", "gru")),
    ("lstm", "encoder"),
    ("sliding", "encoder_decoder"),
]
CASES = [
    pytest.param(
        name,
        family,
        id=f"{name}-{family}",
        marks=[] if (name, family) in ALWAYS else [pytest.mark.slow],
    )
    for name in sorted(MIXERS)
    for family in FAMILIES
]


@pytest.mark.parametrize(("name", "family"), CASES)
def test_every_mixer_in_every_family(name, family):
    window = {"sliding_window": 8} if "sliding_window" in MIXERS.get(name).needs else {}
    model = tiny_models.build(family, head="lm", mixers=f"{name},full", position_type="none", **window)
    forward, backward, cache = measure(model, 40, 3)
    costs = estimate(model, context=40, batch=3)
    assert costs.model_class.endswith(FAMILIES[family])
    assert_within(costs.forward_flops, forward, 0.005)
    assert_within(costs.backward_flops, backward, 0.005)
    assert costs.cache_bytes == cache


@pytest.mark.parametrize("name", ["llama", pytest.param("bert", marks=pytest.mark.slow)])
def test_backends_count_the_same_pairs(name):
    """The kernels compute the scores again in the backward pass: five products where eager has four."""
    model = build(name)
    by_default = estimate(model, context=40)
    eager, sdpa = (estimate(model, context=40, attn_implementation=backend) for backend in ("eager", "sdpa"))
    assert eager == by_default
    assert (sdpa.forward_flops, sdpa.attention_flops) == (eager.forward_flops, eager.attention_flops)
    assert sdpa.backward_flops == eager.backward_flops + eager.attention_flops // 2


# Contexts of several blocks, the last of them not whole; those marked slow are variants of the others.
slow = [pytest.mark.slow]
BLOCKS = [
    *(
        pytest.param(name, {}, "tiled", id=f"{name}-tiled", marks=marks)
        for name, marks in (("llama", []), ("gemma2", slow), ("bert", slow), ("t5", []), ("bart", slow))
    ),
    *(
        pytest.param("mistral", {}, backend, id=f"mistral-{backend}", marks=marks)
        for backend, marks in (("tiled", slow), ("banded", []))
    ),
    *(
        pytest.param(
            family, dict(mixers=mixer, position_type=position), backend, id=f"{family}-{mixer}-{backend}", marks=marks
        )
        for family, mixer, position, backend, marks in (
            ("decoder", "chunked", "rope", "tiled", slow),
            ("encoder", "dilated", "relative", "tiled", []),
            ("decoder", "global_local", "alibi", "banded", slow),
            ("encoder", "global_local", "rope", "banded", []),
            ("encoder_decoder", "sliding", "rope", "tiled", slow),
        )
    ),
]


@pytest.mark.parametrize(("name", "settings", "backend"), BLOCKS)
def test_blocks_that_are_skipped_are_not_counted(name, settings, backend):
    if name in LIBRARY:
        model = build(name)
    else:
        window = {"sliding_window": 20} if settings["mixers"] != "chunked" else {}
        if settings["mixers"] == "global_local":
            window["mixer_options"] = {"global_local": dict(random_blocks=1, block_size=32)}
        model = tiny_models.build(name, head="lm", **settings, **window)
    forward, backward, _ = measure(model, 300, 2, backend)
    costs = estimate(model, context=300, batch=2, attn_implementation=backend)
    assert_within(costs.forward_flops, forward, 0.01)
    assert_within(costs.backward_flops, backward, 0.01)
    skips = name != "bert"  # in which every query sees every key
    assert (costs.attention_flops < estimate(model, context=300, batch=2).attention_flops) == skips


def test_tiles_of_a_context_of_any_length():
    """A causal mask hides half of the pairs of a long text, and a window all but two tiles."""
    sizes = dict(SHARED, num_hidden_layers=1)
    for kind, pairs in ((transformers.LlamaConfig, 2**16 / 2), (transformers.MistralConfig, 2 * 256)):
        config = kind(**sizes, sliding_window=64) if kind is transformers.MistralConfig else kind(**sizes)
        costs = estimate(config, context=2**16, attn_implementation="tiled")
        assert costs.measured_context == 2**16
        assert_within(costs.attention_flops, 2 * 2 * 2**16 * pairs * 64, 0.01)


def test_parts_by_hand():
    size = dict(vocab_size=50, hidden_size=8, num_hidden_layers=3, num_attention_heads=2, intermediate_size=10)
    costs = estimate(hf_tx.TxDecoderConfig(**size, position_type="none"), context=16, batch=2, dtype="bf16")
    weights = 3 * (4 * 8 * 8 + 3 * 8 * 10) + 50 * 8
    attention = 3 * 2 * (2 * 16 * 16 * 8) * 2
    assert costs.forward_flops - costs.attention_flops == 2 * 2 * 16 * weights
    assert costs.attention_flops == attention
    assert costs.attention_share == attention / costs.forward_flops
    assert costs.backward_flops == 2 * costs.forward_flops
    assert costs.cache_bytes == 2 * 16 * 3 * 2 * 8 * 2
    assert costs.parameters == weights + 7 * 8
    assert costs.parameter_bytes == 2 * costs.parameters
    assert costs.attention_overtakes == -(-weights // (3 * 2 * 8))


@pytest.mark.parametrize(
    "name", ["llama", *(pytest.param(name, marks=pytest.mark.slow) for name in ("mixtral", "t5"))]
)
def test_attention_overtakes_where_it_says(name):
    model = build(name)
    length = estimate(model, context=16).attention_overtakes
    below, above = (estimate(model, context=at).attention_share for at in (length - 2, length))
    assert below < 0.5 <= above


def test_nothing_overtakes_without_attention():
    size = dict(SIZES, mixers="lstm", ffn_type="none", position_type="none")
    costs = estimate(hf_tx.TxDecoderConfig(**size), context=32)
    assert costs.attention_flops == 0
    assert costs.attention_overtakes is None
    assert "attention > rest  never" in str(costs)


def test_a_loop_over_positions_is_extrapolated(monkeypatch):
    config = build("mamba").config
    exact = estimate(config, context=48, batch=2)
    assert exact.measured_context == 48
    monkeypatch.setattr(cost, "_MOST_OPERATIONS", 100)
    short = estimate(config, context=48, batch=2)
    assert short.measured_context == 16
    assert str(short).endswith("Operations are extrapolated from 16 tokens, because the model loops over positions.")
    for name in ("forward_flops", "backward_flops", "attention_flops", "cache_bytes"):
        assert_within(getattr(short, name), getattr(exact, name), 0.001)


def test_windows_of_an_extrapolated_cache(monkeypatch):
    """The window is longer than what is counted, and shorter than the context."""
    config = tiny_models.config_of(
        "decoder", mixers="gru,sliding,full", num_hidden_layers=3, sliding_window=20, position_type="none"
    )
    exact = estimate(config, context=40)
    monkeypatch.setattr(cost, "_MOST_OPERATIONS", 100)
    short = estimate(config, context=40)
    assert (exact.measured_context, short.measured_context) == (40, 16)
    assert short.cache_bytes == exact.cache_bytes


def test_a_model_of_any_size():
    """A model and a context that no test machine holds."""
    config = transformers.LlamaConfig(
        hidden_size=16_384, num_hidden_layers=4, num_attention_heads=128, num_key_value_heads=8, vocab_size=128_256,
        intermediate_size=53_248, max_position_embeddings=1_000_000,
    )  # fmt: skip
    costs = estimate(config, context=1_000_000, batch=8, dtype="bf16")
    assert costs.measured_context == 1_000_000
    layer = 16_384 * (2 * 16_384 + 2 * 1024 + 3 * 53_248 + 2)
    assert costs.parameters == 4 * layer + 2 * 128_256 * 16_384 + 16_384
    assert costs.cache_bytes == 8 * 1_000_000 * 4 * 2 * 1024 * 2


def test_a_model_is_left_alone():
    model = build("llama").train()
    before = copy.deepcopy(model.state_dict())
    config = copy.deepcopy(model.config)
    estimate(model, context=16, dtype="bf16", attn_implementation="eager")
    assert model.config.to_dict() == config.to_dict()
    assert model.config._attn_implementation == config._attn_implementation
    assert model.training
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())


def test_names_folders_and_files(tmp_path):
    model = build("gpt2")
    model.save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").unlink()  # weights are not needed
    expected = estimate(model, context=16)
    for name in (tmp_path, str(tmp_path), tmp_path / "config.json"):
        assert estimate(name, context=16) == expected


def test_the_class_that_the_config_names():
    config = build("bert").config
    for name in ("BertForMaskedLM", "BertForSequenceClassification", "BertModel", "BertLMHeadModel"):
        config.architectures = [name]
        assert estimate(config, context=16).model_class == name
    config = tiny_models.config_of("decoder")
    config.architectures = ["TxDecoderForTokenClassification"]
    assert estimate(config, context=16).model_class == "TxDecoderForTokenClassification"


@pytest.mark.parametrize("dtype", ["bf16", "bfloat16", torch.bfloat16])
def test_dtypes(dtype):
    costs = estimate(build("llama").config, context=16, dtype=dtype)
    assert costs.dtype == "bfloat16"
    assert costs.cache_bytes == 3 * 2 * 2 * 16 * 16 * 2


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"context": 0}, "context = 0"),
        ({"batch": -1}, "batch = -1"),
        ({"context": 1.5}, "context = 1.5"),
        ({"dtype": "bf17"}, "dtype = 'bf17'"),
        ({"dtype": "int8"}, "dtype = 'int8'"),
        ({"context": 65}, "context = 65: .* has only 64 positions"),
        ({"attn_implementation": "nope"}, "nope"),
        ({"attn_implementation": "flex_attention"}, "'flex_attention' cannot be counted, because .*: use 'tiled'"),
    ],
)
def test_refusals(wrong, message):
    with pytest.raises(ValueError, match=message):
        estimate(build("gpt2").config, **{"context": 16, **wrong})


def test_what_is_not_understood():
    with pytest.raises(ValueError, match="config_or_model is a dict: it must be a config or a model"):
        estimate({"hidden_size": 8}, context=16)
    with pytest.raises(ValueError, match="ViT.* takes 'pixel_values'"):
        estimate(transformers.ViTConfig(), context=16)
    with pytest.raises(ValueError, match="WhisperModel takes 'input_features'"):
        estimate(transformers.WhisperConfig(), context=16)
    with pytest.raises(ValueError, match="Florence2Model also encodes image; only encoder-decoders for text"):
        estimate(transformers.Florence2Config(), context=16)


@torch.library.custom_op("hf_tx_tests::scaled", mutates_args=())
def _scaled(hidden_states: torch.Tensor) -> torch.Tensor:
    return hidden_states * 2


@_scaled.register_fake
def _(hidden_states: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(hidden_states)


_scaled.register_autograd(lambda ctx, gradient: gradient * 2)


def test_operators_of_others_need_a_formula(monkeypatch):
    monkeypatch.setattr(transformers.models.gpt2.modeling_gpt2.GPT2MLP, "forward", lambda self, x: _scaled(x))
    config = build("gpt2").config
    with pytest.raises(ValueError, match="operator hf_tx_tests.scaled.default has no formula; register one, 0 where"):
        estimate(config, context=8)
    formulas = torch.utils.flop_counter.flop_registry
    monkeypatch.setitem(formulas, torch.ops.hf_tx_tests.scaled, lambda *args, **kwargs: 1000)
    counted = estimate(config, context=8).forward_flops
    monkeypatch.setitem(formulas, torch.ops.hf_tx_tests.scaled, lambda *args, **kwargs: 0)
    assert counted == estimate(config, context=8).forward_flops + 3 * 1000
