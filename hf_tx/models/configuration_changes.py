# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Changes of the mixers of a stored config, which also remove settings that no layer uses any more."""

from typing import Any

from .configuration_checks import OF_POSITIONS, OF_SCORES, crosses_by_scores
from .mixers import MIXERS
from .positions import POSITIONS


def without_idle(stored: dict[str, Any], names: list[str]) -> dict[str, Any]:
    """Return a stored config without what no layer with these mixers reads.

    Args:
        stored: the config as files hold it.
        names: the new mixer of every layer.

    Raises:
        ValueError: a mixer is unknown.
    """
    mixers = [MIXERS.get(name) for name in names]
    kept = dict(stored)
    by_layer = stored.get("per_layer_config") or {}
    if not isinstance(by_layer, dict) or not all(_is_layer(layer, by_layer[layer], mixers) for layer in by_layer):
        return kept  # raises an error when the config is created
    scores = crosses_by_scores(kept.get("cross_mixer"), kept.get("cross_attention_hidden_size"))
    overrides = {
        layer: own for layer, fields in by_layer.items() if (own := _read_by(mixers[int(layer)], fields, scores))
    }
    if by_layer:
        kept["per_layer_config"] = overrides or None
    if not any("sliding_window" in mixer.needs for mixer in mixers):
        kept.pop("sliding_window", None)
    if not scores and not any(mixer.is_attention for mixer in mixers):
        kept = {name: value for name, value in kept.items() if name not in OF_SCORES}
    if not any(mixer.takes_start for mixer in mixers):
        kept.pop("initial_state", None)
    options = kept.get("mixer_options")
    if options:
        kept["mixer_options"] = {name: value for name, value in options.items() if name in names} or None

    scheme = stored.get("position_type")
    if scheme is None or POSITIONS.get(scheme).has_embedding:
        return kept
    own_schemes = {int(layer): fields.get("position_type", scheme) for layer, fields in overrides.items()}
    attending = [idx for idx, mixer in enumerate(mixers) if mixer.is_attention]
    taken = {own_schemes.get(idx, scheme) for idx in attending}
    rope = kept.get("rope_parameters") or {}
    if scheme not in taken:
        kept["position_type"] = "none"
    read = {field for name in taken for field in POSITIONS.get(name).reads}
    kept = {name: value for name, value in kept.items() if name not in OF_POSITIONS.keys() - read}
    if "rope" not in taken:
        kept.pop("rope_parameters", None)
    elif any(isinstance(own, dict) for own in rope.values()):
        kinds = {mixers[idx].layer_type for idx in attending}
        kept["rope_parameters"] = {kind: own for kind, own in rope.items() if kind in kinds}
    return kept


def _is_layer(layer: Any, fields: Any, mixers: list[Any]) -> bool:
    return str(layer).isdecimal() and int(layer) < len(mixers) and isinstance(fields, dict)


def _read_by(mixer: Any, fields: dict[str, Any], scores: bool) -> dict[str, Any]:
    """Return those settings of one layer that it reads; `scores`: whether its attention to an encoder has any."""
    idle = set() if "sliding_window" in mixer.needs else {"sliding_window"}
    if not mixer.is_attention:
        idle |= {"position_type"} | (set() if scores else OF_SCORES.keys())
    return {name: value for name, value in fields.items() if name not in idle}
