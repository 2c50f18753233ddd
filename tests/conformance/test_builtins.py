# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""The kit on everything that is registered: a new name is checked without a line here."""

import dataclasses
from collections.abc import Callable, Collection

import pytest
import torch

from hf_tx.conformance import (
    Check,
    check_backend,
    check_cross_mixer,
    check_feed_forward,
    check_mixer,
    check_norm,
    check_position,
    parametrize_with_checks,
)
from hf_tx.conformance.cross_checks import CROSS_CHECKS
from hf_tx.conformance.mixer_checks import MIXER_CHECKS
from hf_tx.conformance.tools import backends
from hf_tx.models.feed_forwards import FEED_FORWARDS
from hf_tx.models.mixers import CROSS_MIXERS, MIXERS
from hf_tx.models.norms import NORMS
from hf_tx.models.positions import POSITIONS

#: What runs always of flex_attention, which is slow on CPU, of `eager`, with which all others are compared, and of
#: `sdpa`, whose masks are ours and nothing else.
ALWAYS = {
    "flex_attention": ("registered_with_mask", "masked_padding", "softcap", "packed_documents"),
    "sdpa": (
        *("registered_with_mask", "plain_attention", "masked_padding", "windows", "position_bias"),
        *("packed_documents", "fixed_cache", "given_masks", "nothing_to_see"),
    ),
    "eager": ("registered_with_mask", "dropout_in_training", "nothing_to_see", "large_scores", "given_masks"),
}


#: Costly checks of what mixers of one kind share: they run always for one mixer of each kind.
COSTLY = (
    *("low_precision", "large_norms", "padding_right", "packing", "chunked_prefill", "static_cache", "generation"),
    *("recorded_outputs", "buffers_after_reload"),
)
ONE_OF_EACH_KIND = ("full", "gated_delta", "lstm")
#: Two patterns of attention on all backends; tests/models compares the others between backends too.
COMPARED = ("sliding", "global_local")


def _of_mixer(name: str) -> list[Check]:
    rare = set() if name in ONE_OF_EACH_KIND else {*COSTLY}
    rare |= set() if name in COMPARED else {"backends_agree"}
    return [dataclasses.replace(check, slow=check.slow or check.name in rare) for check in check_mixer(name)]


def _of_backend(name: str) -> list[Check]:
    checks = check_backend(name)
    always: Collection[str] = ALWAYS.get(name, [check.name for check in checks])
    return [dataclasses.replace(check, slow=check.slow or check.name not in always) for check in checks]


@parametrize_with_checks([check for name in list(MIXERS) if "/" not in name for check in _of_mixer(name)])
def test_mixer(check: Callable[[], None]) -> None:
    check()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@parametrize_with_checks([check for name in list(MIXERS) if "/" not in name for check in check_mixer(name)])
def test_mixer_on_a_gpu(check: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """In half precision by the kernels of flash-linear-attention, where that is installed."""
    monkeypatch.setattr(torch.backends.cuda.matmul, "allow_tf32", False)
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    with torch.device("cuda"):
        check()


@parametrize_with_checks([check for name in CROSS_MIXERS for check in check_cross_mixer(name)])
def test_cross_mixer(check: Callable[[], None]) -> None:
    check()


@parametrize_with_checks([check for name in NORMS for check in check_norm(name)])
def test_norm(check: Callable[[], None]) -> None:
    check()


@parametrize_with_checks([check for name in FEED_FORWARDS for check in check_feed_forward(name)])
def test_feed_forward(check: Callable[[], None]) -> None:
    check()


@parametrize_with_checks([check for name in POSITIONS for check in check_position(name)])
def test_position(check: Callable[[], None]) -> None:
    check()


@parametrize_with_checks([check for name in backends() for check in _of_backend(name)])
def test_backend(check: Callable[[], None]) -> None:
    check()


@pytest.mark.parametrize("name", ["full", "gated_delta", "lstm"])
def test_one_mixer_of_each_kind_compiles_or_says_that_it_cannot(name: str) -> None:
    next(check for check in check_mixer(name) if check.name == "compilation")()


def test_the_checks_are_all_there() -> None:
    assert {*COSTLY, "backends_agree"} <= set(MIXER_CHECKS)
    assert {name for names in ALWAYS.values() for name in names} <= {check.name for check in check_backend("eager")}
    assert {check.name for check in check_mixer("full")} == set(MIXER_CHECKS)
    assert {check.name for check in check_cross_mixer("full")} == set(CROSS_CHECKS)
