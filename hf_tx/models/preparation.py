# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""The inputs of the layers in addition to the hidden states, which are prepared once per call: positions, documents,
masks, biases and rotations."""

from typing import Any

import torch
from torch import nn
from transformers.cache_utils import Cache
from transformers.utils.generic import is_flash_attention_requested

from .backend_rules import reads_bands, takes_distances
from .cache_checks import check_cache, check_room, tokens_held
from .configuration_base import TxStackConfig
from .documents import Documents, begins_document, find_documents, inner_ranks, positions_of
from .masks import MaskGroup, check_packing, create_mask, custom_mask, mask_groups
from .mixers import MIXERS
from .positions import LearnedPositions
from .serving import masks_of_engine, past_length
from .tracing import is_tracing
from .values import may_look_at, refuse_where

#: The key of biases that were made with the masks of a step; no mixer can have this name.
_BIASES = "position biases"


def position_keys(config: TxStackConfig) -> list[str]:
    """Return the key of the position scheme of every layer: layers that share a scheme share its parameters."""
    return [
        f"{name}_{idx}" if name == "relative" and config.relative_attention_per_layer else name
        for idx, name in enumerate(config.layer_positions)
    ]


class Plan:
    """Properties of the layers of a stack that are the same for all calls.

    Args:
        config: config of the stack.
        positions: its position schemes, by the keys of `position_keys`.
        is_causal: whether the stack is causal.

    Attributes:
        groups: the groups of layers that share a mask.
        layers: of every layer the key of its group, that of its position scheme, and its layer type.
        rotations: the different pairs of the latter two.
        windows: the window of every layer, or None.
        key_heads: the number of key heads of every layer, and their size.
        attends: whether a layer is attention.
        biased: the pairs of a position scheme and a group of attention layers that have a bias.
        counts: whether a layer counts the tokens between a query and a key.
        has_table: whether positions end with a table.
        changing: the position schemes whose angles depend on the length of the text.
    """

    def __init__(self, config: TxStackConfig, positions: nn.ModuleDict, is_causal: bool) -> None:
        schemes: dict[str, Any] = dict(positions.items())
        self.is_causal = is_causal
        of_layers, keys = mask_groups(config), position_keys(config)
        mixers = [MIXERS.get(group.mixer) for group in of_layers]
        self.groups = list(dict.fromkeys(of_layers))
        self.layers = list(zip((group.key for group in of_layers), keys, config.layer_types, strict=True))
        self.rotations = list(dict.fromkeys(zip(keys, config.layer_types, strict=True)))
        self.windows = [
            group.window if mixer.pattern is None else None for group, mixer in zip(of_layers, mixers, strict=True)
        ]
        layer_configs = [config.layer_config(idx) for idx in range(len(of_layers))]
        self.key_heads = [(layer.num_key_value_heads, layer.head_dim) for layer in layer_configs]
        self.attends = any(mixer.is_attention for mixer in mixers)
        layers = zip(keys, of_layers, mixers, strict=True)
        self.biased: list[tuple[str, MaskGroup]] = list(
            dict.fromkeys((key, group) for key, group, mixer in layers if schemes[key].has_bias and mixer.is_attention)
        )
        self.counts = bool(self.biased) or any(
            mixer.is_attention and (group.window is not None or mixer.pattern is not None)
            for group, mixer in zip(of_layers, mixers, strict=True)
        )
        self.has_table = any(isinstance(scheme, LearnedPositions) for scheme in schemes.values())
        self.changing = [key for key, scheme in schemes.items() if getattr(scheme, "changes", None)]


class Preparation:
    """The inputs of one call, prepared for the layers. All of it is built from the embeddings, the mask, the cache and
    the positions, and nothing of it is built twice.

    Args:
        config: config of the stack.
        plan: what it says of the layers.
        positions: the position schemes of the stack.
        backend: name of the attention implementation of this call.
        inputs_embeds: gives batch size, length, dtype and device. *Shape:* `(batch, length, any)`.
        attention_mask: padding, *Shape:* `(batch, past + length)`; a mask for all layers, *Shape:* `(batch or 1, heads
            or 1, length, keys)`; a dict of masks by group; what the backend's own mask function made; or None.
        cache: that of the stack's own layers, or None.
        is_causal: whether the layers are causal in this call.
        position_ids: *Shape:* `(batch or 1, length)`, int64, or None to count the real tokens.
        seq_idx: numbers of packed documents. *Shape:* `(batch, length)`, int, or None.
        served: whether the call is that of a serving engine.
        ahead: whether the masks are made ahead of the step that reads them.

    Attributes:
        position_ids: *Shape:* `(batch or 1, length)`, int64.
        documents: the documents packed in the rows, or None.
        masks: what the backend's mask function made, by the key of the group.
        biases: of the positions, by scheme and group. *Shape:* `(1, heads, length, keys)`, or by distance `(heads,
            length + keys - 1)` for backends that take them so; if padding can be between tokens, `(batch,
            heads, length, keys)`.

    Raises:
        ValueError: inputs that contradict each other; see also `check_cache`, `check_room`, `create_mask`,
            `custom_mask` and `check_packing`.
    """

    def __init__(
        self,
        config: TxStackConfig,
        plan: Plan,
        positions: Any,
        backend: str,
        inputs_embeds: torch.Tensor,
        attention_mask: Any,
        cache: Cache | None,
        is_causal: bool,
        position_ids: torch.Tensor | None = None,
        seq_idx: torch.Tensor | None = None,
        served: bool = False,
        ahead: bool = False,
    ) -> None:
        self._config, self._plan, self._positions, self._backend = config, plan, positions, backend
        self._inputs_embeds, self._cache = inputs_embeds, cache
        self._rows, self._length = inputs_embeds.shape[:2]
        # Backends that go over tiles on the host read values anyway.
        self._looks = may_look_at(inputs_embeds) or (reads_bands(backend) and not is_tracing(inputs_embeds))
        past = past_length(cache)
        self._past = past.clone() if isinstance(past, torch.Tensor) else past  # that of a static cache moves in place
        is_flat = isinstance(attention_mask, torch.Tensor) and attention_mask.ndim == 2
        self._padding: torch.Tensor | None = attention_mask if is_flat else None

        self._check_lengths(position_ids, served, ahead)
        packed = position_ids
        if position_ids is None:
            if seq_idx is not None and isinstance(self._past, int) and self._past > 0:
                raise ValueError(
                    "seq_idx or cu_seq_lens_q with a filled cache needs position_ids, because the row can continue a "
                    "document."
                )
            position_ids = positions_of(inputs_embeds, self._padding, seq_idx, self._past)
            packed = None if seq_idx is None else position_ids
        elif seq_idx is not None:
            refuse_where(
                begins_document(seq_idx=seq_idx) & ~begins_document(position_ids),
                "seq_idx or cu_seq_lens_q and position_ids contradict each other: positions must restart at 0 where "
                "the document changes.",
            )
        self.position_ids = position_ids
        self._check_table()

        self.documents: Documents | None = None
        self._ranks = None
        if served:
            self.masks = masks_of_engine(plan.groups, attention_mask, cache)
        elif self._padding is None and attention_mask is not None:
            self.masks = self._given_masks(attention_mask)
        else:
            self.documents = None if packed is None else self._documents(packed)
            self._ranks = inner_ranks(self._padding, self._looks) if plan.counts else None
            self.masks = self._masks(is_causal)
        self.biases = self.masks[_BIASES] if _BIASES in self.masks else self._make_biases()
        if cache is not None and not served:
            size = cache.get_max_length() if getattr(cache, "is_compileable", False) else None
            for key in plan.changing:
                positions[key].warn_of_changes(self._past, self._length, size)

    # ------------------------------------------------------------------------------------------------------ checks
    def _check_lengths(self, position_ids: torch.Tensor | None, served: bool, ahead: bool) -> None:
        """Check that mask, cache and positions are those of the input; a mask is cut to what the cache holds."""
        padding, cache, length = self._padding, self._cache, self._length
        if padding is not None and padding.shape[0] != self._rows:
            raise ValueError(f"attention_mask has {padding.shape[0]} rows, but the input has {self._rows}.")
        # The number of tokens in a static cache is only known on its device. It is read if a call has several tokens,
        # because a mask may have to be cut.
        wider = padding is not None and length > 1 and padding.shape[1] > length
        held = tokens_held(self._past, wider)
        is_static = getattr(cache, "is_compileable", False)
        if cache is not None and not served:
            check_cache(cache, self._plan.windows, self._plan.key_heads, self._rows)
            if is_static and held is not None:
                check_room(cache, self._plan.windows, held, length)
        if padding is not None and held is not None:
            covered = padding.shape[1]
            # Ahead of a step, learned prompts are still missing in a mask: PEFT puts them in front of it later.
            if (covered < held + length and not ahead) or (covered > held + length and not is_static):
                raise ValueError(
                    f"attention_mask has {covered} tokens, but the cache contains {held} and the input {length}: it "
                    "must cover both."
                )
            # One for all slots of a static cache says nothing of those that are still empty.
            self._padding = padding[:, : held + length] if covered > held + length else padding
        if position_ids is not None and position_ids.shape[-1] != length:
            raise ValueError(
                f"position_ids has {position_ids.shape[-1]} positions, but the input has {length} tokens."
            )

    def _check_table(self) -> None:
        """Check that no position is past the table of learned positions."""
        if not self._plan.has_table or not may_look_at(self.position_ids):
            return
        limit = self._config.max_position_embeddings
        last = int(self.position_ids.max()) if self.position_ids.numel() else 0
        if last >= limit:
            raise ValueError(
                f"position {last} is beyond the table of learned positions: max_position_embeddings = {limit}, but "
                f"this text has {last + 1} tokens. Shorten it, or extend the table with hf_tx.extend_context."
            )

    # ------------------------------------------------------------------------------------------------------- masks
    def _documents(self, position_ids: torch.Tensor) -> Documents | None:
        """Return the documents packed in the rows, or None where there are none."""
        documents = find_documents(position_ids, self._padding, self._inputs_embeds, self._past, self._looks)
        if documents is not None and self._plan.attends:
            cached = bool(self._past) if isinstance(self._past, int) else True
            check_packing(self._backend, self._inputs_embeds, self._padding, cached, documents)
        return documents

    def _given_masks(self, mask: Any) -> dict[str, Any]:
        """Return the masks of every group where the call gives them.

        Raises:
            ValueError: see `custom_mask`; or a layer is no attention, and takes padding only.
        """
        if isinstance(mask, dict):
            return mask
        groups, heads = self._plan.groups, self._config.num_attention_heads
        for group in groups:
            if not MIXERS.get(group.mixer).is_attention:
                raise ValueError(
                    f"layer {group.layer_idx} ({group.mixer!r}) is not attention, so attention_mask must have the "
                    "shape (batch, tokens), with 0 for padding."
                )
        if not isinstance(mask, torch.Tensor):
            return {group.key: mask for group in groups}  # made by the backend's own mask function
        return {
            group.key: custom_mask(mask, self._backend, self._inputs_embeds, self._keys(group)[0], heads)
            for group in groups
        }

    def _masks(self, is_causal: bool) -> dict[str, Any]:
        """Build the mask of every group.

        Raises:
            ValueError: see `create_mask`; flash with a static cache and no mask.
        """
        backend, padding, cache = self._backend, self._padding, self._cache
        flash = is_flash_attention_requested(requested_attention_implementation=backend)
        if flash and padding is None and getattr(cache, "is_compileable", False):
            raise ValueError(
                f"{backend} with a static cache needs a 2-D attention_mask, because it would attend to slots that "
                "are still empty."
            )
        facts = (backend, is_causal, self._inputs_embeds, padding, cache, self.documents, self._ranks, self._looks)
        return {group.key: create_mask(group, *facts) for group in self._plan.groups}

    def masks_ahead(self) -> dict[str, Any]:
        """Return the masks for a call that is made later with them instead of the padding; with biases, where those
        depend on the padding."""
        return self.masks if self._ranks is None else {**self.masks, _BIASES: self.biases}

    # --------------------------------------------------------------------------------------------------- positions
    def _keys(self, group: MaskGroup) -> tuple[int, int | torch.Tensor]:
        """Return how many keys the layers of a group see, and the index of the first."""
        return (self._length, 0) if self._cache is None else self._cache.get_mask_sizes(self._length, group.layer_idx)

    def _make_biases(self) -> dict[tuple[str, str], torch.Tensor]:
        """Return the biases. What a bias means is a fact of the stack and not of a call: whichever mask or `is_causal`
        a call has."""
        biases: dict[tuple[str, str], torch.Tensor] = {}
        if not self._plan.biased:
            return biases
        length, ranks, cache = self._length, self._ranks, self._cache
        device, dtype, is_causal = self._inputs_embeds.device, self._inputs_embeds.dtype, self._plan.is_causal
        for name, group in self._plan.biased:
            scheme, (keys, first) = self._positions[name], self._keys(group)
            if ranks is not None:
                key = (torch.arange(keys, device=device) + first).clamp(max=ranks.shape[1] - 1)
                distance = ranks[:, None, key] - ranks[:, -length:, None]
                bias = scheme.bias(distance.flatten(0, 1), is_causal, dtype)
                biases[name, group.key] = bias[0].unflatten(1, (-1, length)).transpose(0, 1)
                continue
            past = cache.get_seq_length(group.layer_idx) if cache is not None else 0
            if takes_distances(self._backend):
                distance = torch.arange(1 - length, keys, device=device) + first - past
                biases[name, group.key] = scheme.bias(distance[None], is_causal, dtype)[0, :, 0]
                continue
            queries = torch.arange(length, device=device) + past
            distance = (torch.arange(keys, device=device) + first)[None] - queries[:, None]
            bias = scheme.bias(distance, is_causal, dtype)
            if self._backend == "flex_attention":  # it indexes the batch
                bias = bias.expand(self._rows, -1, -1, -1)
            biases[name, group.key] = bias
        return biases

    def rotations(self, hidden_states: torch.Tensor) -> dict[tuple[str, str], Any]:
        """Return the cosines and sines of the positions, or None, by scheme and layer type.

        Args:
            hidden_states: gives dtype and device. *Shape:* `(batch, length, hidden_size)`.
        """
        return {
            (scheme, layer_type): self._positions[scheme].rotate(hidden_states, self.position_ids, layer_type)
            for scheme, layer_type in self._plan.rotations
        }
