# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Extends the context of a loaded model."""

import math
from typing import Any

import torch
from torch import nn
from transformers.utils import logging

from ..models.masks import MaskGroup, mask_groups
from ..models.mixers import MIXERS
from ..models.modeling_stack import TxStack
from ..models.positions import POSITIONS
from ..models.registry import nearest
from .sources import require_ours

logger = logging.get_logger(__name__)

#: The methods of scaling rotary positions, with the parameters that do not follow from the lengths.
METHODS: dict[str, tuple[str, ...]] = {
    "linear": (),
    "dynamic": (),
    "yarn": ("attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "truncate"),
    "longrope": ("long_factor", "short_factor", "attention_factor"),
    "llama3": ("low_freq_factor", "high_freq_factor"),
}
# The position schemes that this module can extend.
_LEARNED = {"learned", "learned_relative"}
_SCHEMES = {"none", "sinusoidal", "relative", "alibi", "rope"} | _LEARNED


def extend_context(
    model: Any,
    max_position_embeddings: int,
    method: str | None = None,
    *,
    original_max_position_embeddings: int | None = None,
    **parameters: Any,
) -> Any:
    """Extend the context of a model, in place. For an encoder-decoder, both stacks are extended; pass
    `model.get_encoder()` or `model.get_decoder()` to extend one.

    What changes depends on the positions of the model:

    - `rope`: the frequencies are scaled by `factor = max_position_embeddings / length`, where `length` is the current
      context. The weights do not change, and the scaling is stored in `config.rope_parameters`. If there is one set of
      parameters per type of layer, a set whose layers all have windows within the current context is not scaled (as in
      Gemma 3, https://huggingface.co/papers/2503.19786), because these layers never see a larger distance. A model
      that is already scaled is scaled further with the same method.
    - `learned`, `learned_relative`: the table is interpolated linearly between its first and its last position, which
      do not change (nor do the rows before `position_offset`). The table is a new parameter: create optimizers
      afterwards. Neighboring positions are closer than in training, so the model needs further training.
    - `relative`, `alibi`, `none`, and layers without attention: the length is not limited, and only
      `max_position_embeddings` changes.
    - `sinusoidal`: only `max_position_embeddings` changes. A warning names the positions that are new to the model.

    The `model_max_length` of the tokenizer does not change. Extending does not replace training on long texts. How
    well a model works without it differs between models, so evaluate it.

    Args:
        model: a model of hf_tx; convert others with [`from_hf`] first.
        max_position_embeddings: the new length.
        method: the scaling of rotary positions:

            - `linear`: all positions are divided by the factor (Chen et al., 2023,
              https://huggingface.co/papers/2306.15595).
            - `dynamic`: the base grows with the length of the text beyond the trained length (NTK-aware scaling; in
              Peng et al., 2023, https://huggingface.co/papers/2309.00071, appendix B). The formula uses the
              `max_position_embeddings` of the config as the trained length, so this field does not change.
            - `yarn`: frequencies that rotate often within the trained length do not change, those that do not complete
              one rotation are divided by the factor, and cosines and sines are multiplied by `0.1 ln(factor) + 1`
              (Peng et al., as above).
            - `longrope`: every frequency is divided by its own factor (Ding et al., 2024,
              https://huggingface.co/papers/2402.13753): `long_factor`, which is required, or within the trained length
              `short_factor`, which is 1 by default.
            - `llama3`: like `yarn`, by wavelength: frequencies with a wavelength above the trained length divided by
              `low_freq_factor` (1) are divided by the factor, those with a wavelength below the trained length divided
              by `high_freq_factor` (4) do not change (Llama 3.1, https://huggingface.co/papers/2407.21783).

            Default: the current method of the model, or `yarn`.
        original_max_position_embeddings: the length that the model was trained on, if it is not that of the config.
        **parameters: other parameters of the method, with their names in `rope_parameters`. Default: the defaults of
            transformers.

    Returns:
        The model.

    Raises:
        ValueError: if the model is not one of hf_tx, already has this context, has no rotary positions to scale, or is
            scaled with another method; if a method or parameter is unknown; if `longrope` has no factors.
        StrictDataclassError: if the value of a parameter is invalid. The model is not changed in this case.

    Example:

    ```python
    >>> import hf_tx
    >>> config = hf_tx.TxDecoderConfig(
    ...     vocab_size=32, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=64
    ... )
    >>> model = hf_tx.extend_context(hf_tx.TxDecoderForCausalLM(config), 256)
    >>> model.config.max_position_embeddings, model.config.rope_parameters["rope_type"]
    (256, 'yarn')
    >>> model.config.rope_parameters["factor"]
    4.0

    ```
    """
    require_ours(model)
    target, trained = max_position_embeddings, original_max_position_embeddings
    asked = {"max_position_embeddings": target, "original_max_position_embeddings": 1 if trained is None else trained}
    for field, value in asked.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ValueError(f"{field} = {value!r}: must be an integer of at least 1.")
    if method is not None and method not in METHODS:
        raise ValueError(
            f"method = {method!r} is unknown.{nearest(method, METHODS)} Known methods: {', '.join(METHODS)}."
        )

    stacks = [module for module in model.modules() if isinstance(module, TxStack)]
    lengths = [trained or _length(stack.config) for stack in stacks]
    short = [(stack, length) for stack, length in zip(stacks, lengths, strict=True) if length < target]
    if not short:
        raise ValueError(
            f"max_position_embeddings = {target}: must be larger than the current context of {min(lengths):g}."
        )
    plans = [_changes(stack.config, length, target, trained, method, parameters) for stack, length in short]
    if (method or parameters) and not any("rope_parameters" in changes for changes in plans):
        given = ", ".join([*([f"method = {method!r}"] if method else []), *parameters])
        raise ValueError(
            f"{given}: there is nothing to scale, because no layer with rotary positions sees further than the "
            "trained length. Leave it out; the context can be extended without it."
        )
    # All checks are done before anything changes.
    configs = [
        type(stack.config).from_dict(stack.config.to_dict(), **changes)
        for (stack, _), changes in zip(short, plans, strict=True)
    ]
    for (stack, length), changes, config in zip(short, plans, configs, strict=True):
        for name in changes:
            setattr(stack.config, name, getattr(config, name))
        _lengthen_positions(stack, length)
    return model


def _length(config: Any) -> float:
    """Return the longest text that a model was made for."""
    length: float = config.max_position_embeddings
    for view in config.rope_views().values() if "rope" in config.layer_positions else ():
        own = view.rope_parameters
        start = length if own["rope_type"] == "dynamic" else own.get("original_max_position_embeddings", 0)
        length = max(length, start * (own.get("factor") or 1))
    return length


def _changes(
    config: Any, length: float, target: int, trained: int | None, method: str | None, parameters: dict[str, Any]
) -> dict[str, Any]:
    """Return the fields of a stack's config that change when it reads `target` tokens instead of `length`."""
    if unknown := [name for name in config.layer_positions if name not in _SCHEMES]:
        raise ValueError(f"position_type = {unknown[0]!r}: extend_context does not support this position scheme.")
    if _LEARNED & set(config.layer_positions) and length > config.max_position_embeddings:
        raise ValueError(
            f"original_max_position_embeddings = {length}: must be at most the size of the table of learned "
            f"positions, {config.max_position_embeddings}."
        )
    if "rope" not in config.layer_positions:
        return {"max_position_embeddings": target}
    layers = list(zip(config.layer_positions, config.layer_types, mask_groups(config), strict=True))
    sets = {}
    for kind, view in config.rope_views().items():
        if trained is not None and view.rope_parameters["rope_type"] != "default":
            raise ValueError(
                f"original_max_position_embeddings = {trained}: the model is already scaled, and its config has the "
                f"trained length: rope_parameters = {view.rope_parameters}. Leave it out."
            )
        groups = [group for scheme, layer_type, group in layers if scheme == "rope" and kind in ("", layer_type)]
        sees_further = any(_reach(group, config.is_causal_family) >= length for group in groups)
        sets[kind] = _scaled(view, length, target, method, parameters) if sees_further else view.rope_parameters
    if all(view.rope_parameters == sets[kind] for kind, view in config.rope_views().items()):
        return {"max_position_embeddings": target}
    if any(own["rope_type"] == "dynamic" for own in sets.values()):  # its formula reads the trained length there
        target = trained or config.max_position_embeddings
    return {"rope_parameters": sets.get("", sets), "max_position_embeddings": target}


def _reach(group: MaskGroup, is_causal: bool) -> float:
    """Return the largest distance between a query and a key that it sees."""
    mixer = MIXERS.get(group.mixer)
    if mixer.pattern is not None:
        band = mixer.pattern(group.options, group.window, is_causal, None, 0).band
        return math.inf if band is None or band.far is not None else max(band.left, band.right)
    if group.window is None:
        return math.inf
    return group.window - 1 if is_causal else group.window


def _scaled(config: Any, length: float, target: int, method: str | None, parameters: dict[str, Any]) -> dict[str, Any]:
    """Return the one flat set of rope parameters of a config, scaled from `length` to `target`."""
    own = config.rope_parameters
    kind = own["rope_type"]
    if kind not in ("default", *METHODS):
        raise ValueError(f"rope_type = {kind!r} cannot be scaled further; methods that can are {', '.join(METHODS)}.")
    method = method or ("yarn" if kind == "default" else kind)
    if kind not in ("default", method):
        raise ValueError(
            f"method = {method!r}: the frequencies are scaled by {kind!r} already, and the model was trained with "
            f"that; use method = {kind!r}, which scales them further."
        )
    for name in parameters:
        if name not in METHODS[method]:
            known = ", ".join(METHODS[method]) or "there are none"
            raise ValueError(
                f"{name} is not a parameter of {method!r}.{nearest(name, METHODS[method])} Known: {known}."
            )
    defaults: dict[str, Any] = {}
    if method == "longrope":
        frequencies = config.rotary_dim // 2
        if "long_factor" not in parameters:
            raise ValueError(
                f"method = 'longrope' needs long_factor, a list with one factor for each of the {frequencies} "
                "frequencies: they must be searched for each model, and do not follow from the lengths."
            )
        defaults["short_factor"] = [1.0] * frequencies
    elif method == "llama3":
        defaults |= {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
    if method in ("yarn", "longrope", "llama3"):
        defaults["original_max_position_embeddings"] = length
    factor = own.get("factor") or length / own.get("original_max_position_embeddings", length)
    return {**defaults, **own, "rope_type": method, "factor": factor * target / length, **parameters}


def _lengthen_positions(stack: TxStack, length: float) -> None:
    """Give the position schemes of a stack the length that its config says by now; `length` is what they had."""
    target = stack.config.max_position_embeddings
    for name, scheme in stack.positions.items():
        if name == "rope":
            device = next(scheme.buffers()).device
            stack.positions[name] = POSITIONS.build(stack.config, name).to(device)
        elif name in _LEARNED:
            scheme.embed_positions = _interpolated(scheme.embed_positions, scheme.offset, int(length), target)
        elif name == "sinusoidal":
            logger.warning(
                f"position_type = 'sinusoidal': the model was not trained on positions {length} to {target - 1}, and "
                "sinusoids cannot be scaled; train it on longer texts."
            )


def _interpolated(table: nn.Embedding, offset: int, length: int, target: int) -> nn.Embedding:
    """Return a table of `target` positions, from the first `length` of one, both after `offset` rows that stay."""
    weight = table.weight.detach()
    rows = weight[offset : offset + length].float().t()[None]
    longer = nn.functional.interpolate(rows, size=target, mode="linear", align_corners=True)[0].t()
    weight = torch.cat((weight[:offset], longer.to(weight.dtype)))
    return nn.Embedding.from_pretrained(weight, freeze=not table.weight.requires_grad)
