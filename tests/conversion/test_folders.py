# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Whole checkpoints, and the command that converts them."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf
from huggingface_hub import ModelCard
from peers.parity import randomise
from peers.tables import STANDARD
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models, pre_tokenizers

import hf_tx
from hf_tx.cli import main

TEXT = "a b c"


@pytest.fixture(scope="module")
def source(tmp_path_factory: Any) -> Path:
    folder = tmp_path_factory.mktemp("source")
    model = hf.LlamaForCausalLM(hf.LlamaConfig(**STANDARD)).eval()
    randomise(model)
    model.generation_config.max_new_tokens = 6
    model.save_pretrained(folder)
    words = {"<pad>": 0, "<s>": 1, "</s>": 2, "a": 3, "b": 4, "c": 5, "<unk>": 6}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokens = dict(pad_token="<pad>", eos_token="</s>", model_max_length=STANDARD["max_position_embeddings"])
    hf.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **tokens).save_pretrained(folder)
    return folder


def test_there_and_back(source: Path, tmp_path: Path, capsys: Any) -> None:
    ours, back = tmp_path / "ours", tmp_path / "back"
    assert main(["convert", str(source), str(ours)]) == 0
    printed = capsys.readouterr()
    assert printed.out == f"{ours}: TxDecoderForCausalLM, 27,808 parameters, torch.float32\n"

    theirs = hf.AutoModelForCausalLM.from_pretrained(source)
    model, tokenizer = hf.AutoModelForCausalLM.from_pretrained(ours), hf.AutoTokenizer.from_pretrained(ours)
    assert type(model) is hf_tx.TxDecoderForCausalLM
    inputs = tokenizer(TEXT, return_tensors="pt")
    assert inputs["input_ids"].tolist() == [[3, 4, 5]]
    torch.testing.assert_close(model(inputs["input_ids"]).logits, theirs(inputs["input_ids"]).logits)
    assert model.generation_config.max_new_tokens == 6
    assert model.generate(**inputs).tolist() == theirs.generate(inputs["input_ids"]).tolist()
    card = ModelCard.load(ours / "README.md")
    assert card.data.to_dict() == {"library_name": "transformers", "tags": ["hf_tx"]}
    assert f"This model was converted from `{source}` (LlamaForCausalLM)" in card.text
    assert "except" not in card.text

    assert main(["convert", str(ours), str(back), "--to-hf"]) == 0
    returned = hf.AutoModelForCausalLM.from_pretrained(back)
    assert type(returned) is hf.LlamaForCausalLM
    assert all(torch.equal(tensor, returned.state_dict()[name]) for name, tensor in theirs.state_dict().items())
    assert hf.AutoTokenizer.from_pretrained(back)(TEXT)["input_ids"] == [3, 4, 5]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["back", "ours"]


def test_changes_and_dtype(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "changed"
    options = ["--mixers", "sliding,full", "--config-changes", '{"sliding_window": 4}', "--dtype", "bfloat16"]
    assert main(["convert", str(source), str(target), *options]) == 0
    model = hf.AutoModelForCausalLM.from_pretrained(target)
    assert model.config.mixers == ["sliding", "full", "sliding"]
    assert model.dtype == torch.bfloat16
    assert "'sliding_window': 4" in (target / "README.md").read_text("utf-8")


def test_a_target_that_is_there_is_left_alone(source: Path, tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "mine").write_text("x")
    assert main(["convert", str(source), str(tmp_path)]) == 2
    assert "choose a new or empty folder" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_longer_texts(source: Path, tmp_path: Path) -> None:
    assert main(["convert", str(source), str(tmp_path / "long"), "--context", "256"]) == 0
    config = hf.AutoConfig.from_pretrained(tmp_path / "long")
    assert (config.max_position_embeddings, config.rope_parameters["rope_type"]) == (256, "yarn")
    assert hf.AutoTokenizer.from_pretrained(tmp_path / "long").model_max_length == 256
    options = ["--context", "256", "--context-method", "linear"]
    assert main(["convert", str(source), str(tmp_path / "linear"), *options]) == 0
    assert hf.AutoConfig.from_pretrained(tmp_path / "linear").rope_parameters["rope_type"] == "linear"
    assert "'context': 256, 'context_method': 'linear'" in (tmp_path / "linear" / "README.md").read_text("utf-8")


CARD = """---
license: mit
language: [en, de]
base_model: owner/name
model-index: [{name: x, results: []}]
---
# It

Reads a b c.
"""


def test_what_the_card_of_the_source_says_travels_along(source: Path, tmp_path: Path) -> None:
    theirs, ours, back = (shutil.copytree(source, tmp_path / "theirs"), tmp_path / "ours", tmp_path / "back")
    (theirs / "README.md").write_text(CARD, "utf-8")
    assert main(["convert", str(theirs), str(ours)]) == 0
    assert main(["convert", str(ours), str(back), "--to-hf"]) == 0
    said = {"license": "mit", "language": ["en", "de"], "base_model": "owner/name", "library_name": "transformers"}
    assert ModelCard.load(ours / "README.md").data.to_dict() == said | {"tags": ["hf_tx"]}
    for folder in (ours, back):
        card = ModelCard.load(folder / "README.md")
        assert said.items() <= card.data.to_dict().items()
        assert card.text.rstrip().endswith(f"## Model card of `{theirs}`\n\n# It\n\nReads a b c.")


def test_added_tokens_and_the_chat_template_travel_along(source: Path, tmp_path: Path) -> None:
    theirs = shutil.copytree(source, tmp_path / "theirs")
    tokenizer = hf.AutoTokenizer.from_pretrained(theirs)
    tokenizer.add_special_tokens({"additional_special_tokens": ["<say>"]})
    tokenizer.chat_template = "{% for message in messages %}<say> {{ message.content }}{% endfor %}"
    tokenizer.save_pretrained(theirs)
    model = hf.AutoModelForCausalLM.from_pretrained(theirs)
    model.resize_token_embeddings(STANDARD["vocab_size"] + 1, mean_resizing=False)
    model.save_pretrained(theirs)
    assert main(["convert", str(theirs), str(tmp_path / "ours")]) == 0
    assert main(["convert", str(tmp_path / "ours"), str(tmp_path / "back"), "--to-hf"]) == 0
    chat = [{"role": "user", "content": "a b"}]
    expected = tokenizer.apply_chat_template(chat)["input_ids"]
    for folder in ("ours", "back"):
        again = hf.AutoTokenizer.from_pretrained(tmp_path / folder)
        assert again.apply_chat_template(chat)["input_ids"] == expected == [7, 3, 4]
        config = hf.AutoConfig.from_pretrained(tmp_path / folder)
        assert config.vocab_size == STANDARD["vocab_size"] + 1


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("tokenizer.json", b"{", "tokenizer.json: is broken or incomplete: "),
        ("README.md", b"---\na: [\n---\n", "README.md cannot be read: "),
        ("model.safetensors", b"torn", "model.safetensors: is broken or incomplete: "),
        ("config.json", b"{", "config.json: is broken or incomplete: "),
        (
            "pytorch_model.bin",
            b"PK\x03\x04",
            "pytorch_model.bin: the folder has no weights in safetensors, and pickles (",
        ),
    ],
)
def test_a_broken_file_is_named_and_nothing_is_left(
    file: str, content: bytes, message: str, source: Path, tmp_path: Path, capsys: Any
) -> None:
    shutil.copytree(source, tmp_path / "source")
    if file == "pytorch_model.bin":
        (tmp_path / "source" / "model.safetensors").unlink()
    (tmp_path / "source" / file).write_bytes(content)
    assert main(["convert", str(tmp_path / "source"), str(tmp_path / "target")]) == 2
    error = capsys.readouterr().err
    assert error.startswith("hf-tx convert: error: ")
    assert message in error
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--mixers", "sliding"], "sliding_window = None: must be set for mixer 'sliding'"),
        (["--model-type", "mistral"], "model_type = 'mistral': can only be used when converting to transformers"),
        (["--context-method", "yarn"], "context_method = 'yarn': can only be used together with context"),
        (["--context", "8"], "max_position_embeddings = 8: must be larger than the current context of 64"),
        (
            ["--to-hf", "--context", "256", "--mixers", "full"],
            "mixers, context: cannot be used when converting to transformers",
        ),
        (["--dtype", "bf16"], "dtype = 'bf16': must be the name of a torch dtype, such as 'bfloat16'"),
        (["--config-changes", '{"a'], '--config-changes {"a is not JSON: '),
        (["--config-changes", "[1]"], "--config-changes [1] must be a JSON object"),
    ],
)
def test_options_without_a_meaning(
    options: list[str], message: str, source: Path, tmp_path: Path, capsys: Any
) -> None:
    assert main(["convert", str(source), str(tmp_path / "target"), *options]) == 2
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("options", [[], ["--to-hf"]])
@pytest.mark.parametrize("source", ["missing", "/missing/folder"])
def test_a_source_that_is_not_there_is_named(source: str, options: list[str], tmp_path: Path, capsys: Any) -> None:
    assert main(["convert", source, str(tmp_path / "target"), *options]) == 2
    assert capsys.readouterr().err.startswith(f"hf-tx convert: error: source {source}: cannot be loaded: ")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("config", "options", "message"),
    [
        (hf.ViTConfig(architectures=["ViTModel"]), [], "not expressible: model_type = 'vit'"),
        (hf.BertConfig(is_decoder=True, architectures=["BertModel"]), [], "not expressible: is_decoder = True"),
        (hf.BertConfig(architectures=["BertModel"]), ["--to-hf"], "is a bert, not a model of hf_tx"),
        (hf_tx.TxDecoderConfig(), ["--to-hf"], "config.json has no architectures"),
        (hf_tx.TxDecoderConfig(), [], "source is already a model of hf_tx"),
    ],
)
def test_refusals_are_one_message_and_leave_nothing(
    config: Any, options: list[str], message: str, tmp_path: Path, capsys: Any
) -> None:
    config.save_pretrained(tmp_path / "source")
    assert main(["convert", str(tmp_path / "source"), str(tmp_path / "target"), *options]) == 2
    printed = capsys.readouterr()
    assert message in printed.err
    assert printed.err.startswith("hf-tx convert: error: ")
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


def test_a_class_is_chosen(source: Path, tmp_path: Path, capsys: Any) -> None:
    options = ["--architecture", "LlamaModel"]
    assert main(["convert", str(source), str(tmp_path / "ours"), *options]) == 0
    assert "TxDecoderModel" in capsys.readouterr().out
    assert main(["convert", str(tmp_path / "ours"), str(tmp_path / "back"), "--to-hf", *options]) == 2
    assert "architecture = 'LlamaModel': cannot be used when converting to transformers" in capsys.readouterr().err
    assert not (tmp_path / "back").exists()


def test_a_folder_of_ours_that_lacks_weights_does_not_go_out(source: Path, tmp_path: Path, capsys: Any) -> None:
    ours = tmp_path / "ours"
    assert main(["convert", str(source), str(ours)]) == 0
    state = load_file(ours / "model.safetensors")
    lost = next(name for name in state if name.endswith("q_proj.weight"))
    del state[lost]
    save_file(state, ours / "model.safetensors", metadata={"format": "pt"})
    capsys.readouterr()
    assert main(["convert", str(ours), str(tmp_path / "back"), "--to-hf"]) == 2
    assert f"lacks weights, such as {lost}: it is not a complete TxDecoderForCausalLM" in capsys.readouterr().err
    assert not (tmp_path / "back").exists()
