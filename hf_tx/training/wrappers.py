# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Models that come to a trainer inside of the wrappers of torch."""

from typing import Any

from torch import nn
from torch._dynamo.eval_frame import OptimizedModule
from torch.nn.parallel import DataParallel, DistributedDataParallel


def without_wrappers(model: Any) -> Any:
    """Return the model inside of the wrappers of torch. What is compiled stays compiled, but in place, as by
    `model.compile()`: the parameters keep their names, which checkpoints and adapters hold, and the forward its
    signature, by which transformers chooses columns. What DataParallel and DDP wrap, the Trainer wraps itself.

    Modules of the model are compiled in place as well.
    """
    if not isinstance(model, nn.Module):
        return model
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, OptimizedModule) and not isinstance(parent, OptimizedModule):
                setattr(parent, name, _compiled_in_place(child))
    while isinstance(model, OptimizedModule | DataParallel | DistributedDataParallel):
        model = _compiled_in_place(model) if isinstance(model, OptimizedModule) else model.module
    return model


def _compiled_in_place(wrapper: Any) -> Any:
    module = wrapper._orig_mod
    module._compiled_call_impl = wrapper.dynamo_ctx(module._call_impl)
    return module
