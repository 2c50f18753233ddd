# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Whole checkpoints, and the command that converts them."""

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf
from peers.parity import randomise
from peers.tables import STANDARD
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
    hf.PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", eos_token="</s>").save_pretrained(folder)
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
    card = (ours / "README.md").read_text("utf-8")
    assert f"base_model: {source}" in card
    assert "LlamaForCausalLM" in card

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
    assert "name a folder that is new or empty" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


@pytest.mark.parametrize(
    ("config", "options", "message"),
    [
        (hf.ViTConfig(architectures=["ViTModel"]), [], "not expressible: model_type = 'vit'"),
        (hf.BertConfig(is_decoder=True, architectures=["BertModel"]), [], "not expressible: is_decoder = True"),
        (hf.BertConfig(architectures=["BertModel"]), ["--to-hf"], "is a bert, which is no model of hf_tx"),
        (hf_tx.TxDecoderConfig(), ["--to-hf"], "names no architectures"),
        (hf_tx.TxDecoderConfig(), [], "is a model of hf_tx already"),
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
