# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Serving engines, which lay requests end to end in one row: continuous batching writes what generate() writes, and
what an engine cannot compute is refused before it takes a request."""

import logging
from types import SimpleNamespace
from typing import Any

import flash_emulation
import pytest
import torch
from tiny_models import MIXER_OPTIONS, build, config_of, tokens
from transformers import ContinuousBatchingConfig, GenerationConfig
from transformers.generation import GenerationMixin

import hf_tx
from hf_tx.models.backend_rules import BACKENDS, refusal, register_engine

#: Some share a beginning, and one is longer than a batch of `PAGES`, so that it is read in parts.
PROMPTS = [tokens(length, seed=length % 7).tolist() for length in (8, 15, 1, 20)]
PAGES = dict(page_size=4, num_blocks=64, max_batch_tokens=12)
NEW_TOKENS = 9

SERVED: dict[str, dict[str, Any]] = {
    "full": {},
    "sliding,full": dict(mixers="sliding,full"),
    "sliding": dict(mixers="sliding"),
    "learned": dict(position_type="learned", attention_bias=True),
    "rope by type": dict(
        mixers="sliding,full",
        rope_parameters={
            "sliding_attention": dict(rope_type="default", rope_theta=100.0),
            "full_attention": dict(rope_type="linear", rope_theta=100.0, factor=2.0),
        },
    ),
}
ROPE = dict(rope_theta=1e4, factor=2.0)
LONG = dict(short_factor=[1.0] * 4, long_factor=[2.0] * 4, original_max_position_embeddings=16)
#: By what no engine serves: settings, and words of the reason.
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "alibi": (dict(position_type="alibi"), "it has no position bias"),
    "relative": (dict(position_type="relative"), "it has no position bias"),
    **{name: (dict(mixers=f"full,{name}"), "it has no mask of this pattern") for name in MIXER_OPTIONS},
    "gru": (dict(mixers="full,gru"), "layer 1 ('gru'): it only stores keys and values"),
    "linear": (dict(mixers="linear"), "layer 0 ('linear'): it only stores keys and values"),
    "dynamic": (dict(rope_parameters=dict(rope_type="dynamic", **ROPE)), "depend on the longest text of a call"),
    "longrope": (dict(rope_parameters=dict(rope_type="longrope", **ROPE, **LONG)), "longest text of a call"),
    "one key": (dict(mixers="sliding", sliding_window=1), "it does not support a window of one key"),
    "two windows": (
        dict(mixers="sliding", per_layer_config={0: dict(sliding_window=2)}),
        "it uses one sliding_window for all layers, but per_layer_config changes it",
    ),
}


def greedy(**settings: Any) -> GenerationConfig:
    return GenerationConfig(max_new_tokens=NEW_TOKENS, do_sample=False, pad_token_id=0, **settings)


def alone(model: Any) -> list[list[int]]:
    """What generate() writes for every prompt."""
    rows = [model.generate(torch.tensor([ids]), generation_config=greedy(eos_token_id=None)) for ids in PROMPTS]
    return [row[0, len(ids) :].tolist() for row, ids in zip(rows, PROMPTS, strict=True)]


def together(model: Any, prompts: list[list[int]] = PROMPTS) -> list[list[int]]:
    pages = ContinuousBatchingConfig(**PAGES)
    answers = model.generate_batch(
        prompts, generation_config=greedy(eos_token_id=-1), continuous_batching_config=pages
    )
    return [answer.generated_tokens for answer in answers.values()]


@pytest.mark.parametrize("backend", ["sdpa", "eager"])
@pytest.mark.parametrize("name", SERVED)
def test_batches_are_what_generate_writes(name: str, backend: str) -> None:
    model = build("decoder", backend, "lm", **SERVED[name])
    assert together(model) == alone(model)
    assert model.config._attn_implementation == backend


@pytest.mark.parametrize("settings", [{}, dict(mixers="sliding,full"), dict(attn_logit_softcapping=2.0)])
def test_batches_by_flash_are_what_generate_writes(settings: dict[str, Any], monkeypatch: Any) -> None:
    model = build("decoder", "eager", "lm", **settings)
    written = alone(model)
    flash_emulation.install(monkeypatch)
    model.set_attn_implementation("flash_attention_2")
    assert together(model) == written


def test_sinks_are_computed_where_the_backend_has_them() -> None:
    model = build("decoder", "eager", "lm", attention_sinks=True)
    assert together(model) == alone(model)


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("engine", ["paged|sdpa", "paged|eager", "vllm"])
def test_what_engines_cannot_compute_is_refused(name: str, engine: str) -> None:
    settings, words = REFUSED[name]
    reason = refusal(config_of("decoder", **settings), engine)
    assert words in reason, reason
    assert "use generate() with one of 'eager'" in reason
    assert "paged|" not in reason


@pytest.mark.parametrize("name", ["alibi", "chunked", "gru", "linear"])
def test_a_refusal_comes_before_any_request(name: str) -> None:
    model = build("decoder", "sdpa", "lm", **REFUSED[name][0])
    for start in (lambda: together(model), model.init_continuous_batching):
        with pytest.raises(ValueError, match="continuous batching with 'sdpa' cannot compute layer"):
            start()
    assert model.config._attn_implementation == "sdpa"


def test_softcap_needs_a_backend_that_has_it_with_pages() -> None:
    model = build("decoder", "eager", "lm", attn_logit_softcapping=2.0)
    with pytest.raises(ValueError, match="continuous batching with 'eager' .* it has no softcap"):
        together(model)
    assert refusal(model.config, "paged|flash_attention_2") is None


def test_encoder_decoders_are_refused() -> None:
    with pytest.raises(ValueError, match="it does not support cross-attention"):
        together(build("encoder_decoder", "sdpa", "lm"))


def test_windows_of_encoders_are_refused() -> None:
    assert "but those of an encoder are not" in refusal(config_of("encoder", mixers="sliding"), "vllm")
    assert refusal(config_of("encoder"), "vllm") is None


def test_a_batch_in_which_nothing_succeeds_says_why() -> None:
    model = build("decoder", "sdpa", "lm", position_type="learned", max_position_embeddings=10)
    with pytest.raises(RuntimeError, match="position .* is beyond the table of learned positions"):
        together(model, [PROMPTS[3]])


def test_one_failure_is_told_beside_the_answers(monkeypatch: Any, caplog: Any) -> None:
    answers = {"req_0": SimpleNamespace(error=None), "req_1": SimpleNamespace(error="no pages")}
    monkeypatch.setattr(GenerationMixin, "generate_batch", lambda *args, **kwargs: answers)
    logging.getLogger("transformers").propagate, before = True, logging.getLogger("transformers").propagate
    try:
        assert build("decoder", "sdpa", "lm").generate_batch([[1], [2]]) is answers
    finally:
        logging.getLogger("transformers").propagate = before
    assert "request req_1 failed: no pages" in caplog.text


def test_the_backend_of_batches_is_for_nothing_else() -> None:
    """Without the masks of continuous batching it would let tokens see those after them."""
    model = build("decoder", "paged|eager", "lm")
    with pytest.raises(
        ValueError, match=r"'paged\|eager' only works in generate_batch\(\); use 'eager' for this call"
    ):
        model(tokens(4)[None])


@pytest.mark.parametrize("given", [dict(attention_mask=torch.ones(1, 4)), dict(use_cache=True)])
def test_what_an_engine_would_ignore_is_refused(given: dict[str, Any]) -> None:
    model = build("decoder", "sdpa", "lm")
    model.config._attn_implementation_internal = "vllm"
    with pytest.raises(ValueError, match="masks requests and stores their keys itself: leave out attention_mask"):
        model(tokens(4)[None], **{"use_cache": False, **given})


def test_attention_weights_are_refused() -> None:
    model = build("decoder", "sdpa", "lm")
    model.config._attn_implementation_internal = "vllm"
    with pytest.raises(ValueError, match="does not return attention weights"):
        model(tokens(4)[None], output_attentions=True)


def test_an_engine_declares_what_it_computes() -> None:
    config = config_of("decoder", attention_sinks=True)
    assert "has no mask function" in refusal(config, "acme")
    try:
        register_engine("acme")
        assert "it has no attention sinks" in refusal(config, "acme")
        register_engine("acme", computes=["attention sinks"])
        assert refusal(config, "acme") is None
        with pytest.raises(ValueError, match=r"computes has the unknown features \['sink'\]; the features are"):
            register_engine("acme", computes=["sink"])
    finally:
        del BACKENDS["acme"]
    assert hf_tx.backends.register_engine is register_engine
