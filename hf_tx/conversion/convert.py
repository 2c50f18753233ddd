# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Converts models of transformers to models of hf_tx, and back."""

import copy as copies
import json
import re
from functools import partial
from typing import Any

import torch
import transformers
from transformers.modeling_utils import PreTrainedModel
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.utils import logging

from ..common.quiet import without_progress_bars, without_warnings
from ..models.backend_rules import refusal
from ..models.registry import nearest
from ..models.weight_names import unwrap_names
from .building import build_config, changes_with_mixers, class_named, device_of, empty_model, require_shapes
from .families import FAMILIES, family_of
from .family import OTHER_HEAD, Family, Head
from .fields import NotExpressible
from .sources import (
    Part,
    Parts,
    Source,
    StoredTensor,
    dtypes_of,
    of_checkpoint,
    of_model,
    refuse_adapters,
    require_ours,
)
from .weights import Match, Plan

logger = logging.get_logger(__name__)


def from_hf(
    source: Any,
    *,
    architecture: str | None = None,
    mixers: Any = None,
    config_changes: dict[str, Any] | None = None,
    dtype: torch.dtype | str | None = None,
    attn_implementation: str | None = None,
    device_map: Any = None,
    revision: str | None = None,
    token: str | bool | None = None,
    cache_dir: Any = None,
    local_files_only: bool = False,
    copy: bool = True,
    output_loading_info: bool = False,
) -> Any:
    """Convert a model of transformers to a model of hf_tx that computes the same.

    In training, dropout is applied where the models of hf_tx apply it. T5 has one more dropout after the last norm of
    a stack, ModernBERT after attention, and ModernBERT and DistilBERT before the output of question answering.

    Args:
        source: a model of transformers, a local folder, or a name on the Hub.
        architecture: the class to load a folder or a name as, with its name in transformers or in hf_tx, such as
            `LlamaModel` for the base model without its head. Default: the class that config.json names. The source
            must have all weights of the class: for a new head, save the converted base model, and load it with the
            class of the head.
        mixers: other mixers, as in the config. Weights that they have in common with the source are kept: attention
            and linear mixers keep the projections of queries, keys, values and outputs, recurrent networks nothing.
            New weights are initialized as in a new model and reported, as are weights that are not used. Settings that
            no layer uses any more, such as a scale of the scores, are removed. For an encoder-decoder, the mixers of
            both stacks.
        config_changes: other fields of the config to change, by name.
        dtype: dtype of the weights. Default: that of the source.
        attn_implementation: the attention backend. Default: that of the source if it supports all layers, or else the
            first one that does.
        device_map: as in `from_pretrained`.
        revision: revision of the repository on the Hub.
        token: token for the Hub.
        cache_dir: folder of the download cache.
        local_files_only: only use files that are already downloaded.
        copy: True: weights of a model in memory are copied, and weights that have another layout in a file are made
            contiguous. False: weights are views of the source if its layout allows it, such as transposed matrices;
            some trainers (FSDP) do not accept these.
        output_loading_info: also return a dict with `missing_keys` (initialized, not loaded), `unexpected_keys` (not
            used in the changed model) and `dropped_keys` (not needed, with the reason: second names, constants,
            tensors of older versions of transformers such as `inv_freq` and `position_ids`, and weights of other
            heads, which are also logged as a warning).

    Returns:
        The model. It is in the mode (training or evaluation) of a source in memory, or else in evaluation mode.
        `model.config.origin` records where it comes from. With `output_loading_info`, a tuple of model and dict.

    Raises:
        NotExpressible: if a field of the source has a value that hf_tx cannot compute; a ValueError.
        ValueError: if the model type is unknown; if a tensor has no rule (such as an additional bias or layer) or
            another shape than the config defines; if weights in memory have several dtypes and `dtype` is None; if
            adapters are not merged; if a changed field does not exist, or changes the shape of a weight or which
            weights are tied.
        OSError: if files are missing or incomplete.
    """
    if isinstance(dtype, str) and dtype != "auto" and not isinstance(getattr(torch, dtype, None), torch.dtype):
        raise ValueError(f"dtype = {dtype!r}: must be the name of a torch dtype, such as 'bfloat16'.")
    if not isinstance(config_changes or {}, dict):
        raise ValueError(f"config_changes = {config_changes!r}: must be a dict of field names and values.")
    in_memory = isinstance(source, PreTrainedModel)
    if in_memory and architecture is not None:
        raise ValueError(
            f"architecture = {architecture!r} can only be used if source is a folder or a name, and it is a model: "
            "pass "
            "the part of the model that you want to convert, such as source.base_model."
        )
    hub = dict(revision=revision, token=token, cache_dir=cache_dir, local_files_only=local_files_only)
    for found in [of_model(source)] if in_memory else of_checkpoint(source, architecture, dtype, hub):
        plain, plan, dropped, problem = _translate(found)
        if problem is None:
            break
    else:
        raise ValueError(problem)
    if others := [name for name, reason in dropped.items() if reason is OTHER_HEAD]:
        logger.warning(f"{source}: {_listed(others)} were not loaded into {found.cls.__name__}: {OTHER_HEAD}.")
    dtype = found.dtype if dtype in (None, "auto") else dtype
    if dtype is None:
        dtypes = " and ".join(dtypes_of(found.state))
        raise ValueError(f"source has weights in {dtypes}, but a converted model has one dtype: pass it as dtype.")

    converted = _convert(found.state, plan, clones=copy and in_memory, lays_out=copy)
    changed = _changed(plain, mixers, config_changes)
    if attn_implementation is None and found.backend is not None and refusal(changed, found.backend) is None:
        attn_implementation = found.backend
    with without_progress_bars():  # the weights are already in memory
        model, info = type(plain).from_pretrained(
            None,
            config=changed,
            state_dict=converted,
            dtype=dtype,
            attn_implementation=attn_implementation,
            device_map=found.device if device_map is None else device_map,
            output_loading_info=True,
        )
    changes = mixers is not None or bool(config_changes)
    if (info["missing_keys"] or info["unexpected_keys"]) and not changes:
        raise ValueError(
            f"the conversion is incomplete: missing weights {sorted(info['missing_keys'])}, unused weights "
            f"{sorted(info['unexpected_keys'])}. Please report this as a bug of hf_tx."
        )
    if found.generation_config is not None and model.can_generate():
        model.generation_config = found.generation_config
    model.config.name_or_path = found.config.name_or_path
    model.train(found.training)
    return (model, {**info, "dropped_keys": dropped}) if output_loading_info else model


def to_hf(model: Any, model_type: str | None = None) -> Any:
    """Convert a model of hf_tx to a model of transformers that computes the same.

    Args:
        model: a model of hf_tx.
        model_type: the model type to convert to. Default: the one that the model was converted from.

    Returns:
        The model of transformers, in the same mode, with a copy of the weights.

    Raises:
        NotExpressible: if the model type does not support a setting of the model; a ValueError.
        ValueError: if the model was not converted and `model_type` is None; if the model type is unknown; if the model
            is not one of hf_tx, or has adapters or weights of several dtypes.
    """
    require_ours(model)
    state = unwrap_names(model.state_dict())
    refuse_adapters("model", state)
    origin = model.config.origin or {}
    model_type = model_type or origin.get("model_type")
    if model_type is None:
        raise ValueError(
            f"this model was not converted from another: pass the model type to convert to as model_type, one of "
            f"{', '.join(FAMILIES)}."
        )
    if model_type not in FAMILIES:
        raise ValueError(
            f"model_type = {model_type!r} is unknown.{nearest(model_type, FAMILIES)} Known: {', '.join(FAMILIES)}."
        )
    family = FAMILIES[model_type].for_class(type(model).__name__)
    if type(model.config).model_type != family.kind.model_type:
        raise NotExpressible(
            "model_type",
            model_type,
            f"it is converted from and to {family.kind.model_type}, and this model is a "
            f"{type(model.config).model_type}",
        )
    ours = type(model).__name__
    head = family.head_of(ours)
    same_family = origin.get("model_type") == model_type
    if same_family and family.head_of(origin["architecture"]).ours == ours:
        head = family.head_of(origin["architecture"])
    base = CONFIG_MAPPING[model_type].from_dict(dict(origin["config"])) if same_family else None
    config = family.write(model.config, base, head)

    plan = plan_of(model, family, head)
    if plan.unnamed:
        raise NotExpressible("weights", plan.unnamed, f"a {model_type} has no such tensors")
    if len(dtypes := dtypes_of(state)) > 1:
        raise ValueError(
            f"model has weights in {' and '.join(dtypes)}, but a converted model has one dtype: convert the "
            "weights with model.to(dtype) first."
        )
    cls = getattr(transformers, head.theirs)
    pools = head.ours == "TxEncoderModel" and "add_pooling_layer" in family.by_weights
    with without_progress_bars(), without_warnings():  # about weights that are dropped
        theirs, info = cls.from_pretrained(
            None,
            config=config,
            state_dict={name: weight.clone() for name, weight in plan.to_theirs(state).items()},
            dtype=model.dtype,
            device_map=device_of(model),
            output_loading_info=True,
            **({"add_pooling_layer": model.pooler is not None} if pools else {}),
        )
    missing = [name for name in info["missing_keys"] if not any(re.fullmatch(each, name) for each in family.dropped)]
    if missing or info["unexpected_keys"]:
        lacks = sorted({*missing, *info["unexpected_keys"]})
        raise NotExpressible("weights", lacks, f"only one of this model and a {model_type} has them")
    if getattr(model, "generation_config", None) is not None and theirs.can_generate():
        theirs.generation_config = copies.deepcopy(model.generation_config)
    theirs.config.name_or_path = model.config.name_or_path
    return theirs.train(model.training)


def plan_of(model: Any, family: Family | None = None, head: Head | None = None) -> Plan:
    """Return which weights of the model of transformers are which of hf_tx. Of tied weights, only one is listed.

    Args:
        model: a model of hf_tx.
        family: the family. Default: the one that the model was converted from.
        head: the class.
    """
    origin = model.config.origin
    family = family or FAMILIES[origin["model_type"]].for_class(type(model).__name__)
    head = head or family.head_of(origin["architecture"])
    tied = model.get_expanded_tied_weights_keys(all_submodels=True)
    shapes = {name: weight.shape for name, weight in unwrap_names(model.state_dict()).items() if name not in tied}
    return Plan(family.rules_of(head, model.config), shapes, model.config.num_attention_heads)


# ------------------------------------------------------------------------------------------------------------- parts
def _translate(found: Source) -> tuple[Any, Plan, dict[str, str], str | None]:
    """Return a model of hf_tx without weights, the plan of its weights, what is dropped and why, and an error message
    if something does not fit."""
    family = family_of(found.config).for_class(found.cls.__name__)
    head = family.head_of(found.cls.__name__)
    settings = family.read(found.config) | head.settings
    if found.tied is not None:
        settings["tie_word_embeddings"] = found.tied
    if "add_pooling_layer" in family.by_weights and head.ours == "TxEncoderModel":
        settings["add_pooling_layer"] = "pooler.dense.weight" in found.state
    config = family.build(settings, origin=_origin(found))
    plain = empty_model(class_named(head.ours), config)
    plan = plan_of(plain, family, head)
    return plain, plan, *_check_complete(plan, found, family)


def _origin(found: Source) -> dict[str, Any]:
    config = json.loads(found.config.to_json_string(use_diff=False))
    return {"model_type": found.config.model_type, "architecture": found.cls.__name__, "config": config}


def _changed(model: Any, mixers: Any, changes: dict[str, Any] | None) -> Any:
    """Return the config of a model with the changes."""
    config, changes = model.config, changes_with_mixers(model.config, mixers, changes)
    if not changes:
        return config
    changed = build_config(type(config), config.to_dict(), changes)
    shapes = {name: tensor.shape for name, tensor in model.state_dict().items()}
    empty = empty_model(type(model), changed)
    require_shapes(
        empty, shapes, "config_changes cannot change sizes (use resize_token_embeddings afterwards for the vocabulary)"
    )
    before, after = (each.get_expanded_tied_weights_keys(all_submodels=True) for each in (model, empty))
    if before != after:
        other = sorted(before.keys() ^ after.keys())
        raise ValueError(
            f"config_changes cannot tie or untie {other}: use tie_embeddings or untie_embeddings afterwards."
        )
    return changed


def _check_complete(plan: Plan, found: Source, family: Family) -> tuple[dict[str, str], str | None]:
    """Check that every tensor of ours is filled and every tensor of theirs is used. Return those that are dropped,
    with the reason, and an error message if something is wrong."""
    state = found.state
    if plan.unnamed:  # such as those of an activation
        raise NotExpressible(
            "weights", plan.unnamed, f"the weight table of {family.model_type} does not have these tensors"
        )
    lacking = [match for match in plan.matches if not all(name in state for name in match.theirs)]
    if empty := [key for match in lacking for key in match.ours]:
        way_out = _way_to_the_rest(found, family, empty)
        return {}, f"{family.model_type}: the source has no weights for {_listed(empty)}{way_out}."
    for match in plan.matches:
        name, ours = match.theirs[0], match.ours[0]
        if match.rule.keeps and state[name].shape != plan.shapes[ours]:
            raise ValueError(
                f"{name} of the source has the shape {tuple(state[name].shape)}, but its config defines "
                f"{tuple(plan.shapes[ours])}."
            )
    names = {name for match in plan.matches for name in match.theirs}
    used = {_identity(state[name]) for name in names}
    dropped, left = {}, []
    for name in (*state, *found.unread):
        tensor = state.get(name)
        if name in names or (tensor is not None and _identity(tensor) in used):  # the same storage: tied
            continue
        reason = family.leaves_out(name, found.cls)
        if reason is None:
            left.append(name)
            continue
        dropped[name] = reason
        constant = next((make for pattern, make in family.constants.items() if re.fullmatch(pattern, name)), None)
        if constant is not None and tensor is not None:
            held = tensor[...]
            if not torch.allclose(held.float(), constant(held), atol=1e-2):
                raise NotExpressible("weights", name, f"{reason}, but this tensor has other values")
    if not left:
        return dropped, None
    cls = found.cls.__name__
    way_out = (
        ""
        if found.in_memory
        else f" To leave them out, load the model with {cls}.from_pretrained, and pass it as source."
    )
    why = f"a {cls} with this config does not have them."
    problem = f"{family.model_type}: the weights {_listed(left)} of the source are not used: {why}"
    return dropped, problem + way_out


def _listed(names: list[str]) -> str:
    """Return the first names, for a short message."""
    return f"{names[:6]}" + (f" and {len(names) - 6} more" if len(names) > 6 else "")


def _way_to_the_rest(found: Source, family: Family, empty: list[str]) -> str:
    """Return how to convert a checkpoint without these weights, if that is possible."""
    base = family.heads[0]
    if found.in_memory or found.cls.__name__ == base.theirs or any(name.startswith("model.") for name in empty):
        return ""
    return f"; pass architecture = {base.theirs!r} to load the model without the head that needs them"


def _identity(tensor: Any) -> int:
    """Return a number that is the same for all names of one weight."""
    return tensor.data_ptr() if isinstance(tensor, torch.Tensor) else id(tensor)


def _convert(state: dict[str, Any], plan: Plan, clones: bool, lays_out: bool) -> dict[str, Any]:
    """Take their tensors out of the state, and return ours, to be made when loading asks for each.

    Args:
        state: theirs.
        plan: which are which.
        clones: every tensor gets a storage of its own.
        lays_out: copy tensors whose elements have another order in memory than in the source.
    """
    converted: dict[str, Any] = {}
    for match in plan.matches:
        tensors = [state.pop(name) for name in match.theirs]
        own = clones or (lays_out and match.rule.reorders)
        if match.rule.keeps and not own:
            converted[match.ours[0]] = tensors[0]
        else:
            parts = Parts(partial(_take, plan, match, tensors, own))
            converted.update((key, Part(parts, index)) for index, key in enumerate(match.ours))
    return converted


def _take(plan: Plan, match: Match, tensors: list[Any], own: bool) -> list[torch.Tensor]:
    held = [
        (tensor.read() if own else tensor[...]) if isinstance(tensor, StoredTensor) else tensor for tensor in tensors
    ]
    made = plan.take(match, held)
    return [tensor.clone(memory_format=torch.contiguous_format) for tensor in made] if own else made
