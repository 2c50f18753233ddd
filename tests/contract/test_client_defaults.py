# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Clients read a config with a default of their own: `getattr(config, "logit_scale", 1.0)`. It holds for a config that
lacks the attribute, and not for one where it is null, so a field that is null when unused has a name that no client
reads so."""

import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tiny_models import FAMILIES, config_of

#: The clients whose sources are read where they are installed, and the folders of other models in them.
CLIENTS = ("transformers", "peft", "trl", "accelerate", "lm_eval", "sentence_transformers", "vllm")
MODELS_OF_OTHERS = ("transformers/models/", "vllm/model_executor/models/", "vllm/transformers_utils/configs/")
#: Kept though vLLM is not installed (0.32): it reads them so for the models of its backend for transformers.
READ_BY_VLLM = {"logit_scale": "1.0", "num_attention_heads": "0", "hidden_size": "0", "vocab_size": "0"}
#: Null in every config of transformers: ids that a user has not set.
OF_THE_LIBRARY = {"pad_token_id", "bos_token_id", "eos_token_id", "architectures", "dtype"}

READ = re.compile(r"""getattr\(\s*[\w.]*conf\w*(?:\([^)]*\))?\s*,\s*["'](\w+)["']\s*,\s*([^\s,)]+)""")


def reads(client: str) -> Iterator[tuple[str, str, str]]:
    """Names that a client reads from a config, its default, and where."""
    found = importlib.util.find_spec(client)
    for path in Path(found.origin).parent.rglob("*.py") if found is not None and found.origin else ():
        where = path.as_posix()
        own = "vllm/model_executor/models/transformers/" in where
        if own or not any(folder in where for folder in MODELS_OF_OTHERS):
            for name, default in READ.findall(path.read_text("utf-8", errors="ignore")):
                yield name, default, where


def nulls(config: Any) -> set[str]:
    """Names that a config, or a stack in it, has as null: as an attribute, or in its file."""
    configs = [config, *(getattr(config, name) for name in config.sub_configs)]
    return {
        name
        for part in configs
        for name, value in [*vars(part).items(), *part.to_dict().items()]
        if value is None and name not in OF_THE_LIBRARY
    }


NULLS = {name for family in FAMILIES for name in nulls(config_of(family))}


def test_the_pattern_finds_a_read() -> None:
    text = 'scale=getattr(self.text_config, "logit_scale", 1.0),\nx = getattr(config.get_text_config(), "a", None)'
    assert READ.findall(text) == [("logit_scale", "1.0"), ("a", "None")]
    assert {"attention_scale", "embedding_scale"} <= NULLS


@pytest.mark.parametrize("client", CLIENTS)
def test_no_null_hides_the_default_of_a_client(client: str) -> None:
    found = list(reads(client)) + ([(*read, "vllm 0.32") for read in READ_BY_VLLM.items()] if client == "vllm" else [])
    if not found:
        pytest.skip(f"{client} is absent, or reads nothing so")
    hidden = [read for read in found if read[0] in NULLS and read[1] != "None"]
    assert not hidden


@pytest.mark.parametrize("family", FAMILIES)
def test_files_that_have_it_as_null_load(family: str) -> None:
    config = config_of(family)
    stored = config.to_dict()
    for part in (stored, *(stored[name] for name in config.sub_configs)):
        if "logit_scale" in part:
            part["logit_scale"] = None
    assert type(config).from_dict(stored) == config
