# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Head and embeddings as one tensor or two: function, optimizers, checkpoints, and the way back."""

from typing import Any

import pytest
import torch
import transformers as hf
from peers.parity import randomise
from peers.tables import STANDARD
from tiny_models import FAMILIES, assert_close, build, tokens
from torch import nn

import hf_tx

TEXT = tokens(2, 7)


def logits(model: Any) -> torch.Tensor:
    return model(TEXT, **(dict(decoder_input_ids=TEXT) if model.config.is_encoder_decoder else {})).logits


def embeddings(model: Any) -> Any:
    return (model.get_decoder() if model.config.is_encoder_decoder else model.model).embed_tokens


def reloaded(model: Any, folder: Any) -> Any:
    model.save_pretrained(folder)
    return type(model).from_pretrained(folder, attn_implementation="eager")


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("family", FAMILIES)
def test_untied(family: str, shared: bool, tmp_path: Any) -> None:
    own = dict(share_embeddings=shared) if family == "encoder_decoder" else {}
    model = build(family, head="lm", **own)
    model.tie_weights()
    before, count = logits(model), len(list(model.parameters()))
    assert hf_tx.untie_embeddings(model) is model
    assert_close(logits(model), before)
    assert len(list(model.parameters())) == count + 1
    with torch.no_grad():  # they part
        model.lm_head.weight.mul_(2.0)
    again = reloaded(model, tmp_path)
    assert again.config.tie_word_embeddings is False
    assert torch.equal(again.lm_head.weight, model.lm_head.weight)
    assert_close(logits(again), logits(model))
    assert not torch.allclose(logits(again), before)
    if family == "encoder_decoder":
        assert (again.model.encoder.embed_tokens.weight is again.model.decoder.embed_tokens.weight) == shared


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("family", FAMILIES)
def test_tied(family: str, shared: bool, tmp_path: Any) -> None:
    own = dict(share_embeddings=shared) if family == "encoder_decoder" else {}
    model = build(family, head="lm", tie_word_embeddings=False, **own)
    model.tie_weights()  # shared embeddings were drawn apart
    count = len(list(model.parameters()))
    assert hf_tx.tie_embeddings(model) is model
    assert model.lm_head.weight is embeddings(model).weight
    assert len(list(model.parameters())) == count - 1
    again = reloaded(model, tmp_path)
    assert again.config.tie_word_embeddings is True
    assert again.lm_head.weight is embeddings(again).weight
    assert_close(logits(again), logits(model))


def test_an_optimizer_that_is_made_afterwards_trains_both() -> None:
    model = hf_tx.untie_embeddings(build("decoder", head="lm"))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(TEXT, labels=TEXT).loss.backward()
    optimizer.step()
    assert not torch.equal(model.lm_head.weight, embeddings(model).weight)


def test_the_other_way_undoes_it() -> None:
    model = build("decoder", head="lm")
    model.tie_weights()
    before, state = model.config.to_dict(), model.state_dict()
    hf_tx.tie_embeddings(hf_tx.untie_embeddings(model))
    assert model.config.to_dict() == before
    assert all(torch.equal(weight, state[name]) for name, weight in model.state_dict().items())
    assert model.all_tied_weights_keys == {"lm_head.weight": "model.embed_tokens.weight"}


def test_what_stays_frozen() -> None:
    model = build("decoder", head="lm")
    model.tie_weights()
    model.lm_head.weight.requires_grad_(False)
    assert not hf_tx.untie_embeddings(model).lm_head.weight.requires_grad


def test_it_goes_back_to_the_library() -> None:
    theirs = hf.LlamaForCausalLM(hf.LlamaConfig(**STANDARD, tie_word_embeddings=True))
    randomise(theirs)
    back = hf_tx.to_hf(hf_tx.untie_embeddings(hf_tx.from_hf(theirs)))
    assert back.config.tie_word_embeddings is False
    assert back.lm_head.weight is not back.model.embed_tokens.weight
    assert torch.equal(back.lm_head.weight, theirs.lm_head.weight)


@pytest.mark.parametrize("function", [hf_tx.tie_embeddings, hf_tx.untie_embeddings])
def test_what_has_no_head(function: Any) -> None:
    with pytest.raises(ValueError, match="model is a Linear, not a model of hf_tx"):
        function(nn.Linear(2, 2))
    with pytest.raises(ValueError, match="TxDecoderModel has no head that could be tied to its embeddings"):
        function(build("decoder"))


def test_shapes_that_differ() -> None:
    model = build("encoder", head="lm", embedding_size=16, mlm_head_transform=False, tie_word_embeddings=False)
    model.lm_head = nn.Linear(24, 61)
    with pytest.raises(
        ValueError, match=r"shape \(61, 24\) and those of the embeddings \(61, 16\): only weights of the same shape"
    ):
        hf_tx.tie_embeddings(model)
    assert model.config.tie_word_embeddings is False
