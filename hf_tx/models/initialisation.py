# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Finds parameters and buffers that are not initialized: `from_pretrained` creates a model without memory, and tensors
that its checkpoint does not contain would have arbitrary values."""

from typing import Any

import torch
from torch import nn
from transformers import initialization as init

# Kinds of modules, with the names of what they hold, that have been found to be set.
_KNOWN: set[Any] = set()


def refuse_unset(model: Any) -> None:
    """Check that a model initializes all parameters and buffers of its modules.

    Args:
        model: a model of transformers.

    Raises:
        ValueError: if `_init_weights` does not set a parameter or a buffer; the message names the module.
    """
    for prefix, module in model.named_modules():
        own = _own(module)
        kind = (type(model)._init_weights, type(module), *own)
        if not own or kind in _KNOWN:
            continue
        if unset := _unset(model, module, own):
            name = type(module).__name__
            raise ValueError(
                f"{type(model).__name__}: {', '.join(unset)} of {prefix or 'the model'} ({name}) is not initialized, "
                "so it would have arbitrary values if a checkpoint does not contain it. Add a method "
                "init_parameters() "
                f"to {name} that sets it with the functions of transformers.initialization."
            )
        _KNOWN.add(kind)


def _own(module: nn.Module) -> dict[str, torch.Tensor]:
    return dict([*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)])


@torch.no_grad()
def _unset(model: Any, module: nn.Module, own: dict[str, torch.Tensor]) -> list[str]:
    """Return the names of what is not written to where a module is initialised, tried on a twin without memory."""
    tensors = {name: torch.empty_like(tensor, device="meta", requires_grad=False) for name, tensor in own.items()}
    held: dict[str, dict[str, Any]] = {
        "_parameters": {name: nn.Parameter(tensors[name], False) for name in own if name in module._parameters},
        "_buffers": {name: tensors[name] for name in own if name in module._buffers},
    }
    twin = object.__new__(type(module))
    twin.__dict__ = {**module.__dict__, **{kind: {**getattr(module, kind), **new} for kind, new in held.items()}}
    before = {name: tensor._version for name, tensor in _own(twin).items()}
    # The functions of torch are switched off while a model is built to be loaded.
    with torch.random.fork_rng(devices=()), init.guard_torch_init_functions():
        model._init_weights(twin)
    return [name for name, tensor in _own(twin).items() if tensor._version == before[name]]
