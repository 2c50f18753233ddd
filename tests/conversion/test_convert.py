# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""The two functions, whatever the family: sources, changes, storage, and the way back."""

import gc
from typing import Any

import pytest
import torch
import transformers as hf
from peers.encoders import ENCODERS
from peers.parity import build, randomise
from peers.tables import STANDARD, VOCABULARY
from torch import nn

import hf_tx
from hf_tx.conversion import NotExpressible

TOKENS = torch.randint(3, VOCABULARY, (2, 9), generator=torch.Generator().manual_seed(0))


def llama(cls: Any = hf.LlamaForCausalLM, **changes: Any) -> Any:
    model = cls(hf.LlamaConfig(**STANDARD | changes)).eval()
    randomise(model)
    return model


def gpt2() -> Any:
    config = hf.GPT2Config(vocab_size=VOCABULARY, n_positions=64, n_embd=32, n_layer=2, n_head=4, pad_token_id=0)
    model = hf.GPT2LMHeadModel(config).eval()
    randomise(model)
    return model


def storages(model: nn.Module) -> set[int]:
    return {weight.untyped_storage().data_ptr() for weight in model.parameters()}


# ------------------------------------------------------------------------------------------------------------ sources
@pytest.mark.parametrize("make", [llama, gpt2], ids=["llama", "gpt2"])
@pytest.mark.parametrize("shard", ["5GB", "20KB"], ids=["one_file", "shards"])
def test_a_folder_gives_what_the_model_gives(make: Any, shard: str, tmp_path: Any) -> None:
    theirs = make()
    theirs.generation_config.max_new_tokens = 5
    theirs.save_pretrained(tmp_path, max_shard_size=shard)
    assert len(list(tmp_path.glob("*.safetensors"))) == (1 if shard == "5GB" else len(list(tmp_path.glob("*-of-*"))))
    ours, expected = hf_tx.from_hf(tmp_path), hf_tx.from_hf(theirs)
    assert type(ours) is type(expected)
    for name, weight in expected.state_dict().items():
        assert torch.equal(ours.state_dict()[name], weight), name
        assert ours.state_dict()[name].is_contiguous()
    assert ours.config.name_or_path == str(tmp_path)
    assert ours.generation_config.max_new_tokens == 5
    torch.testing.assert_close(ours(TOKENS).logits, theirs(TOKENS).logits)


def test_a_folder_is_not_held_twice(tmp_path: Any, monkeypatch: Any) -> None:
    """When the new model is built, no tensor that was laid out anew is in the memory of the old one any more."""
    gpt2().save_pretrained(tmp_path)
    sizes: dict[str, int] = {}
    load = hf_tx.TxDecoderForCausalLM.from_pretrained.__func__

    def held() -> dict[int, int]:
        """Storages in memory, and their bytes."""
        storages = [
            tensor.untyped_storage()
            for tensor in gc.get_objects()
            if type(tensor) in (torch.Tensor, nn.Parameter) and tensor.device.type == "cpu" and tensor.numel() > 1000
        ]
        return {storage.data_ptr(): storage.nbytes() for storage in storages}

    def watch(cls: Any, *args: Any, **kwargs: Any) -> Any:
        wanted = {tensor.untyped_storage().data_ptr() for tensor in kwargs["state_dict"].values()}
        new = held().items() - others.items()
        sizes["other"] = sum(size for pointer, size in new if pointer not in wanted and pointer)
        return load(cls, *args, **kwargs)

    before = hf_tx.from_hf(tmp_path)  # fills caches
    del before
    others = held()
    monkeypatch.setattr(hf_tx.TxDecoderForCausalLM, "from_pretrained", classmethod(watch))
    model = hf_tx.from_hf(tmp_path)
    assert sizes["other"] < 0.1 * sum(weight.nbytes for weight in model.parameters())


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (3, "source is a int"),
        (nn.Linear(2, 2), "source is a Linear"),
    ],
)
def test_sources_that_are_none(source: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        hf_tx.from_hf(source)


def test_a_model_of_hf_tx_is_no_source() -> None:
    with pytest.raises(ValueError, match="is a model of hf_tx already"):
        hf_tx.from_hf(hf_tx.from_hf(llama()))


def test_a_model_without_weights_is_no_source() -> None:
    with torch.device("meta"):
        empty = hf.LlamaForCausalLM(hf.LlamaConfig(**STANDARD))
    with pytest.raises(ValueError, match="has no weights"):
        hf_tx.from_hf(empty)


def test_a_folder_that_names_no_architecture(tmp_path: Any) -> None:
    hf.LlamaConfig(**STANDARD).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="names no architectures"):
        hf_tx.from_hf(tmp_path)


def test_a_folder_is_refused_before_its_weights_are_read(tmp_path: Any) -> None:
    config = hf.BertConfig(**STANDARD, is_decoder=True, architectures=["BertForMaskedLM"])
    config.save_pretrained(tmp_path)  # there are no weights
    with pytest.raises(NotExpressible, match="is_decoder = True"):
        hf_tx.from_hf(tmp_path)


def test_a_tensor_without_a_rule() -> None:
    theirs = llama()
    theirs.model.layers[1].self_attn.gate = nn.Linear(2, 2)
    with pytest.raises(ValueError, match=r"llama: no rule uses \['model.layers.1.self_attn.gate.weight'"):
        hf_tx.from_hf(theirs)


def test_a_tensor_that_is_missing() -> None:
    theirs = llama()
    theirs.model.norm = nn.Identity()
    with pytest.raises(ValueError, match=r"llama: no tensor of the source fills \['model.norm.weight'\]"):
        hf_tx.from_hf(theirs)


# ------------------------------------------------------------------------------------------- storage, dtype, backend
def test_weights_are_copied_unless_told_otherwise() -> None:
    theirs = llama()
    assert not storages(theirs) & storages(hf_tx.from_hf(theirs))
    assert storages(hf_tx.from_hf(theirs, copy=False)) == storages(theirs)


def test_shared_weights_are_trained_together() -> None:
    theirs = gpt2()
    ours = hf_tx.from_hf(theirs, copy=False)
    with torch.no_grad():
        ours.model.layers[0].mixer.v_proj.weight.zero_()
    assert not theirs.transformer.h[0].attn.c_attn.weight[:, 64:].any()


def test_the_source_stays_as_it_is() -> None:
    theirs = gpt2()
    before = {name: tensor.clone() for name, tensor in theirs.state_dict().items()}
    config = theirs.config.to_dict()
    hf_tx.from_hf(theirs, mixers="sliding", config_changes=dict(sliding_window=4))
    assert all(torch.equal(tensor, theirs.state_dict()[name]) for name, tensor in before.items())
    assert theirs.config.to_dict() == config


def test_the_dtype() -> None:
    theirs = llama().to(torch.bfloat16)
    assert hf_tx.from_hf(theirs).dtype == torch.bfloat16
    wide = hf_tx.from_hf(theirs, dtype=torch.float32)
    assert {weight.dtype for weight in wide.parameters()} == {torch.float32}
    assert hf_tx.to_hf(wide).dtype == torch.float32


def test_the_dtype_of_a_folder(tmp_path: Any) -> None:
    llama().to(torch.bfloat16).save_pretrained(tmp_path)
    assert hf_tx.from_hf(tmp_path).dtype == torch.bfloat16
    assert hf_tx.from_hf(tmp_path, dtype="float32").dtype == torch.float32


def test_the_backend() -> None:
    theirs = llama()
    for backend in ("eager", "sdpa"):
        theirs.set_attn_implementation(backend)
        assert hf_tx.from_hf(theirs).config._attn_implementation == backend
    assert hf_tx.from_hf(theirs, attn_implementation="eager").config._attn_implementation == "eager"


def test_a_backend_that_cannot_compute_a_layer_here_gives_way() -> None:
    theirs = llama()
    theirs.set_attn_implementation("sdpa")
    ours = hf_tx.from_hf(theirs, config_changes=dict(attn_logit_softcapping=2.0))
    assert ours.config._attn_implementation == "eager"


def test_the_mode() -> None:
    assert not hf_tx.from_hf(llama()).training
    assert hf_tx.from_hf(llama().train()).training
    assert hf_tx.to_hf(hf_tx.from_hf(llama().train())).training


def test_the_encoder_of_an_encoder_decoder_alone(tmp_path: Any) -> None:
    config = hf.T5Config(vocab_size=VOCABULARY, d_model=32, d_kv=8, d_ff=40, num_layers=2, num_heads=4)
    theirs = hf.T5EncoderModel(config).eval()
    randomise(theirs)
    theirs.save_pretrained(tmp_path)
    ours = hf_tx.from_hf(tmp_path)
    assert type(ours) is hf_tx.TxEncoderModel
    torch.testing.assert_close(ours(TOKENS).last_hidden_state, theirs(TOKENS).last_hidden_state)
    assert type(hf_tx.to_hf(ours)) is hf.T5EncoderModel
    config.is_decoder = True
    with pytest.raises(NotExpressible, match="is_decoder = True"):
        hf_tx.from_hf(hf.T5EncoderModel(config))


@pytest.mark.parametrize("pools", [True, False])
@pytest.mark.parametrize("cls", [hf.BertModel, hf.NomicBertModel])  # the default of one is True, of the other False
def test_a_pooling_layer_is_there_if_the_source_has_one(cls: Any, pools: bool) -> None:
    theirs = cls(cls.config_class(**STANDARD), add_pooling_layer=pools)
    ours = hf_tx.from_hf(theirs)
    assert (ours.pooler is not None) == pools
    assert (hf_tx.to_hf(ours).pooler is not None) == pools


# ----------------------------------------------------------------------------------------------------------- changes
def test_other_attention_keeps_all_weights() -> None:
    theirs = llama()
    changes = dict(sliding_window=4)
    ours, info = hf_tx.from_hf(theirs, mixers="sliding,full", config_changes=changes, output_loading_info=True)
    assert ours.config.mixers == ["sliding", "full", "sliding"]
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    plain = hf_tx.from_hf(theirs)
    assert all(torch.equal(weight, plain.state_dict()[name]) for name, weight in ours.state_dict().items())
    short = TOKENS[:, :4]  # within the window
    torch.testing.assert_close(ours(short).logits, theirs(short).logits)
    assert not torch.allclose(ours(TOKENS).logits, theirs(TOKENS).logits, atol=0.1)


def test_other_mixers_keep_what_they_share_and_say_what_is_new() -> None:
    ours, info = hf_tx.from_hf(llama(), mixers="gated_linear,full", output_loading_info=True)
    plain = hf_tx.from_hf(llama())
    new = set(info["missing_keys"])
    assert new
    assert all(name.startswith(("model.layers.0.mixer", "model.layers.2.mixer")) for name in new)
    kept = [name for name in plain.state_dict() if name in ours.state_dict()]
    assert "model.layers.0.mixer.q_proj.weight" in kept
    assert all(torch.equal(plain.state_dict()[name], ours.state_dict()[name]) for name in kept)
    assert torch.isfinite(ours(TOKENS).logits).all()


def test_what_has_no_place_is_reported() -> None:
    _, info = hf_tx.from_hf(llama(), mixers="lstm,full", output_loading_info=True)
    assert "model.layers.0.mixer.q_proj.weight" in info["unexpected_keys"]


def test_mixers_of_an_encoder_decoder_are_those_of_both_stacks() -> None:
    config = hf.T5Config(
        vocab_size=VOCABULARY, d_model=32, d_kv=8, d_ff=40, num_layers=2, num_heads=4, decoder_start_token_id=0
    )
    theirs = hf.T5ForConditionalGeneration(config)
    changes = dict(encoder_sliding_window=3, decoder_sliding_window=4)
    ours = hf_tx.from_hf(theirs, mixers="sliding", config_changes=changes)
    assert ours.config.encoder.mixers == ours.config.decoder.mixers == ["sliding", "sliding"]
    assert (ours.config.encoder.sliding_window, ours.config.decoder.sliding_window) == (3, 4)


def test_misspelt_changes() -> None:
    with pytest.raises(ValueError, match="has no field 'sliding_windw'. Did you mean 'sliding_window'"):
        hf_tx.from_hf(llama(), config_changes=dict(sliding_windw=4))


# ---------------------------------------------------------------------------------------------------------- way back
def test_what_was_saved_comes_back(tmp_path: Any) -> None:
    theirs = build(ENCODERS["bert_classifier"])
    hf_tx.from_hf(theirs).save_pretrained(tmp_path)
    ours = hf_tx.TxEncoderForSequenceClassification.from_pretrained(tmp_path)
    back = hf_tx.to_hf(ours)
    assert back.config.id2label == theirs.config.id2label
    assert all(torch.equal(tensor, back.state_dict()[name]) for name, tensor in theirs.state_dict().items())


def test_the_origin_is_provenance_that_no_model_reads() -> None:
    ours = hf_tx.from_hf(llama())
    assert ours.config.origin["model_type"] == "llama"
    assert ours.config.origin["architecture"] == "LlamaForCausalLM"
    expected = ours(TOKENS).logits
    config = ours.config.to_dict() | {"origin": None}
    fresh = hf_tx.TxDecoderForCausalLM(hf_tx.TxDecoderConfig.from_dict(config)).eval()
    fresh.load_state_dict(ours.state_dict())
    assert torch.equal(fresh(TOKENS).logits, expected)


def test_what_was_trained_and_resized_goes_back() -> None:
    ours = hf_tx.from_hf(llama(tie_word_embeddings=True))
    ours.resize_token_embeddings(VOCABULARY + 5, mean_resizing=False)
    back = hf_tx.to_hf(ours)
    assert back.config.vocab_size == VOCABULARY + 5
    assert back.lm_head.weight is back.model.embed_tokens.weight
    torch.testing.assert_close(back(TOKENS).logits, ours(TOKENS).logits)


def test_a_window_goes_where_the_family_has_one() -> None:
    ours = hf_tx.from_hf(llama(), mixers="sliding", config_changes=dict(sliding_window=4))
    with pytest.raises(NotExpressible, match=r"not expressible: (mixers|sliding_window) = .*: a llama has"):
        hf_tx.to_hf(ours)
    mistral = hf_tx.to_hf(ours, "mistral")
    assert mistral.config.sliding_window == 4
    torch.testing.assert_close(mistral(TOKENS).logits, ours(TOKENS).logits)


def test_a_model_that_was_never_converted() -> None:
    config = hf_tx.TxDecoderConfig(
        **STANDARD, num_key_value_heads=2, qk_norm=True, mixers="sliding,full", sliding_window=4
    )
    ours = hf_tx.TxDecoderForCausalLM(config).eval()
    randomise(ours)
    with pytest.raises(ValueError, match="was not converted: name its family by model_type"):
        hf_tx.to_hf(ours)
    theirs = hf_tx.to_hf(ours, "qwen3")
    assert theirs.config.layer_types == ["sliding_attention", "full_attention", "sliding_attention"]
    torch.testing.assert_close(theirs(TOKENS).logits, ours(TOKENS).logits)
    with pytest.raises(NotExpressible, match="attention_bias = False: a qwen2 has True there"):
        hf_tx.to_hf(ours, "qwen2")
    with pytest.raises(NotExpressible, match="model_type = 'bert': it is a hf_tx_encoder"):
        hf_tx.to_hf(ours, "bert")


def test_names_that_are_not_known() -> None:
    ours = hf_tx.from_hf(llama())
    with pytest.raises(ValueError, match="model_type = 'lllama': is not known. Did you mean 'llama'"):
        hf_tx.to_hf(ours, "lllama")
    with pytest.raises(ValueError, match="is no model of hf_tx"):
        hf_tx.to_hf(llama())
