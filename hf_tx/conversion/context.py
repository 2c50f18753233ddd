# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Longer texts for a loaded model."""

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

#: How rotary positions are scaled, and the parameters that a caller may set beside what follows from the lengths.
METHODS: dict[str, tuple[str, ...]] = {
    "linear": (),
    "dynamic": (),
    "yarn": ("attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "truncate"),
    "longrope": ("long_factor", "short_factor", "attention_factor"),
    "llama3": ("low_freq_factor", "high_freq_factor"),
}
# The schemes of which it is known here what a longer text means to them.
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
    """Make a model read longer texts, in place. Of an encoder-decoder, both stacks; pass `model.get_encoder()` or
    `model.get_decoder()` for one.

    What happens depends on the positions of the model:

    - `rope`: the frequencies are scaled by `factor = max_position_embeddings / length`, where `length` is the one that
      the model has. Weights stay, and the config says it in `rope_parameters`. Where these are one set for each type
      of layer, a set whose layers all have windows within that length stays (as in Gemma 3,
      https://huggingface.co/papers/2503.19786): such layers never see a distance that is new to them. A model that is
      scaled already is scaled further in the same way.
    - `learned`, `learned_relative`: the table is interpolated linearly between its first and its last position, which
      stay (the rows before `position_offset` as well). The parameter is a new one: make optimizers after this.
      Neighbours lie closer than the model knows them, so train on.
    - `relative`, `alibi`, `none` and layers that are no attention: nothing limits the length, and only
      `max_position_embeddings` changes.
    - `sinusoidal`: likewise; positions that the model was not trained on have vectors that are new to it, of which a
      warning tells.

    The tokenizer's `model_max_length` is not touched. Nothing here replaces training on long texts; what scaling gives
    without it differs from model to model, so measure.

    Args:
        model: a model of hf_tx; for others, [`from_hf`] comes first.
        max_position_embeddings: the new length.
        method: how rotary positions are scaled:

            - `linear`: all positions are divided by the factor (Chen et al., 2023,
              https://huggingface.co/papers/2306.15595).
            - `dynamic`: the base grows with the text, from the trained length on (NTK-aware scaling; in Peng et al.,
              2023, https://huggingface.co/papers/2309.00071, appendix B). Its formula reads the trained length from
              the config's `max_position_embeddings`, which therefore stays.
            - `yarn`: frequencies that turn often within the trained length stay, those that do not turn once are
              divided by the factor, and cosines and sines grow by `0.1 ln(factor) + 1` (Peng et al., as above).
            - `longrope`: every frequency is divided by a factor of its own (Ding et al., 2024,
              https://huggingface.co/papers/2402.13753), to be given as `long_factor`; within the trained length by
              `short_factor`, by default ones.
            - `llama3`: as `yarn`, by wavelengths: those above the trained length divided by `low_freq_factor` (1) are
              divided by the factor, those below it divided by `high_freq_factor` (4) stay (Llama 3.1,
              https://huggingface.co/papers/2407.21783).

            Default: the one that the model has, or else `yarn`.
        original_max_position_embeddings: the length that the model was trained on, if its config says another.
        **parameters: others of the method, by their names in `rope_parameters`. Default: those of the library.

    Returns:
        The model.

    Raises:
        ValueError: the model is none of hf_tx, is that long already, has no use for the method, or is scaled by
            another one; an unknown method or parameter; `longrope` without its factors.
        StrictDataclassError: a parameter with a value that breaks a rule. Nothing has changed then.

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
        raise ValueError(f"method = {method!r}: is unknown.{nearest(method, METHODS)} Known: {', '.join(METHODS)}")

    stacks = [module for module in model.modules() if isinstance(module, TxStack)]
    lengths = [trained or _length(stack.config) for stack in stacks]
    short = [(stack, length) for stack, length in zip(stacks, lengths, strict=True) if length < target]
    if not short:
        raise ValueError(f"max_position_embeddings = {target}: must be above the {min(lengths):g} that the model has.")
    plans = [_changes(stack.config, length, target, trained, method, parameters) for stack, length in short]
    if (method or parameters) and not any("rope_parameters" in changes for changes in plans):
        given = ", ".join([*([f"method = {method!r}"] if method else []), *parameters])
        raise ValueError(
            f"{given}: there is nothing to scale, since no layer both rotates and sees further than the model was "
            "trained on; leave it out."
        )
    # All is known to be right before anything changes.
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
        raise ValueError(f"position_type = {unknown[0]!r}: how it takes longer texts is not known here.")
    if _LEARNED & set(config.layer_positions) and length > config.max_position_embeddings:
        raise ValueError(
            f"original_max_position_embeddings = {length}: the table of learned positions has "
            f"{config.max_position_embeddings}."
        )
    if "rope" not in config.layer_positions:
        return {"max_position_embeddings": target}
    layers = list(zip(config.layer_positions, config.layer_types, mask_groups(config), strict=True))
    sets = {}
    for kind, view in config.rope_views().items():
        if trained is not None and view.rope_parameters["rope_type"] != "default":
            raise ValueError(
                f"original_max_position_embeddings = {trained}: the model is scaled already, and its config says from "
                f"which length on: rope_parameters = {view.rope_parameters}; leave it out."
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
        raise ValueError(f"rope_type = {kind!r}: no method goes on with it; known are {', '.join(METHODS)}.")
    method = method or ("yarn" if kind == "default" else kind)
    if kind not in ("default", method):
        raise ValueError(
            f"method = {method!r}: the frequencies are scaled by {kind!r} already, and the model was trained with "
            f"that; method = {kind!r} goes on with it."
        )
    for name in parameters:
        if name not in METHODS[method]:
            known = ", ".join(METHODS[method]) or "there are none"
            raise ValueError(f"{name}: is no parameter of {method!r}.{nearest(name, METHODS[method])} Known: {known}.")
    defaults: dict[str, Any] = {}
    if method == "longrope":
        frequencies = config.rotary_dim // 2
        if "long_factor" not in parameters:
            raise ValueError(
                f"method = 'longrope' needs long_factor, a list with one factor for each of the {frequencies} "
                "frequencies: they are searched for a model, and do not follow from the lengths."
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
                "there is nothing to scale; train on longer texts."
            )


def _interpolated(table: nn.Embedding, offset: int, length: int, target: int) -> nn.Embedding:
    """Return a table of `target` positions, from the first `length` of one, both after `offset` rows that stay."""
    weight = table.weight.detach()
    rows = weight[offset : offset + length].float().t()[None]
    longer = nn.functional.interpolate(rows, size=target, mode="linear", align_corners=True)[0].t()
    weight = torch.cat((weight[:offset], longer.to(weight.dtype)))
    return nn.Embedding.from_pretrained(weight, freeze=not table.weight.requires_grad)
