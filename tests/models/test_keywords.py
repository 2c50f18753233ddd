# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Every keyword of a call is read, or refused: borders of documents, and names that nothing knows."""

import pytest
import torch
from tiny_models import assert_close, build, shared, states, tokens, uncompiled
from transformers import AttentionInterface, AttentionMaskInterface, DataCollatorWithFlattening, DynamicCache
from transformers.masking_utils import sdpa_mask
from transformers.utils import TransformersKwargs

from hf_tx.models.attention import eager_attention_forward
from hf_tx.models.backend_rules import BACKENDS as DECLARED
from hf_tx.models.backend_rules import register_backend

SIZES = (5, 1, 4)


@pytest.fixture(autouse=True)
def _uncompiled():
    with uncompiled():
        yield


def flattened(**options):
    collate = DataCollatorWithFlattening(return_flash_attn_kwargs=True, **options)
    row = tokens(1, sum(SIZES))[0]
    return row, collate([{"input_ids": part.tolist()} for part in row.split(SIZES)])


# ------------------------------------------------------------------------------------------- borders of documents
@pytest.mark.parametrize(
    ("mixers", "backend"),
    [
        ("full", "eager"),
        ("full", "flex_attention"),
        ("sliding,full", "sdpa"),
        ("chunked", "tiled"),
        ("retention", "sdpa"),
    ],
)
@pytest.mark.parametrize("family", ["decoder", "encoder"])
def test_documents_given_by_their_borders_do_not_see_each_other(family, mixers, backend):
    model = shared(family, backend, mixers=mixers)
    row, batch = flattened(return_position_ids=False)
    assert "position_ids" not in batch
    assert "seq_idx" not in batch
    del batch["labels"]
    alone = torch.cat([states(model, part[None])[0] for part in row.split(SIZES)])
    output = states(model, **batch)[0]
    assert_close(output, alone)
    _, both = flattened()
    del both["labels"]
    assert_close(states(model, **both)[0], alone)


def test_a_document_given_by_its_border_is_no_target_of_the_one_before_it():
    model = shared("decoder", head="lm")
    row, batch = flattened(return_position_ids=False)
    labels = batch["input_ids"]  # the collator hides the first token of a document; here they are not hidden
    parts = [model(part[None], labels=part[None]).loss * (len(part) - 1) for part in row.split(SIZES) if len(part) > 1]
    loss = model(**batch | {"labels": labels}).loss
    assert_close(loss.detach(), (sum(parts) / sum(size - 1 for size in SIZES)).detach())


@pytest.mark.parametrize(
    ("borders", "rows", "message"),
    [
        ([0, 4, 9], 1, "cu_seq_lens_q ends at 9, but the input has 1 rows of 10 tokens"),
        ([0, 10, 20], 2, "cu_seq_lens_q ends at 20, but the input has 2 rows of 10 tokens"),
    ],
)
def test_borders_that_do_not_fit_are_refused(borders, rows, message):
    with pytest.raises(ValueError, match=message):
        states(shared("decoder"), tokens(rows, 10), cu_seq_lens_q=torch.tensor(borders, dtype=torch.int32))


def test_positions_that_contradict_the_borders_are_refused():
    _, batch = flattened(position_ids_start=2)
    del batch["labels"]
    with pytest.raises(ValueError, match="cu_seq_lens_q and position_ids contradict each other"):
        states(shared("decoder"), **batch)


def test_borders_with_a_filled_cache_need_positions():
    model, cache = shared("decoder"), DynamicCache()
    states(model, tokens(1, 4), cache=cache, use_cache=True)
    with pytest.raises(ValueError, match="with a filled cache needs position_ids"):
        states(model, tokens(1, 4), cache=cache, cu_seq_lens_q=torch.tensor([0, 2, 4]))


@pytest.mark.parametrize("name", ["cu_seq_lens_q", "cu_seq_lens_k"])
def test_an_encoder_decoder_refuses_borders(name):
    with pytest.raises(ValueError, match=f"{name}: encoder-decoders do not support packed documents"):
        states(shared("encoder_decoder"), tokens(1, 4), **{name: torch.tensor([0, 2, 4])})


def test_an_encoder_decoder_refuses_another_direction():
    with pytest.raises(
        ValueError, match="is_causal cannot be set: the encoder of an encoder-decoder is bidirectional"
    ):
        states(shared("encoder_decoder"), tokens(1, 4), is_causal=False)


# --------------------------------------------------------------------------------------------------------- names
@pytest.mark.parametrize(
    ("family", "head", "name", "nearest"),
    [
        ("decoder", "base", "atention_mask", "attention_mask"),
        ("decoder", "lm", "atention_mask", "attention_mask"),
        ("decoder", "lm", "labelz", "labels"),
        ("decoder", "lm", "postion_ids", "position_ids"),
        ("encoder", "base", "token_type_id", "token_type_ids"),
        ("encoder", "lm", "attention_masks", "attention_mask"),
        ("encoder_decoder", "base", "decoder_atention_mask", "decoder_attention_mask"),
        ("encoder_decoder", "lm", "num_items_in_bach", "num_items_in_batch"),
    ],
)
def test_a_misspelt_name_is_refused(family, head, name, nearest):
    model = shared(family, head=head)
    inputs = {"decoder_input_ids": tokens(2, 3)} if family == "encoder_decoder" else {}
    with pytest.raises(TypeError, match=f"unexpected keyword argument '{name}'.*did you mean '{nearest}'"):
        model(input_ids=tokens(2, 5), **inputs, **{name: torch.ones(2, 5)})


def test_a_name_like_no_other_lists_what_there_is():
    with pytest.raises(TypeError, match=r"'xyz'.*it accepts attention_mask, cache, input_ids"):
        shared("decoder")(tokens(1, 3), xyz=1)


@pytest.mark.parametrize(("family", "head"), [("decoder", "lm"), ("encoder", "lm"), ("encoder_decoder", "lm")])
def test_what_the_library_passes_is_taken(family, head):
    model = shared(family, head=head)
    inputs = {"decoder_input_ids": tokens(2, 3)} if family == "encoder_decoder" else {}
    others = dict.fromkeys(TransformersKwargs.__annotations__)
    output = model(input_ids=tokens(2, 5), **inputs, **others, return_dict=True)
    assert_close(output.logits.detach(), model(input_ids=tokens(2, 5), **inputs).logits.detach())


def test_a_backend_takes_what_it_names(monkeypatch):
    seen = []

    def attention(module, query, key, value, attention_mask, *, scaling=None, strength=None, **kwargs):
        seen.append(strength)
        return eager_attention_forward(module, query, key, value, None, scaling=scaling, **kwargs)

    try:
        register_backend("acme_strong", attention, sdpa_mask)
        model = build("decoder", "acme_strong")
        model(tokens(1, 3), strength=3)
        assert seen == [3, 3]
        with pytest.raises(TypeError, match=r"'strengths'.*attn_implementation='acme_strong' does not accept"):
            model(tokens(1, 3), strengths=3)
        # Of one that is only in transformers' tables, nothing is known.
        del DECLARED["acme_strong"]
        model(tokens(1, 3), other=3)
    finally:
        DECLARED.pop("acme_strong", None)
        for table in (AttentionInterface, AttentionMaskInterface):
            table._global_mapping.pop("acme_strong", None)


def test_generate_may_be_given_the_tokenizer_of_its_stop_strings():
    for family in ("decoder", "encoder_decoder"):
        model = build(family, head="lm")
        assert model.generate(tokens(1, 4), max_new_tokens=2, eos_token_id=None, tokenizer=object()).shape[0] == 1


@pytest.mark.parametrize("family", ["decoder", "encoder_decoder"])
@pytest.mark.parametrize("head", ["base", "lm"])
def test_the_places_of_older_loops_are_those_of_the_cache(family, head):
    model, text = shared(family, head=head), tokens(2, 6)

    def call(part, cache, **kwargs):
        if family == "decoder":
            return model(input_ids=part, cache=cache, use_cache=True, **kwargs)
        return model(input_ids=text, decoder_input_ids=part, cache=cache, use_cache=True, **kwargs)

    with torch.no_grad():
        expected = call(text, None)[0]
        output = call(text[:, :4], None, cache_position=torch.arange(4))
        cache = output.past_key_values
        output = call(text[:, 4:], cache, cache_position=torch.arange(4, 6))
        assert_close(output[0], expected[:, 4:])
        for wrong in (torch.arange(2), torch.tensor([6, 8])):
            with pytest.raises(
                ValueError, match=f"cache_position begins at {wrong[0]}, but the cache contains 6 tokens"
            ):
                call(text[:, :2], cache, cache_position=wrong)
