# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""When a call reads the values of a tensor, which on an accelerator makes the host wait for everything before it.

On CPU a call reads what it likes: inputs that contradict each other raise an error, and what a batch does not need
(masks without padding, documents in rows that hold one) is not built. On an accelerator a forward reads nothing: it
builds whatever the values could ask for, and a check of values becomes an assertion on the device where the device has
them (CUDA). Under torch's own switch for debugging, `torch.autograd.detect_anomaly()`, every device is read as a CPU
is, and checks raise their errors where the mistake is made.

What reads the device nevertheless, since a kernel needs numbers on the host: the backends `banded` and `tiled`, the
flash functions with padding, recurrent kernels with padding or packed documents, rope whose frequencies depend on the
length of the text, and losses that compute the output layer at labelled positions only.
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
