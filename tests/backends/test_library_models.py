# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""The backends inside transformers' own models, against transformers' eager attention."""

import logging

import pytest
import torch
import transformers
from tiny_models import assert_close, enlarge, padded, pairwise, tokens
from transformers import StaticCache

import hf_tx  # noqa: F401  registers the backends
from hf_tx.backends import banded, tiled

_SIZES = dict(vocab_size=61, hidden_size=32, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4)
_TOKENS = dict(pad_token_id=0, bos_token_id=1, eos_token_id=2)
_DECODER = dict(**_SIZES, **_TOKENS, num_key_value_heads=2, head_dim=8)
#: Class: its settings.
MODELS = {
    "LlamaForCausalLM": _DECODER,
    "MistralForCausalLM": dict(**_DECODER, sliding_window=5),
    "Olmo3ForCausalLM": dict(**_DECODER, sliding_window=5, layer_types=["sliding_attention", "full_attention"]),
    "Gemma2ForCausalLM": dict(**_DECODER, sliding_window=5, attn_logit_softcapping=2.0, query_pre_attn_scalar=8),
    "GptOssForCausalLM": dict(**_DECODER, sliding_window=5, num_local_experts=2, num_experts_per_tok=1),
    "BertForMaskedLM": dict(**_SIZES, **_TOKENS),
    "ModernBertForMaskedLM": dict(
        **_SIZES, **_TOKENS, local_attention=8, global_attn_every_n_layers=2, cls_token_id=1, sep_token_id=2
    ),
    "BartForConditionalGeneration": dict(
        vocab_size=61, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=24, decoder_ffn_dim=24, **_TOKENS,
        decoder_start_token_id=2, forced_eos_token_id=None,
    ),
    "T5ForConditionalGeneration": dict(
        vocab_size=61, d_model=32, d_kv=8, d_ff=24, num_layers=2, num_heads=4, relative_attention_num_buckets=8,
        relative_attention_max_distance=12, pad_token_id=0, eos_token_id=2, decoder_start_token_id=0,
    ),
}  # fmt: skip
PAIRS = [
    *(("tiled", name) for name in MODELS),
    *(("banded", name) for name in ("MistralForCausalLM", "Olmo3ForCausalLM", "Gemma2ForCausalLM")),
    *(("banded", name) for name in ("GptOssForCausalLM", "ModernBertForMaskedLM")),
]
CAUSAL = [pair for pair in PAIRS if "CausalLM" in pair[1]]
GENERATES = [pair for pair in PAIRS if "MaskedLM" not in pair[1]]
ROWS = [tokens(length, seed=length) for length in (4, 11, 17)]


def build(name, backend):
    cls = getattr(transformers, name)
    config = cls.config_class(**MODELS[name], attn_implementation=backend)
    config._experts_implementation = "eager"
    torch.manual_seed(0)
    return enlarge(cls(config)).eval()


def result(model, batch, mask, **inputs):
    """Return the logits at real tokens and the gradients of all parameters."""
    if model.config.is_encoder_decoder:
        inputs["decoder_input_ids"] = batch
        inputs["decoder_attention_mask"] = mask
    model.zero_grad()
    logits = model(input_ids=batch, attention_mask=mask, **inputs).logits[mask.bool()]
    (logits * torch.randn(logits.shape, generator=torch.Generator().manual_seed(0))).sum().backward()
    return logits.detach(), {key: weight.grad for key, weight in model.named_parameters() if weight.grad is not None}


def assert_equal(actual, expected):
    assert_close(actual[0], expected[0])
    assert actual[1].keys() == expected[1].keys()
    largest = max(gradient.abs().max() for gradient in expected[1].values())
    for key, gradient in expected[1].items():
        # The gradient of a bias of keys is zero but for rounding.
        assert_close(actual[1][key], gradient, 1e-4 + 1e-5 * float(largest / gradient.abs().max().clamp(min=1e-3)))


@pytest.mark.parametrize(
    ("pair", "side", "checkpointing"),
    pairwise(dict(pair=PAIRS, side=["left", "right"], checkpointing=[False, "reentrant", "plain"]), ["pair", "side"]),
)
def test_forward_and_gradient_with_padding(pair, side, checkpointing):
    backend, name = pair
    batch, mask = padded(ROWS, side)
    if "MaskedLM" not in name and side == "right":
        mask = torch.ones_like(mask)
    model, eager = build(name, backend), build(name, "eager")
    expected = result(eager, batch, mask)
    if checkpointing:
        model.gradient_checkpointing_enable(dict(use_reentrant=checkpointing == "reentrant"))
        model.train()
        for module in model.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0
            for attribute in ("dropout", "attention_dropout", "activation_dropout"):
                if isinstance(getattr(module, attribute, None), float):
                    setattr(module, attribute, 0.0)
    assert_equal(result(model, batch, mask), expected)


HOW = ["greedy", "beams", "static", "chunked prefill", "static and chunked"]


def in_turns(pairs):
    """Every pair in two of the ways, in turns; in the others as slow tests."""
    for idx, pair in enumerate(pairs):
        for place, how in enumerate(HOW):
            marks = [] if (place - 2 * idx) % len(HOW) < 2 else [pytest.mark.slow]
            yield pytest.param(pair, how, id=f"{how}-{'-'.join(pair)}", marks=marks)


@pytest.mark.parametrize(("pair", "how"), list(in_turns(GENERATES)))
def test_generation(pair, how):
    backend, name = pair
    model, eager = build(name, backend), build(name, "eager")
    arguments = dict(max_new_tokens=7, do_sample=False, eos_token_id=None, disable_compile=True)
    arguments |= dict(return_dict_in_generate=True, output_logits=True)
    if how == "beams":
        arguments |= dict(num_beams=3)
    if "static" in how:
        arguments |= dict(cache_implementation="static")
    if "chunked" in how:
        if model.config.is_encoder_decoder:
            pytest.skip("an encoder-decoder has no prompt to feed in chunks")
        arguments |= dict(prefill_chunk_size=5)
    batch, mask = padded(ROWS, "left")
    actual, expected = (model.generate(batch, attention_mask=mask, **arguments) for model in (model, eager))
    assert torch.equal(actual.sequences, expected.sequences)
    for ours, wanted in zip(actual.logits, expected.logits, strict=True):
        assert_close(ours, wanted, 1e-4)


@pytest.mark.parametrize("pair", CAUSAL)
@pytest.mark.parametrize("static", [False, True])
def test_a_text_in_parts(pair, static):
    backend, name = pair
    model, eager = build(name, backend), build(name, "eager")
    batch, mask = padded(ROWS, "left")
    expected = result(eager, batch, mask)[0]
    cache = StaticCache(config=model.config, max_cache_len=20) if static else None
    outputs, done = [], 0
    with torch.no_grad():
        for part in (6, 1, 7, 3):
            done += part
            output = model(batch[:, done - part : done], attention_mask=mask[:, :done], cache=cache, use_cache=True)
            cache = output.cache
            outputs.append(output.logits)
    assert_close(torch.cat(outputs, 1)[mask.bool()], expected)


@pytest.mark.parametrize("pair", [pair for pair in CAUSAL if "Gpt" not in pair[1]])
def test_packed_documents(pair):
    backend, name = pair
    positions = torch.cat([torch.arange(len(row)) for row in ROWS])[None]
    batch = torch.cat(ROWS)[None]
    model, eager = build(name, backend), build(name, "eager")
    inputs = dict(input_ids=batch, position_ids=positions, use_cache=False)
    with torch.no_grad():
        assert_close(model(**inputs).logits, eager(**inputs).logits)


@pytest.mark.parametrize("pair", PAIRS)
def test_a_backend_is_chosen_while_loading_and_later(pair, tmp_path, monkeypatch):
    backend, name = pair
    eager = build(name, "eager")
    eager.save_pretrained(tmp_path)
    loaded = type(eager).from_pretrained(tmp_path, attn_implementation=backend).eval()
    batch, mask = padded(ROWS, "left")
    expected = result(eager, batch, mask)
    assert_equal(result(loaded, batch, mask), expected)
    loaded.set_attn_implementation("eager")
    eager.set_attn_implementation(backend)
    assert loaded.config._attn_implementation == "eager"
    calls = []
    function = transformers.AttentionInterface._global_mapping[backend]
    record = lambda *args, **kwargs: calls.append(args[0]) or function(*args, **kwargs)  # noqa: E731
    monkeypatch.setitem(transformers.AttentionInterface._global_mapping, backend, record)
    assert_equal(result(eager, batch, mask), expected)
    assert len(calls) == (6 if eager.config.is_encoder_decoder else 2)


@pytest.mark.parametrize(
    ("name", "full"),
    [("MistralForCausalLM", None), ("Olmo3ForCausalLM", "sdpa"), ("ModernBertForMaskedLM", "sdpa")]
    + [("Gemma2ForCausalLM", "tiled"), ("LlamaForCausalLM", "sdpa")],
)
def test_layers_without_a_band_are_computed_in_full_and_it_is_said(name, full, monkeypatch, caplog):
    banded.logger.warning_once.cache_clear()
    used = {"sdpa": 0, "tiled": 0, "band": 0}

    def count(key, function):
        def counted(*args, **kwargs):
            used[key] += 1
            return function(*args, **kwargs)

        return counted

    monkeypatch.setattr(banded, "sdpa_attention_forward", count("sdpa", banded.sdpa_attention_forward))
    monkeypatch.setattr(banded, "tiled_attention", count("tiled", tiled.tiled_attention))
    monkeypatch.setattr(banded, "_attend", count("band", banded._attend))
    library = logging.getLogger("transformers")
    monkeypatch.setattr(library, "propagate", True)
    with caplog.at_level(logging.WARNING), torch.no_grad():
        build(name, "banded")(tokens(1, 12))
    said = [record.message for record in caplog.records if "without a band" in record.message]
    if full is None:
        assert used == {"sdpa": 0, "tiled": 0, "band": 2}
        assert not said
    else:
        assert used[full] >= 1
        assert len(said) == 1
        assert f"computed in full by '{full}'" in said[0]


def test_a_mask_that_widens_a_window_has_no_band():
    """Gemma 3 lets the tokens of an image see each other, beyond the window."""
    sizes = dict(**_DECODER, sliding_window=3, layer_types=["sliding_attention", "full_attention"])
    inputs = dict(input_ids=tokens(1, 17), block_sequence_ids=torch.tensor([[-1] * 3 + [0] * 9 + [-1] * 5]))
    from transformers.masking_utils import create_sliding_window_causal_mask

    outputs = []
    for backend in ("banded", "sdpa"):
        config = transformers.MistralConfig(**sizes, attn_implementation=backend)
        mask = create_sliding_window_causal_mask(
            config,
            torch.zeros(1, 17, 1),
            None,
            None,
            block_sequence_ids=inputs["block_sequence_ids"],
        )
        outputs.append(mask)
    rule, dense = outputs
    assert not rule.has_band
    assert torch.equal(rule.dense(), dense)
    assert torch.equal(rule.visible(torch.arange(17), torch.arange(17)).expand(1, 17, 17), dense[:, 0])
    assert dense[0, 0, 3, 11]


#: They compute their attention, or that of some layers, without the interface; Mamba has none.
WITHOUT_INTERFACE = [
    "BigBirdForMaskedLM",
    "BigBirdPegasusForConditionalGeneration",
    "BloomForCausalLM",
    "DebertaV2ForMaskedLM",
    "FalconForCausalLM",
    "GPTNeoForCausalLM",
    "LEDForConditionalGeneration",
    "LongT5ForConditionalGeneration",
    "MPNetForMaskedLM",
    "MambaForCausalLM",
    "MptForCausalLM",
    "RoFormerForMaskedLM",
    "XLNetLMHeadModel",
]


@pytest.mark.parametrize("name", WITHOUT_INTERFACE)
def test_a_class_that_would_not_use_the_backend_refuses_it(name):
    cls = getattr(transformers, name)
    says = f"cannot serve {name[:3]}.*attention interface.*attn_implementation='"
    with torch.device("meta"):
        for backend in ("tiled", "banded"):
            with pytest.raises(ValueError, match=says):
                cls._from_config(cls.config_class(), attn_implementation=backend)
        model = cls._from_config(cls.config_class(), attn_implementation="eager")
    with pytest.raises(ValueError, match=says):
        model.set_attn_implementation(attn_implementation="tiled")
    with pytest.raises(ValueError, match=says):
        model.set_attn_implementation({"": "tiled"})
    model.set_attn_implementation("eager")
    assert model.config._attn_implementation == "eager"


def test_the_refusal_concerns_no_other_backend_and_no_class_that_says_that_it_uses_them():
    class Own(transformers.BloomModel):
        _supports_attention_backend = True

    with torch.device("meta"):
        assert Own._from_config(transformers.BloomConfig(), attn_implementation="tiled")
    with pytest.raises(ValueError, match="cannot serve BloomModel.*'eager'"):
        transformers.BloomModel._from_config(transformers.BloomConfig(), attn_implementation="tiled")
    with pytest.raises(ValueError, match="cannot serve FalconModel.*'sdpa' or 'eager'"):
        transformers.FalconModel._from_config(transformers.FalconConfig(), attn_implementation="tiled")
    with pytest.raises(ValueError, match="BloomModel does not support an attention implementation through torch"):
        transformers.BloomModel._from_config(transformers.BloomConfig(), attn_implementation="sdpa")


def test_a_model_that_changes_its_mask_says_which_backends_serve_it():
    """Doge adds to the mask, and calls the interface with what comes out."""
    config = transformers.DogeConfig(**_DECODER, attn_implementation="tiled")
    with pytest.raises(AttributeError, match="is a rule, not a tensor.*'sdpa' or 'eager'"):
        transformers.DogeModel(config)(tokens(1, 5))
