# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Decides when a call reads the values of a tensor, for which the host waits on an accelerator.

On a CPU a call reads values: inputs that contradict each other raise an error, and what a batch does not need (masks
without padding, documents in rows that have only one) is not created. On an accelerator a forward does not read
values: it creates everything that the values could require, and a check of values is an assertion on the device, if
    the device
supports it (CUDA). With `torch.autograd.detect_anomaly()`, which is for debugging, values are read on every device,
and checks raise their errors where the mistake is made.

Values are still read where a kernel needs numbers on the host: in the backends `banded` and `tiled`, flash attention
with padding, recurrent kernels with padding or packed documents, rope whose frequencies depend on the length of the
text, and losses that only compute the output layer for positions with labels.
"""

from collections.abc import Callable

import torch

from .tracing import is_tracing


def _is_on_host(tensor: torch.Tensor) -> bool:
    return tensor.device.type == "cpu"


def may_look_at(tensor: torch.Tensor) -> bool:
    """Whether a call may read the values of a tensor; see the top of this file. In a graph there are none."""
    return not is_tracing(tensor) and (_is_on_host(tensor) or torch.is_anomaly_enabled())


def refuse_where(wrong: torch.Tensor, message: str | Callable[[], str]) -> None:
    """Raise an error if a condition holds anywhere, at once if its values may be read, and else on the device.

    Args:
        wrong: *Shape:* any, bool.
        message: of the error, or what makes it from values.

    Raises:
        ValueError: it holds.
    """
    if may_look_at(wrong):
        if bool(wrong.any()):
            raise ValueError(message if isinstance(message, str) else message())
    elif wrong.device.type == "cuda" and not is_tracing(wrong):
        text = (
            message
            if isinstance(message, str)
            else "the inputs contradict each other; run the call on the CPU, where the error says how."
        )
        torch._assert_async(~wrong.any(), text)
