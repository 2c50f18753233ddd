# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Detects whether a call is traced to a graph, so that values of tensors cannot be read."""

from typing import Any

import torch
from transformers.utils import import_utils


def is_tracing(tensor: Any = None) -> bool:
    """Return what transformers' function of this name says. A step of decoding asks several times: for an ordinary
    tensor on the CPU, what rules out everything but a compiler is enough, at a twentieth of the time."""
    if type(tensor) is torch.Tensor and tensor.device.type == "cpu":
        return torch.compiler.is_compiling() or torch.jit.is_tracing()
    return import_utils.is_tracing(tensor)
