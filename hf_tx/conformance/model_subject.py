# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""A model of any kind, seen through what every model of transformers has: what applies to it, and how it is called."""

import copy
import functools
import importlib
import inspect
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import nn
from transformers import AutoConfig, PreTrainedConfig, PreTrainedModel
from transformers.cache_utils import DynamicCache, EncoderDecoderCache
from transformers.dynamic_module_utils import get_class_from_dynamic_module

from ..common.loading import loading
from .checks import Skip
from .tools import build_large, padded_columns, place, tokens

LENGTH = 9
#: Tokens of a long text, where the positions of a model allow.
LONG = 200
#: Sizes for a class that comes without a config; of these, a config class takes those that it has.
TINY: dict[str, Any] = dict(
    vocab_size=61,
    hidden_size=24,
    num_hidden_layers=2,
    num_attention_heads=6,
    num_key_value_heads=2,
    head_dim=4,
    intermediate_size=40,  # grouped products want multiples of 16 bytes
    max_position_embeddings=256,
    sliding_window=8,
    local_attention=8,
    num_experts=4,
    num_local_experts=4,
    num_experts_per_tok=2,
    moe_intermediate_size=40,
    shared_expert_intermediate_size=40,
    linear_num_key_heads=2,
    linear_num_value_heads=4,
    linear_key_head_dim=4,
    linear_value_head_dim=4,
    d_kv=4,
    d_ff=20,
    ffn_dim=20,
    num_decoder_layers=2,
    decoder_layers=2,
    encoder_layers=2,
    encoder_ffn_dim=20,
    decoder_ffn_dim=20,
    encoder_attention_heads=6,
    decoder_attention_heads=6,
    pad_token_id=0,
    bos_token_id=1,
    eos_token_id=2,
    decoder_start_token_id=0,
)
#: Also for a config with `expand`: there, heads times their size must be `expand` times the hidden size.
TINY_STATE_SPACE: dict[str, Any] = dict(num_heads=12, expand=2, n_groups=2, state_size=4, chunk_size=8)
#: What norms add to a variance, and the least of it in a check: less blows up the rounding of a row or a head that is
#: nearly zero (by a hundred in the gated norms of a linear attention), so that two sound orders of the sums differ.
EPSILONS = ("rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", "norm_eps", "norm_epsilon")
LEAST_EPSILON = 1e-2
#: More layers than this are not tried to have one of each kind.
MOST_LAYERS = 12


@dataclass(frozen=True)
class ModelSubject:
    """A class with a config.

    Attributes:
        kind: the class.
        config: of every model that is built.
        causal: whether positions see only those before them; None when that is not known.
    """

    kind: type[PreTrainedModel]
    config: PreTrainedConfig
    causal: bool | None

    # ------------------------------------------------------------------------------------------------------- building
    def fresh_config(self, backend: str | None = "eager", **changes: Any) -> Any:
        """Return a copy of the config, with changed attributes."""
        config = copy.deepcopy(self.config)
        if backend is not None:
            config._attn_implementation = backend
        for name, value in changes.items():
            setattr(config, name, value)
        return config

    def build(self, backend: str | None = "eager", **changes: Any) -> Any:
        """Return a model with large random weights. Equal arguments give equal weights, whatever the backend."""
        return build_large(self.kind, self.fresh_config(backend, **changes))

    @functools.cached_property
    def parameters(self) -> set[str]:
        """The arguments of `forward`."""
        return set(inspect.signature(self.kind.forward).parameters)

    @property
    def seq2seq(self) -> bool:
        """Whether the model has an encoder and a decoder."""
        return bool(self.config.is_encoder_decoder)

    @property
    def generates(self) -> bool:
        """Whether the model has `generate()`."""
        return self.kind.can_generate()

    @property
    def vocabulary(self) -> int:
        """Tokens that the model knows."""
        return self.config.get_text_config().vocab_size

    @property
    def pad(self) -> int:
        """The token of pads."""
        return getattr(self.config.get_text_config(), "pad_token_id", None) or 0

    @property
    def long(self) -> int:
        """Tokens of a long text."""
        most = getattr(self.config.get_text_config(), "max_position_embeddings", None) or LONG + 4
        return max(min(LONG, most - 4), LENGTH)

    @property
    def has_keywords(self) -> bool:
        """Whether `forward` takes keywords that it does not name."""
        parameters = inspect.signature(self.kind.forward).parameters.values()
        return any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)

    @functools.cached_property
    def per_token(self) -> bool:
        """Whether the output has a place for every token."""
        out = self.states(self.build(), self.tokens(2, LENGTH))
        return out.ndim == 3 and out.shape[1] == LENGTH

    # -------------------------------------------------------------------------------------------------------- skipping
    def need(self, condition: bool, reason: str) -> None:
        """Skip a check that does not apply."""
        if not condition:
            raise Skip(reason)

    def needs_argument(self, name: str) -> None:
        """Skip what needs an argument of `forward`."""
        self.need(name in self.parameters, f"forward() takes no {name}")

    def needs_cache(self) -> None:
        """Skip what needs a cache of keys, values or states."""
        self.need(bool({"cache", "past_key_values"} & self.parameters), "forward() takes no cache")
        self.need(self.causal is True or self.seq2seq, "the model is not causal")
        self.need(self.per_token, "the output is not one for every token")

    # --------------------------------------------------------------------------------------------------------- calling
    def tokens(self, *shape: int, seed: int = 0) -> torch.Tensor:
        """Draw tokens that are not special."""
        return tokens(*shape, vocabulary=self.vocabulary, first=min(5, self.vocabulary - 1), seed=seed)

    def padded(
        self, sizes: list[int], side: str, seed: int = 77, pad: int | None = None
    ) -> tuple[list[torch.Tensor], torch.Tensor, Any, Any]:
        """Return rows, and the batch of them with its mask and columns; the pads hold garbage unless one is given."""
        length = max(sizes) + 2
        rows = [self.tokens(size, seed=size) for size in sizes]
        columns = padded_columns(sizes, side, length)
        batch, mask = place(rows, columns, length, seed=seed)
        batch = batch % self.vocabulary if pad is None else torch.where(mask.bool(), batch, pad)
        return rows, batch, mask, columns

    def inputs(self, ids: torch.Tensor | None, mask: torch.Tensor | None = None, **others: Any) -> dict[str, Any]:
        """Return the arguments of `forward` for a batch. Of an encoder-decoder, the batch is what the decoder
        reads. It has no padding, and the source is fixed unless it is among the others."""
        if self.seq2seq:
            if ids is not None and "inputs_embeds" not in others:
                others.setdefault("input_ids", self.tokens(1, 7, seed=5).expand(len(ids), -1))
            return {"decoder_input_ids": ids, **others}
        found: dict[str, Any] = {"input_ids": ids, **others}
        if ids is not None and mask is not None:
            found["attention_mask"] = mask
            if "position_ids" in self.parameters:
                past = mask.shape[1] - ids.shape[1]
                found.setdefault("position_ids", (mask.cumsum(-1) - 1).clamp(min=0)[:, past:])
        return found

    def run(self, model: Any, ids: torch.Tensor, mask: torch.Tensor | None = None, **others: Any) -> torch.Tensor:
        """Return logits or last states, with gradients and without a cache."""
        return self.main(self.call(model, ids, mask, **others))

    def states(self, model: Any, ids: torch.Tensor, mask: torch.Tensor | None = None, **others: Any) -> torch.Tensor:
        """Return logits or last states, without gradients."""
        with torch.no_grad():
            return self.run(model, ids, mask, **others)

    def call(self, model: Any, ids: torch.Tensor | None, mask: torch.Tensor | None = None, **others: Any) -> Any:
        """Return all outputs of a call that uses a cache only if one is given."""
        if "use_cache" in self.parameters:
            others.setdefault("use_cache", bool({"cache", "past_key_values"} & others.keys()))
        return model(**self.inputs(ids, mask, **others))

    @staticmethod
    def main(outputs: Any) -> torch.Tensor:
        """Return logits, or the last states of a base model."""
        return outputs["logits"] if "logits" in outputs else outputs[0]

    @staticmethod
    def tensors(outputs: Any) -> list[torch.Tensor]:
        """Return all floating-point tensors of the outputs."""
        return [value for value in outputs.to_tuple() if isinstance(value, torch.Tensor) and value.is_floating_point()]

    def cache(self, model: Any) -> dict[str, Any]:
        """Return an empty cache under the name of its argument."""
        name = "cache" if "cache" in self.parameters else "past_key_values"
        config = model.config
        if not self.seq2seq:
            return {name: DynamicCache(config=config)}
        decoder = config.get_text_config(decoder=True)
        return {name: EncoderDecoderCache(DynamicCache(config=decoder), DynamicCache(config=decoder))}


def _is_causal(kind: type[PreTrainedModel], config: PreTrainedConfig) -> bool | None:
    """Whether a model is causal: one that generates is, others say so in their attention layers, or not at all."""
    if config.is_encoder_decoder:
        return None
    if kind.can_generate():
        return True
    with torch.device("meta"):
        model = kind(copy.deepcopy(config))
    flags = (getattr(module, "is_causal", None) for module in model.modules())
    said = {flag for flag in flags if isinstance(flag, bool)}
    return said.pop() if len(said) == 1 else None


def tiny_config(kind: type[PreTrainedModel]) -> PreTrainedConfig:
    """Return a small config of a class, with a layer of every kind that it has.

    Raises:
        ValueError: the class has no config, or it refuses these sizes.
    """
    config = kind.config_class
    if config is None:
        raise ValueError(f"{kind.__name__} has no config class; give a config.")
    sizes = _tiny_fields(config)
    try:
        tiny = config(**sizes)
        wanted, layers = _layer_kinds(config()), sizes.get("num_hidden_layers", MOST_LAYERS)
        while not wanted <= _layer_kinds(tiny) and layers < MOST_LAYERS:  # some kinds come only every few layers
            layers += 1
            tiny = config(**sizes | {"num_hidden_layers": layers})
    except (ValueError, TypeError, ZeroDivisionError) as error:  # those of a strict config are among the first
        raise ValueError(
            f"{kind.__name__}: {config.__name__} refuses the sizes of a tiny model; give a config of a few tiny "
            f"layers, or the folder of such a model. It says: {error}"
        ) from error
    return tiny


def _conditioned(config: PreTrainedConfig) -> PreTrainedConfig:
    """Return a copy in which no norm blows up rounding."""
    config = copy.deepcopy(config)
    for part in (config, *(getattr(config, name, None) for name in config.sub_configs)):
        for name in EPSILONS:
            value = getattr(part, name, None)
            if isinstance(value, float) and value < LEAST_EPSILON:
                setattr(part, name, LEAST_EPSILON)
    return config


def _layer_kinds(config: Any) -> set[str]:
    return set(getattr(config, "layer_types", None) or getattr(config, "layers_block_type", None) or ())


def _tiny_fields(config: Any) -> dict[str, Any]:
    defaults = {field.name: field.default for field in fields(config)}
    known = defaults.keys() | config.attribute_map.keys()
    if defaults.get("sliding_window") is None:  # no window is not a small one
        known -= {"sliding_window"}
    sizes = TINY | (TINY_STATE_SPACE if "expand" in known else {})
    found = {name: value for name, value in sizes.items() if name in known}
    return found | {name: _tiny_fields(part) for name, part in config.sub_configs.items() if name in known}


def class_of(config: PreTrainedConfig, folder: str, trust_remote_code: bool = False) -> type[PreTrainedModel]:
    """Return the class that a folder was saved from.

    Raises:
        ValueError: the config does not say which, or the class is not known here.
    """
    names = config.architectures or []
    if not names:
        raise ValueError(f"{folder}: its config names no class (architectures); give the class instead.")
    name = names[0]
    for module in (transformers, importlib.import_module(__package__.partition(".")[0])):
        if hasattr(module, name):
            return getattr(module, name)
    remote = next((ref for ref in getattr(config, "auto_map", {}).values() if ref.endswith(f".{name}")), None)
    if remote is None:
        raise ValueError(f"{folder}: its class {name!r} is not known here, and no code comes with it.")
    if not trust_remote_code:
        raise ValueError(f"{folder}: its class {name!r} comes with the folder; trust_remote_code=True runs that code.")
    return get_class_from_dynamic_module(remote, folder)


def model_subject(
    model: Any, config: PreTrainedConfig | None, causal: bool | None, trust_remote_code: bool
) -> ModelSubject:
    """Return what `check_model` is asked for; see there."""
    if isinstance(model, nn.Module):
        kind, config = type(model), config or model.config  # type: ignore[assignment]
    elif isinstance(model, type):
        kind = model
    elif isinstance(model, str | Path):
        if not Path(model).is_dir():
            raise ValueError(f"model = {str(model)!r}: is no folder.")
        with loading("model", model):
            config = config or AutoConfig.from_pretrained(str(model), trust_remote_code=trust_remote_code)
        kind = class_of(config, str(model), trust_remote_code)
    else:
        raise ValueError(f"model = {model!r}: must be a class, a folder or a model.")
    if not issubclass(kind, PreTrainedModel):
        raise ValueError(f"{kind.__name__} is no PreTrainedModel of transformers.")
    if kind.main_input_name != "input_ids":
        raise ValueError(f"{kind.__name__} reads {kind.main_input_name}: only models of tokens can be checked.")
    config = _conditioned(config or tiny_config(kind))
    return ModelSubject(kind, config, _is_causal(kind, config) if causal is None else causal)
