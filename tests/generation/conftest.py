# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Tokenizers of the three kinds that can write a text exactly, and tiny models with random weights."""

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformers
from tiny_models import config_of, enlarge
from tokenizers import Tokenizer, decoders, models, normalizers
from transformers import PreTrainedTokenizerFast

import hf_tx
from hf_tx.tokenization import train_tokenizer

TEXTS = [
    "The river runs past the old mill, and the miller runs past the river.",
    '{"name": "mill", "age": 30, "tags": ["old", "new"], "ratio": 0.5, "ok": true, "no": false, "none": null}',
    '[{"a":1},{"b":[2,3]}] -47 e+ 689 \\n T:Z @ <> ABCDEF uvwxyz 2024-01-31',
] * 6
TOKENIZERS = ("byte-level", "unigram", "byte-fallback")
MODELS = ("llama", "gpt2", "t5", "bart", "tx-decoder", "tx-encoder-decoder")


def _byte_fallback() -> PreTrainedTokenizerFast:
    """What SentencePiece makes of BPE: spaces are letters, and bytes stand in for unknown letters."""
    letters = sorted({letter for text in TEXTS for letter in text if letter != " "} - set("#%"))
    pieces = ["<pad>", "<bos>", "<eos>", "<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", *letters]
    merges = [("t", "h"), ("th", "e"), ("▁", "the"), ("▁", "m"), ('"', ":"), ('"', ","), ("{", '"'), ("▁", "{")]
    vocabulary = {piece: index for index, piece in enumerate([*pieces, *(left + right for left, right in merges)])}
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    named = dict(pad_token="<pad>", bos_token="<bos>", eos_token="<eos>", unk_token="<unk>")
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **named)


@functools.cache
def tokenizer_of(kind: str) -> Any:
    if kind == "byte-fallback":
        return _byte_fallback()
    algorithm = {"byte-level": "bpe", "unigram": "unigram", "wordpiece": "wordpiece"}[kind]
    return train_tokenizer(
        TEXTS, algorithm=algorithm, vocab_size=330 if algorithm == "bpe" else 120, show_progress=False
    )


@functools.cache
def model_of(name: str, vocabulary: int) -> Any:
    """A tiny model whose scores differ enough that it has preferences."""
    torch.manual_seed(0)
    tokens = dict(pad_token_id=0, bos_token_id=1, eos_token_id=2)
    if name.startswith("tx-"):
        family = name.removeprefix("tx-").replace("-", "_")
        cls = hf_tx.TxDecoderForCausalLM if family == "decoder" else hf_tx.TxEncoderDecoderForConditionalGeneration
        return enlarge(cls(config_of(family, vocab_size=vocabulary, max_position_embeddings=256))).eval()
    if name == "llama":
        config: Any = transformers.LlamaConfig(
            vocab_size=vocabulary,
            hidden_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=16,
            **tokens,
        )
        cls = transformers.LlamaForCausalLM
    elif name == "gpt2":
        config = transformers.GPT2Config(
            vocab_size=vocabulary, n_embd=16, n_layer=1, n_head=2, n_positions=256, **tokens
        )
        cls = transformers.GPT2LMHeadModel
    elif name == "t5":
        config = transformers.T5Config(
            vocab_size=vocabulary,
            d_model=16,
            d_kv=8,
            d_ff=16,
            num_layers=1,
            num_heads=2,
            decoder_start_token_id=0,
            **tokens,
        )
        cls = transformers.T5ForConditionalGeneration
    else:
        config = transformers.BartConfig(
            vocab_size=vocabulary,
            d_model=16,
            encoder_layers=1,
            decoder_layers=1,
            encoder_attention_heads=2,
            decoder_attention_heads=2,
            encoder_ffn_dim=16,
            decoder_ffn_dim=16,
            max_position_embeddings=256,
            decoder_start_token_id=2,
            forced_eos_token_id=2,
            **tokens,
        )
        cls = transformers.BartForConditionalGeneration
    return enlarge(cls(config)).eval()


@pytest.fixture(params=TOKENIZERS)
def tokenizer(request: pytest.FixtureRequest) -> Any:
    return tokenizer_of(request.param)


@pytest.fixture(scope="session")
def tokenizers() -> Callable[[str], Any]:
    return tokenizer_of


@pytest.fixture(scope="session")
def tiny() -> Callable[..., tuple[Any, Any]]:
    """Gives a model and its tokenizer; `padding` ids of the model are past those of the tokenizer."""

    def build(name: str = "llama", kind: str = "byte-level", padding: int = 7) -> tuple[Any, Any]:
        tokenizer = tokenizer_of(kind)
        return model_of(name, len(tokenizer) + padding), tokenizer

    return build
