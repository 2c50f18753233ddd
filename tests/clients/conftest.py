# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Folders as users have them: a tiny model beside its tokenizer."""

from pathlib import Path
from typing import Any

import pytest
from tiny_models import config_of, enlarge

import hf_tx
from hf_tx.tokenization import train_tokenizer

TEXTS = ["The miller runs past the river.", "The river runs past the mill.", "Who runs past the old mill?"]
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)


def save(folder: Path, cls: Any, family: str, **settings: Any) -> Path:
    """Save a model with random weights and a tokenizer that is trained on `TEXTS`."""
    tokenizer = train_tokenizer(TEXTS, family=family, vocab_size=300, show_progress=False)
    special = {name: getattr(tokenizer, name) for name in ("pad_token_id", "bos_token_id", "eos_token_id")}
    if family == "decoder":
        tokenizer.chat_template = CHAT_TEMPLATE
    enlarge(cls(config_of(family, vocab_size=len(tokenizer), **special, **settings))).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(tmp_path_factory.mktemp("decoder"), hf_tx.TxDecoderForCausalLM, "decoder", mixers="sliding,full")


@pytest.fixture(scope="session")
def recurrent_decoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(tmp_path_factory.mktemp("recurrent"), hf_tx.TxDecoderForCausalLM, "decoder", mixers="gru")


@pytest.fixture(scope="session")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    # A pair of texts has token types.
    return save(tmp_path_factory.mktemp("encoder"), hf_tx.TxEncoderModel, "encoder", type_vocab_size=2)
