# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""The stack of layers that every family is built on."""

from typing import Any

import torch
from torch import nn
from transformers import PreTrainedConfig
from transformers.cache_utils import Cache, DynamicLayer, EncoderDecoderCache
from transformers.utils import logging

from .auxiliary import AuxiliaryLosses, call_part, declared_losses
from .backend_rules import check_training, gives_weights, is_served, reads_bands
from .block import TxBlock
from .cache_checks import check_source
from .configuration_base import TxStackConfig
from .documents import numbers_of
from .feed_forwards import drop
from .keywords import check_keywords
from .masks import create_cross_mask, custom_mask
from .mixers import CROSS_MIXERS
from .modeling_base import TxPreTrainedModel
from .norms import build_norm
from .positions import POSITIONS
from .preparation import Plan, Preparation, position_keys
from .recurrent_cache import RECURRENT_LAYER_TYPE
from .tracing import is_tracing
from .values import may_look_at, refuse_where

logger = logging.get_logger(__name__)


class TxStack(TxPreTrainedModel):
    """Embeddings, layers and the final norm: the base model of a family.

    Subclasses define whether the stack is causal (`is_causal`) and whether its layers have cross-attention
    (`crosses`). Inputs can also be embeddings and positions, so that other modalities can use the same stacks.
    """

    config: TxStackConfig
    is_causal = True
    crosses = False

    def __init__(self, config: TxStackConfig, loss_implementation: str = "full") -> None:
        super().__init__(config, loss_implementation)
        tokens, summed, size = config.token_size, config.sum_size, config.hidden_size
        self.vocab_size = config.vocab_size
        self.embed_tokens = nn.Embedding(config.vocab_size, tokens)
        self.embed_types = nn.Embedding(config.type_vocab_size, summed) if config.type_vocab_size else None
        self.embed_norm = build_norm(config, summed) if config.embedding_norm else None
        self.projects_tokens = config.embedding_projection == "tokens"
        self.embed_proj = nn.Linear(tokens, size, bias=not self.projects_tokens) if tokens != size else None
        self.dropout = config.hidden_dropout if config.embedding_dropout is None else config.embedding_dropout
        self.layerdrop = config.layerdrop

        self.starts_from_source = self.crosses and config.initial_state == "encoder"
        self.layers = nn.ModuleList(
            TxBlock(config.layer_config(idx), idx, config, self.is_causal, self.crosses)
            for idx in range(config.num_hidden_layers)
        )
        self.norm = build_norm(config) if config.final_norm else nn.Identity()
        self.output_proj = nn.Linear(size, config.output_size, bias=False) if config.output_projection else None
        schemes = dict(zip(position_keys(config), config.layer_positions, strict=True))
        self.positions: Any = nn.ModuleDict({key: POSITIONS.build(config, name) for key, name in schemes.items()})
        self.plan = Plan(config, self.positions, self.is_causal)
        parts = (*self.layers, *self.positions.values(), self.embed_norm, self.norm)
        self.auxiliary_losses = declared_losses(parts)
        self.gradient_checkpointing = False

    # ----------------------------------------------------------------------------------------------------- inputs
    def embed(
        self,
        input_ids: torch.Tensor | None,
        inputs_embeds: torch.Tensor | None,
    ) -> torch.Tensor:
        """Return the embeddings of the tokens, or the given ones, scaled.

        Raises:
            ValueError: both or neither are given, or they hold no rows or no tokens.
        """
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError("You must specify exactly one of input_ids or inputs_embeds")
        if inputs_embeds is None:
            inputs_embeds = self.embed_tokens(input_ids)
        rows, length = inputs_embeds.shape[:2]
        if rows == 0 or length == 0:
            raise ValueError(f"the input has no {'rows' if rows == 0 else 'tokens'}.")
        if self.config.embedding_scale is not None:
            inputs_embeds = inputs_embeds * self.config.embedding_scale
        return inputs_embeds

    def finish_embedding(
        self,
        inputs_embeds: torch.Tensor,
        position_ids: torch.Tensor,
        token_type_ids: torch.Tensor | None,
        losses: AuxiliaryLosses | None = None,
    ) -> torch.Tensor:
        """Add token types and positions, then normalise and drop; project before or after that."""
        if self.embed_proj is not None and self.projects_tokens:
            inputs_embeds = self.embed_proj(inputs_embeds)
        if self.embed_types is not None:
            if token_type_ids is None:
                token_type_ids = torch.zeros_like(position_ids)
            inputs_embeds = inputs_embeds + self.embed_types(token_type_ids)
        elif token_type_ids is not None:
            refuse_where(
                token_type_ids != 0,
                "token_type_ids are given, but the model has no token types (type_vocab_size = 0). Leave them out "
                "with tokenizer.model_input_names = ['input_ids', 'attention_mask'].",
            )
        for scheme in self.positions.values():
            added = {"losses": losses} if losses is not None and declared_losses([scheme]) else {}
            inputs_embeds = scheme.embed(inputs_embeds, position_ids, **added)
        if self.embed_norm is not None:
            inputs_embeds = call_part(self.embed_norm, losses, inputs_embeds)
        inputs_embeds = drop(inputs_embeds, self.dropout, self.training)
        return inputs_embeds if self.embed_proj is None or self.projects_tokens else self.embed_proj(inputs_embeds)

    def _prepare(self, inputs_embeds: torch.Tensor, attention_mask: Any, backend: str, **inputs: Any) -> Preparation:
        return Preparation(self.config, self.plan, self.positions, backend, inputs_embeds, attention_mask, **inputs)

    def create_masks_for_generate(
        self,
        config: PreTrainedConfig,
        inputs_embeds: torch.Tensor,
        attention_mask: torch.Tensor | None,
        cache: Cache | None,
        position_ids: torch.Tensor | None = None,
        **kwargs: Any,
    ) -> dict[str, Any]:
        """Build all masks of a step ahead of it, as `generate()` does with a static cache; see [`Preparation`]."""
        backend = self.config._attn_implementation
        inputs = dict(cache=cache, position_ids=position_ids, is_causal=self.is_causal, ahead=True)
        return self._prepare(inputs_embeds, attention_mask, backend, **inputs).masks_ahead()

    # ---------------------------------------------------------------------------------------------------- forward
    def _backend(self, output_attentions: bool, cache: Cache | None, attention_mask: Any) -> str:
        """Return the attention implementation of a call: that of the config, or `eager`, with a warning, if the
        caller requests attention weights and it does not return them.

        Raises:
            ValueError: if it cannot compute the call, and `eager` cannot replace it.
        """
        backend = self.config._attn_implementation
        check_training(self, backend)
        from_backend = self.plan.attends or (self.crosses and CROSS_MIXERS.get(self.config.cross_mixer).uses_backend)
        if output_attentions and not self.plan.attends and not self.crosses:
            mixers = ", ".join(dict.fromkeys(self.config.mixers))
            logger.warning_once(
                f"output_attentions=True returns nothing, because no layer is attention: the mixers are {mixers}."
            )
        if not output_attentions or not from_backend or gives_weights(backend):
            return backend
        # Masks that were made for another backend, and engines, which mask by themselves.
        if is_served(self.config, backend, cache) or isinstance(attention_mask, dict):
            raise ValueError(
                f"attn_implementation={backend!r} does not return attention weights (output_attentions=True); call "
                "model.set_attn_implementation('eager') first."
            )
        logger.warning_once(
            f"attn_implementation={backend!r} does not return attention weights: calls with output_attentions=True "
            "are computed with 'eager'."
        )
        return "eager"

    def run(
        self,
        input_ids: torch.Tensor | None,
        attention_mask: Any,
        position_ids: torch.Tensor | None,
        inputs_embeds: torch.Tensor | None,
        cache: Cache | None,
        is_causal: bool,
        output_attentions: bool,
        token_type_ids: torch.Tensor | None = None,
        seq_idx: torch.Tensor | None = None,
        encoder_hidden_states: torch.Tensor | None = None,
        encoder_attention_mask: Any = None,
        **kwargs: Any,
    ) -> tuple[torch.Tensor, dict[str, torch.Tensor] | None]:
        """Embed the inputs, prepare what the layers read, and apply all layers. For the other arguments see
        [`TxDecoderModel.forward`].

        Args:
            input_ids: tokens, or None.
            attention_mask: see [`Preparation`].
            position_ids: see [`Preparation`].
            inputs_embeds: embeddings, or None.
            cache: that of the stack, or of an encoder-decoder.
            is_causal: whether the layers are causal in this call.
            output_attentions: whether attention weights are requested. A backend that does not return them is replaced
                by `eager` for this call, with a warning.
            token_type_ids: types of the tokens, or None.
            seq_idx: numbers of packed documents, or None.
            encoder_hidden_states: states of the encoder, for cross-attention.
            encoder_attention_mask: padding of the source; or a mask of four dimensions.
            **kwargs: arguments of the layers.

        Returns:
            *Shape:* `(batch, length, output_size)`; and the auxiliary losses by name, or None where no part has any.

        Raises:
            TypeError: see `check_keywords`.
            ValueError: see `embed`, `check_training`, [`Preparation`], `check_source` and `numbers_of`; attention
                weights where the backend cannot change for one call.
        """
        own_cache = cache.self_attention_cache if isinstance(cache, EncoderDecoderCache) else cache
        backend = self._backend(output_attentions, own_cache, attention_mask)
        served = is_served(self.config, backend, own_cache)
        if not served:
            check_keywords(self, backend, kwargs, own_cache)
        inputs_embeds = self.embed(input_ids, inputs_embeds)
        if seq_idx is None and not served:
            seq_idx = numbers_of(kwargs, inputs_embeds)
        prepared = self._prepare(
            inputs_embeds,
            attention_mask,
            backend,
            cache=own_cache,
            is_causal=is_causal,
            position_ids=position_ids,
            seq_idx=seq_idx,
            served=served,
        )
        if prepared.documents is not None:
            kwargs["position_ids"] = prepared.position_ids  # by which the flash functions isolate documents
        losses = AuxiliaryLosses(self.auxiliary_losses) if self.auxiliary_losses else None
        hidden_states = self.finish_embedding(inputs_embeds, prepared.position_ids, token_type_ids, losses)
        source_start = source_mask = None
        if self.crosses:
            source_start, source_mask = self._source(
                backend, inputs_embeds, encoder_hidden_states, encoder_attention_mask, cache
            )
        masks, biases, rotations = prepared.masks, prepared.biases, prepared.rotations(hidden_states)
        for layer, (group, scheme, layer_type) in zip(self.layers, self.plan.layers, strict=True):
            if self.training and self.layerdrop and torch.rand(()) < self.layerdrop:
                continue
            output = layer(
                hidden_states,
                encoder_hidden_states,
                biases.get((scheme, group)),
                source_start,
                attn_implementation=backend,
                attention_mask=masks[group],
                position_embeddings=rotations[scheme, layer_type],
                cache=cache,
                encoder_attention_mask=source_mask,
                is_causal=is_causal,
                **kwargs,
            )
            hidden_states, *added = output if isinstance(output, tuple) else (output,)
            names: Any = layer.auxiliary_losses if added else ()
            for name, value in zip(names, added, strict=True):
                losses.add(name, value)  # type: ignore[union-attr]
        hidden_states = call_part(self.norm, losses, hidden_states)
        if self.output_proj is not None:
            hidden_states = self.output_proj(hidden_states)
        terms = None if losses is None else dict(zip(losses.names, losses.values(hidden_states), strict=True))
        return hidden_states, terms

    # ----------------------------------------------------------------------------------------------------- source
    def _source(
        self, backend: str, inputs_embeds: torch.Tensor, source: torch.Tensor | None, mask: Any, cache: Cache | None
    ) -> tuple[torch.Tensor | None, Any]:
        """Return what the first states are made from, or None, and the mask of the attention to an encoder."""
        if source is None:
            raise ValueError("the decoder of an encoder-decoder needs encoder_hidden_states")
        if isinstance(mask, torch.Tensor) and mask.ndim == 2 and mask.shape[1] != source.shape[1]:
            raise ValueError(
                f"the mask of the source has {mask.shape[1]} tokens, but encoder_hidden_states has "
                f"{source.shape[1]}: they must be the same."
            )
        if isinstance(cache, EncoderDecoderCache):
            check_source(cache, self.layers[0].cross_mixer, source, self.training)
            _widen_cross_cache(cache)
        start = _first_real_state(source, mask) if self.starts_from_source else None
        return start, self._cross_mask(backend, inputs_embeds, source, mask)

    def _cross_mask(
        self, backend: str, inputs_embeds: torch.Tensor, source: torch.Tensor, mask: torch.Tensor | None
    ) -> Any:
        if not CROSS_MIXERS.get(self.config.cross_mixer).uses_backend:
            if mask is not None and mask.ndim != 2:
                raise ValueError(
                    f"cross_mixer = {self.config.cross_mixer!r} needs a mask of the source of shape (batch, "
                    f"source_length), not {tuple(mask.shape)}."
                )
            return None if mask is None else mask.bool()
        if mask is not None and mask.ndim == 4:
            return custom_mask(mask, backend, inputs_embeds, source.shape[1], self.config.num_attention_heads)
        looks = mask is None or may_look_at(mask) or (reads_bands(backend) and not is_tracing(mask))
        return create_cross_mask(backend, inputs_embeds, source, mask, looks)


def _first_real_state(states: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
    """Return the state of the first token that is not padding. *Shape:* `(batch, hidden_size)`.

    Raises:
        ValueError: a mask that does not say which tokens are padding.
    """
    if mask is None:
        return states[:, 0]
    if mask.ndim != 2:
        raise ValueError(
            "initial_state = 'encoder' needs a mask of the source of shape (batch, source_length), not "
            f"{tuple(mask.shape)}."
        )
    first = mask.long().argmax(dim=-1)
    return states[torch.arange(len(states), device=states.device), first.to(states.device)]


def pop_flags(kwargs: dict[str, Any], config: TxStackConfig) -> bool:
    """Remove the flags that the decorators have read from the arguments of the layers; return `output_attentions`."""
    kwargs.pop("output_hidden_states", None)
    asked = kwargs.pop("output_attentions", None)
    return bool(config.output_attentions if asked is None else asked)


def _widen_cross_cache(cache: EncoderDecoderCache) -> None:
    """Let every layer keep all states of the encoder. Caches are built from the decoder's config, so those of sliding
    layers would keep a window of them, and those of recurrent layers none."""
    layers: list[Any] = cache.cross_attention_cache.layers
    for idx, layer in enumerate(layers):
        # By name, since another copy of this code in the process may have made the cache.
        recurrent = type(layer)._layer_type == RECURRENT_LAYER_TYPE
        if (layer.is_sliding or recurrent) and not layer.is_initialized:
            layers[idx] = DynamicLayer()
