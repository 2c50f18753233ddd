# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""The two functions, whatever the family: sources, changes, storage, and the way back."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
import transformers as hf
from peers.decoders import CAUSAL
from peers.encoder_decoders import SEQ2SEQ
from peers.encoders import ENCODERS
from peers.parity import assert_close, build, randomise
from peers.tables import STANDARD, VOCABULARY
from safetensors.torch import load_file, save_file
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


def test_files_with_the_names_of_the_table_are_read_without_a_model_of_theirs(tmp_path: Any, monkeypatch: Any) -> None:
    peers = [CAUSAL["stablelm_qk_norm"], ENCODERS["bert_masked_lm"], SEQ2SEQ["t5"]]
    for theirs in (llama(), gpt2(), *map(build, peers)):
        folder = tmp_path / type(theirs).__name__
        theirs.save_pretrained(folder)
        expected = hf_tx.from_hf(theirs)
        with monkeypatch.context() as patch:
            patch.setattr(type(theirs), "from_pretrained", None)
            ours, info = hf_tx.from_hf(folder, output_loading_info=True)
        assert not info["missing_keys"] | info["unexpected_keys"]
        assert ours.state_dict().keys() == expected.state_dict().keys()
        assert all(torch.equal(weight, ours.state_dict()[name]) for name, weight in expected.state_dict().items())
        assert settings(ours) == settings(expected)
        assert (
            ours.generation_config.to_dict() == expected.generation_config.to_dict() if ours.can_generate() else True
        )


def settings(model: Any) -> dict[str, Any]:
    """Return the config of a model but for what says which file it is from."""
    config = model.config.to_dict() | {"_name_or_path": None}
    of_files = {"_name_or_path", "architectures", "dtype"}
    origin = config["origin"]
    return config | {"origin": origin | {"config": {k: v for k, v in origin["config"].items() if k not in of_files}}}


OLD_NAMES = {
    "bert_masked_lm": {r"LayerNorm\.weight": "LayerNorm.gamma", r"LayerNorm\.bias": "LayerNorm.beta"},
    "gpt2": {r"^transformer\.": ""},
    "t5": {},
    "roberta_masked_lm": {},
}
OLD_BUFFERS = {
    "bert_masked_lm": {
        "bert.embeddings.position_ids": torch.arange(64)[None],
        "cls.seq_relationship.bias": torch.ones(2),
    },
    "gpt2": {"h.0.attn.bias": torch.ones(1, 1, 64, 64), "h.0.attn.masked_bias": torch.tensor(-1e4)},
    "t5": {"decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight": torch.ones(8, 4)},
    "roberta_masked_lm": {
        "roberta.embeddings.position_ids": torch.arange(66)[None],
        "roberta.pooler.dense.bias": torch.ones(32),
    },
}


@pytest.mark.parametrize("name", OLD_NAMES)
def test_files_of_old_versions(name: str, tmp_path: Any) -> None:
    """Other names, and tensors that transformers leaves out: what it loads is what is converted."""
    theirs = build((ENCODERS | SEQ2SEQ | CAUSAL)[name])
    theirs.save_pretrained(tmp_path)
    file = tmp_path / "model.safetensors"
    state = {**load_file(file), **OLD_BUFFERS[name]}
    for new, old in OLD_NAMES[name].items():
        state = {re.sub(new, old, key): tensor for key, tensor in state.items()}
    save_file(state, file, metadata={"format": "pt"})
    ours, expected = hf_tx.from_hf(tmp_path), hf_tx.from_hf(theirs)
    assert all(torch.equal(weight, ours.state_dict()[key]) for key, weight in expected.state_dict().items())
    assert settings(ours) == settings(expected)


@pytest.mark.parametrize("equal", [True, False])
def test_a_head_that_the_config_ties_and_the_file_holds(equal: bool, tmp_path: Any) -> None:
    theirs = gpt2()
    theirs.save_pretrained(tmp_path)
    file = tmp_path / "model.safetensors"
    state = load_file(file)
    embeddings = state["transformer.wte.weight"]
    save_file(state | {"lm_head.weight": embeddings.clone() if equal else embeddings + 1}, file, {"format": "pt"})
    ours = hf_tx.from_hf(tmp_path)
    assert ours.config.tie_word_embeddings is equal
    assert torch.equal(ours.lm_head.weight, embeddings if equal else embeddings + 1)
    theirs = hf.GPT2LMHeadModel.from_pretrained(tmp_path)
    torch.testing.assert_close(ours(TOKENS).logits, theirs(TOKENS).logits)


def test_a_tensor_that_no_file_holds_is_not_drawn_at_random(tmp_path: Any) -> None:
    llama().save_pretrained(tmp_path)
    file = tmp_path / "model.safetensors"
    state = load_file(file)
    del state["model.layers.1.mlp.up_proj.weight"]
    save_file(state, file, metadata={"format": "pt"})
    with pytest.raises(ValueError, match=r"the source has no weights for \['model.layers.1.mlp.up_proj.weight'\]"):
        hf_tx.from_hf(tmp_path)


def test_a_pooling_layer_that_no_file_holds_is_left_out(tmp_path: Any) -> None:
    theirs = hf.BertModel(hf.BertConfig(**STANDARD), add_pooling_layer=False)
    theirs.save_pretrained(tmp_path)
    assert hf_tx.from_hf(tmp_path).pooler is None


MEASURE = """
import re, sys
import hf_tx
def memory(what):
    return int(re.search(what + r":\\s+(\\d+)", open("/proc/self/status").read())[1]) / 1024
before = memory("VmRSS"), memory("RssAnon")
for copy in (False, True):
    model = hf_tx.from_hf(sys.argv[1], copy=copy)
    assert all(weight.is_contiguous() for weight in model.parameters()) is copy
    print(memory("RssAnon") - before[1])
    del model
print(memory("VmHWM") - before[0])
"""


@pytest.mark.distributed
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the memory of a process is asked of Linux")
def test_a_folder_is_not_held_twice(tmp_path: Any) -> None:
    """A GPT-2, whose matrices are laid out anew, takes the memory of its weights and a shard; views take none."""
    theirs = hf.GPT2LMHeadModel(hf.GPT2Config(vocab_size=256, n_positions=64, n_embd=512, n_layer=6, n_head=4))
    theirs.save_pretrained(tmp_path, max_shard_size="10MB")
    weights, shard, other = sum(weight.nbytes for weight in theirs.parameters()) / 2**20, 10, 20
    run = subprocess.run([sys.executable, "-c", MEASURE, str(tmp_path)], capture_output=True, text=True, check=True)
    of_views, of_copies, peak = map(float, run.stdout.split())
    assert of_views < other
    assert of_copies < 1.1 * weights + other
    assert peak < 1.1 * weights + shard + other


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
    with pytest.raises(ValueError, match="source is already a model of hf_tx"):
        hf_tx.from_hf(hf_tx.from_hf(llama()))


def test_adapters_are_to_be_merged_first(tmp_path: Any) -> None:
    base = llama()
    base.save_pretrained(tmp_path)
    adapted = peft.get_peft_model(base, peft.LoraConfig(target_modules=["q_proj"], init_lora_weights=False))
    expected = adapted(TOKENS).logits
    adapted.save_pretrained(tmp_path)
    for source, message in [
        (adapted, "source is a PeftModel: .*; merge its adapters"),
        (base, "source has adapters in its layers: merge them first"),
        (tmp_path, "contains adapters: merge them"),
    ]:
        with pytest.raises(ValueError, match=message):
            hf_tx.from_hf(source)
    torch.testing.assert_close(hf_tx.from_hf(adapted.merge_and_unload())(TOKENS).logits, expected)


def test_code_of_a_family_that_is_not_known_is_not_run(tmp_path: Any) -> None:
    """Nor is anybody asked whether to."""
    (tmp_path / "configuration.py").write_text("raise SystemExit")
    (tmp_path / "config.json").write_text('{"model_type": "x", "auto_map": {"AutoConfig": "configuration.X"}}')
    with pytest.raises(NotExpressible, match="model_type = 'x': model types that can be converted are"):
        hf_tx.from_hf(tmp_path)


def test_a_tensor_of_another_shape_than_the_config_says(tmp_path: Any) -> None:
    theirs = llama()
    theirs.model.layers[1].mlp.up_proj = nn.Linear(32, 8, bias=False)
    theirs.save_pretrained(tmp_path)
    for source in (theirs, tmp_path):
        with pytest.raises(
            ValueError, match=r"layers.1.mlp.up_proj.weight of the source has the shape \(8, 32\), but"
        ):
            hf_tx.from_hf(source)


def test_a_model_without_weights_is_no_source() -> None:
    with torch.device("meta"):
        empty = hf.LlamaForCausalLM(hf.LlamaConfig(**STANDARD))
    with pytest.raises(ValueError, match="has no weights"):
        hf_tx.from_hf(empty)


def test_a_folder_that_names_no_architecture(tmp_path: Any) -> None:
    hf.LlamaConfig(**STANDARD).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="config.json has no architectures"):
        hf_tx.from_hf(tmp_path)


def test_a_folder_is_refused_before_its_weights_are_read(tmp_path: Any) -> None:
    config = hf.BertConfig(**STANDARD, is_decoder=True, architectures=["BertForMaskedLM"])
    config.save_pretrained(tmp_path)  # there are no weights
    with pytest.raises(NotExpressible, match="is_decoder = True"):
        hf_tx.from_hf(tmp_path)


def test_a_tensor_without_a_rule() -> None:
    theirs = llama()
    theirs.model.layers[1].self_attn.gate = nn.Linear(2, 2)
    with pytest.raises(ValueError, match=r"llama: the weights \['model.layers.1.self_attn.gate.weight'"):
        hf_tx.from_hf(theirs)


def edit_weights(folder: Path, edit: Any) -> Path:
    """Change the weights of a saved model by a function of its state dict."""
    file = folder / "model.safetensors"
    save_file(edit(load_file(file)), file, metadata={"format": "pt"})
    return folder


@pytest.mark.parametrize(
    ("name", "tensor"),
    [
        ("model.layers.0.self_attn.q_proj.bias", torch.ones(32)),
        ("model.layers.9.mlp.up_proj.weight", torch.ones(48, 32)),
        ("lm_head.bias", torch.ones(VOCABULARY)),
        ("mtp.layers.0.norm.weight", torch.ones(32)),
    ],
    ids=["bias", "layer", "bias_of_head", "unknown"],
)
@pytest.mark.parametrize("prefix", ["model.", ""], ids=["as_saved", "base_model"])
def test_a_tensor_more_than_the_config_says(name: str, tensor: Any, prefix: str, tmp_path: Path) -> None:
    """Wherever the names of the file lead: read as files, or as transformers loads them."""
    llama(tie_word_embeddings=True).save_pretrained(tmp_path)
    name = name.replace("model.", prefix)
    edit_weights(
        tmp_path, lambda state: {key.replace("model.", prefix): value for key, value in state.items()} | {name: tensor}
    )
    message = rf"llama: the weights \['{name}'\] of the source are not used: a LlamaForCausalLM .*To leave"
    with pytest.raises(ValueError, match=message):
        hf_tx.from_hf(tmp_path)
    hf_tx.from_hf(hf.LlamaForCausalLM.from_pretrained(tmp_path))  # the way out


KINDS = ("weight", "bias")


def test_weights_of_other_heads_are_told(tmp_path: Path, caplog: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(hf.utils.logging.get_logger("hf_tx"), "propagate", True)
    theirs = hf.BertForPreTraining(hf.BertConfig(**STANDARD)).eval()
    randomise(theirs)
    theirs.config.architectures = ["BertForPreTraining"]
    theirs.save_pretrained(tmp_path)
    with pytest.raises(NotExpressible, match="pass one of them as architecture"):
        hf_tx.from_hf(tmp_path)
    ours, info = hf_tx.from_hf(tmp_path, architecture="BertForMaskedLM", output_loading_info=True)
    others = {
        f"{part}.{kind}" for part in ("bert.pooler.dense", "cls.seq_relationship") for kind in ("weight", "bias")
    }
    assert {name for name, why in info["dropped_keys"].items() if "another head" in why} == others
    torch.testing.assert_close(ours(TOKENS).logits, theirs(TOKENS).prediction_logits)
    assert "cls.seq_relationship.bias" in caplog.text
    assert "were not loaded into BertForMaskedLM" in caplog.text

    base, info = hf_tx.from_hf(tmp_path, architecture="BertModel", output_loading_info=True)
    assert {name.split(".")[0] for name in info["dropped_keys"]} == {"cls"}
    torch.testing.assert_close(base(TOKENS).pooler_output, theirs.bert(TOKENS).pooler_output)


@pytest.mark.parametrize("name", ["llama", "t5"])
def test_a_class_is_chosen(name: str, tmp_path: Path) -> None:
    theirs = llama() if name == "llama" else build(SEQ2SEQ["t5"])
    theirs.save_pretrained(tmp_path)
    chosen = {"llama": ("LlamaModel", "TxDecoderModel"), "t5": ("T5EncoderModel", "TxEncoderModel")}[name]
    for architecture in chosen:
        ours = hf_tx.from_hf(tmp_path, architecture=architecture)
        assert type(ours).__name__ == chosen[1]
        expected = theirs.get_encoder()(TOKENS) if name == "t5" else theirs.model(TOKENS)
        torch.testing.assert_close(ours(TOKENS).last_hidden_state, expected.last_hidden_state)
    with pytest.raises(NotExpressible, match="NoModel"):
        hf_tx.from_hf(tmp_path, architecture="NoModel")
    with pytest.raises(ValueError, match=r"source\.base_model"):
        hf_tx.from_hf(theirs, architecture=chosen[0])


def test_a_head_that_is_missing_has_a_way_out(tmp_path: Path) -> None:
    theirs = llama()
    theirs.save_pretrained(tmp_path)
    edit_weights(tmp_path, lambda state: {key: value for key, value in state.items() if key != "lm_head.weight"})
    with pytest.raises(
        ValueError, match=r"weights for \['lm_head.weight'\]; pass architecture = 'LlamaModel' to load"
    ):
        hf_tx.from_hf(tmp_path)
    ours = hf_tx.from_hf(tmp_path, architecture="LlamaModel")
    torch.testing.assert_close(ours(TOKENS).last_hidden_state, theirs.model(TOKENS).last_hidden_state)


@pytest.mark.parametrize("names", ["as_saved", "old"])
def test_names_of_wrappers_are_no_part_of_a_source(names: str, tmp_path: Path) -> None:
    theirs = llama()
    theirs.save_pretrained(tmp_path)
    base = "model." if names == "as_saved" else ""
    edit_weights(
        tmp_path, lambda state: {f"_orig_mod.{key.replace('model.', base)}": value for key, value in state.items()}
    )
    torch.testing.assert_close(hf_tx.from_hf(tmp_path)(TOKENS).logits, theirs(TOKENS).logits)
    with pytest.raises(ValueError, match=r"pass the model inside, source\._orig_mod"):
        hf_tx.from_hf(torch.compile(theirs))
    theirs.model.layers[0] = torch.compile(theirs.model.layers[0], backend="eager")
    ours = hf_tx.from_hf(theirs)
    assert torch.equal(ours.model.layers[0].mlp.up_proj.weight, theirs.model.layers[0].mlp.up_proj.weight)
    with pytest.raises(ValueError, match=r"pass the model inside, model\._orig_mod"):
        hf_tx.to_hf(torch.compile(ours))
    ours.model = torch.compile(ours.model, backend="eager")
    assert torch.equal(hf_tx.to_hf(ours).model.embed_tokens.weight, theirs.model.embed_tokens.weight)


def test_norms_of_heads_of_which_one_is_missing_or_too_many() -> None:
    theirs = build(CAUSAL["stablelm_qk_norm"])
    norms = theirs.model.layers[1].self_attn.k_layernorm.norms
    norms.append(nn.LayerNorm(8, bias=False))
    with pytest.raises(ValueError, match=r"the weights \['model.layers.1.self_attn.k_layernorm.norms.2.weight'"):
        hf_tx.from_hf(theirs)
    theirs.model.layers[1].self_attn.k_layernorm.norms = norms[:1]
    with pytest.raises(ValueError, match=r"the source has no weights for \['model.layers.1.mixer.k_norm.weight'"):
        hf_tx.from_hf(theirs)


def test_a_tensor_that_is_missing() -> None:
    theirs = llama()
    theirs.model.norm = nn.Identity()
    with pytest.raises(ValueError, match=r"llama: the source has no weights for \['model.norm.weight'\]"):
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


@pytest.mark.parametrize("given", [True, False], ids=["state", "no_state"])
def test_views_of_a_file_are_trained_and_saved(given: bool, tmp_path: Any) -> None:
    """The matrices of GPT-2 are transposed views of one tensor; the file stays as it is."""
    gpt2().save_pretrained(tmp_path / "theirs")
    before = (tmp_path / "theirs" / "model.safetensors").read_bytes()
    ours = hf_tx.from_hf(tmp_path / "theirs", copy=False)
    ours(TOKENS, labels=TOKENS).loss.backward()
    torch.optim.SGD(ours.parameters(), lr=0.1).step()
    ours.save_pretrained(tmp_path / "ours", state_dict=ours.state_dict() if given else None)
    again = hf_tx.TxDecoderForCausalLM.from_pretrained(tmp_path / "ours")
    assert again.lm_head.weight is again.model.embed_tokens.weight
    torch.testing.assert_close(again(TOKENS).logits, ours(TOKENS).logits)
    assert (tmp_path / "theirs" / "model.safetensors").read_bytes() == before


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


def test_weights_of_several_dtypes_are_not_rounded_silently() -> None:
    theirs = llama().to(torch.bfloat16)
    theirs.model.norm.float()
    with pytest.raises(
        ValueError, match="weights in torch.bfloat16 and torch.float32, but a converted model has one dtype: pass"
    ):
        hf_tx.from_hf(theirs)
    assert torch.equal(hf_tx.from_hf(theirs, dtype="float32").model.norm.weight, theirs.model.norm.weight)


def test_a_dtype_that_is_none() -> None:
    with pytest.raises(ValueError, match="dtype = 'bf16': must be the name of a torch dtype, such as 'bfloat16'"):
        hf_tx.from_hf(llama(), dtype="bf16")


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


def test_changes_that_do_not_fit() -> None:
    with pytest.raises(ValueError, match=r"config_changes = \[1\]: must be a dict"):
        hf_tx.from_hf(llama(), config_changes=[1])
    message = r"embed_tokens.weight has the shape \(59, 32\) in the source, but the model needs \(60, 32\): config_"
    with pytest.raises(ValueError, match=message):
        hf_tx.from_hf(llama(), config_changes=dict(vocab_size=60))
    for tied in (True, False):
        with pytest.raises(
            ValueError, match=r"tie or untie \['lm_head.weight'\]: use tie_embeddings or untie_embeddings"
        ):
            hf_tx.from_hf(llama(tie_word_embeddings=tied), config_changes=dict(tie_word_embeddings=not tied))
    with pytest.raises(ValueError, match="has no field 'dtype'"):
        hf_tx.from_hf(llama(), config_changes=dict(dtype="float16"))
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
    with pytest.raises(ValueError, match="was not converted from another: pass the model type"):
        hf_tx.to_hf(ours)
    theirs = hf_tx.to_hf(ours, "qwen3")
    assert theirs.config.layer_types == ["sliding_attention", "full_attention", "sliding_attention"]
    torch.testing.assert_close(theirs(TOKENS).logits, ours(TOKENS).logits)
    with pytest.raises(NotExpressible, match="attention_bias = False: a qwen2 has True instead"):
        hf_tx.to_hf(ours, "qwen2")
    with pytest.raises(NotExpressible, match="model_type = 'bert': it is converted from and to hf_tx_encoder"):
        hf_tx.to_hf(ours, "bert")


def test_what_is_dropped_is_not_reported_as_missing(monkeypatch: Any) -> None:
    """An untied BERT has the bias of its head twice."""
    said: list[str] = []
    monkeypatch.setattr(hf.modeling_utils.logger, "handle", lambda record: said.append(record.getMessage()))
    ours = hf_tx.from_hf(build(ENCODERS["bert_masked_lm_untied"]))
    hf_tx.to_hf(ours)
    assert not said


def test_models_that_do_not_go_back_as_they_are() -> None:
    ours = hf_tx.from_hf(llama()).bfloat16()
    ours.model.norm.float()
    with pytest.raises(ValueError, match="weights in torch.bfloat16 and torch.float32, but a converted model has one"):
        hf_tx.to_hf(ours)
    adapted = peft.get_peft_model(ours.float(), peft.LoraConfig(target_modules="all-linear", init_lora_weights=False))
    expected = adapted(TOKENS).logits
    with pytest.raises(ValueError, match="is a PeftModel, not a model of hf_tx: merge its adapters first"):
        hf_tx.to_hf(adapted)
    with pytest.raises(ValueError, match="has adapters in its layers: merge them first"):
        hf_tx.to_hf(ours)
    assert_close(hf_tx.to_hf(adapted.merge_and_unload())(TOKENS).logits, expected, "logits")


def test_a_model_that_runs_the_code_of_its_checkpoint() -> None:
    """Its classes have the names of ours, and are others."""
    copied = type("TxDecoderForCausalLM", (hf.PreTrainedModel,), {})(hf.PreTrainedConfig())
    copied.config.model_type = "hf_tx_decoder"
    with pytest.raises(ValueError, match="not a model of hf_tx: it was loaded with trust_remote_code; import hf_tx"):
        hf_tx.to_hf(copied)


def test_names_that_are_not_known() -> None:
    ours = hf_tx.from_hf(llama())
    with pytest.raises(ValueError, match="model_type = 'lllama' is unknown. Did you mean 'llama'"):
        hf_tx.to_hf(ours, "lllama")
    with pytest.raises(ValueError, match="not a model of hf_tx"):
        hf_tx.to_hf(llama())
