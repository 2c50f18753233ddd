# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""The kernels of the flash-linear-attention package, which compute the recurrences of `linear_forms` on CUDA.

They are used if the package is installed, for models in half precision and rows without packed documents. They compute
float32 in a lower precision, or do not support it; everything else is computed by `linear_forms`.
"""

import functools
from collections.abc import Callable
from importlib.metadata import EntryPoint

import torch
from transformers.utils.import_utils import is_flash_linear_attention_available

from .linear_forms import recurrence

# By the kind of decay (none, one per head, one per feature) and whether the delta rule applies.
_KERNELS = {
    ("none", False): "fla.ops.simple_gla:chunk_simple_gla",
    ("head", False): "fla.ops.simple_gla:chunk_simple_gla",
    ("feature", False): "fla.ops.gla:chunk_gla",
    ("none", True): "fla.ops.delta_rule:chunk_delta_rule",
    ("head", True): "fla.ops.gated_delta_rule:chunk_gated_delta_rule",
}


@functools.cache
def _kernel(decay: str, delta: bool) -> Callable[..., tuple[torch.Tensor, torch.Tensor]]:
    # Not an import statement: the package is optional, also for a checkpoint that carries this file.
    return EntryPoint("kernel", _KERNELS[decay, delta], "fla").load()


def _on_cuda(tensor: torch.Tensor) -> bool:
    return tensor.device.type == "cuda"


def fastest_recurrence(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    log_decay: torch.Tensor | None,
    beta: torch.Tensor | None,
    document: torch.Tensor | None,
    state: torch.Tensor | None,
    dtype: torch.dtype,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute `recurrence` by a kernel where there is one, and by `recurrence` itself elsewhere.

    Args:
        query: see `recurrence`, as for the others.
        key: keys.
        value: values.
        log_decay: logarithm of the decay, or None.
        beta: strength of the delta rule, or None.
        document: numbers of documents, or None.
        state: the state before, or None.
        dtype: dtype of the model.

    Returns:
        As `recurrence`.
    """
    plain = not _on_cuda(query) or query.shape[2] == 1 or document is not None
    if plain or dtype not in (torch.float16, torch.bfloat16) or not is_flash_linear_attention_available():
        return recurrence(query, key, value, log_decay, beta, document, state)
    rows = [part.transpose(1, 2).to(dtype).contiguous() for part in (query, key, value)]
    inputs = {}
    decay = "none"
    if log_decay is not None:
        decay = "head" if log_decay.shape[-1] == 1 else "feature"
        gates = log_decay.expand(query.shape[0], -1, -1, -1).transpose(1, 2)
        inputs["g"] = (gates[..., 0] if decay == "head" else gates).contiguous()
    if beta is not None:
        inputs["beta"] = beta[..., 0].transpose(1, 2).to(dtype).contiguous()
    outputs, state = _kernel(decay, beta is not None)(
        *rows, **inputs, scale=1.0, initial_state=state, output_final_state=True
    )
    return outputs.transpose(1, 2).float(), state
