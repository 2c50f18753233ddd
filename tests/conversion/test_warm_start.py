# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Encoders as the start of models that write: the same function where nothing to come is visible, and the report."""

from typing import Any

import pytest
import torch
import transformers as hf
from huggingface_hub.errors import StrictDataclassError
from peers.encoders import ENCODERS
from peers.parity import build as build_theirs
from peers.parity import randomise
from peers.tables import STANDARD, VOCABULARY
from tiny_models import ATTENTION, LINEAR, POSITION_TYPES, RECURRENT, assert_close, build, tokens

import hf_tx

START = dict(decoder_start_token_id=1, eos_token_id=2, pad_token_id=0)
# Recurrent networks have other weights in one direction.
DIRECTED = [*ATTENTION, *LINEAR]


def bert(cls: Any = hf.BertForMaskedLM, **changes: Any) -> Any:
    theirs = cls(hf.BertConfig(**STANDARD | changes)).eval()
    randomise(theirs)
    return theirs


def parts(names: Any) -> set[str]:
    """The modules of the layers, or else the whole names."""
    return {name.split(".layers.")[1].split(".")[1] if ".layers." in name else name for name in names}


# ------------------------------------------------------------------------------------------------------------ decoder
@pytest.mark.parametrize("position_type", POSITION_TYPES)
@pytest.mark.parametrize("mixer", ATTENTION)
def test_a_decoder_computes_what_its_encoder_does_without_what_comes(mixer: str, position_type: str) -> None:
    """One token at a time: the last state of an encoder that is given the text up to there."""
    settings = dict(mixers=mixer, position_type=position_type, num_hidden_layers=1)
    encoder = build("encoder", head="lm", mlm_head_transform=False, **settings)
    decoder = hf_tx.warm_start_decoder(encoder)
    text = tokens(2, 14)
    with torch.no_grad():
        expected = [encoder(text[:, : end + 1]).logits[:, -1] for end in range(text.shape[1])]
        assert_close(decoder(text).logits, torch.stack(expected, dim=1))


def test_biases_of_every_layer_keep_the_buckets_before_a_position() -> None:
    settings: dict[str, Any] = dict(position_type="relative", relative_attention_per_layer=True, num_hidden_layers=1)
    encoder = build("encoder", head="lm", mlm_head_transform=False, **settings)
    decoder, text = hf_tx.warm_start_decoder(encoder), tokens(2, 14)
    with torch.no_grad():
        expected = [encoder(text[:, : end + 1]).logits[:, -1] for end in range(text.shape[1])]
        assert_close(decoder(text).logits, torch.stack(expected, dim=1))


def test_a_layer_with_a_window_of_its_own_reaches_as_far_back() -> None:
    windows = {0: dict(sliding_window=2), 1: dict(sliding_window=5)}
    encoder = build("encoder", mixers="sliding", per_layer_config=windows)
    decoder = hf_tx.warm_start_decoder(encoder)
    assert [decoder.config.layer_config(idx).sliding_window for idx in range(2)] == [3, 6]
    assert [encoder.config.layer_config(idx).sliding_window for idx in range(2)] == [2, 5]


@pytest.mark.parametrize("mixer", DIRECTED)
def test_every_tensor_of_the_stack_is_taken_over(mixer: str) -> None:
    encoder = build("encoder", mixers=mixer)
    decoder, info = hf_tx.warm_start_decoder(encoder, output_loading_info=True)
    assert set(info["missing_keys"]) == {"lm_head.bias"}
    assert not info["unexpected_keys"]
    assert all(torch.equal(weight, decoder.model.state_dict()[name]) for name, weight in encoder.state_dict().items())
    assert not {weight.data_ptr() for weight in decoder.parameters()} & {
        weight.data_ptr() for weight in encoder.parameters()
    }


@pytest.mark.parametrize("mixer", RECURRENT)
def test_recurrent_encoders_are_refused(mixer: str) -> None:
    encoder = build("encoder", mixers=f"full,{mixer}")
    with pytest.raises(ValueError, match=r"layers\.1\.mixer\..* the model needs .* recurrent networks"):
        hf_tx.warm_start_decoder(encoder)
    decoder = hf_tx.warm_start_decoder(encoder, config_changes=dict(mixers="full"))
    assert decoder.config.mixers == ["full", "full"]


@pytest.mark.parametrize("name", ENCODERS)
def test_every_encoder_that_can_be_converted_starts_a_decoder(name: str, tmp_path: Any) -> None:
    theirs = build_theirs(ENCODERS[name])
    untied = dict(tie_word_embeddings=False) if "electra" in name else None
    decoder, info = hf_tx.warm_start_decoder(theirs, config_changes=untied, output_loading_info=True)
    assert parts(info["missing_keys"]) <= {"lm_head.weight", "lm_head.bias"}
    assert not [key for key in info["unexpected_keys"] if ".layers." in key or "embed" in key]
    decoder.save_pretrained(tmp_path)
    text = tokens(2, 9) % VOCABULARY
    reloaded = hf.AutoModelForCausalLM.from_pretrained(tmp_path)
    assert_close(reloaded(text).logits, decoder(text).logits)
    assert decoder.generate(text, max_new_tokens=3, do_sample=False).shape[1] <= 12


def test_the_report_names_what_has_no_place(tmp_path: Any) -> None:
    bert().save_pretrained(tmp_path)
    decoder, info = hf_tx.warm_start_decoder(tmp_path, output_loading_info=True)
    assert not info["missing_keys"]
    assert set(info["unexpected_keys"]) == {
        *("transform.dense.weight", "transform.dense.bias", "transform.norm.weight", "transform.norm.bias")
    }
    assert decoder.lm_head.bias.any()
    pooled = hf_tx.warm_start_decoder(bert(hf.BertModel), output_loading_info=True)[1]
    assert set(pooled["unexpected_keys"]) == {"model.pooler.dense.weight", "model.pooler.dense.bias"}


def test_an_untied_head_is_kept() -> None:
    theirs = bert(tie_word_embeddings=False)
    decoder = hf_tx.warm_start_decoder(theirs)
    assert torch.equal(decoder.lm_head.weight, theirs.cls.predictions.decoder.weight)
    with pytest.raises(ValueError, match="lm_head.weight and model.embed_tokens.weight would be tied, but differ"):
        hf_tx.warm_start_decoder(theirs, config_changes=dict(tie_word_embeddings=True))
    tied = bert()
    decoder = hf_tx.warm_start_decoder(tied, config_changes=dict(tie_word_embeddings=False))
    assert torch.equal(decoder.lm_head.weight, decoder.model.embed_tokens.weight)
    assert decoder.lm_head.weight is not decoder.model.embed_tokens.weight


# ---------------------------------------------------------------------------------------------------- encoder-decoder
def test_bert_on_both_sides(tmp_path: Any) -> None:
    theirs = bert()
    model, info = hf_tx.warm_start_encoder_decoder(theirs, config_changes=START, output_loading_info=True)
    assert parts(info["missing_keys"]) == {"cross_mixer", "cross_norm"}
    assert all(name.startswith("transform.") for name in info["unexpected_keys"])
    source = hf_tx.from_hf(theirs)
    for stack in (model.model.encoder, model.model.decoder):
        kept = stack.state_dict()
        assert all(torch.equal(weight, kept[name]) for name, weight in source.model.state_dict().items())
    assert model.model.encoder.embed_tokens.weight is model.model.decoder.embed_tokens.weight is model.lm_head.weight
    text = tokens(2, 9) % VOCABULARY
    assert_close(model.model.encoder(text).last_hidden_state, source.model(text).last_hidden_state)
    model.save_pretrained(tmp_path)
    reloaded = hf.AutoModelForSeq2SeqLM.from_pretrained(tmp_path)
    assert_close(reloaded(text, labels=text).logits, model(text, labels=text).logits)
    assert model.generate(text, max_new_tokens=3, do_sample=False).shape == (2, 4)
    model.train()(text, labels=text).loss.backward()
    assert model.model.decoder.layers[0].cross_mixer.k_proj.weight.grad.abs().sum() > 0


def test_what_the_decoder_adds_at_first_is_its_attention_to_the_encoder_only() -> None:
    """With an attention that gives nothing, it computes what the encoder does as a decoder."""
    theirs = bert()
    model = hf_tx.warm_start_encoder_decoder(theirs, config_changes=START)
    with torch.no_grad():
        for layer in model.model.decoder.layers:
            layer.cross_mixer.o_proj.weight.zero_()
            layer.cross_mixer.o_proj.bias.zero_()
            layer.cross_norm = torch.nn.Identity()
    text = tokens(2, 9) % VOCABULARY
    expected = hf_tx.warm_start_decoder(theirs)(text).logits
    assert_close(model(text, decoder_input_ids=text).logits, expected)


def test_two_sources_of_two_sizes() -> None:
    decoder = hf.GPT2LMHeadModel(hf.GPT2Config(vocab_size=40, n_positions=64, n_embd=16, n_layer=1, n_head=2))
    model, info = hf_tx.warm_start_encoder_decoder(
        bert(), decoder, config_changes=START | dict(decoder_mixers="linear"), output_loading_info=True
    )
    assert parts(info["missing_keys"]) == {"cross_mixer", "cross_norm"}
    assert {"encoder.lm_head.bias", "encoder.transform.dense.bias"} <= set(info["unexpected_keys"])
    assert not model.config.share_embeddings
    assert model.model.decoder.layers[0].cross_mixer.k_proj.in_features == STANDARD["hidden_size"]
    assert torch.equal(model.lm_head.weight, decoder.lm_head.weight)
    assert model.lm_head.weight is model.model.decoder.embed_tokens.weight
    with pytest.raises(ValueError, match="embed_tokens.weight would be tied, but differ in the source: set"):
        hf_tx.warm_start_encoder_decoder(bert(), bert(attention_probs_dropout_prob=0.0, tie_word_embeddings=False),
                                         config_changes=dict(tie_word_embeddings=True))  # fmt: skip


def test_the_encoder_of_another_encoder_decoder_starts_one() -> None:
    other = build("encoder_decoder", head="lm", position_type="relative")
    model, info = hf_tx.warm_start_encoder_decoder(other.get_encoder(), output_loading_info=True)
    assert parts(info["missing_keys"]) == {"cross_mixer", "cross_norm"} | (
        {"lm_head.bias"} & set(info["missing_keys"])
    )
    assert model.config.decoder.relative_attention_num_buckets == 4
    assert model.config.encoder.relative_attention_num_buckets == 8


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (3, "source is a int"),
        (lambda: build("decoder"), "encoder is a TxDecoderModel: it must be an encoder"),
        (lambda: build("encoder_decoder"), "encoder is a TxEncoderDecoderModel, which has two stacks: pass one"),
    ],
)
def test_sources_that_are_no_encoder(source: Any, message: str) -> None:
    for start in (hf_tx.warm_start_decoder, hf_tx.warm_start_encoder_decoder):
        with pytest.raises(ValueError, match=message):
            start(source() if callable(source) else source)


def test_changes_that_do_not_fit() -> None:
    with pytest.raises(ValueError, match="TxDecoderConfig has no field 'mixer'. Did you mean 'mixers'"):
        hf_tx.warm_start_decoder(bert(), config_changes=dict(mixer="full"))
    with pytest.raises(ValueError, match="has the shape .* config_changes cannot change sizes"):
        hf_tx.warm_start_decoder(bert(), config_changes=dict(vocab_size=VOCABULARY + 1))
    electra = hf.ElectraForMaskedLM(hf.ElectraConfig(**STANDARD, embedding_size=16))
    with pytest.raises(StrictDataclassError, match="embedding_size = 16: a tied head needs hidden_size = 32; set "):
        hf_tx.warm_start_decoder(electra)
