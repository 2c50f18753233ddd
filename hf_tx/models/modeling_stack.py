# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""The stack of layers that every family is built on."""

from typing import Any

import torch
from torch import nn
from transformers.cache_utils import Cache, DynamicLayer, EncoderDecoderCache
from transformers.utils import logging
from transformers.utils.generic import is_flash_attention_requested

from .backend_rules import check_training, gives_weights, is_served, takes_distances
from .block import TxBlock
from .cache_checks import check_cache, check_room, check_source, tokens_held
from .configuration_base import TxStackConfig
from .documents import Documents, find_documents, inner_ranks, numbers_of, positions_of
from .feed_forward import drop
from .keywords import check_keywords
from .masks import (
    check_packing,
    create_cross_mask,
    create_mask,
    custom_mask,
    mask_groups,
)
from .mixers import CROSS_MIXERS, MIXERS
from .modeling_base import TxPreTrainedModel
from .norms import build_norm
from .positions import POSITIONS, LearnedPositions
from .recurrent_cache import RECURRENT_LAYER_TYPE
from .serving import masks_of_engine, past_length
from .tracing import is_tracing

logger = logging.get_logger(__name__)

#: Under this name, which no mixer can have, stand biases that were made with the masks of a step.
_BIASES = "position biases"


class TxStack(TxPreTrainedModel):
    """Embeddings, layers and the final norm: the base model of a family.

    Subclasses say whether the stack is causal (`is_causal`) and whether its layers attend to an encoder (`crosses`).
    Inputs may be embeddings and positions made elsewhere, so that other modalities use the same stacks.
    """

    config: TxStackConfig
    is_causal = True
    crosses = False

    def __init__(self, config: Any, loss_implementation: str = "full") -> None:
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
        layer_configs = [config.layer_config(idx) for idx in range(config.num_hidden_layers)]
        self.layers = nn.ModuleList(
            [TxBlock(layer, idx, config, self.is_causal, self.crosses) for idx, layer in enumerate(layer_configs)]
        )
        self.norm = build_norm(config) if config.final_norm else nn.Identity()
        self.output_proj = nn.Linear(size, config.output_size, bias=False) if config.output_projection else None
        self.layer_groups = mask_groups(config)
        self.groups = list(dict.fromkeys(self.layer_groups))
        self.attends = any(MIXERS.get(group.mixer).is_attention for group in self.groups)
        self.windows = [
            group.window if MIXERS.get(group.mixer).pattern is None else None for group in self.layer_groups
        ]
        self.key_heads = [(layer.num_key_value_heads, layer.head_dim) for layer in layer_configs]
        self.layer_positions = [
            f"{name}_{idx}" if name == "relative" and config.relative_attention_per_layer else name
            for idx, name in enumerate(config.layer_positions)
        ]
        self.layer_types = config.layer_types
        self.rotation_keys = list(dict.fromkeys(zip(self.layer_positions, self.layer_types, strict=True)))
        schemes = dict(zip(self.layer_positions, config.layer_positions, strict=True))
        self.positions: Any = nn.ModuleDict({key: POSITIONS.get(name)(config) for key, name in schemes.items()})
        self.has_table = any(isinstance(scheme, LearnedPositions) for scheme in self.positions.values())
        self.changing_positions: list[Any] = [
            scheme for scheme in self.positions.values() if getattr(scheme, "changes", None)
        ]
        biased = (
            (scheme, group)
            for scheme, group in zip(self.layer_positions, self.layer_groups, strict=True)
            if self.positions[scheme].has_bias and MIXERS.get(group.mixer).is_attention
        )
        self.biased = list(dict.fromkeys(biased))
        # Whether a layer counts the tokens between a query and a key.
        self.counts = bool(self.biased) or any(
            MIXERS.get(group.mixer).is_attention and (group.window is not None or MIXERS.get(group.mixer).pattern)
            for group in self.groups
        )
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
        self, inputs_embeds: torch.Tensor, position_ids: torch.Tensor, token_type_ids: torch.Tensor | None
    ) -> torch.Tensor:
        """Add token types and positions, then normalise and drop; project before or after that."""
        if self.embed_proj is not None and self.projects_tokens:
            inputs_embeds = self.embed_proj(inputs_embeds)
        if self.embed_types is not None:
            if token_type_ids is None:
                token_type_ids = torch.zeros_like(position_ids)
            inputs_embeds = inputs_embeds + self.embed_types(token_type_ids)
        elif token_type_ids is not None and not is_tracing(token_type_ids) and bool(token_type_ids.any()):
            raise ValueError(
                "token_type_ids are given, but type_vocab_size = 0: the model has no token types. Leave them out: "
                "tokenizer.model_input_names = ['input_ids', 'attention_mask']."
            )
        for scheme in self.positions.values():
            inputs_embeds = scheme.embed(inputs_embeds, position_ids)
        if self.embed_norm is not None:
            inputs_embeds = self.embed_norm(inputs_embeds)
        inputs_embeds = drop(inputs_embeds, self.dropout, self.training)
        return inputs_embeds if self.embed_proj is None or self.projects_tokens else self.embed_proj(inputs_embeds)

    def _check_positions(self, position_ids: torch.Tensor) -> None:
        if not self.has_table or is_tracing(position_ids):
            return
        limit = self.config.max_position_embeddings
        last = int(position_ids.max()) if position_ids.numel() else 0
        if last >= limit:
            raise ValueError(
                f"position {last} is past the table of learned positions: max_position_embeddings = {limit}, so the "
                f"longest text has {limit} tokens, and this one has {last + 1}. Shorten it, or use a longer table."
            )

    # ------------------------------------------------------------------------------------------------------ masks
    def create_masks_for_generate(
        self,
        config: Any,
        inputs_embeds: torch.Tensor,
        attention_mask: torch.Tensor | None,
        cache: Cache | None,
        position_ids: torch.Tensor | None = None,
        **kwargs: Any,
    ) -> dict[str, Any]:
        """Build all masks of a step ahead of it, as `generate()` does with a static cache; see `layer_masks`."""
        past = cache.get_seq_length() if cache is not None else 0
        if cache is not None:
            check_room(cache, self.windows, past, inputs_embeds.shape[1])
        documents = self._documents(inputs_embeds, attention_mask, past, position_ids)
        ranks = self._inner_ranks(attention_mask)
        masks = self.layer_masks(inputs_embeds, attention_mask, cache, documents, self.is_causal, ranks)
        if ranks is not None:
            masks[_BIASES] = self._biases(cache, inputs_embeds, ranks)
        return masks

    def _inner_ranks(self, attention_mask: Any) -> torch.Tensor | None:
        """Return the ranks that distances are counted by, or None where no layer counts them, or by index."""
        is_flat = isinstance(attention_mask, torch.Tensor) and attention_mask.ndim == 2
        return inner_ranks(attention_mask) if self.counts and is_flat else None

    def _documents(
        self,
        inputs_embeds: torch.Tensor,
        attention_mask: Any,
        past: int | torch.Tensor,
        position_ids: torch.Tensor | None,
    ) -> Documents | None:
        """Return the documents packed in the rows, or None where there are none."""
        padding = attention_mask if isinstance(attention_mask, torch.Tensor) and attention_mask.ndim == 2 else None
        if position_ids is None or (attention_mask is not None and padding is None):
            return None
        documents = find_documents(position_ids, padding, inputs_embeds, past)
        if documents is not None and self.attends:
            cached = bool(past) if isinstance(past, int) else True
            check_packing(self.config._attn_implementation, inputs_embeds, padding, cached)
        return documents

    def layer_masks(
        self,
        inputs_embeds: torch.Tensor,
        attention_mask: Any,
        cache: Cache | None,
        documents: Documents | None,
        is_causal: bool,
        ranks: torch.Tensor | None = None,
    ) -> dict[str, Any]:
        """Build the mask of every group of layers.

        Args:
            inputs_embeds: gives batch size, length, dtype and device. *Shape:* `(batch, length, any)`.
            attention_mask: padding, *Shape:* `(batch, past + length)`; a mask for all layers, *Shape:* `(batch or 1,
                heads or 1, length, keys)`; a dict of masks by group, which is returned as it is; or None.
            cache: earlier keys, or None.
            documents: the documents packed in the rows, or None.
            is_causal: whether the layers are causal in this call.
            ranks: see `inner_ranks`.

        Returns:
            What the backend's mask function returned, by the key of the group.

        Raises:
            ValueError: see `custom_mask` and `create_mask`; a mask that is not two-dimensional for a mixer that is no
                attention; flash with a static cache and no mask.
        """
        if isinstance(attention_mask, dict):
            return attention_mask
        backend = self.config._attn_implementation
        groups = self.groups
        if attention_mask is not None and getattr(attention_mask, "ndim", 0) != 2:
            for group in groups:
                if not MIXERS.get(group.mixer).is_attention:
                    raise ValueError(
                        f"layer {group.layer_idx} ({group.mixer!r}) has no scores to mask: attention_mask must be "
                        "(batch, tokens), 1 for real tokens."
                    )
        if attention_mask is not None and not isinstance(attention_mask, torch.Tensor):
            return {group.key: attention_mask for group in groups}  # made by the backend's own mask function
        if attention_mask is not None and attention_mask.ndim != 2:
            heads, length = self.config.num_attention_heads, inputs_embeds.shape[1]
            return {
                group.key: custom_mask(
                    attention_mask, backend, inputs_embeds, self._keys(cache, group, length)[0], heads
                )
                for group in groups
            }
        flash = is_flash_attention_requested(requested_attention_implementation=backend)
        if flash and attention_mask is None and getattr(cache, "is_compileable", False):
            raise ValueError(
                f"{backend} with a static cache needs a 2-D attention_mask, or it reads slots that are still empty."
            )
        return {
            group.key: create_mask(group, backend, is_causal, inputs_embeds, attention_mask, cache, documents, ranks)
            for group in groups
        }

    def _keys(self, cache: Cache | None, group: Any, length: int) -> tuple[int, int | torch.Tensor]:
        """Return how many keys the layers of a group see, and the index of the first."""
        return (length, 0) if cache is None else cache.get_mask_sizes(length, group.layer_idx)

    def _biases(
        self, cache: Cache | None, inputs_embeds: torch.Tensor, ranks: torch.Tensor | None
    ) -> dict[tuple[str, str], torch.Tensor]:
        """Return the biases of the positions by scheme and group. *Shape:* `(1, heads, length, keys)`, or by distance
        `(heads, length + keys - 1)` for backends that take them so; where distances are counted by `ranks`, `(batch,
        heads, length, keys)`.

        What a bias means is a fact of the stack and not of a call: whichever mask or `is_causal` a call has.
        """
        biases: dict[tuple[str, str], torch.Tensor] = {}
        length, device = inputs_embeds.shape[1], inputs_embeds.device
        for name, group in self.biased:
            keys, first = self._keys(cache, group, length)
            if ranks is not None:
                key = (torch.arange(keys, device=device) + first).clamp(max=ranks.shape[1] - 1)
                distance = ranks[:, None, key] - ranks[:, -length:, None]
                bias = self.positions[name].bias(distance.flatten(0, 1), self.is_causal, inputs_embeds.dtype)
                biases[name, group.key] = bias[0].unflatten(1, (-1, length)).transpose(0, 1)
                continue
            past = cache.get_seq_length(group.layer_idx) if cache is not None else 0
            if takes_distances(self.config._attn_implementation):
                distance = torch.arange(1 - length, keys, device=device) + first - past
                by_distance_bias = self.positions[name].bias(distance[None], self.is_causal, inputs_embeds.dtype)
                biases[name, group.key] = by_distance_bias[0, :, 0]
                continue
            queries = torch.arange(length, device=device) + past
            distance = (torch.arange(keys, device=device) + first)[None] - queries[:, None]
            bias = self.positions[name].bias(distance, self.is_causal, inputs_embeds.dtype)
            if self.config._attn_implementation == "flex_attention":  # it indexes the batch
                bias = bias.expand(inputs_embeds.shape[0], -1, -1, -1)
            biases[name, group.key] = bias
        return biases

    # ---------------------------------------------------------------------------------------------------- forward
    def run(self, output_attentions: bool, **inputs: Any) -> torch.Tensor:
        """Embed the inputs, build masks, biases and rotations once, and apply all layers.

        Args:
            output_attentions: whether the caller wants the attention weights. A backend that has none gives way to
                `eager` for this call, with a warning.
            **inputs: see `_run`.

        Returns:
            *Shape:* `(batch, length, output_size)`.

        Raises:
            TypeError: see `check_keywords`.
            ValueError: see `embed`, `check_training`, `custom_mask`, `check_packing`, `check_cache`, `check_room`,
                `check_source` and `numbers_of`; a position past the table of learned positions; document numbers
                without positions when the cache is filled; attention weights where the backend cannot change for one
                call.
        """
        backend = self.config._attn_implementation
        check_training(self, backend)
        from_backend = self.attends or (self.crosses and CROSS_MIXERS.get(self.config.cross_mixer).uses_backend)
        if output_attentions and not self.attends and not self.crosses:
            mixers = ", ".join(dict.fromkeys(self.config.mixers))
            logger.warning_once(f"output_attentions=True gives nothing: no layer is attention, but {mixers}.")
        if not output_attentions or not from_backend or gives_weights(backend):
            return self._run(**inputs)
        # Recomputing in the backward pass, and masks made for another backend, outlive this call.
        checkpointed = self.gradient_checkpointing and self.training and torch.is_grad_enabled()
        served = is_served(self.config, backend, inputs["cache"])
        if checkpointed or served or isinstance(inputs["attention_mask"], dict):
            raise ValueError(
                f"attn_implementation={backend!r} gives no attention weights (output_attentions=True); call "
                "model.set_attn_implementation('eager') first."
            )
        logger.warning_once(
            f"attn_implementation={backend!r} gives no attention weights: calls with output_attentions=True are "
            "computed by 'eager'."
        )
        self.config._attn_implementation_internal = "eager"
        try:
            return self._run(**inputs)
        finally:
            self.config._attn_implementation_internal = backend

    def _run(
        self,
        input_ids: torch.Tensor | None,
        attention_mask: Any,
        position_ids: torch.Tensor | None,
        inputs_embeds: torch.Tensor | None,
        cache: Cache | None,
        is_causal: bool,
        token_type_ids: torch.Tensor | None = None,
        seq_idx: torch.Tensor | None = None,
        encoder_hidden_states: torch.Tensor | None = None,
        encoder_attention_mask: Any = None,
        **kwargs: Any,
    ) -> torch.Tensor:
        own_cache = cache.self_attention_cache if isinstance(cache, EncoderDecoderCache) else cache
        served = is_served(self.config, self.config._attn_implementation, own_cache)
        if not served:
            check_keywords(self, kwargs, own_cache)
        inputs_embeds = self.embed(input_ids, inputs_embeds)
        if seq_idx is None and not served:
            seq_idx = numbers_of(kwargs, inputs_embeds)
        past = past_length(own_cache)
        if isinstance(past, torch.Tensor):
            past = past.clone()  # the counter of a static cache moves in place
        flat_mask = attention_mask if isinstance(attention_mask, torch.Tensor) and attention_mask.ndim == 2 else None
        if flat_mask is not None and flat_mask.shape[0] != inputs_embeds.shape[0]:
            raise ValueError(f"attention_mask has {flat_mask.shape[0]} rows, the input {inputs_embeds.shape[0]}.")
        length = inputs_embeds.shape[1]
        held = tokens_held(past, length)
        if own_cache is not None and not served:
            check_cache(own_cache, self.windows, self.key_heads, inputs_embeds.shape[0])
            check_room(own_cache, self.windows, past, length)
        if flat_mask is not None and held is not None:
            covered = flat_mask.shape[1]
            is_static = getattr(own_cache, "is_compileable", False)
            if covered < held + length or (covered > held + length and not is_static):
                raise ValueError(
                    f"attention_mask covers {covered} tokens, but the cache holds {held} and the input {length}: it "
                    "must cover both."
                )
            # One for all slots of a static cache says nothing of those that are still empty.
            attention_mask = flat_mask = flat_mask[:, : held + length] if covered > held + length else flat_mask
        if position_ids is not None and position_ids.shape[-1] != inputs_embeds.shape[1]:
            raise ValueError(
                f"position_ids has {position_ids.shape[-1]} positions, the input {inputs_embeds.shape[1]}."
            )
        packed_positions = position_ids
        if position_ids is None:
            if seq_idx is not None and isinstance(past, int) and past > 0:
                raise ValueError(
                    "seq_idx or cu_seq_lens_q with a filled cache needs position_ids: the row may go on with a "
                    "document."
                )
            position_ids = positions_of(inputs_embeds, flat_mask, seq_idx, past)
            packed_positions = None if seq_idx is None else position_ids
        elif seq_idx is not None and not is_tracing(seq_idx):
            _check_documents(seq_idx, position_ids)
        self._check_positions(position_ids)

        hidden_states = self.finish_embedding(inputs_embeds, position_ids, token_type_ids)
        documents = ranks = None
        if served:
            masks = masks_of_engine(self.groups, attention_mask, own_cache)
        else:
            documents = self._documents(inputs_embeds, attention_mask, past, packed_positions)
            ranks = self._inner_ranks(attention_mask)
            masks = self.layer_masks(inputs_embeds, attention_mask, own_cache, documents, is_causal, ranks)
        if documents is not None:
            kwargs["position_ids"] = position_ids  # by which the flash functions isolate documents
        biases = masks[_BIASES] if _BIASES in masks else self._biases(own_cache, inputs_embeds, ranks)
        if own_cache is not None and not served:
            for changing in self.changing_positions:
                room = own_cache.get_max_length() if getattr(own_cache, "is_compileable", False) else None
                changing.warn_of_changes(past, length, room)
        rotations = {
            (scheme, layer_type): self.positions[scheme].rotate(hidden_states, position_ids, layer_type)
            for scheme, layer_type in self.rotation_keys
        }
        source_start = None
        if self.crosses:
            _check_source_mask(encoder_hidden_states, encoder_attention_mask)
            if encoder_hidden_states is not None and isinstance(cache, EncoderDecoderCache):
                check_source(cache, self.layers[0].cross_mixer, encoder_hidden_states, self.training)
            if self.starts_from_source:
                source_start = _first_real_state(encoder_hidden_states, encoder_attention_mask)
            encoder_attention_mask = self._cross_mask(inputs_embeds, encoder_hidden_states, encoder_attention_mask)
            _widen_cross_cache(cache)

        for layer, group, scheme, layer_type in zip(
            self.layers, self.layer_groups, self.layer_positions, self.layer_types, strict=True
        ):
            if self.training and self.layerdrop and torch.rand(()) < self.layerdrop:
                continue
            hidden_states = layer(
                hidden_states,
                encoder_hidden_states,
                biases.get((scheme, group.key)),
                source_start,
                attention_mask=masks[group.key],
                position_embeddings=rotations[scheme, layer_type],
                cache=cache,
                encoder_attention_mask=encoder_attention_mask,
                is_causal=is_causal,
                **kwargs,
            )
        hidden_states = self.norm(hidden_states)
        return hidden_states if self.output_proj is None else self.output_proj(hidden_states)

    def _cross_mask(self, inputs_embeds: torch.Tensor, source: torch.Tensor | None, mask: torch.Tensor | None) -> Any:
        if source is None:
            raise ValueError("the decoder of an encoder-decoder needs encoder_hidden_states")
        backend, heads = self.config._attn_implementation, self.config.num_attention_heads
        if not CROSS_MIXERS.get(self.config.cross_mixer).uses_backend:
            if mask is not None and mask.ndim != 2:
                raise ValueError(
                    f"cross_mixer = {self.config.cross_mixer!r} takes the padding of the source as its mask, (batch, "
                    f"source_length), not the shape {tuple(mask.shape)}."
                )
            return None if mask is None else mask.bool()
        if mask is not None and mask.ndim == 4:
            return custom_mask(mask, backend, inputs_embeds, source.shape[1], heads)
        return create_cross_mask(backend, inputs_embeds, source, mask)


def _first_real_state(states: torch.Tensor | None, mask: torch.Tensor | None) -> torch.Tensor | None:
    """Return the state of the first token that is not padding. *Shape:* `(batch, hidden_size)`.

    Raises:
        ValueError: a mask that does not say which tokens are padding.
    """
    if states is None or mask is None:
        return None if states is None else states[:, 0]
    if mask.ndim != 2:
        raise ValueError(
            f"initial_state = 'encoder' takes the padding of the source as its mask, (batch, source_length), not the "
            f"shape {tuple(mask.shape)}."
        )
    first = mask.long().argmax(dim=-1)
    return states[torch.arange(len(states), device=states.device), first.to(states.device)]


def pop_flags(kwargs: dict[str, Any], config: Any) -> bool:
    """Take the flags that the decorators have read out of what goes on to the layers; return `output_attentions`."""
    kwargs.pop("output_hidden_states", None)
    asked = kwargs.pop("output_attentions", None)
    return bool(config.output_attentions if asked is None else asked)


def _widen_cross_cache(cache: Cache | None) -> None:
    """Let every layer keep all states of the encoder. Caches are built from the decoder's config, so those of sliding
    layers would keep a window of them, and those of recurrent layers none."""
    if isinstance(cache, EncoderDecoderCache):
        layers: list[Any] = cache.cross_attention_cache.layers
        for idx, layer in enumerate(layers):
            # By name, since another copy of this code in the process may have made the cache.
            recurrent = type(layer)._layer_type == RECURRENT_LAYER_TYPE
            if (layer.is_sliding or recurrent) and not layer.is_initialized:
                layers[idx] = DynamicLayer()


def _check_source_mask(source: torch.Tensor | None, mask: Any) -> None:
    if source is not None and isinstance(mask, torch.Tensor) and mask.ndim == 2 and mask.shape[1] != source.shape[1]:
        raise ValueError(
            f"the mask of the source covers {mask.shape[1]} tokens, and the encoder's states are {source.shape[1]}: "
            "it must cover them."
        )


def _check_documents(seq_idx: torch.Tensor, position_ids: torch.Tensor) -> None:
    begins = seq_idx[:, 1:] != seq_idx[:, :-1]
    if bool((position_ids.expand_as(seq_idx)[:, 1:][begins] != 0).any()):
        raise ValueError(
            "seq_idx or cu_seq_lens_q and position_ids disagree: positions must begin at 0 where the document changes."
        )
