# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""generate() gives the same tokens with every cache, batched or not, in chunks or at once, in train mode or not."""

import copy

import pytest
import torch
from tiny_models import (
    BACKENDS,
    PLACES,
    assert_close,
    assert_differ,
    build,
    padded,
    pairwise,
    shared,
    tokens,
    uncompiled,
)

from hf_tx.models.positions import POSITIONS

PROMPTS = [tokens(length, seed=length) for length in (3, 7, 12)]
GREEDY = dict(max_new_tokens=9, do_sample=False, eos_token_id=None, disable_compile=True)
CACHES = ["dynamic", "static", "offloaded", "offloaded_static", "quantized"]
#: A quantised cache that needs no further package.
QUANTIZED = {"backend": "fp8"}


@pytest.fixture(autouse=True)
def _uncompiled():
    with uncompiled():
        yield


def generated(model, batch, mask=None, **arguments):
    """Return what is generated, without the prompt."""
    output = model.generate(batch, attention_mask=mask, **{**GREEDY, **arguments})
    return output[:, 1:] if model.config.is_encoder_decoder else output[:, batch.shape[1] :]


@pytest.mark.parametrize(
    ("family", "position_type", "norm_position", "backend", "mixers", "side"),
    pairwise(
        dict(
            family=["decoder", "encoder_decoder"],
            position_type=list(POSITIONS),
            norm_position=PLACES,
            backend=BACKENDS,
            mixers=["full", "sliding", "sliding,full"],
            side=["left", "right"],
        ),
        together=["family", "position_type", "side"],
        valid=lambda case: not (case["family"] == "decoder" and case["side"] == "right"),
    ),
)
def test_a_batch_generates_what_its_rows_do(family, position_type, norm_position, backend, mixers, side):
    """C11: token-identical, padded and alone, with a cache and without. A decoder's prompts are padded on the left."""
    settings = dict(position_type=position_type, norm_position=norm_position, mixers=mixers)
    model = shared(family, backend, "lm", **settings)
    batch, mask = padded(PROMPTS, side)
    # flex is slow uncompiled
    more = dict(max_new_tokens=4) if backend == "flex_attention" else {}
    alone = [tokens_and_logits(model, row[None], None, use_cache=False, **more) for row in PROMPTS]
    expected, logits = torch.cat([output for output, _ in alone]), torch.cat([scores for _, scores in alone], dim=1)
    assert_differ(logits[:1, 0], logits[:1, 2])
    for use_cache in (True, False):
        output, scores = tokens_and_logits(model, batch, mask, use_cache=use_cache, **more)
        assert torch.equal(output, expected)
        assert_close(scores, logits)
    if not more:
        for row, wanted in zip(PROMPTS, expected, strict=True):
            assert torch.equal(generated(model, row[None])[0], wanted)


def tokens_and_logits(model, batch, mask, **arguments):
    """Return what is generated, and the scores of every step; tokens alone hide small errors."""
    output = model.generate(
        batch, attention_mask=mask, return_dict_in_generate=True, output_logits=True, **{**GREEDY, **arguments}
    )
    return output.sequences[:, -len(output.logits) :], torch.stack(output.logits)


@pytest.mark.parametrize(
    ("family", "cache", "backend", "mixers", "beams"),
    pairwise(
        dict(
            family=["decoder", "encoder_decoder"],
            cache=CACHES,
            backend=BACKENDS,
            mixers=["full", "sliding", "sliding,full"],
            beams=[1, 2],
        ),
        together=["family", "cache", "backend"],
    ),
)
def test_every_cache_generates_the_same(family, cache, backend, mixers, beams):
    """C49: each cache implementation, with windows, attention to an encoder, and beams; or it is refused before the
    first step."""
    if cache.startswith("offloaded") and not torch.cuda.is_available():
        pytest.skip("offloading needs an accelerator to offload from")
    model = shared(family, backend, "lm", mixers=mixers)
    arguments = {"cache_implementation": cache, "num_beams": beams}
    if cache == "quantized":
        arguments["cache_config"] = dict(QUANTIZED)
        if family == "encoder_decoder" or "sliding" in mixers:
            with pytest.raises(ValueError, match="does not support the quantized cache|only full attention layers"):
                generated(model, tokens(2, 6), **arguments)
            return
    for batch, mask in (padded(PROMPTS, "left"), (tokens(2, 6), None)):
        sequences, logits = tokens_and_logits(model, batch, mask, num_beams=beams, use_cache=False)
        own_sequences, own_logits = tokens_and_logits(model, batch, mask, **arguments)
        if cache == "quantized":  # eight bits are not exact: the first step reads what was not stored yet
            assert_close(own_logits[0], logits[0])
            continue
        assert torch.equal(own_sequences, sequences)
        assert_close(own_logits, logits)


@pytest.mark.parametrize("cache", ["static", "dynamic", "quantized"])
def test_models_may_share_the_options_of_a_cache(cache):
    """C49: neither of two models changes the options for the other."""
    options = dict(QUANTIZED) if cache == "quantized" else None
    before = copy.deepcopy(options)
    arguments = dict(cache_implementation=cache, num_beams=2) | ({"cache_config": options} if options else {})
    batch, mask = padded(PROMPTS, "left")
    models = [shared("decoder", head="lm"), shared("decoder", head="lm", num_hidden_layers=3, num_key_value_heads=1)]
    first = [generated(model, batch, mask, **arguments) for model in models]
    again = [generated(model, batch, mask, **arguments) for model in reversed(models)]
    assert options == before
    for output, repeated in zip(first, reversed(again), strict=True):
        assert torch.equal(output, repeated)


@pytest.mark.parametrize("backend", ["eager", "sdpa"])
@pytest.mark.parametrize("cache", [None, "dynamic", "static"])
@pytest.mark.parametrize("mixers", ["full", "sliding,full"])
@pytest.mark.parametrize("family", ["decoder", "encoder_decoder"])
def test_scores_of_beams_are_those_of_an_uncached_forward(family, mixers, cache, backend):
    """C20: beams are reordered in the cache; a beam with another's history would get another score."""
    model = shared(family, backend, "lm", mixers=mixers, position_type="relative")
    batch, mask = padded(PROMPTS, "left")
    arguments = dict(use_cache=False) if cache is None else dict(cache_implementation=cache)
    output = model.generate(
        batch,
        attention_mask=mask,
        num_beams=3,
        num_return_sequences=3,
        length_penalty=0.0,
        output_scores=True,
        return_dict_in_generate=True,
        **{**GREEDY, "max_new_tokens": 6},
        **arguments,
    )
    rows, row_mask = batch.repeat_interleave(3, 0), mask.repeat_interleave(3, 0)
    sequences = output.sequences
    with torch.no_grad():
        if family == "decoder":
            whole = torch.cat([row_mask, torch.ones(9, 6, dtype=torch.long)], dim=1)
            logits = model(sequences, attention_mask=whole, use_cache=False).logits
        else:
            logits = model(rows, attention_mask=row_mask, decoder_input_ids=sequences, use_cache=False).logits
    scores = logits[:, -7:-1].log_softmax(-1).gather(-1, sequences[:, -6:, None])[..., 0].sum(-1)
    assert_close(output.sequences_scores, scores, 1e-5)
    assert len({tuple(row.tolist()) for row in sequences}) > 5


@pytest.mark.parametrize(
    ("family", "position_type", "backend"),
    pairwise(dict(family=["decoder", "encoder_decoder"], position_type=list(POSITIONS), backend=["eager", "sdpa"])),
)
def test_generating_in_train_mode(family, position_type, backend):
    """C47: reinforcement learning generates between training steps, with gradient checkpointing left on."""
    model = build(family, backend, "lm", position_type=position_type, mixers="sliding,full")
    batch, mask = padded(PROMPTS, "left")
    expected = generated(model, batch, mask)
    model.train()
    for checkpointing in (False, True):
        if checkpointing:
            model.gradient_checkpointing_enable()
        for use_cache in (True, False):
            assert torch.equal(generated(model, batch, mask, use_cache=use_cache), expected)
    assert model.training


@pytest.mark.parametrize(
    ("chunk", "mixers", "cache", "backend"),
    pairwise(
        dict(
            chunk=[1, 2, 5],
            mixers=["full", "sliding", "sliding,full"],
            cache=["dynamic", "static"],
            backend=["eager", "sdpa"],
        )
    ),
)
def test_prefill_in_chunks(chunk, mixers, cache, backend):
    model = shared("decoder", backend, "lm", mixers=mixers)
    for batch, mask in (padded(PROMPTS, "left"), (tokens(2, 6), None)):
        sequences, logits = tokens_and_logits(model, batch, mask, use_cache=False)
        arguments = dict(prefill_chunk_size=chunk, cache_implementation=cache)
        own_sequences, own_logits = tokens_and_logits(model, batch, mask, **arguments)
        assert torch.equal(own_sequences, sequences)
        assert_close(own_logits, logits)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("mixers", ["full", "sliding", "sliding,full"])
def test_looking_ahead_in_the_prompt(mixers, backend):
    """Candidates are tried several at a time, and the cache is cut back where they fail."""
    model = shared("decoder", backend, "lm", mixers=mixers)
    prompt = tokens(5).repeat(3)[None]
    expected = generated(model, prompt)
    assert torch.equal(generated(model, prompt, prompt_lookup_num_tokens=3), expected)


@pytest.mark.parametrize(
    ("backend", "mixers", "family"),
    pairwise(
        dict(backend=BACKENDS, mixers=["full", "sliding", "sliding,full"], family=["decoder", "encoder_decoder"])
    ),
)
def test_generation_goes_on_from_its_cache(family, mixers, backend):
    model = shared(family, backend, "lm", mixers=mixers)
    prompt = tokens(2, 6)
    expected = generated(model, prompt, max_new_tokens=10)
    first = model.generate(prompt, return_dict_in_generate=True, **{**GREEDY, "max_new_tokens": 4})
    given = first.sequences if family == "decoder" else prompt
    more = {} if family == "decoder" else {"decoder_input_ids": first.sequences}
    second = model.generate(given, cache=first.cache, **more, **{**GREEDY, "max_new_tokens": 6})
    second = second[:, 6:] if family == "decoder" else second[:, 1:]
    assert torch.equal(second, expected)


@pytest.mark.parametrize("backend", ["eager", "sdpa"])
def test_sampling_follows_the_seed_whatever_the_cache(backend):
    model = shared("decoder", backend, "lm")
    batch, mask = padded(PROMPTS, "left")
    outputs = []
    for arguments in (dict(use_cache=False), {}, dict(cache_implementation="static")):
        torch.manual_seed(3)
        outputs.append(generated(model, batch, mask, do_sample=True, temperature=0.8, top_k=20, **arguments))
    assert torch.equal(outputs[0], outputs[1])
    assert torch.equal(outputs[0], outputs[2])
