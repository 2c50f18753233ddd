# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""The rules for the fields of a config. Every message names field, value and rule."""

import itertools
import math
from collections.abc import Iterable
from typing import Any

from transformers.activations import ACT2FN
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS, RopeParameters

from .mixers import CROSS_MIXERS, MIXERS
from .norms import NORMS
from .parts import PartRegistry
from .positions import POSITIONS, SINUSOIDS
from .registry import require as require
from .registry import require_known as require_known

#: What one layer may have of its own.
PER_LAYER_FIELDS = (
    "attention_dropout",
    "attention_scale",
    "attn_logit_softcapping",
    "ffn_dropout",
    "ffn_type",
    "hidden_act",
    "intermediate_size",
    "mixer_norm",
    "num_key_value_heads",
    "position_type",
    "sliding_window",
)
#: Fields that only attention reads, with the value at which they do nothing.
OF_SCORES = {
    "attention_scale": None,
    "attn_logit_softcapping": None,
    "attention_sinks": False,
    "qk_norm": False,
    "qk_norm_scope": "head",
}
#: Fields that only some norms, and some position schemes, read, with the value at which they do nothing.
OF_NORMS = {"norm_affine": True, "norm_unit_offset": False}
OF_POSITIONS = {"position_offset": 0, "sinusoidal_type": "interleaved", "relative_attention_per_layer": False}
_PROBLEM_TYPES = ("regression", "single_label_classification", "multi_label_classification")
# Parameters that a kind of rope cannot do without.
_ROPE_NEEDS = {
    "linear": ("factor",),
    "dynamic": ("factor",),
    "yarn": ("factor", "original_max_position_embeddings"),
    "longrope": ("short_factor", "long_factor", "original_max_position_embeddings"),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"),
}
_ROPE_NUMBERS = (
    "rope_theta",
    "factor",
    "low_freq_factor",
    "high_freq_factor",
    "beta_fast",
    "beta_slow",
    "attention_factor",
)


def _is_positive(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf


def _either(names: list[str]) -> str:
    return " or ".join(map(repr, names))


def check_read(config: Any, registry: PartRegistry[Any], used: Iterable[str], neutral: dict[str, Any]) -> None:
    """Check that fields that only some parts of a kind read are set for one of these; `neutral`: what they are when
    nothing reads them."""
    for field, nothing in neutral.items():
        value, able = getattr(config, field), registry.readers(field)
        rule = f"needs {registry.kind} = {_either(able)}, not {_either(sorted(used))}"
        require(value == nothing or bool(set(used) & set(able)), field, value, rule)


def check_parts(config: Any) -> None:
    """Check the names of all parts, and their options."""
    for registry in config.registries:
        registry.check_options(config, config.names_of(registry))


def check_sizes(config: Any) -> None:
    for field in ("vocab_size", "hidden_size", "num_hidden_layers", "max_position_embeddings", "num_attention_heads"):
        value = getattr(config, field)
        require(value > 0, field, value, "must be above 0")
    for field in ("head_dim", "embedding_size"):
        value = getattr(config, field)
        require(value is None or value > 0, field, value, "must be above 0")
    for field in ("position_offset", "type_vocab_size"):
        value = getattr(config, field)
        require(value >= 0, field, value, "must not be below 0")
    for field in ("embedding_scale", "logit_scale", "residual_multiplier"):
        value = getattr(config, field)
        require(value is None or _is_positive(value), field, value, "must be a finite number above 0")
    require_known("embedding_projection", config.embedding_projection, ("sum", "tokens"))
    for field, neutral in (("embedding_projection", "sum"), ("output_projection", False)):
        value = getattr(config, field)
        projects = config.token_size != config.hidden_size
        rule = f"needs an embedding_size other than hidden_size = {config.hidden_size}"
        require(value == neutral or projects, field, value, rule)
    require(_is_positive(config.norm_eps), "norm_eps", config.norm_eps, "must be a finite number above 0")
    spread = config.initializer_range
    require(spread == 0 or _is_positive(spread), "initializer_range", spread, "must be finite and not below 0")


def crosses_by_scores(cross_mixer: str | None, source_size: int | None) -> bool:
    """Whether layers attend to an encoder by scores: a decoder knows of one by the size of its states."""
    return source_size is not None and CROSS_MIXERS.get(cross_mixer or "full").uses_backend


def check_mixers(config: Any) -> None:
    require(
        len(config.mixers) == config.num_hidden_layers,
        "mixers",
        config.mixers,
        f"must name one mixer for each of num_hidden_layers = {config.num_hidden_layers}",
    )
    used = dict.fromkeys(config.mixers)
    for name in used:
        mixer = MIXERS.get(name)
        able = mixer.is_causal if config.is_causal_family else mixer.is_bidirectional
        direction = "causal" if config.is_causal_family else "bidirectional"
        require(able, "mixers", name, f"cannot be {direction}")
    if not config.crosses_by_scores and not any(MIXERS.get(name).is_attention for name in used):
        layers = [config.layer_config(idx) for idx in config.distinct_layers]
        for (field, neutral), layer in itertools.product(OF_SCORES.items(), layers):
            value = getattr(layer, field)
            require(value == neutral, field, value, f"no layer has attention scores: the mixers are {', '.join(used)}")


def check_layer(config: Any, mixer: str) -> None:
    heads, shared = config.num_attention_heads, config.num_key_value_heads
    require(
        shared is not None and 0 < shared <= heads and heads % shared == 0,
        "num_key_value_heads",
        shared,
        f"must divide num_attention_heads = {heads}",
    )
    needs = MIXERS.get(mixer).needs
    for field in needs:
        require(getattr(config, field) is not None, field, None, f"must be set for mixer {mixer!r}")
    window = config.sliding_window
    require(window is None or window > 0, "sliding_window", window, "must be above 0")
    if not config.mixer_norm:
        place = config.norm_position
        require(place == "pre", "mixer_norm", False, f"needs norm_position = 'pre', not {place!r}")
        require(config.norm_type != "none", "mixer_norm", False, "needs a norm_type other than 'none'")
        require(not config.parallel_shared_norm, "mixer_norm", False, "needs parallel_shared_norm = False")
    require_known("hidden_act", config.hidden_act, ACT2FN)
    require(config.intermediate_size > 0, "intermediate_size", config.intermediate_size, "must be above 0")  # type: ignore
    dropouts = ("attention_dropout", "hidden_dropout", "embedding_dropout", "ffn_dropout", "classifier_dropout")
    for field in (*dropouts, "layerdrop"):
        value = getattr(config, field)
        require(value is None or 0 <= value < 1, field, value, "must lie in [0, 1)")
    for field in ("attn_logit_softcapping", "attention_scale"):
        value = getattr(config, field)
        require(value is None or _is_positive(value), field, value, "must be a finite number above 0")


def check_blocks(config: Any) -> None:
    norm = NORMS.get(config.norm_type)
    check_read(config, NORMS, [config.norm_type], OF_NORMS)
    place = config.norm_position
    require_known("norm_position", place, ("pre", "post", "residual_post", "sandwich"))
    scope = config.qk_norm_scope
    require_known("qk_norm_scope", scope, ("head", "heads", "all"))
    require(config.qk_norm or scope == "head", "qk_norm_scope", scope, "needs qk_norm = True")
    if scope == "heads":
        able = [name for name in NORMS if NORMS.get(name).of_heads is not None]
        rule = f"needs norm_type = {_either(able)}, not {config.norm_type!r}"
        require(norm.of_heads is not None, "qk_norm_scope", scope, rule)
    if not config.norm_affine:
        require(scope != "heads", "norm_affine", False, "norms without weights need qk_norm_scope = 'head'")
        require(not config.norm_unit_offset, "norm_affine", False, "needs norm_unit_offset = False")
        biased = config.norm_bias and "norm_bias" in norm.reads
        require(not biased, "norm_affine", False, f"needs norm_bias = False with norm_type = {config.norm_type!r}")
    if not config.residual:
        require(
            config.residual_multiplier == 1, "residual_multiplier", config.residual_multiplier, "needs residual = True"
        )
        require(not config.parallel_residual, "parallel_residual", True, "needs residual = True")
    if config.norm_type == "none":
        require(place == "pre", "norm_position", place, "needs a norm_type other than 'none'")
        require(not config.qk_norm, "qk_norm", True, "needs a norm_type other than 'none'")
        require(not config.embedding_norm, "embedding_norm", True, "needs a norm_type other than 'none'")
    if config.parallel_residual:
        require(place == "pre", "parallel_residual", True, f"needs norm_position = 'pre', not {place!r}")
    if config.parallel_shared_norm:
        require(config.parallel_residual, "parallel_shared_norm", True, "needs parallel_residual = True")


def check_heads_of_models(config: Any) -> None:
    cap = config.final_logit_softcapping
    require(cap is None or _is_positive(cap), "final_logit_softcapping", cap, "must be a finite number above 0")
    if config.is_causal_family:
        check_tied_size(config, config.tie_word_embeddings)


def check_tied_size(config: Any, tied: bool) -> None:
    """Check that a head of what the stack returns can use the weights of the embeddings, if it is to."""
    require(
        not tied or config.token_size == config.output_size,
        "embedding_size",
        config.embedding_size,
        f"a tied head needs hidden_size = {config.hidden_size}; set output_projection = True, or"
        " tie_word_embeddings = False",
    )


def check_positions(config: Any) -> None:
    types = config.names_of(POSITIONS)
    for name in types:
        scheme = POSITIONS.get(name)
        attends = any(MIXERS.get(mixer).is_attention for mixer in config.mixers)
        taken = name == "none" or (name in config.layer_positions and (attends or not scheme.has_bias))
        mixers = ", ".join(dict.fromkeys(config.mixers))
        require(taken, "position_type", name, f"no layer is attention that uses it: the mixers are {mixers}")
        require(
            not scheme.has_embedding or len(types) == 1,
            "position_type",
            sorted(types),
            f"{name!r} is added to the embeddings, so it must be the same for all layers",
        )
    if any("relative_attention_num_buckets" in POSITIONS.get(name).reads for name in types):
        buckets, far = config.relative_attention_num_buckets, config.relative_attention_max_distance
        require(
            buckets >= 4 and buckets % 4 == 0, "relative_attention_num_buckets", buckets, "must be a multiple of 4"
        )
        require(
            far > buckets // 2,
            "relative_attention_max_distance",
            far,
            f"must be above {buckets // 2}, half the buckets",
        )
    check_read(config, POSITIONS, types, OF_POSITIONS)
    kind, size = config.sinusoidal_type, config.embedding_size or config.hidden_size
    require_known("sinusoidal_type", kind, SINUSOIDS)
    require(kind != "tensor2tensor" or size >= 4, "sinusoidal_type", kind, f"needs 4 features, not {size}")


def check_rope(config: Any, parameters: dict[str, Any]) -> None:
    """Check one flat set of rope parameters: names, what its kind needs, and values."""
    kind = parameters.get("rope_type", "default")
    require_known("rope_type", kind, ("default", *ROPE_INIT_FUNCTIONS))
    for key in parameters:
        if key != "type":
            require_known("rope_parameters", key, RopeParameters.__annotations__)
    for key in _ROPE_NEEDS.get(kind, ()):
        require(parameters.get(key) is not None, "rope_parameters", parameters, f"rope_type {kind!r} needs {key}")
    for key in _ROPE_NUMBERS:
        value = parameters.get(key)
        field = key if key == "rope_theta" else f"rope_parameters[{key!r}]"
        require(value is None or _is_positive(value), field, value, "must be a finite number above 0")
    theta, factor = parameters.get("rope_theta"), parameters.get("factor")
    require(theta is not None, "rope_theta", None, "must be a finite number above 0")
    require(
        kind != "yarn" or theta != 1,
        "rope_theta",
        theta,
        "must not be 1 with rope_type 'yarn', which divides by its log",
    )
    require(factor is None or factor >= 1, "rope_parameters['factor']", factor, "must be at least 1")
    given = parameters.get("factor", 1.0) is not None
    require(kind != "proportional" or given, "rope_parameters['factor']", None, "must be a number, or be left out")
    former = parameters.get("original_max_position_embeddings")
    whole = isinstance(former, int) and not isinstance(former, bool) and former > 1
    field = "rope_parameters['original_max_position_embeddings']"
    require(former is None or whole, field, former, "must be an integer above 1")
    share = parameters.get("partial_rotary_factor", 1.0)
    require(_is_positive(share) and share <= 1, "partial_rotary_factor", share, "must lie in (0, 1]")
    size = int(config.head_dim * share)
    rule = f"the rotary dimension head_dim * partial_rotary_factor = {size} must be even and above 0"
    require(size > 0 and size % 2 == 0, "head_dim", config.head_dim, rule)
    rule = f"rope_type 'dynamic' needs a rotary dimension head_dim * partial_rotary_factor above 2, not {size}"
    require(kind != "dynamic" or size > 2, "head_dim", config.head_dim, rule)
    for key in ("short_factor", "long_factor"):
        factors = parameters.get(key)
        fits = factors is None or (
            isinstance(factors, list) and len(factors) == size // 2 and all(map(_is_positive, factors))
        )
        rule = f"must be a list of {size // 2} factors above 0, one per frequency"
        require(fits, f"rope_parameters[{key!r}]", factors, rule)
    for low, high in (("beta_slow", "beta_fast"), ("low_freq_factor", "high_freq_factor")):
        if parameters.get(low) is not None and parameters.get(high) is not None:
            rule = f"must be below {high} = {parameters[high]}"
            require(parameters[low] < parameters[high], f"rope_parameters[{low!r}]", parameters[low], rule)


def check_rope_nesting(parameters: Any, layer_types: list[str]) -> None:
    """Check that rope parameters are one flat dict, or one dict for each type of layer and nothing else."""
    items = (parameters or {}).items()
    if not any(isinstance(value, dict) or key.endswith("_attention") for key, value in items):
        return
    for key, value in parameters.items():
        require_known("rope_parameters", key, dict.fromkeys(layer_types))
        require(isinstance(value, dict), f"rope_parameters[{key!r}]", value, "must be a dict of parameters")
    missing = [kind for kind in dict.fromkeys(layer_types) if kind not in parameters]
    require(not missing, "rope_parameters", list(parameters), f"has no parameters for {', '.join(missing)}")


def check_per_layer_config(overrides: Any, mixers: list[str]) -> None:
    """Check what `per_layer_config` changes, before transformers takes it over."""
    require(isinstance(overrides, dict), "per_layer_config", overrides, "must be a dict of layer to {field: value}")
    for layer, fields in overrides.items():
        numbered = str(layer).isdecimal() and int(layer) < len(mixers)
        require(numbered, "per_layer_config", layer, f"must be the index of one of {len(mixers)} layers")
        require(isinstance(fields, dict), f"per_layer_config[{layer}]", fields, "must be a dict of field to value")
        for field, value in fields.items():
            known = ", ".join(PER_LAYER_FIELDS)
            require(
                field in PER_LAYER_FIELDS,
                "per_layer_config",
                field,
                f"only these fields can differ between layers: {known}",
            )
            optional = field in ("attention_scale", "attn_logit_softcapping", "sliding_window")
            require(value is not None or optional, f"per_layer_config[{layer}][{field!r}]", None, "must have a value")
            if field == "sliding_window" and value is not None:
                mixer = mixers[int(layer)]
                rule = f"layer {layer} has no window: its mixer is {mixer!r}"
                require("sliding_window" in MIXERS.get(mixer).needs, field, value, rule)


def check_labels(config: Any) -> None:
    """Check the fields of classifiers."""
    if config.problem_type is not None:
        require_known("problem_type", config.problem_type, _PROBLEM_TYPES)
    require(config.num_labels is None or config.num_labels > 0, "num_labels", config.num_labels, "must be above 0")


def check_crosses(config: Any) -> None:
    """Check a decoder that attends to an encoder."""
    rule = "is not supported by a decoder with cross-attention"
    require(not config.parallel_residual, "parallel_residual", True, rule)


def check_alone(config: Any) -> None:
    """Check that a decoder without an encoder has nothing that needs one."""
    for field, neutral in (("cross_mixer", "full"), ("initial_state", "zero")):
        value = getattr(config, field)
        require(value == neutral, field, value, "needs an encoder, but this decoder has none")
