# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""What the configs of all families share: the fields of a stack, their checks, and how a config is stored."""

import dataclasses
import json
from collections.abc import Iterable
from contextvars import ContextVar
from copy import copy
from pathlib import Path
from typing import Any, ClassVar

from huggingface_hub.dataclasses import strict
from transformers.activations import ACT2FN
from transformers.configuration_utils import PreTrainedConfig
from transformers.generation.configuration_utils import GenerationConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS, RopeParameters
from transformers.utils import logging

from .feed_forward import FEED_FORWARDS
from .mixers import CROSS_MIXERS, MIXERS, expand_pattern
from .norms import NORMS
from .positions import POSITIONS
from .registry import nearest
from .version import __version__

logger = logging.get_logger(__name__)

# Keywords that PreTrainedConfig itself understands and turns into something else than a field.
_CONSTRUCTOR_KEYS = frozenset(
    [
        "num_labels",
        "torch_dtype",
        "name_or_path",
        "_name_or_path",
        "attn_implementation",
        "experts_implementation",
        "output_attentions",
        "per_layer_config",
        "rope_theta",
        "rope_scaling",
        "partial_rotary_factor",
        "auto_map",
        "layer_types",
        "model_type",
        "tie_last_hidden_states",
        "quantization_config",
        "allow_global_per_layer_attribute_access",
        "serialize_explicit_per_layer_config",
    ]
)
# What other versions of the library, and its clients, leave in a file.
_FILE_KEYS = _CONSTRUCTOR_KEYS | frozenset(
    [
        "_commit_hash",
        "custom_pipelines",
        "transformers_weights",
        "distributed_config",
        "base_model_name_or_path",
        "_attn_implementation_autoset",
        "_attn_implementation_internal",
        "_experts_implementation_internal",
    ]
)
# What one layer may have of its own.
_PER_LAYER_FIELDS = frozenset(
    [
        "sliding_window",
        "intermediate_size",
        "num_key_value_heads",
        "hidden_act",
        "ffn_type",
        "position_type",
        "attention_dropout",
        "ffn_dropout",
        "attention_scale",
        "attn_logit_softcapping",
    ]
)

#: Whether configs take the code along; a model that is saved without code says so to its config.
INCLUDE_CODE: ContextVar[bool] = ContextVar("hf_tx_include_code", default=True)


def require(condition: bool, field: str, value: Any, rule: str) -> None:
    """Raise ValueError("field = value: rule") unless the condition holds."""
    if not condition:
        raise ValueError(f"{field} = {value!r}: {rule}.")


def require_known(field: str, value: Any, known: Iterable[str]) -> None:
    """Raise ValueError that lists the known values, and the nearest of them, unless the value is one of them."""
    known = list(known)
    require(value in known, field, value, f"is unknown.{nearest(value, known)} Known: {', '.join(known)}")


class TxConfigMixin:
    """How a config of any family treats unknown keys, its version, and the code that travels with it."""

    #: Auto class to "module.Class" of every class that a checkpoint of this family can be loaded with.
    full_auto_map: ClassVar[dict[str, str]] = {}
    model_type: ClassVar[str]
    hf_tx_version: str | None
    num_labels: int
    # Makes the library copy the config's file, and all that it imports, into every folder that is saved.
    _auto_class: ClassVar[str | None] = "AutoConfig"
    keys_to_ignore_at_inference: ClassVar[list[str]] = ["cache"]

    @classmethod
    def _field_names(cls) -> set[str]:
        return {field.name for field in dataclasses.fields(cls)}  # type: ignore[arg-type]

    def _refuse_unknown(self, keys: Any, also_known: frozenset[str] = frozenset()) -> None:
        for key in keys:
            if key not in _CONSTRUCTOR_KEYS and key not in also_known:
                raise ValueError(f"{type(self).__name__} has no field {key!r}.{nearest(key, self._field_names())}")

    @classmethod
    def _clean(cls, stored: dict[str, Any]) -> dict[str, Any]:
        """Return what a file says, without keys that the library owns or that are null; refuse other unknown keys."""
        written_by = stored.get("hf_tx_version")
        check_version(written_by)
        known = cls._field_names() | _CONSTRUCTOR_KEYS
        owned = _FILE_KEYS | GenerationConfig._get_default_generation_params().keys()
        for key, value in stored.items():
            if key not in known and key not in owned and value is not None:
                newer = f" The file was written by hf_tx {written_by}, this is {__version__}." if written_by else ""
                raise ValueError(f"{cls.__name__} has no field {key!r}.{nearest(key, known)}{newer}")
        return {key: value for key, value in stored.items() if key in known}

    def _without_function(self) -> set[str]:
        """Names of attributes that the model does not read; they are not saved."""
        known = self._field_names() | _FILE_KEYS
        return {key for key in self.__dict__ if key not in known and not key.startswith("_")}

    def to_dict(self) -> dict[str, Any]:
        """Return the config as files hold it: without attributes that are no fields, which no load would accept."""
        dropped = self._without_function()
        return {key: value for key, value in super().to_dict().items() if key not in dropped}  # type: ignore[misc]

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs: Any) -> Any:
        """Build a config from a dict as files hold it; see the library's method of this name.

        Raises:
            ValueError: an unknown key whose value is not null, or a newer major version of hf_tx.
        """
        return super().from_dict(cls._clean(config_dict), **kwargs)  # type: ignore[misc]

    @classmethod
    def from_json_file(cls, json_file: Any) -> Any:
        """Build a config from a JSON file; unknown keys are treated as in `from_dict`."""
        return cls.from_dict(cls._decode_special_floats(json.loads(Path(json_file).read_text("utf-8"))))  # type: ignore

    def save_pretrained(
        self, save_directory: Any, push_to_hub: bool = False, include_code: bool | None = None, **kwargs: Any
    ) -> None:
        """Save the config, with the code of the model beside it; see the library's method of this name.

        Args:
            save_directory: folder to write to.
            push_to_hub: upload the folder as well.
            include_code: write the code, and the `auto_map` that lets others load the checkpoint without hf_tx.
                Default: yes.
            **kwargs: for the upload.
        """
        if dropped := {key for key in self._without_function() if getattr(self, key, None) is not None}:
            logger.warning(f"not saved, since the model does not read them: {', '.join(sorted(dropped))}")
        self.hf_tx_version = __version__
        if INCLUDE_CODE.get() if include_code is None else include_code:
            # The full map, without the "repo--" prefixes of a checkpoint that was loaded from elsewhere.
            self.auto_map = dict(self.full_auto_map)
            super().save_pretrained(save_directory, push_to_hub=push_to_hub, **kwargs)  # type: ignore[misc]
            return
        bare = copy(self)
        bare.__dict__.pop("auto_map", None)
        bare._auto_class = None
        super(TxConfigMixin, bare).save_pretrained(  # type: ignore[misc]
            save_directory, push_to_hub=push_to_hub, **kwargs
        )


def check_version(written_by: str | None) -> None:
    """Refuse a checkpoint of a newer major version.

    Raises:
        ValueError: the code is older than the checkpoint.
    """
    if written_by is not None and int(written_by.split(".")[0]) > int(__version__.split(".")[0]):
        raise ValueError(
            f"this checkpoint was written by hf_tx {written_by}, and this is hf_tx {__version__}: "
            "pip install --upgrade hf_tx"
        )


@strict
class TxStackConfig(TxConfigMixin, PreTrainedConfig):
    r"""Config of one stack of layers: what an encoder and a decoder have in common.

    Every field is checked, and so is every unknown or misspelt key. Fields that differ from layer to layer are given
    by `per_layer_config={layer: {field: value}}`, as in all configs of the library.

    Args:
        vocab_size: number of tokens.
        hidden_size: features of a position.
        embedding_size: features of an embedding, projected to `hidden_size` when they differ (ELECTRA). Default:
            `hidden_size`.
        num_hidden_layers: number of layers.
        mixers: the mixer of every layer: a list with one name a layer, or a pattern such as `"sliding*5,full"`, which
            is repeated over the depth. Known: `full`, `sliding`.
        mixer_options: options of a mixer by its name, for mixers that have any.
        sliding_window: causal: how many keys a query of a `sliding` layer sees, itself included. Bidirectional: how
            far it sees on each side.
        num_attention_heads: number of query heads.
        num_key_value_heads: number of key and value heads. Default: `num_attention_heads`.
        head_dim: features of a head. Default: `hidden_size / num_attention_heads`.
        attention_bias: whether the query, key and value projections have a bias.
        attention_out_bias: whether the output projection has one. Default: `attention_bias`.
        attention_scale: factor of the scores. Default: `head_dim ** -0.5`.
        attn_logit_softcapping: bounds the scores smoothly at this value.
        qk_norm: normalise queries and keys of every head.
        position_type: `none`, `sinusoidal`, `learned`, `relative` (T5), `alibi` or `rope`.
        rope_parameters: as in the library, `partial_rotary_factor` included; or one such dict for each of
            `full_attention` and `sliding_attention`. Only configs with layers that rotate have this attribute.
        rope_interleaved: rotate neighbouring features (GPT-J), not halves (Llama).
        relative_attention_num_buckets: buckets of `relative`.
        relative_attention_max_distance: distance at which the buckets of `relative` end.
        max_position_embeddings: number of positions; a hard limit for `learned` ones.
        position_offset: index of the first position in the table of `learned` (OPT, BART: 2).
        type_vocab_size: number of token types, 0 for none.
        embedding_norm: normalise the embeddings.
        embedding_scale: factor of the token embeddings.
        norm_type: `layernorm` or `rmsnorm`.
        norm_position: `pre`, `post` or `sandwich`.
        norm_eps: added to the variance.
        norm_bias: whether `layernorm` has a bias.
        norm_unit_offset: `rmsnorm` scales by `1 + weight` (Gemma).
        final_norm: normalise the output of the stack. Default: unless `norm_position` is `post`.
        parallel_residual: mixer and feed-forward layer read the same input.
        parallel_shared_norm: they share one norm (GPT-J) instead of having one each (GPT-NeoX).
        residual_multiplier: factor of what a layer adds.
        ffn_type: `mlp`, `glu` or `none`.
        hidden_act: activation, by the library's name.
        intermediate_size: features inside the feed-forward layer. Default: `4 * hidden_size`.
        mlp_bias: whether its projections have a bias.
        attention_dropout: dropout of the attention weights.
        hidden_dropout: dropout of the embeddings and of what a layer adds.
        ffn_dropout: dropout inside the feed-forward layer.
        classifier_dropout: dropout before a classifier. Default: `hidden_dropout`.
        initializer_range: standard deviation of initial weights.
        tie_word_embeddings: the head uses the weights of the embeddings.
        lm_head_bias: whether a language-model head has a bias.
        logit_scale: factor of the logits.
        final_logit_softcapping: bounds the logits smoothly at this value.
        pad_token_id: id of padding.
        bos_token_id: id that begins a text.
        eos_token_id: id, or ids, that end one.
        hf_tx_version: the version that wrote the config.

    Raises:
        ValueError: an unknown keyword.
        StrictDataclassError: a field of the wrong type, or a value that breaks a rule; the message names field, value
            and rule.
    """

    vocab_size: int = 32_000
    hidden_size: int = 768
    embedding_size: int | None = None
    num_hidden_layers: int = 12
    mixers: list[str] | str = "full"
    mixer_options: dict[str, dict[str, Any]] | None = None
    sliding_window: int | None = None
    num_attention_heads: int = 12
    num_key_value_heads: int | None = None
    head_dim: int | None = None
    attention_bias: bool = False
    attention_out_bias: bool | None = None
    attention_scale: int | float | None = None
    attn_logit_softcapping: int | float | None = None
    qk_norm: bool = False
    position_type: str = "rope"
    # With a factory, dataclasses leave no class attribute behind, so that a config without rope can lack it.
    rope_parameters: RopeParameters | dict | None = dataclasses.field(default_factory=lambda: None)
    rope_interleaved: bool = False
    relative_attention_num_buckets: int = 32
    relative_attention_max_distance: int = 128
    max_position_embeddings: int = 2048
    position_offset: int = 0
    type_vocab_size: int = 0
    embedding_norm: bool = False
    embedding_scale: int | float | None = None
    norm_type: str = "rmsnorm"
    norm_position: str = "pre"
    norm_eps: float = 1e-6
    norm_bias: bool = True
    norm_unit_offset: bool = False
    final_norm: bool | None = None
    parallel_residual: bool = False
    parallel_shared_norm: bool = False
    residual_multiplier: int | float = 1.0
    ffn_type: str = "glu"
    hidden_act: str = "silu"
    intermediate_size: int | None = None
    mlp_bias: bool = False
    attention_dropout: int | float = 0.0
    hidden_dropout: int | float = 0.0
    ffn_dropout: int | float = 0.0
    classifier_dropout: int | float | None = None
    initializer_range: int | float = 0.02
    tie_word_embeddings: bool = True
    lm_head_bias: bool = False
    logit_scale: int | float | None = None
    final_logit_softcapping: int | float | None = None
    use_cache: bool = True
    pad_token_id: int | None = None
    bos_token_id: int | None = None
    eos_token_id: int | list[int] | None = None
    hf_tx_version: str | None = None

    #: Whether a stack of this family is causal.
    is_causal_family: ClassVar[bool] = True

    def __post_init__(self, **kwargs: Any) -> None:
        self._refuse_unknown(kwargs)
        check_version(self.hf_tx_version)
        self.hf_tx_version = self.hf_tx_version or __version__
        stored_layer_types = kwargs.pop("layer_types", None)
        kwargs.pop("model_type", None)
        self.mixers = expand_pattern(self.mixers, self.num_hidden_layers)
        if self.num_key_value_heads is None:
            self.num_key_value_heads = self.num_attention_heads
        if self.head_dim is None:
            require(self.num_attention_heads > 0, "num_attention_heads", self.num_attention_heads, "must be above 0")
            require(
                self.hidden_size % self.num_attention_heads == 0,
                "hidden_size",
                self.hidden_size,
                f"must be a multiple of num_attention_heads = {self.num_attention_heads}, or give head_dim",
            )
            self.head_dim = self.hidden_size // self.num_attention_heads
        if self.intermediate_size is None:
            self.intermediate_size = 4 * self.hidden_size
        if self.attention_out_bias is None:
            self.attention_out_bias = self.attention_bias
        if self.final_norm is None:
            self.final_norm = self.norm_position != "post"
        rotary_keys = ("rope_theta", "rope_scaling", "partial_rotary_factor")
        asked_for_rope = self.rope_parameters or {
            key: kwargs[key] for key in rotary_keys if kwargs.get(key) is not None
        }
        super().__post_init__(**kwargs)
        if "rope" not in self._position_types():
            types = ", ".join(sorted(self._position_types()))
            require(
                not asked_for_rope, "rope_parameters", asked_for_rope, f"no layer rotates: position_type is {types}"
            )
            del self.rope_parameters  # clients take a config that has it for one that rotates
        require(
            not self._window_is_idle(),
            "sliding_window",
            None if self.is_heterogeneous else self.sliding_window,
            f"no layer has a window: mixers are {', '.join(dict.fromkeys(self.mixers))}",
        )
        if stored_layer_types is not None:
            require(
                list(stored_layer_types) == self.layer_types,
                "layer_types",
                stored_layer_types,
                f"contradicts mixers = {self.mixers}, which give {self.layer_types}; leave layer_types out",
            )

    # ---------------------------------------------------------------------------------------------- derived facts
    @property
    def layer_types(self) -> list[str]:
        """The library's name of every layer's cache, derived from `mixers`."""
        return [MIXERS.get(mixer).layer_type for mixer in self.mixers]

    @property
    def rotary_dim(self) -> int:
        """Rotated features of a head, for one flat set of rope parameters."""
        return int(self.head_dim * self.rope_parameters.get("partial_rotary_factor", 1.0))  # type: ignore

    def layer_config(self, layer_idx: int) -> Any:
        """Return the config that layer `layer_idx` is built from: this one, with what `per_layer_config` changes."""
        return self.per_layer_config[layer_idx]

    def _position_types(self) -> set[str]:
        return {self.layer_config(idx).position_type for idx in range(self.num_hidden_layers)}

    def _window_is_idle(self) -> bool:
        if self.is_heterogeneous or self.sliding_window is None:
            return False
        return not any("sliding_window" in MIXERS.get(name).needs for name in self.mixers)

    def _without_function(self) -> set[str]:
        return super()._without_function() | ({"sliding_window"} if self._window_is_idle() else set())

    def rope_views(self) -> dict[str, Any]:
        """Return configs whose `rope_parameters` are one flat set: by layer type, or under "" when all share one."""
        nested = self.nested_rope_parameter_keys(self.rope_parameters)  # type: ignore[arg-type]
        if not nested:
            return {"": self}
        views = {}
        for layer_type in nested:
            view = copy(self)
            view.rope_parameters = self.rope_parameters[layer_type]  # type: ignore[index, literal-required]
            views[layer_type] = view
        return views

    # The plans name modules that exist only with some settings, so they are derived as well.
    @property
    def base_model_tp_plan(self) -> dict[str, str]:  # type: ignore[override]
        """How tensor parallelism shards the stack."""
        plan = {"embed_tokens": "embedding_rowwise"}
        for name in ("q_proj", "k_proj", "v_proj"):
            plan[f"layers.*.mixer.{name}"] = "colwise"
        plan["layers.*.mixer.o_proj"] = "rowwise"
        feed_forwards = {self.layer_config(idx).ffn_type for idx in range(self.num_hidden_layers)}
        if "glu" in feed_forwards:
            plan["layers.*.mlp.gate_proj"] = "colwise"
        if feed_forwards & {"glu", "mlp"}:
            plan |= {"layers.*.mlp.up_proj": "colwise", "layers.*.mlp.down_proj": "rowwise"}
        return plan

    # ----------------------------------------------------------------------------------------------------- checks
    def validate_layer_type(self) -> None:
        """Layer types are derived from the registry, so the library's closed list does not apply."""

    def validate_architecture(self) -> None:
        """Check every rule that one field, or several together, must keep."""
        _check_sizes(self)
        _check_mixers(self)
        _check_blocks(self)
        _check_heads_of_models(self)
        if self.is_heterogeneous:
            for name in self.per_layer_attributes or ():
                require(
                    name in _PER_LAYER_FIELDS,
                    "per_layer_config",
                    name,
                    f"only these may differ between layers: {', '.join(sorted(_PER_LAYER_FIELDS))}",
                )
        for idx in range(self.num_hidden_layers) if self.is_heterogeneous else [0]:
            _check_layer(self.layer_config(idx), self.mixers[idx])
        _check_positions(self)

    def validate_rope(self) -> None:
        """Check the rope parameters: the library's rules, and those on which it only warns."""
        parameters = getattr(self, "rope_parameters", None) or {}
        nested = self.nested_rope_parameter_keys(parameters)
        for flat in [parameters[key] for key in nested] or [parameters]:
            if flat:
                _check_rope(self, flat)
        super().validate_rope()


def _check_sizes(config: TxStackConfig) -> None:
    for field in ("vocab_size", "hidden_size", "num_hidden_layers", "max_position_embeddings", "num_attention_heads"):
        value = getattr(config, field)
        require(value > 0, field, value, "must be above 0")
    for field in ("head_dim", "embedding_size"):
        value = getattr(config, field)
        require(value is None or value > 0, field, value, "must be above 0")
    for field in ("position_offset", "type_vocab_size"):
        value = getattr(config, field)
        require(value >= 0, field, value, "must not be below 0")
    require(config.norm_eps > 0, "norm_eps", config.norm_eps, "must be above 0")
    require(config.initializer_range >= 0, "initializer_range", config.initializer_range, "must not be below 0")


def _check_mixers(config: TxStackConfig) -> None:
    require(
        len(config.mixers) == config.num_hidden_layers,
        "mixers",
        config.mixers,
        f"must name one mixer for each of num_hidden_layers = {config.num_hidden_layers}",
    )
    used = dict.fromkeys(config.mixers)
    for name in used:
        mixer = MIXERS.get(name)
        mask = mixer.causal_mask if config.is_causal_family else mixer.bidirectional_mask
        direction = "causal" if config.is_causal_family else "bidirectional"
        require(mask is not None, "mixers", name, f"cannot be {direction}")
    for name, options in (config.mixer_options or {}).items():
        require(name in used, "mixer_options", name, f"is used by no layer; the mixers are {', '.join(used)}")
        kind = MIXERS.get(name).options
        require(kind is not None, "mixer_options", name, "has no options")
        kind(**options)  # type: ignore[misc]


def _check_layer(config: TxStackConfig, mixer: str) -> None:
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
    FEED_FORWARDS.get(config.ffn_type)
    require_known("hidden_act", config.hidden_act, ACT2FN)
    require(config.intermediate_size > 0, "intermediate_size", config.intermediate_size, "must be above 0")  # type: ignore
    for field in ("attention_dropout", "hidden_dropout", "ffn_dropout", "classifier_dropout"):
        value = getattr(config, field)
        require(value is None or 0 <= value < 1, field, value, "must lie in [0, 1)")
    for field in ("attn_logit_softcapping", "attention_scale"):
        value = getattr(config, field)
        require(value is None or value > 0, field, value, "must be above 0")


def _check_blocks(config: TxStackConfig) -> None:
    NORMS.get(config.norm_type)
    place = config.norm_position
    require_known("norm_position", place, ("pre", "post", "sandwich"))
    if config.norm_unit_offset:
        require(config.norm_type == "rmsnorm", "norm_unit_offset", True, "needs norm_type = 'rmsnorm'")
    if config.parallel_residual:
        require(place == "pre", "parallel_residual", True, f"needs norm_position = 'pre', not {place!r}")
    if config.parallel_shared_norm:
        require(config.parallel_residual, "parallel_shared_norm", True, "needs parallel_residual = True")


def _check_heads_of_models(config: TxStackConfig) -> None:
    cap = config.final_logit_softcapping
    require(cap is None or cap > 0, "final_logit_softcapping", cap, "must be above 0")
    if config.is_causal_family:
        check_tied_size(config, config.tie_word_embeddings)


def check_tied_size(config: TxStackConfig, tied: bool) -> None:
    """Check that a head of `hidden_size` features can use the weights of the embeddings, if it is to."""
    require(
        not tied or config.embedding_size in (None, config.hidden_size),
        "embedding_size",
        config.embedding_size,
        f"a tied head needs hidden_size = {config.hidden_size}; set tie_word_embeddings = False",
    )


def _check_positions(config: TxStackConfig) -> None:
    types = config._position_types()
    for name in types:
        scheme = POSITIONS.get(name)
        require(
            not scheme.has_embedding or len(types) == 1,
            "position_type",
            sorted(types),
            f"{name!r} is added to the embeddings and cannot belong to some layers only",
        )
    if "relative" in types:
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
    if config.position_offset:
        require("learned" in types, "position_offset", config.position_offset, "needs position_type = 'learned'")


def _check_rope(config: TxStackConfig, parameters: dict[str, Any]) -> None:
    require_known("rope_type", parameters.get("rope_type", "default"), ("default", *ROPE_INIT_FUNCTIONS))
    known = RopeParameters.__annotations__
    for key in parameters:
        require(key in known or key == "type", "rope_parameters", key, f"is no parameter.{nearest(key, known)}")
    theta = parameters.get("rope_theta")
    require(theta is not None and theta > 0, "rope_theta", theta, "must be above 0")
    factor = parameters.get("factor")
    require(factor is None or factor >= 1, "rope_parameters['factor']", factor, "must be at least 1")
    share = parameters.get("partial_rotary_factor", 1.0)
    require(0 < share <= 1, "partial_rotary_factor", share, "must lie in (0, 1]")
    size = int(config.head_dim * share)  # type: ignore[operator]
    require(
        size > 0 and size % 2 == 0,
        "head_dim",
        config.head_dim,
        f"the rotary dimension head_dim * partial_rotary_factor = {size} must be even and above 0",
    )


def check_cross_mixer(config: Any) -> None:
    """Check the fields of a decoder that attends to an encoder."""
    CROSS_MIXERS.get(config.cross_mixer)
    require(
        not config.parallel_residual,
        "parallel_residual",
        True,
        "is not defined for a decoder that attends to an encoder",
    )
