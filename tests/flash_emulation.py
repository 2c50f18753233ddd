# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""The functions of the flash-attn package in plain torch, so that transformers' own flash_attention_2 path runs here:
what it makes of masks, windows, caches and packed rows is then what a GPU would compute."""

import math
from typing import Any

import pytest
import torch
import transformers.modeling_flash_attention_utils as utils
from transformers.modeling_utils import PreTrainedModel


def flash_attn_func(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    deterministic: bool = False,
) -> torch.Tensor:
    """Attention with the package's conventions: `(batch, length, heads, head_dim)`; a causal mask and a window that
    are aligned to the *last* key; window sizes without the query itself; zeros where a query sees nothing."""
    queries, keys = q.shape[1], k.shape[1]
    k, v = (x.repeat_interleave(q.shape[2] // k.shape[2], dim=2) for x in (k, v))
    scores = torch.einsum("bqhd,bkhd->bhqk", q, k) * (softmax_scale or 1 / math.sqrt(q.shape[-1]))
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    distance = torch.arange(keys)[None] - (torch.arange(queries)[:, None] + keys - queries)
    left, right = window_size
    seen = torch.ones(queries, keys, dtype=torch.bool)
    if causal:
        seen &= distance <= 0
    if left >= 0:
        seen &= distance >= -left
    if right >= 0:
        seen &= distance <= right
    weights = torch.softmax(scores.masked_fill(~seen, float("-inf")), dim=-1).nan_to_num(0.0)
    return torch.einsum("bhqk,bkhd->bqhd", torch.dropout(weights, dropout_p, True), v)


def flash_attn_varlen_func(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    deterministic: bool = False,
    block_table: torch.Tensor | None = None,
) -> torch.Tensor:
    """The same for texts that lie one after the other: `(tokens, heads, head_dim)`."""
    output = torch.zeros_like(q)
    for idx in range(len(cu_seqlens_q) - 1):
        of_q = slice(int(cu_seqlens_q[idx]), int(cu_seqlens_q[idx + 1]))
        of_k = slice(int(cu_seqlens_k[idx]), int(cu_seqlens_k[idx + 1]))
        output[of_q] = flash_attn_func(
            q[None, of_q], k[None, of_k], v[None, of_k], dropout_p, softmax_scale, causal, window_size, softcap
        )[0]
    return output


def install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make `flash_attention_2` available for a test."""
    functions: Any = (flash_attn_func, flash_attn_varlen_func, None, utils._pad_input, utils._unpad_input)
    process = utils._lazy_define_process_function(flash_attn_varlen_func)
    loaded = lambda *args, **kwargs: (functions, (process, dict))  # noqa: E731
    monkeypatch.setattr("transformers.modeling_flash_attention_utils.lazy_import_flash_attention", loaded)
    monkeypatch.setattr("transformers.modeling_utils.lazy_import_flash_attention", loaded)
    monkeypatch.setattr(PreTrainedModel, "_flash_attn_can_dispatch", lambda self, *args, **kwargs: True)
