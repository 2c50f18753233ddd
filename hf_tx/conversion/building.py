# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Classes, configs and shapes of models of hf_tx, before they have weights."""

from typing import Any

import torch
from transformers.initialization import no_init_weights

from ..models import modeling_decoder, modeling_encoder, modeling_encoder_decoder
from ..models.configuration_storage import ALIASES
from ..models.registry import nearest


def class_named(name: str) -> Any:
    """Return the class of hf_tx with this name."""
    modules = (modeling_decoder, modeling_encoder, modeling_encoder_decoder)
    return next(getattr(module, name) for module in modules if hasattr(module, name))


def build_config(kind: Any, stored: dict[str, Any], changes: dict[str, Any] | None) -> Any:
    """Return a config of hf_tx from the dict of a config.json, with changes.

    Raises:
        ValueError: if a changed field does not exist.
    """
    known = (kind._changeable() | ALIASES) - {"dtype", "architectures"}  # which are set when a model is loaded
    for name in changes or {}:
        if name not in known:
            raise ValueError(f"config_changes: {kind.__name__} has no field {name!r}.{nearest(name, known)}")
    return kind.from_dict(stored, **(changes or {}))


def empty_model(cls: Any, config: Any) -> Any:
    """Return a model without weights."""
    with torch.device("meta"), no_init_weights():
        return cls(config)


def device_of(model: Any) -> torch.device | None:
    """Return the device of a model as `device_map`; None for the CPU, the default of `from_pretrained`."""
    return None if model.device.type == "cpu" else model.device


def require_shapes(model: Any, shapes: dict[str, torch.Size], reason: str) -> None:
    """Check that weights of these shapes fit into a model.

    Raises:
        ValueError: if a shape differs, with the reason.
    """
    for name, tensor in model.state_dict().items():
        shape = shapes.get(name, tensor.shape)
        if shape != tensor.shape:
            raise ValueError(
                f"{name} has the shape {tuple(shape)} in the source, but the model needs "
                f"{tuple(tensor.shape)}: {reason}."
            )


def changes_with_mixers(config: Any, mixers: Any, changes: dict[str, Any] | None) -> dict[str, Any]:
    """Return the changes of a config of hf_tx with those of the mixers among them.

    Raises:
        ValueError: if the changes contain mixers too.
    """
    changes = dict(changes or {})
    if mixers is None:
        return changes
    names = ("encoder_mixers", "decoder_mixers") if config.is_encoder_decoder else ("mixers",)
    for name in names:
        if name in changes:
            raise ValueError(
                f"mixers = {mixers!r}, config_changes = {changes}: both set {name}; pass only one of them."
            )
    return {**changes, **dict.fromkeys(names, mixers)}
