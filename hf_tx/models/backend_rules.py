# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Which attention backend computes which mechanism.

A backend computes what the config defines, or raises an error that names the layer, the feature and other backends.
What only depends on the config is checked when a model is created and when its backend is changed; what depends on a
call is checked before its first layer. All backends support padding, causal and bidirectional layers, windows and
shared heads.

The backends of serving engines are different; see `serving`.
"""

import inspect
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import torch
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, AttentionMaskInterface
from transformers.modeling_utils import AttentionInterface
from transformers.utils.generic import is_flash_attention_requested

from .mixers import MIXERS
from .positions import POSITIONS
from .serving import is_paged, unserved

#: Tried in this order when no backend is named.
DEFAULTS = ("sdpa", "eager")

#: The features that not every backend has.
SOFTCAP = "softcap"
POSITION_BIAS = "position bias"
SINKS = "attention sinks"
#: Masks that are more than causality, a window and padding: functions that never read the mask do not have them.
PATTERN = "mask of this pattern"
WEIGHTS = "attention weights"
FEATURES = (SOFTCAP, POSITION_BIAS, SINKS, PATTERN, WEIGHTS)


@dataclass(frozen=True)
class Backend:
    """What a backend declares.

    Attributes:
        computes: the `FEATURES` that it supports.
        refuses: `refuses(layer, features)` returns why the backend cannot compute a layer with this config and these
            features, or None if it can.
        needs_band: whether it is made for layers whose keys lie in a band around the query, and leaves others to
            another backend.
        by_distance: whether it takes `position_bias` by distance, `(heads, queries + keys - 1)` with that of distance
            `key - query` at `key - query + queries - 1`, so that nobody builds a bias for every pair.
        dense_masks: whether it takes a tensor for every pair as its mask, bool or added to the scores.
        keywords: keywords of its own that a call may give it, or None: any.
        serves: whether it is that of a serving engine, which masks the requests in a row and keeps their keys itself.
            No mask is made for it, and it has no state for layers that are no attention.
    """

    computes: frozenset[str] = frozenset()
    refuses: Callable[[Any, frozenset[str]], str | None] | None = None
    needs_band: bool = False
    by_distance: bool = False
    dense_masks: bool = False
    keywords: frozenset[str] | None = None
    serves: bool = False


def _backend(*computes: str, dense_masks: bool = False) -> Backend:
    return Backend(frozenset(computes), dense_masks=dense_masks, keywords=frozenset())


def _refused_by_vllm(layer: Any, features: frozenset[str]) -> str | None:
    if layer.final_logit_softcapping is not None and layer.logit_scale != 1.0:
        return "it applies final_logit_softcapping before logit_scale instead of after it"
    return None


#: What is known of backends; one that is not here has none of the features.
BACKENDS: dict[str, Backend] = {
    "eager": _backend(*FEATURES, dense_masks=True),
    "sdpa": _backend(POSITION_BIAS, PATTERN, dense_masks=True),
    "flex_attention": _backend(SOFTCAP, POSITION_BIAS, SINKS, PATTERN, dense_masks=True),
    "flash_attention_2": _backend(SOFTCAP),
    "flash_attention_3": _backend(SOFTCAP, SINKS),
    "flash_attention_4": _backend(SOFTCAP, SINKS),
    # Serving engines. `paged|` is continuous batching, which the others above compute as well: see `_known`.
    "paged|eager": Backend(frozenset({SINKS}), serves=True),
    "vllm": Backend(frozenset({SOFTCAP}), refuses=_refused_by_vllm, serves=True),
}
#: Backends that hf_tx and plug-ins did not register.
LIBRARY_BACKENDS = frozenset(BACKENDS)


def register_backend(
    name: str,
    attention: Callable[..., Any],
    mask: Callable[..., Any],
    refuses: Callable[[Any, frozenset[str]], str | None] | None = None,
    *,
    computes: Collection[str] | None = None,
    needs_band: bool = False,
    by_distance: bool = False,
    dense_masks: bool = False,
) -> None:
    """Register a backend in transformers' own tables, so that it serves any model of transformers, and say what it
    computes. transformers hands a backend without a mask function no mask at all, so both come together; only a
    serving engine has none, see [`register_engine`].

    Args:
        name: the name for `attn_implementation`.
        attention: with the signature of transformers' attention functions; what else it names is a keyword that a
            call of a model may give it.
        mask: with that of its mask functions.
        refuses: see [`Backend`].
        computes: see [`Backend`]. Default: none of the features; or, with `refuses`, all that it does not refuse,
            except attention weights.
        needs_band: see [`Backend`].
        by_distance: see [`Backend`].
        dense_masks: see [`Backend`].

    Raises:
        ValueError: if `computes` has an unknown feature.
    """
    if computes is None:
        computes = () if refuses is None else FEATURES[:-1]
    _check_features(name, computes)
    AttentionInterface.register(name, attention)
    AttentionMaskInterface.register(name, mask)
    keywords = frozenset(inspect.signature(attention).parameters)
    BACKENDS[name] = Backend(frozenset(computes), refuses, needs_band, by_distance, dense_masks, keywords)


def register_engine(name: str, computes: Collection[str] = ()) -> None:
    """Declare that a name of transformers' table of attention functions is that of a serving engine: it puts
    requests into one row, masks them and stores their keys itself. No mask is made for it, and models that it cannot
    serve raise an error.

    Args:
        name: the name that the engine sets as `attn_implementation`.
        computes: see [`Backend`].

    Raises:
        ValueError: if `computes` has an unknown feature.
    """
    _check_features(name, computes)
    BACKENDS[name] = Backend(frozenset(computes), serves=True)


def _check_features(name: str, computes: Collection[str]) -> None:
    if unknown := set(computes) - set(FEATURES):
        raise ValueError(
            f"backend {name!r}: computes has the unknown features {sorted(unknown)}; the features are "
            f"{', '.join(FEATURES)}."
        )


def _known(backend: str) -> Backend:
    """Return what is known of a backend. Kernels from the Hub are flash of the version in their name. A backend under
    continuous batching has those features that do not come with the mask."""
    if backend in BACKENDS:
        return BACKENDS[backend]
    if backend.startswith("paged|"):
        return Backend(_known(backend.removeprefix("paged|")).computes & {SOFTCAP, SINKS}, serves=True)
    if is_flash_attention_requested(requested_attention_implementation=backend):
        version = next((number for number in "34" if backend.endswith(f"attn{number}")), "2")
        return BACKENDS[f"flash_attention_{version}"]
    return Backend()


def layer_features(config: Any, layer_idx: int) -> tuple[str, ...]:
    """Return what a layer asks of a backend, for its mixer and for its attention to an encoder."""
    layer, mixer = config.layer_config(layer_idx), MIXERS.get(config.mixers[layer_idx])
    has_scores = mixer.is_attention or config.crosses_by_scores
    asked = {
        SOFTCAP: has_scores and layer.attn_logit_softcapping is not None,
        POSITION_BIAS: mixer.is_attention and POSITIONS.get(layer.position_type).has_bias,
        SINKS: has_scores and layer.attention_sinks,
        PATTERN: mixer.is_attention and mixer.pattern is not None,
    }
    return tuple(feature for feature, is_asked in asked.items() if is_asked)


def has_band(config: Any, layer_idx: int) -> bool:
    """Whether the keys that a query of a layer sees lie in a band around it."""
    layer, name = config.layer_config(layer_idx), config.mixers[layer_idx]
    mixer = MIXERS.get(name)
    if not mixer.is_attention or mixer.pattern is None:
        return mixer.is_attention and "sliding_window" in mixer.needs
    options = MIXERS.options(config, name)
    return mixer.pattern(options, layer.sliding_window, config.is_causal_family, None, 0).band is not None


def _lacks(backend: Backend, config: Any, layer_idx: int) -> str | None:
    """Return what a backend does not support in a layer, or None."""
    features = layer_features(config, layer_idx)
    for feature in features:
        if feature not in backend.computes:
            return f"it has no {feature}"
    if backend.serves and (reason := unserved(config, layer_idx)):
        return reason
    has_scores = MIXERS.get(config.mixers[layer_idx]).is_attention or config.crosses_by_scores
    if backend.refuses is not None and has_scores:
        return backend.refuses(config.layer_config(layer_idx), frozenset(features))
    return None


def refusal(config: Any, backend: str) -> str | None:
    """Return why the backend cannot compute the config, or None if it can.

    Args:
        config: the config of a stack, or one with stacks as its sub-configs.
        backend: name of an attention implementation.
    """
    for name in config.sub_configs:
        if reason := refusal(getattr(config, name), backend):
            return reason
    if config.sub_configs:
        return None
    known = _known(backend)
    if not known.serves and backend not in ALL_MASK_ATTENTION_FUNCTIONS:
        return (
            f"attn_implementation={backend!r} has no mask function, so padding would be ignored; register one with "
            "the "
            f"same name: transformers.AttentionMaskInterface.register({backend!r}, ...)"
        )
    attentions = [idx for idx in config.distinct_layers if MIXERS.get(config.mixers[idx]).is_attention]
    lacks, layer_idx = None, 0
    if known.needs_band and attentions and not any(has_band(config, idx) for idx in attentions):
        lacks, layer_idx = "it only computes layers with a band (windows, chunks), and no layer has one", attentions[0]
    for idx in config.distinct_layers if config.crosses_by_scores or known.serves else attentions:
        if lacks is None:
            lacks, layer_idx = _lacks(known, config, idx), idx
    if lacks is None:
        return None
    able = [
        name
        for name, other in BACKENDS.items()
        if not other.serves
        and not _lacks(other, config, layer_idx)
        and (has_band(config, layer_idx) or not other.needs_band)
    ]
    paged, name = backend.startswith("paged|"), backend.removeprefix("paged|")
    who = f"continuous batching with {name!r}" if paged else f"attn_implementation={name!r}"
    return (
        f"{who} cannot compute layer {layer_idx} ({config.mixers[layer_idx]!r}): {lacks}; "
        f"use {'generate() with ' if known.serves else ''}one of {', '.join(map(repr, able))}"
    )


def own_keywords(backend: str) -> frozenset[str] | None:
    """Return the keywords of its own that a call may give the backend, or None: any."""
    return _known(backend).keywords


def is_served(config: Any, backend: str, cache: Any) -> bool:
    """Whether a call is that of a serving engine.

    Args:
        config: the config of the stack.
        backend: name of its attention implementation.
        cache: that of the call, or None.

    Raises:
        ValueError: if continuous batching cannot compute a layer, or the call is not one of continuous batching, but
            the backend is only for that.
    """
    if is_paged(cache):
        check_continuous_batching(config, backend)
        return True
    if backend.startswith("paged|"):
        name = backend.removeprefix("paged|")
        raise ValueError(
            f"attn_implementation={backend!r} only works in generate_batch(); use {name!r} for this call."
        )
    return _known(backend).serves


def check_continuous_batching(config: Any, backend: str) -> None:
    """Check that continuous batching and the backend can compute the model, before any request is accepted.

    Raises:
        ValueError: if not; the message names the layer, the feature and other backends.
    """
    if reason := refusal(config, _paged(backend)):
        raise ValueError(f"{reason}.")


def _paged(backend: str) -> str:
    return backend if backend.startswith("paged|") else f"paged|{backend}"


def gives_weights(backend: str) -> bool:
    """Whether the backend also returns the attention weights."""
    return WEIGHTS in _known(backend).computes


def takes_dense_masks(backend: str) -> bool:
    """Whether the backend takes a mask for every pair; see [`Backend`]."""
    return _known(backend).dense_masks


def takes_distances(backend: str) -> bool:
    """Whether the backend takes a bias of the positions by distance; see [`Backend`]."""
    return _known(backend).by_distance


def reads_bands(backend: str) -> bool:
    """Whether the backend goes over bands or tiles on the host, which reads values of the mask; see [`Backend`]."""
    known = _known(backend)
    return known.needs_band or known.by_distance


def check_training(stack: Any, backend: str) -> None:
    """Check that a backend can run or train a stack, before its first layer.

    Args:
        stack: the model; in training mode or not, on its device.
        backend: name of its attention implementation.

    Raises:
        ValueError: if not; the message names the feature and other backends.
    """
    if backend != "flex_attention":
        return
    config, on_cpu = stack.config, stack.device.type == "cpu"
    layers = range(config.num_hidden_layers)
    if on_cpu and any(SINKS in layer_features(config, idx) for idx in layers):
        raise ValueError("attn_implementation='flex_attention' has no attention sinks on CPU; use 'eager'.")
    if not stack.training:
        return
    if on_cpu and torch.is_grad_enabled():
        raise ValueError(
            "attn_implementation='flex_attention' has no backward pass on CPU; train with 'sdpa' or 'eager'."
        )
    for idx in layers:
        dropout = config.layer_config(idx).attention_dropout
        if dropout:
            raise ValueError(
                f"attn_implementation='flex_attention' has no dropout, and layer {idx} has attention_dropout = "
                f"{dropout}; train with 'sdpa' or 'eager', or set it to 0."
            )
