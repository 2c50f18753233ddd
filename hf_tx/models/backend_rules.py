# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Which attention backend computes which mechanism.

A backend computes what the config asks for, or it is refused with the layer, the feature and who can. What the config
alone decides is checked when a model is built and when its backend is switched; what depends on a call is checked
before its first layer.
"""

from typing import Any

import torch
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.utils.generic import is_flash_attention_requested

from .positions import POSITIONS

#: Tried in this order when no backend is named.
DEFAULTS = ("sdpa", "eager")
#: Backends of the library that compute a feature. What is not listed here is refused for them.
_COMPUTES = {
    "softcap": ("eager", "flex_attention", "flash_attention_2", "flash_attention_3", "flash_attention_4"),
    "position bias": ("eager", "sdpa", "flex_attention"),
    "attention weights": ("eager",),
}


def _is_flash(backend: str) -> bool:
    return is_flash_attention_requested(requested_attention_implementation=backend)


def _computes(backend: str, feature: str) -> bool:
    able = _COMPUTES[feature]
    return backend in able or (_is_flash(backend) and "flash_attention_2" in able)


def _features(config: Any) -> list[tuple[int, str]]:
    """Return what the layers ask of a backend, as (layer, feature)."""
    found = []
    for idx in range(config.num_hidden_layers):
        layer = config.layer_config(idx)
        if layer.attn_logit_softcapping is not None:
            found.append((idx, "softcap"))
        if POSITIONS.get(layer.position_type).has_bias:
            found.append((idx, "position bias"))
    return found


def refusal(config: Any, backend: str) -> str | None:
    """Say why the backend cannot serve the config, or return None when it can.

    Args:
        config: the config of a stack, or one with stacks as its sub-configs.
        backend: name of an attention implementation.
    """
    for name in config.sub_configs:
        if reason := refusal(getattr(config, name), backend):
            return reason
    if config.sub_configs:
        return None
    if backend.startswith("paged|"):  # serving with pages builds its masks itself
        backend = backend.removeprefix("paged|")
    elif backend not in ALL_MASK_ATTENTION_FUNCTIONS:
        return (
            f"attn_implementation={backend!r} has no mask function, so padding would be ignored; register one of the "
            f"same name: transformers.AttentionMaskInterface.register({backend!r}, ...)"
        )
    for layer_idx, feature in _features(config):
        if not _computes(backend, feature):
            able = ", ".join(repr(name) for name in _COMPUTES[feature])
            return (
                f"attn_implementation={backend!r} cannot compute layer {layer_idx} ({config.mixers[layer_idx]!r}): "
                f"it has no {feature}; use one of {able}"
            )
    return None


def gives_weights(backend: str) -> bool:
    """Whether the backend returns the attention weights beside the output."""
    return _computes(backend.removeprefix("paged|"), "attention weights")


def check_training(config: Any, backend: str, training: bool, device: torch.device) -> None:
    """Refuse a backend that cannot train the stack, before its first layer.

    Args:
        config: config of the stack.
        backend: name of its attention implementation.
        training: whether the stack is in training mode.
        device: device of the weights.

    Raises:
        ValueError: with the feature and who can compute it.
    """
    if backend != "flex_attention" or not training:
        return
    if device.type == "cpu" and torch.is_grad_enabled():
        raise ValueError(
            "attn_implementation='flex_attention' has no backward pass on CPU; train with 'sdpa' or 'eager'."
        )
    for idx in range(config.num_hidden_layers):
        dropout = config.layer_config(idx).attention_dropout
        if dropout:
            raise ValueError(
                f"attn_implementation='flex_attention' has no dropout, and layer {idx} has attention_dropout = "
                f"{dropout}; train with 'sdpa' or 'eager', or set it to 0."
            )
