# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Checkpoints in and out: models of the library as settings of hf_tx, and back."""

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
    """Return a model of the library as a model of hf_tx that computes the same.

    In training, dropout stands where hf_tx has it: T5 has one more after the last norm of a stack, ModernBERT after
    attention, and ModernBERT and DistilBERT before the output of question answering.

    Args:
        source: a model of transformers, a local folder, or a name on the Hub.
        architecture: of a folder or a name, the class to read it as, by the library's name or by ours, such as
            `LlamaModel` for the base model without its head. Default: the one that config.json names. All weights
            of the class must be there: for a new head, save the converted base model, and load that with the class of
            the head.
        mixers: other mixers, as in the config. Weights that they have in common with the source are kept: all that
            weigh or sum values take over the projections of queries, keys, values and outputs, recurrent networks
            nothing. What is new is initialised as in a new model (`initializer_range`, or what the mixer draws
            itself), and reported, as is what has no place. Settings that no layer reads any more, such as a scale of
            scores, go as well. Of an encoder-decoder, the mixers of both stacks.
        config_changes: other fields of the config to change, by name.
        dtype: of the weights. Default: the source's.
        attn_implementation: the backend. Default: the source's where it computes all layers here, or else the first
            that does.
        device_map: as in `from_pretrained`.
        revision: of the repository on the Hub.
        token: for the Hub.
        cache_dir: where downloads are kept.
        local_files_only: do not ask the Hub.
        copy: whether a model in memory keeps its weights for itself, and whether those of a file that stand in
            another order there are contiguous here. False: weights are views of the source where its layout allows
            it, such as transposed matrices, which some trainers (FSDP) refuse.
        output_loading_info: return a dict beside the model as well, with `missing_keys` (initialised, not loaded),
            `unexpected_keys` (of the source, and without a place in the changed model) and `dropped_keys` (of the
            source, with the reason why they have no part in the function: second names, constants, tensors of older
            versions of the library such as `inv_freq` and `position_ids`, and the weights of other heads than the
            one that is read, which are warned of).

    Returns:
        The model, in the mode (training or not) of a source in memory and else in evaluation mode;
        `model.config.origin` says where it comes from. With `output_loading_info`, the dict as well.

    Raises:
        NotExpressible: a field of the source has a value that hf_tx cannot compute; a ValueError.
        ValueError: a family that is not known, a tensor without a rule (such as a bias or a layer more than the config
            says) or of another shape than the config says, weights of several dtypes in memory and no `dtype`,
            adapters that are not merged, a change of a field that does not exist, or one of the shape of a weight or
            of which weights are tied.
        OSError: files that are not there, or not whole.
    """
    if isinstance(dtype, str) and dtype != "auto" and not isinstance(getattr(torch, dtype, None), torch.dtype):
        raise ValueError(f"dtype = {dtype!r}: is no dtype of torch, such as 'bfloat16'.")
    if not isinstance(config_changes or {}, dict):
        raise ValueError(f"config_changes = {config_changes!r}: must be a dict of fields and their values.")
    in_memory = isinstance(source, PreTrainedModel)
    if in_memory and architecture is not None:
        raise ValueError(
            f"architecture = {architecture!r}: says as what a folder or a name is read, and source is a model: pass "
            "the part of it that you want, such as source.base_model."
        )
    hub = dict(revision=revision, token=token, cache_dir=cache_dir, local_files_only=local_files_only)
    for found in [of_model(source)] if in_memory else of_checkpoint(source, architecture, dtype, hub):
        plain, plan, dropped, problem = _translate(found)
        if problem is None:
            break
    else:
        raise ValueError(problem)
    if others := [name for name, reason in dropped.items() if reason is OTHER_HEAD]:
        logger.warning(f"{source}: {_listed(others)} left out of a {found.cls.__name__}: {OTHER_HEAD}.")
    dtype = found.dtype if dtype in (None, "auto") else dtype
    if dtype is None:
        dtypes = " and ".join(dtypes_of(found.state))
        raise ValueError(f"source has weights in {dtypes}, and a converted model has one dtype: name it as dtype.")

    converted = _convert(found.state, plan, clones=copy and in_memory, lays_out=copy)
    changed = _changed(plain, mixers, config_changes)
    if attn_implementation is None and found.backend is not None and refusal(changed, found.backend) is None:
        attn_implementation = found.backend
    with without_progress_bars():  # what is in memory already is not worth one
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
        raise ValueError(f"not filled: {sorted(info['missing_keys'])}; not used: {sorted(info['unexpected_keys'])}.")
    if found.generation_config is not None and model.can_generate():
        model.generation_config = found.generation_config
    model.config.name_or_path = found.config.name_or_path
    model.train(found.training)
    return (model, {**info, "dropped_keys": dropped}) if output_loading_info else model


def to_hf(model: Any, model_type: str | None = None) -> Any:
    """Return a model of hf_tx as a model of the library that computes the same.

    Args:
        model: a model of hf_tx.
        model_type: the family to convert to. Default: the one that it was converted from.

    Returns:
        The model of the library, in the same mode, with weights of its own.

    Raises:
        NotExpressible: a setting that the family does not have; a ValueError.
        ValueError: the model was not converted, and no family is named; or one that is not known; a model that is none
            of hf_tx, or has adapters or weights of several dtypes.
    """
    require_ours(model)
    state = unwrap_names(model.state_dict())
    refuse_adapters("model", state)
    origin = model.config.origin or {}
    model_type = model_type or origin.get("model_type")
    if model_type is None:
        raise ValueError(f"this model was not converted: name its family by model_type, one of {', '.join(FAMILIES)}.")
    if model_type not in FAMILIES:
        raise ValueError(
            f"model_type = {model_type!r}: is not known.{nearest(model_type, FAMILIES)} Known: {', '.join(FAMILIES)}"
        )
    family = FAMILIES[model_type].for_class(type(model).__name__)
    if type(model.config).model_type != family.kind.model_type:
        raise NotExpressible("model_type", model_type, f"it is a {family.kind.model_type}, as a converted one")
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
            f"model has weights in {' and '.join(dtypes)}, and a converted one has one dtype: see model.to."
        )
    cls = getattr(transformers, head.theirs)
    pools = head.ours == "TxEncoderModel" and "add_pooling_layer" in family.by_weights
    with without_progress_bars(), without_warnings():  # they would name what is dropped
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
        raise NotExpressible("weights", lacks, f"they are of one side only: this model, or a {model_type}")
    if getattr(model, "generation_config", None) is not None and theirs.can_generate():
        theirs.generation_config = copies.deepcopy(model.generation_config)
    theirs.config.name_or_path = model.config.name_or_path
    return theirs.train(model.training)


def plan_of(model: Any, family: Family | None = None, head: Head | None = None) -> Plan:
    """Return which weights of the library's model are which of ours. Of tied weights, ours has one.

    Args:
        model: a model of hf_tx.
        family: the family. Default: the one that it was converted from.
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
    """Return a model of ours without weights, whose weights are whose, what is dropped and why, and what does not
    fit."""
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
    require_shapes(empty, shapes, "changes may not change sizes (resize_token_embeddings can, afterwards)")
    before, after = (each.get_expanded_tied_weights_keys(all_submodels=True) for each in (model, empty))
    if before != after:
        other = sorted(before.keys() ^ after.keys())
        raise ValueError(
            f"config_changes: tie or untie {other}; tie_embeddings and untie_embeddings do that afterwards."
        )
    return changed


def _check_complete(plan: Plan, found: Source, family: Family) -> tuple[dict[str, str], str | None]:
    """Check that every tensor of ours is filled and every one of theirs used; return those that are dropped, with the
    reason, and what is wrong if something is."""
    state = found.state
    if plan.unnamed:  # such as those of an activation
        raise NotExpressible("weights", plan.unnamed, f"a {family.model_type} is not known to have such tensors")
    lacking = [match for match in plan.matches if not all(name in state for name in match.theirs)]
    if empty := [key for match in lacking for key in match.ours]:
        way_out = _way_to_the_rest(found, family, empty)
        return {}, f"{family.model_type}: no tensor of the source fills {_listed(empty)}{way_out}."
    for match in plan.matches:
        name, ours = match.theirs[0], match.ours[0]
        if match.rule.keeps and state[name].shape != plan.shapes[ours]:
            raise ValueError(
                f"{name} of the source has the shape {tuple(state[name].shape)}, and its config says "
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
                raise NotExpressible("weights", name, f"{reason}, and this tensor is something else")
    if not left:
        return dropped, None
    cls = found.cls.__name__
    way_out = "" if found.in_memory else f" If it may do without, pass the model itself ({cls}.from_pretrained)."
    why = f"a {cls} with its config has no such weights."
    problem = f"{family.model_type}: no rule uses {_listed(left)} of the source: {why}"
    return dropped, problem + way_out


def _listed(names: list[str]) -> str:
    """Return the names for a message, which is not to be a hundred lines."""
    return f"{names[:6]}" + (f" and {len(names) - 6} more" if len(names) > 6 else "")


def _way_to_the_rest(found: Source, family: Family, empty: list[str]) -> str:
    """Return how to convert a checkpoint that lacks these weights of ours, if that is possible."""
    base = family.heads[0]
    if found.in_memory or found.cls.__name__ == base.theirs or any(name.startswith("model.") for name in empty):
        return ""
    return f"; architecture = {base.theirs!r} reads the model without the head that needs them"


def _identity(tensor: Any) -> int:
    """Return what two names of one weight have in common."""
    return tensor.data_ptr() if isinstance(tensor, torch.Tensor) else id(tensor)


def _convert(state: dict[str, Any], plan: Plan, clones: bool, lays_out: bool) -> dict[str, Any]:
    """Take their tensors out of the state, and return ours, to be made when loading asks for each.

    Args:
        state: theirs.
        plan: which are which.
        clones: every tensor gets a storage of its own.
        lays_out: those do whose elements stand in another order here than there.
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
