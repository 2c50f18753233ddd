# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""The config of one stack of layers, with the fields that encoders and decoders have in common."""

import copy
import dataclasses
import itertools
from typing import Any, ClassVar

from transformers.configuration_utils import PreTrainedConfig
from transformers.modeling_rope_utils import RopeParameters

from .configuration_changes import without_idle
from .configuration_checks import (
    OF_POSITIONS,
    check_blocks,
    check_heads_of_models,
    check_layer,
    check_mixers,
    check_parts,
    check_per_layer_config,
    check_positions,
    check_rope,
    check_rope_nesting,
    check_sizes,
    crosses_by_scores,
    require,
)
from .configuration_storage import TxConfigMixin, check_version
from .configuration_strict import strict
from .feed_forwards import FEED_FORWARDS
from .mixers import MIXERS, expand_pattern
from .norms import NORMS
from .parts import PartRegistry, shared_plan
from .plugin_loading import require_plugins, used_plugins
from .positions import POSITIONS
from .recurrent_cache import unversioned
from .version import __version__


@strict
class TxStackConfig(TxConfigMixin, PreTrainedConfig):
    r"""Config of one stack of layers, with the fields that encoders and decoders have in common.

    Every field is checked, and an unknown or misspelled key raises an error. Fields that differ between layers are set
    with `per_layer_config={layer: {field: value}}`, as in all configs of transformers.

    Args:
        vocab_size: number of tokens.
        hidden_size: number of features of the hidden states.
        embedding_size: number of features of the embeddings, which are projected to `hidden_size` (ELECTRA). Default:
            `hidden_size`.
        embedding_projection: which embeddings are projected: the normalized `sum` of all embeddings, with a bias
            (ELECTRA), or only the `tokens`, before others are added, without a bias (OPT).
        output_projection: project the output of the stack to `embedding_size`, without a bias, so that a head can be
            tied (OPT).
        num_hidden_layers: number of layers.
        mixers: the mixer of every layer: a list with one name per layer, or a pattern such as `"sliding*5,full"`,
            which is repeated over the depth. Attention: `full`, `sliding`, `chunked`, `dilated`, `global_local`.
            Linear in the length: `linear`, `retention`, `gated_linear`, `delta`, `gated_delta`. Recurrent: `rnn`,
            `lstm`, `gru`.
        mixer_options: options of mixers, by the name of the mixer.
        sliding_window: window of `sliding` layers. In a decoder, the number of keys that a query sees, including its
            own. In an encoder, the number of keys on each side.
        num_attention_heads: number of query heads.
        num_key_value_heads: number of key and value heads. Default: `num_attention_heads`.
        head_dim: number of features per head. Default: `hidden_size / num_attention_heads`.
        attention_bias: whether the query, key and value projections have a bias.
        attention_out_bias: whether the output projection has a bias. Default: `attention_bias`.
        attention_scale: factor of the scores. Default: `head_dim ** -0.5`.
        attn_logit_softcapping: soft limit of the scores.
        attention_sinks: every head has a learned logit in the softmax, without a value, so that a query can attend to
            nothing (GPT-OSS).
        qk_norm: normalize queries and keys.
        qk_norm_scope: scope of this norm: every `head`, with one weight for all heads; the `heads`, each with its own
            weight and no bias (Cohere, StableLM); or `all` heads together (OLMo 2).
        position_type: `none`; `sinusoidal` or `learned`, which are added to the embeddings; `relative` (T5), `alibi`
            or `rope`, which affect attention; or `learned_relative`, which is both (MPNet). Default: `rope` if a layer
            is attention, or else `none`.
        position_options: options of position schemes, by the name of the scheme.
        rope_parameters: as in transformers, including `partial_rotary_factor`; or one such dict for each of
            `full_attention` and `sliding_attention`. Only configs with rotary positions have this attribute.
        rope_interleaved: rotate neighboring features (GPT-J), not halves (Llama).
        relative_attention_num_buckets: buckets of `relative`.
        relative_attention_max_distance: distance at which the buckets of `relative` end.
        relative_attention_per_layer: every layer has its own `relative` biases (UMT5).
        sinusoidal_type: order and wavelengths of `sinusoidal`: `interleaved` (the paper), `concatenated` (Marian) or
            `tensor2tensor` (fairseq).
        max_position_embeddings: number of positions; a hard limit for `learned` positions.
        position_offset: index of the first position in the table of `learned` (OPT, BART: 2), or its number in
            `sinusoidal` (M2M-100).
        type_vocab_size: number of token types, 0 for none.
        embedding_norm: normalize the embeddings.
        embedding_scale: factor of the token embeddings.
        norm_type: `layernorm`, `rmsnorm`, `dyt` or `none`.
        norm_options: options of norms, by the name of the norm.
        norm_position: `pre`, `post`, `residual_post` (OLMo 2, Swin v2) or `sandwich`; see [`TxBlock`].
        mixer_norm: whether a mixer has a norm before it. With an `embedding_norm`, the first layer does not need it
            (ModernBERT): `per_layer_config={0: {"mixer_norm": False}}`.
        norm_eps: added to the variance.
        norm_affine: whether norms have a weight (OLMo: False).
        norm_bias: whether `layernorm` and `dyt` have a bias.
        norm_unit_offset: `rmsnorm` scales by `1 + weight` (Gemma).
        final_norm: normalize the output of the stack. Default: True unless `norm_position` is `post`.
        parallel_residual: mixer and feed-forward layer have the same input.
        parallel_shared_norm: they share one norm (GPT-J) instead of one norm each (GPT-NeoX).
        residual: whether layers have residual connections (False for classic recurrent networks).
        residual_multiplier: factor of the output of a layer before it is added.
        ffn_type: `mlp`, `glu` or `none`.
        ffn_options: options of feed-forward layers, by the name of the layer.
        hidden_act: name of the activation in transformers.
        intermediate_size: number of features inside the feed-forward layer. Default: `4 * hidden_size`.
        mlp_bias: whether the projections of the feed-forward layer have a bias.
        attention_dropout: dropout of the attention weights.
        hidden_dropout: dropout of the output of a layer, before it is added.
        embedding_dropout: dropout of the embeddings. Default: `hidden_dropout`.
        ffn_dropout: dropout inside the feed-forward layer.
        layerdrop: probability that a layer is skipped in training (Fan et al., 2019,
            https://huggingface.co/papers/1909.11556). Its weights then have no gradient, so
            `DistributedDataParallel` needs `find_unused_parameters`.
        classifier_dropout: dropout before a classifier. Default: `hidden_dropout`.
        initializer_range: standard deviation of initial weights. Narrow models learn faster with
            `hidden_size**-0.5`, and an `embedding_scale` of `hidden_size**0.5`.
        tie_word_embeddings: the head uses the weights of the embeddings.
        lm_head_bias: whether a language modeling head has a bias.
        logit_scale: factor of the logits.
        final_logit_softcapping: soft limit of the logits.
        pad_token_id: id of the padding token.
        bos_token_id: id of the token that begins a text.
        eos_token_id: id, or ids, of the tokens that end a text.
        hf_tx_version: the version that wrote the config.
        plugins: distribution and version of the plug-ins that the names above belong to, by prefix. Derived.
        origin: where converted weights come from: `model_type`, `architecture` and `config` of transformers. The model
            does not use it.

    Raises:
        ValueError: if a keyword is unknown.
        ImportError: if a plug-in is missing, or cannot be loaded.
        StrictDataclassError: if a field has the wrong type or an invalid value; the message names field, value and
            rule.
    """

    vocab_size: int = 32_000
    hidden_size: int = 768
    embedding_size: int | None = None
    embedding_projection: str = "sum"
    output_projection: bool = False
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
    attention_sinks: bool = False
    qk_norm: bool = False
    qk_norm_scope: str = "head"
    position_type: str | None = None
    position_options: dict[str, dict[str, Any]] | None = None
    # With a factory, there is no class attribute, so that a config without rope does not have the field.
    rope_parameters: RopeParameters | dict | None = dataclasses.field(default_factory=lambda: None)
    rope_interleaved: bool = False
    relative_attention_num_buckets: int = 32
    relative_attention_max_distance: int = 128
    relative_attention_per_layer: bool = False
    sinusoidal_type: str = "interleaved"
    max_position_embeddings: int = 2048
    position_offset: int = 0
    type_vocab_size: int = 0
    embedding_norm: bool = False
    embedding_scale: int | float | None = None
    norm_type: str = "rmsnorm"
    norm_options: dict[str, dict[str, Any]] | None = None
    norm_position: str = "pre"
    mixer_norm: bool = True
    norm_eps: float = 1e-6
    norm_affine: bool = True
    norm_bias: bool = True
    norm_unit_offset: bool = False
    final_norm: bool | None = None
    parallel_residual: bool = False
    parallel_shared_norm: bool = False
    residual: bool = True
    residual_multiplier: int | float = 1.0
    ffn_type: str = "glu"
    ffn_options: dict[str, dict[str, Any]] | None = None
    hidden_act: str = "silu"
    intermediate_size: int | None = None
    mlp_bias: bool = False
    attention_dropout: int | float = 0.0
    hidden_dropout: int | float = 0.0
    embedding_dropout: int | float | None = None
    ffn_dropout: int | float = 0.0
    layerdrop: int | float = 0.0
    classifier_dropout: int | float | None = None
    initializer_range: int | float = 0.02
    tie_word_embeddings: bool = True
    lm_head_bias: bool = False
    logit_scale: int | float | None = 1.0
    final_logit_softcapping: int | float | None = None
    use_cache: bool = True
    pad_token_id: int | None = None
    bos_token_id: int | None = None
    eos_token_id: int | list[int] | None = None
    hf_tx_version: str | None = None
    plugins: dict[str, dict[str, str]] | None = None
    origin: dict[str, Any] | None = None

    #: The parts of a stack of this family.
    registries: ClassVar[tuple[PartRegistry[Any], ...]] = (MIXERS, POSITIONS, NORMS, FEED_FORWARDS)
    #: Whether a stack of this family is causal.
    is_causal_family: ClassVar[bool] = True

    def __post_init__(self, **kwargs: Any) -> None:
        self._refuse_unknown(kwargs)
        check_version(self.hf_tx_version)
        self.hf_tx_version = self.hf_tx_version or __version__
        stored_layer_types = kwargs.pop("layer_types", None)
        kwargs.pop("model_type", None)
        self.mixers = expand_pattern(self.mixers, self.num_hidden_layers)
        require_plugins(self._names_to_be(kwargs.get("per_layer_config")), self.plugins)
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
        if self.logit_scale is None:
            self.logit_scale = 1.0  # clients multiply by what they find
        if self.final_norm is None:
            self.final_norm = self.norm_position != "post"
        attends = [MIXERS.get(name).is_attention for name in self.mixers]
        if self.position_type is None:
            self.position_type = "rope" if any(attends) else "none"
        # transformers fills in what is missing, and the dict is the caller's.
        self.rope_parameters = copy.deepcopy(self.rope_parameters)
        check_rope_nesting(self.rope_parameters, list(itertools.compress(self.layer_types, attends)))
        if kwargs.get("per_layer_config") is not None:
            check_per_layer_config(kwargs["per_layer_config"], self.mixers)
        rotary_keys = ("rope_theta", "rope_scaling", "partial_rotary_factor")
        asked_for_rope = self.rope_parameters or {
            key: kwargs[key] for key in rotary_keys if kwargs.get(key) is not None
        }
        super().__post_init__(**kwargs)
        if "rope" not in self.layer_positions:
            types = ", ".join(sorted(set(self.layer_positions)))
            require(
                not asked_for_rope,
                "rope_parameters",
                asked_for_rope,
                f"no layer has rotary positions: position_type is {types}",
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
                [unversioned(name) for name in stored_layer_types] == [unversioned(name) for name in self.layer_types],
                "layer_types",
                stored_layer_types,
                f"does not fit mixers = {self.mixers}, which have {self.layer_types}; leave layer_types out",
            )
        self.plugins = used_plugins(self._names())

    def _names_to_be(self, overrides: Any) -> list[str]:
        """Names that a plug-in may have, before transformers takes over what differs from layer to layer."""
        fields = [vars(self), *(overrides.values() if isinstance(overrides, dict) else ())]
        kinds = [registry.kind for registry in self.registries]
        values = [own.get(kind) for own in fields if isinstance(own, dict) for kind in kinds]
        return [value for value in (*self.mixers, *values) if isinstance(value, str)]

    def _names(self) -> list[str]:
        """Names that a plug-in may have, of every layer."""
        return [name for registry in self.registries for name in self.names_of(registry)]

    def names_of(self, registry: PartRegistry[Any]) -> list[str]:
        """Return the names of the parts of one kind that the layers have, each once."""
        if registry is MIXERS:
            return list(dict.fromkeys(self.mixers))
        layers = [self.layer_config(idx) for idx in self.distinct_layers]
        return list(dict.fromkeys(getattr(layer, registry.kind) for layer in layers))

    def to_dict(self) -> dict[str, Any]:
        """Return the config as files hold it, with the plug-ins that it needs as it is now."""
        return {**super().to_dict(), "plugins": used_plugins(self._names())}

    # ---------------------------------------------------------------------------------------------- derived facts
    @property
    def layer_types(self) -> list[str]:
        """The name in transformers of every layer's cache, derived from `mixers`."""
        return [MIXERS.get(mixer).layer_type for mixer in self.mixers]

    @property
    def token_size(self) -> int:
        """Features of a token's embedding."""
        return self.hidden_size if self.embedding_size is None else self.embedding_size

    @property
    def sum_size(self) -> int:
        """Features of what positions and token types are added to."""
        return self.hidden_size if self.embedding_projection == "tokens" else self.token_size

    @property
    def output_size(self) -> int:
        """Features of the output of the stack."""
        return self.token_size if self.output_projection else self.hidden_size

    @property
    def crosses_by_scores(self) -> bool:
        """Whether the layers attend to an encoder by scores."""
        return crosses_by_scores(
            getattr(self, "cross_mixer", None), getattr(self, "cross_attention_hidden_size", None)
        )

    @property
    def rotary_dim(self) -> int:
        """Rotated features of a head, for one flat set of rope parameters."""
        return int(self.head_dim * self.rope_parameters.get("partial_rotary_factor", 1.0))  # type: ignore

    def layer_config(self, layer_idx: int) -> Any:
        """Return the config that layer `layer_idx` is built from: this one, with what `per_layer_config` changes."""
        return self.per_layer_config[layer_idx] if self.is_heterogeneous else self

    @property
    def distinct_layers(self) -> list[int]:
        """The first layer of each mixer, for what equal layers share; all, if `per_layer_config` changes some."""
        if self.is_heterogeneous:
            return list(range(self.num_hidden_layers))
        return [self.mixers.index(name) for name in dict.fromkeys(self.mixers)]

    @property
    def layer_positions(self) -> list[str]:
        """The position scheme of every layer: what is no attention takes none that works on scores."""
        schemes = []
        for idx, mixer in enumerate(self.mixers):
            name = self.layer_config(idx).position_type
            takes = MIXERS.get(mixer).is_attention or POSITIONS.get(name).has_embedding
            schemes.append(name if takes else "none")
        return schemes

    def _window_is_idle(self) -> bool:
        if self.is_heterogeneous or self.sliding_window is None:
            return False
        return not any("sliding_window" in MIXERS.get(name).needs for name in self.mixers)

    @classmethod
    def _changed(cls, stored: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
        changed = super()._changed(stored, changes)
        rope = stored.get("rope_parameters")
        if changes.get("position_type", "rope") != "rope" and "rope_parameters" not in changes:
            changed.pop("rope_parameters", None)  # no layer rotates any more
        elif isinstance(changes.get("rope_parameters"), dict) and rope and "rope_theta" in rope:
            changed["rope_parameters"] = {"rope_theta": rope["rope_theta"], **changes["rope_parameters"]}
        elif rope and (
            flat := {key: changes[key] for key in ("rope_theta", "partial_rotary_factor") if key in changes}
        ):
            changed = {key: value for key, value in changed.items() if key not in flat}
            changed["rope_parameters"] = {**rope, **flat}
        if changes.get("position_type", stored.get("position_type")) != stored.get("position_type"):
            of_former = OF_POSITIONS.keys() - changes.keys()
            changed = {key: value for key, value in changed.items() if key not in of_former}
        changed = cls._without_idle_options(changed, changes)
        if "mixers" in changes:
            names = expand_pattern(changes["mixers"], changed.get("num_hidden_layers", cls.num_hidden_layers))
            asked = {name: changed[name] for name in changes.keys() & changed.keys()}
            changed = {**without_idle(changed, names), **asked}
        return changed

    @classmethod
    def _without_idle_options(cls, changed: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
        """Let stored options go with the part that has them, where the caller names another part."""
        by_layer = changed.get("per_layer_config")
        fields = [changed, *(by_layer.values() if isinstance(by_layer, dict) else ())]
        kept = dict(changed)
        for registry in cls.registries:
            options = changed.get(registry.options_field)
            if options and registry.kind in changes and registry.options_field not in changes:
                used = [own.get(registry.kind) for own in fields if isinstance(own, dict)]
                kept[registry.options_field] = {key: value for key, value in options.items() if key in used} or None
        return kept

    def _without_function(self) -> set[str]:
        return super()._without_function() | ({"sliding_window"} if self._window_is_idle() else set())

    def rope_views(self) -> dict[str, Any]:
        """Return configs whose `rope_parameters` are one flat set: by layer type, or under "" when all share one."""
        nested = self.nested_rope_parameter_keys(self.rope_parameters)  # type: ignore[arg-type]
        if not nested:
            return {"": self}
        views = {}
        for layer_type in nested:
            view = copy.copy(self)
            view.rope_parameters = self.rope_parameters[layer_type]  # type: ignore[index, literal-required]
            views[layer_type] = view
        return views

    # The plans name modules that exist only with some settings, so they are derived as well.
    @property
    def base_model_tp_plan(self) -> dict[str, str]:  # type: ignore[override]
        """How tensor parallelism shards the stack."""
        plan = {"embed_tokens": "embedding_rowwise"}
        for place, registry in (("mixer", MIXERS), ("mlp", FEED_FORWARDS)):
            parts = [registry.get(name) for name in self.names_of(registry)]
            plan |= {f"layers.*.{place}.{name}": style for name, style in shared_plan(parts, self).items()}
        return plan

    # ----------------------------------------------------------------------------------------------------- checks
    def validate_layer_type(self) -> None:
        """Layer types are derived from the registry, so transformers' closed list does not apply."""

    def validate_architecture(self) -> None:
        """Check every rule that one field, or several together, must keep."""
        check_sizes(self)
        check_mixers(self)
        check_parts(self)
        check_blocks(self)
        check_heads_of_models(self)
        for idx in self.distinct_layers:
            check_layer(self.layer_config(idx), self.mixers[idx])
        check_positions(self)

    def validate_rope(self) -> None:
        """Check the rope parameters: transformers' rules, and those on which it only warns."""
        parameters = getattr(self, "rope_parameters", None) or {}
        nested = self.nested_rope_parameter_keys(parameters)
        for flat in [parameters[key] for key in nested] or [parameters]:
            if flat:
                check_rope(self, flat)
        super().validate_rope()
