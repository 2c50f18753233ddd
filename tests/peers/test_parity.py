# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""transformers' own models and ours, with the same weights, compute the same."""

import itertools
from typing import Any

import pytest
import torch
from peers.decoders import CAUSAL, DECODER_HEADS
from peers.encoder_decoders import SEQ2SEQ, SEQ2SEQ_HEADS
from peers.encoders import ENCODERS
from peers.parity import assert_close, batch, gradients, pair
from peers.tables import LAYERS, TOKENS, VOCABULARY, Peer

PEERS = CAUSAL | DECODER_HEADS | ENCODERS | SEQ2SEQ | SEQ2SEQ_HEADS
ROWS = [13, 9, 4]  # longer than all windows, tables of short texts and exact buckets


def comparisons() -> list[Any]:
    """Every peer with each of its backends and sides: always each once, the other combinations as slow tests."""
    found = []
    for name, peer in PEERS.items():
        always = {(peer.backends[0], peer.sides[0]), (peer.backends[-1], peer.sides[-1])}
        for backend, side in itertools.product(peer.backends, peer.sides):
            marks = [] if (backend, side) in always else [pytest.mark.slow]
            found.append(pytest.param(peer, backend, side, id=f"{name}-{backend}-{side}", marks=marks))
    return found


def inputs_of(peer: Peer, config: Any, side: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the inputs of their model and of ours, labels included."""
    made = batch(ROWS, side, config.pad_token_id, VOCABULARY)
    labels, position_ids = made.pop("labels"), made.pop("position_ids")
    generator = torch.Generator().manual_seed(1)
    kind = peer.theirs.__name__
    if "SequenceClassification" in kind:
        made["labels"] = torch.tensor([2, 0, 1])
    elif "QuestionAnswering" in kind:
        made["start_positions"], made["end_positions"] = torch.tensor([4, 10, 12]), torch.tensor([5, 99, 12])
    elif "TokenClassification" in kind:
        made["labels"] = torch.where(labels < 0, labels, labels % 3)
    elif "MaskedLM" in kind:
        hidden = torch.rand(labels.shape, generator=generator) < 0.4
        made["labels"] = labels.masked_fill(~hidden, -100)
    elif config.is_encoder_decoder:
        target = batch([5, 8, 7], "right", config.pad_token_id, VOCABULARY, seed=2)
        made["decoder_attention_mask"] = target["attention_mask"]
        made["labels"] = target["input_ids"].masked_fill(target["attention_mask"] == 0, -100)
        if not peer.same_shift:
            made["decoder_input_ids"] = target["input_ids"]
    else:
        made["labels"] = labels
    if getattr(config, "type_vocab_size", 0):
        types = torch.randint(0, config.type_vocab_size, labels.shape, generator=generator)
        made["token_type_ids"] = types
    if config.is_encoder_decoder and ("SequenceClassification" in kind or "QuestionAnswering" in kind):
        made["decoder_attention_mask"] = made["attention_mask"]  # the decoder reads the text once more
        last = (made["attention_mask"] * torch.arange(labels.shape[1])).argmax(-1, keepdim=True)
        made["input_ids"].scatter_(1, last, config.eos_token_id)  # whose state theirs classifies
    theirs, ours = dict(made), dict(made)
    if peer.positions == "real":
        theirs["position_ids"] = ours["position_ids"] = position_ids
    if peer.positions == "rows":
        ours["position_ids"] = torch.arange(labels.shape[1])[None]
        ours["decoder_position_ids"] = torch.arange(made["decoder_attention_mask"].shape[1])[None]
    return theirs, ours


def states_of(outputs: Any, masks: dict[str, torch.Tensor]) -> list[tuple[str, torch.Tensor]]:
    """Return all hidden states at real positions, with names."""
    states = []
    for field, mask in (
        ("hidden_states", "attention_mask"),
        ("encoder_hidden_states", "attention_mask"),
        ("decoder_hidden_states", "decoder_attention_mask"),
    ):
        layers = getattr(outputs, field, None)
        if layers is not None:
            assert len(layers) == LAYERS + 1
            states += [(f"{field}[{index}]", layer[masks[mask].bool()]) for index, layer in enumerate(layers)]
    return states


@pytest.mark.parametrize(("peer", "backend", "side"), comparisons())
def test_states_logits_loss_and_gradients_equal_the_peers(peer: Peer, backend: str, side: str) -> None:
    theirs, ours = pair(peer, backend)
    assert ours.config._attn_implementation == theirs.config._attn_implementation == backend
    their_inputs, our_inputs = inputs_of(peer, theirs.config, side)
    expected = theirs(**their_inputs, output_hidden_states=True)
    actual = ours(**our_inputs, output_hidden_states=True)

    wanted, found = states_of(expected, their_inputs), states_of(actual, our_inputs)
    assert wanted
    for (name, value), (_, mine) in zip(wanted, found, strict=True):
        assert_close(mine, value, name)
    for field in ("logits", "start_logits", "end_logits"):
        if field in expected:
            mine, value = actual[field], expected[field]
            if "labels" in their_inputs and value.ndim == 3:
                real = their_inputs.get("decoder_attention_mask", their_inputs["attention_mask"]).bool()
                mine, value = mine[real], value[real]
            assert_close(mine, value, field)
    assert_close(actual.loss, expected.loss, "loss")

    expected.loss.backward()
    actual.loss.backward()
    pairs = gradients(theirs, ours)
    scales = {name: value.abs().max().item() for name, (_, value) in pairs.items()}
    largest = max(scales.values())
    for name, (mine, value) in pairs.items():
        if name.endswith("embed_tokens.weight") and theirs.get_input_embeddings().padding_idx is not None:
            mine[theirs.config.pad_token_id] = value[theirs.config.pad_token_id] = 0  # theirs has no gradient there
        # Some gradients are zero but for rounding, such as those of the biases of keys: the gradient of a softmax
        # subtracts numbers of the size of the gradients of values.
        of_values = name.replace("q_proj", "v_proj").replace("k_proj", "v_proj")
        assert_close(mine, value, name, scale=max(scales[name], scales.get(of_values, 0.0), 1e-2 * largest))


def generations() -> list[Any]:
    """Every peer generates greedily, the first of every class in all the ways that differ; the product is slow."""
    found, classes = [], set()
    for name, peer in (CAUSAL | SEQ2SEQ).items():
        always: set[Any] = {("greedy", "dynamic")}
        if peer.theirs not in classes:
            classes.add(peer.theirs)
            always |= {("greedy", "static"), ("greedy", None), ("beam", "dynamic")}
        for (way, beams), cache in itertools.product({"greedy": 1, "beam": 3}.items(), ("dynamic", "static", None)):
            marks = [] if (way, cache) in always else [pytest.mark.slow]
            found.append(pytest.param(name, beams, cache, id=f"{name}-{way}-{cache}", marks=marks))
    return found


@pytest.mark.parametrize(("name", "beams", "cache"), generations())
def test_generated_tokens_equal_the_peers(name: str, beams: int, cache: str | None) -> None:
    peer = PEERS[name]
    side = "right" if name in SEQ2SEQ else "left"
    prompt = batch([9, 5], side, TOKENS["pad_token_id"], VOCABULARY, seed=3)
    common = dict(
        input_ids=prompt["input_ids"],
        attention_mask=prompt["attention_mask"],
        max_new_tokens=8,
        num_beams=beams,
        do_sample=False,
        no_repeat_ngram_size=2,  # random models are fond of one token
    )
    # Frequencies that grow with the text make kept keys differ from keys computed anew: both keep keys, or neither.
    theirs, ours = pair(peer, peer.backends[-1])
    expected = theirs.generate(**common, use_cache=cache is not None)
    actual = ours.generate(**common, **(dict(cache_implementation=cache) if cache else dict(use_cache=False)))
    assert actual.tolist() == expected.tolist()
    assert expected[0, -8:].tolist() != expected[1, -8:].tolist(), "both rows go on alike: this shows little"
