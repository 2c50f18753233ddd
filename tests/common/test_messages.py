# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
from typing import Any

import pytest
from huggingface_hub.errors import StrictDataclassError
from transformers import BertConfig, LlamaConfig

import hf_tx
from hf_tx.common.messages import message_of


@pytest.mark.parametrize(
    ("kind", "fields", "message"),
    [
        (hf_tx.TxDecoderConfig, {"mixers": "sliding"}, "sliding_window = None: must be set for mixer 'sliding'."),
        (hf_tx.TxEncoderDecoderConfig, {"decoder": {"mixers": "sliding"}}, "sliding_window = None: must be set for m"),
        (LlamaConfig, {"hidden_size": 30, "num_attention_heads": 4}, "The hidden size (30) is not a multiple of"),
        (BertConfig, {"hidden_size": "wide"}, "Field 'hidden_size' expected int, got str (value: 'wide')"),
    ],
)
def test_a_config_that_breaks_a_rule_says_the_rule_alone(kind: Any, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(StrictDataclassError) as error:
        kind(**fields)
    assert message_of(error.value).startswith(message)
    if kind.model_type.startswith("hf_tx"):  # without the commands, too
        assert str(error.value).startswith(message)


def test_a_message_is_one_line() -> None:
    assert message_of(ValueError("a\n    b")) == "a b"
    assert message_of(EOFError()) == "EOFError"
