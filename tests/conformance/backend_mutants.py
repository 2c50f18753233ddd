# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Attention backends that are wrong on purpose, by the check that must catch them.

A check that must catch several is named once for each: `softcap` and `softcap: in later tiles`.
"""

import contextlib
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import torch
from conformance.mixer_mutants import louder_gradient
from torch import nn
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, AttentionMaskInterface
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS, AttentionInterface

from hf_tx.conformance import Check, check_backend
from hf_tx.models.attention import CrossAttention, eager_attention_forward, repeat_kv
from hf_tx.models.backend_rules import BACKENDS, FEATURES, register_backend

NAME = "mutant"
eager_mask: Any = ALL_MASK_ATTENTION_FUNCTIONS["eager"]


@contextlib.contextmanager
def mutant(
    attention: Callable[..., Any], mask: Callable[..., Any] = eager_mask, refuses: Any = None
) -> Iterator[list[Check]]:
    """Register a backend that claims everything, and return its checks."""
    register_backend(NAME, attention, mask, refuses, computes=FEATURES[:-1])
    try:
        yield check_backend(NAME)
    finally:
        for table in (AttentionInterface._global_mapping, AttentionMaskInterface._global_mapping, BACKENDS):
            table.pop(NAME, None)


@contextlib.contextmanager
def without_mask() -> Iterator[list[Check]]:
    """Register an attention function alone."""
    AttentionInterface.register(NAME, eager)
    try:
        yield check_backend(NAME)
    finally:
        AttentionInterface._global_mapping.pop(NAME)


@contextlib.contextmanager
def instead_of_sdpa(attention: Callable[..., Any]) -> Iterator[list[Check]]:
    """Put a function into the place of one that is known to take masks of the caller."""
    before = ALL_ATTENTION_FUNCTIONS["sdpa"]
    AttentionInterface._global_mapping["sdpa"] = attention
    try:
        yield check_backend("sdpa")
    finally:
        AttentionInterface._global_mapping["sdpa"] = before


def eager(module: Any, query: Any, key: Any, value: Any, mask: Any, scaling: Any = None, **others: Any) -> Any:
    """`eager`, without the weights, for any module of transformers; some leave the scale out."""
    scaling = query.shape[-1] ** -0.5 if scaling is None else scaling
    part = SimpleNamespace(training=module.training, num_key_value_groups=query.shape[1] // key.shape[1])
    return eager_attention_forward(part, query, key, value, mask, scaling, **others)[0], None


def louder(when: Callable[..., Any]) -> Callable[..., Any]:
    """`eager`, too large by a tenth when `when(module, query, key, others)` says so."""

    def attention(module: Any, query: Any, key: Any, value: Any, attention_mask: Any, **others: Any) -> Any:
        out, weights = eager(module, query, key, value, attention_mask, **others)
        return out * (1.1 if when(module, query, key, others) else 1.0), weights

    return attention


def without(name: str) -> Callable[..., Any]:
    """`eager`, deaf to one argument."""

    def attention(*arguments: Any, **others: Any) -> Any:
        return eager(*arguments, **{**others, name: None})

    return attention


def in_inference(wrong: Callable[..., Any]) -> Callable[..., Any]:
    """`eager` where gradients are recorded, and something else where they are not."""

    def attention(*arguments: Any, **others: Any) -> Any:
        return (eager if torch.is_grad_enabled() else wrong)(*arguments, **others)

    return attention


#: Where the errors of later tiles begin.
LATER = 128


def in_later_tiles(wrong: Callable[..., Any], right: Callable[..., Any] | None = None) -> Callable[..., Any]:
    """`eager` for the first queries, and something else for those behind them."""

    def attention(module: Any, query: Any, *arguments: Any, **others: Any) -> Any:
        out, weights = (right or eager)(module, query, *arguments, **others)
        if query.shape[2] <= LATER:
            return out, weights
        other, _ = wrong(module, query, *arguments, **others)
        return torch.cat((out[:, :LATER], other[:, LATER:]), dim=1), weights

    return attention


def other_gradient(*arguments: Any, **others: Any) -> Any:
    """The same with a tenth more gradient."""
    out, weights = eager(*arguments, **others)
    return louder_gradient(out), weights


def by_distance(change: Callable[..., torch.Tensor], when: Callable[[Any, dict[str, Any]], Any]) -> Callable[..., Any]:
    """`eager` with another mask where `when(module, others)` says so: `change(mask, distance)` hides or shows more."""

    def attention(module: Any, query: Any, key: Any, value: Any, mask: Any, **others: Any) -> Any:
        if mask is not None and query.shape[2] > LATER and when(module, others):
            mask = change(mask, torch.arange(query.shape[2])[:, None] - torch.arange(key.shape[2]))
        return eager(module, query, key, value, mask, **others)

    return attention


def hide(far: Callable[[torch.Tensor], torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Hides the keys of the distances that `far` says."""
    return lambda mask, distance: mask.masked_fill(far(distance), torch.finfo(mask.dtype).min)


def leak(mask: torch.Tensor, distance: torch.Tensor) -> torch.Tensor:
    """Lets the first query of a later tile see the key before it."""
    mask = mask.clone()
    mask[..., LATER, LATER - 1] = 0
    return mask


def wrong_heads(module: Any, query: Any, key: Any, value: Any, attention_mask: Any, **others: Any) -> Any:
    """Gives neighbouring query heads different key heads."""
    groups = query.shape[1] // key.shape[1]
    tiled = (part.repeat(1, groups, 1, 1) for part in (key, value))
    return eager(module, query, *tiled, attention_mask, **others)


def blind_mask(*arguments: Any, **others: Any) -> Any:
    """A mask function that forgets padding."""
    return eager_mask(*arguments, **{**others, "attention_mask": None})


def blind_later(*arguments: Any, **others: Any) -> Any:
    """A mask function that forgets padding in later tiles."""
    right, blind = eager_mask(*arguments, **others), blind_mask(*arguments, **others)
    if right is None or right.shape[-2] <= LATER:
        return right
    blind = torch.zeros_like(right) if blind is None else blind.expand_as(right)
    return torch.cat((right[..., :LATER, :], blind[..., LATER:, :]), dim=-2)


def drops_alike(dim: int) -> Callable[..., Any]:
    """Drops the same weights for all rows (dimension 0) or all heads (dimension 1)."""

    def attention(module: Any, query: Any, key: Any, value: Any, mask: Any, dropout: float = 0.0, **k: Any) -> Any:
        part = SimpleNamespace(training=False, num_key_value_groups=query.shape[1] // key.shape[1])
        scaling = query.shape[-1] ** -0.5 if k.get("scaling") is None else k["scaling"]
        extras = {name: other for name, other in k.items() if name != "scaling"}
        out, weights = eager_attention_forward(part, query, key, value, mask, scaling, **extras)
        if not dropout:
            return out, None
        kept = nn.functional.dropout(torch.ones_like(weights.narrow(dim, 0, 1)), dropout)
        return ((weights * kept) @ repeat_kv(value, part.num_key_value_groups)).transpose(1, 2), None

    return attention


def other_gradient_of_crossed(module: Any, *arguments: Any, **others: Any) -> Any:
    """`eager` with a tenth more gradient where it looks at a source."""
    return (other_gradient if isinstance(module, CrossAttention) else eager)(module, *arguments, **others)


def always_drops(module: Any, *arguments: Any, dropout: float = 0.0, **others: Any) -> Any:
    """Drops outside of training as well."""
    out, weights = eager(module, *arguments, **others)
    return nn.functional.dropout(out, getattr(module, "attention_dropout", 0.0), training=True), weights


def infinite_mask(module: Any, query: Any, key: Any, value: Any, attention_mask: Any, **others: Any) -> Any:
    """Hides by minus infinity, so that a query that sees nothing divides nothing by nothing."""
    if attention_mask is not None:
        lowest = torch.finfo(attention_mask.dtype).min
        attention_mask = attention_mask.masked_fill(attention_mask == lowest, float("-inf"))
    return eager(module, query, key, value, attention_mask, **others)


def nothing_is_nan(module: Any, query: Any, key: Any, value: Any, mask: Any, **others: Any) -> Any:
    """Divides nothing by nothing where a query sees nothing."""
    out, weights = eager(module, query, key, value, mask, **others)
    if mask is not None:
        empty = mask.amax(-1) == torch.finfo(mask.dtype).min
        out = out.masked_fill(empty[:, 0, :, None, None], float("nan"))
    return out, weights


def in_float16(wrong: Callable[..., Any]) -> Callable[..., Any]:
    """`eager`, and something else in float16."""

    def attention(module: Any, query: Any, *arguments: Any, **others: Any) -> Any:
        return (wrong if query.dtype == torch.float16 else eager)(module, query, *arguments, **others)

    return attention


def plain_softmax(module: Any, query: Any, key: Any, *arguments: Any, **others: Any) -> Any:
    """Takes the exponential of scores as they are, in their own dtype."""
    out, weights = eager(module, query, key, *arguments, **others)
    scores = query @ repeat_kv(key, query.shape[1] // key.shape[1]).transpose(2, 3)
    largest = (scores * (others.get("scaling") or 1.0)).amax().exp()
    return out * (largest / largest), weights


def overflows(module: Any, query: Any, key: Any, *arguments: Any, **others: Any) -> Any:
    """Takes the exponential of scores as they are."""
    out, weights = eager(module, query, key, *arguments, **others)
    scores = query.float() @ repeat_kv(key, query.shape[1] // key.shape[1]).float().transpose(2, 3)
    largest = (scores * (others.get("scaling") or 1.0)).amax() / 4
    return out * (largest.exp() / largest.exp()).to(out.dtype), weights


def coarse(*arguments: Any, **others: Any) -> Any:
    """Loses bits in bfloat16."""
    out, weights = eager(*arguments, **others)
    return out + (0.1 * out.abs().mean() * out.sign() if out.dtype == torch.bfloat16 else 0.0), weights


def coarser(*arguments: Any, **others: Any) -> Any:
    """Loses bits, as many as bfloat16 has not."""
    out, weights = eager(*arguments, **others)
    return out.to(torch.bfloat16).to(out.dtype), weights


def drops_other_backward(
    module: Any, query: Any, key: Any, value: Any, mask: Any, dropout: float = 0.0, **k: Any
) -> Any:
    """Drops what it did not drop forward in the backward pass."""
    out, weights = eager(module, query, key, value, mask, **k)
    if not dropout:
        return out, weights
    forwards, backwards = (nn.functional.dropout(torch.ones_like(out), dropout) for _ in range(2))
    return (out * forwards).detach() + out * backwards - (out * backwards).detach(), weights


def of_hf_tx_only(module: Any, *arguments: Any, **others: Any) -> Any:
    """Reads what only layers of hf_tx have."""
    assert module.rope_interleaved is False or module.rope_interleaved is True
    return eager(module, *arguments, **others)


def no_float_mask(module: Any, query: Any, key: Any, value: Any, attention_mask: Any, **others: Any) -> Any:
    """Takes scores that are added for a mask of what is visible."""
    others = {name: other for name, other in others.items() if name != "is_causal"}
    if attention_mask is None:
        length = query.shape[2]
        seen = torch.ones(length, key.shape[2], dtype=torch.bool)
        attention_mask = seen.tril(key.shape[2] - length) if module.is_causal and length > 1 else seen
    if attention_mask.is_floating_point():
        attention_mask = attention_mask == 0
    lowest = torch.finfo(query.dtype).min
    hidden = torch.zeros_like(attention_mask, dtype=query.dtype).masked_fill(~attention_mask, lowest)
    return eager(module, query, key, value, hidden, **others)


def fickle(config: Any, features: frozenset[str]) -> str | None:
    """Refuses to take over from `eager` what it builds."""
    return "is in a mood" if config.attention_scale is not None and config._attn_implementation == "eager" else None


def _mixers(module: Any) -> list[str]:
    return list(getattr(module.config, "mixers", ()))


BACKEND_MUTANTS: dict[str, Callable[[], contextlib.AbstractContextManager[list[Check]]]] = {
    "registered_with_mask": without_mask,
    "plain_attention": lambda: mutant(louder(lambda module, query, key, others: query.shape[2] == 301)),
    "shared_heads": lambda: mutant(wrong_heads),
    "masked_padding": lambda: mutant(eager, blind_mask),
    "windows": lambda: mutant(louder(lambda module, query, key, others: others.get("sliding_window") == 1)),
    "patterns": lambda: mutant(louder(lambda module, query, key, others: "dilated" in _mixers(module))),
    "softcap": lambda: mutant(without("softcap")),
    "sinks": lambda: mutant(without("s_aux")),
    "scale": lambda: mutant(without("scaling")),
    "position_bias": lambda: mutant(without("position_bias")),
    "packed_documents": lambda: mutant(
        louder(lambda module, query, key, others: "position_ids" in others and _mixers(module))
    ),
    "growing_cache": lambda: mutant(
        louder(lambda module, query, key, others: 1 < query.shape[2] < key.shape[2] and _mixers(module))
    ),
    "fixed_cache": lambda: mutant(louder(lambda module, query, key, others: key.shape[2] == 19)),
    "given_masks": lambda: instead_of_sdpa(no_float_mask),
    "cross_attention": lambda: mutant(louder(lambda module, *_: isinstance(module, CrossAttention))),
    "no_dropout_in_eval": lambda: mutant(always_drops),
    "dropout_in_training": lambda: mutant(drops_other_backward),
    "dropout_is_independent": lambda: mutant(drops_alike(1)),
    "nothing_to_see": lambda: mutant(infinite_mask),
    "large_scores": lambda: mutant(overflows),
    "low_precision": lambda: mutant(coarse),
    "refusals": lambda: mutant(eager, refuses=fickle),
    "models_of_the_library": lambda: mutant(of_hf_tx_only),
    # Right in short texts, in float32, and in most heads.
    "plain_attention: gradient of later tiles": lambda: mutant(in_later_tiles(other_gradient)),
    "shared_heads: in later tiles": lambda: mutant(in_later_tiles(wrong_heads)),
    "masked_padding: in later tiles": lambda: mutant(eager, blind_later),
    "windows: in later tiles": lambda: mutant(
        by_distance(hide(lambda distance: distance == 99), lambda module, others: others.get("sliding_window"))
    ),
    "patterns: keys that are far": lambda: mutant(
        by_distance(hide(lambda distance: distance > 100), lambda module, _: "global_local" in _mixers(module))
    ),
    "softcap: in later tiles": lambda: mutant(in_later_tiles(without("softcap"))),
    "sinks: in later tiles": lambda: mutant(in_later_tiles(without("s_aux"))),
    "position_bias: in later tiles": lambda: mutant(in_later_tiles(without("position_bias"))),
    "packed_documents: at the border of a tile": lambda: mutant(
        by_distance(leak, lambda module, others: "position_ids" in others)
    ),
    "growing_cache: of many tokens": lambda: mutant(
        louder(lambda module, query, key, others: query.shape[2] == 1 and key.shape[2] > 2 * LATER)
    ),
    "fixed_cache: of many tokens": lambda: mutant(
        louder(lambda module, query, key, others: query.shape[2] == 1 and key.shape[2] > 2 * LATER)
    ),
    "given_masks: in later tiles": lambda: instead_of_sdpa(in_later_tiles(no_float_mask, sdpa_attention_forward)),
    "cross_attention: to later tiles": lambda: mutant(
        louder(lambda module, query, key, others: isinstance(module, CrossAttention) and key.shape[2] > 2 * LATER)
    ),
    "cross_attention: gradient": lambda: mutant(other_gradient_of_crossed),
    # Right where gradients are recorded.
    "plain_attention: in inference": lambda: mutant(in_inference(louder(lambda module, query, *_: True))),
    "shared_heads: in inference": lambda: mutant(in_inference(wrong_heads)),
    "windows: in inference": lambda: mutant(
        in_inference(
            by_distance(hide(lambda distance: distance == 99), lambda module, others: others.get("sliding_window"))
        )
    ),
    "softcap: in inference": lambda: mutant(in_inference(without("softcap"))),
    "sinks: in inference": lambda: mutant(in_inference(without("s_aux"))),
    "position_bias: in inference": lambda: mutant(in_inference(without("position_bias"))),
    "packed_documents: in inference": lambda: mutant(
        in_inference(by_distance(leak, lambda module, others: "position_ids" in others))
    ),
    "dropout_is_independent: of rows": lambda: mutant(drops_alike(0)),
    "nothing_to_see: in float16": lambda: mutant(in_float16(nothing_is_nan)),
    "large_scores: in float16": lambda: mutant(in_float16(plain_softmax)),
    "low_precision: in float16": lambda: mutant(in_float16(coarser)),
    "models_of_the_library: in later tiles": lambda: mutant(
        in_later_tiles(louder(lambda module, *_: not _mixers(module)))
    ),
}
