# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Every check catches a subject that is wrong on purpose, and where one fault is enough, it alone."""

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
from conformance.backend_mutants import BACKEND_MUTANTS
from conformance.mixer_mutants import CROSS_MUTANTS, MIXER_MUTANTS
from conformance.model_mutants import MODEL_MUTANTS
from conformance.pointwise_mutants import FEED_FORWARD_MUTANTS, NORM_MUTANTS
from conformance.position_mutants import POSITION_MUTANTS

from hf_tx.conformance import Check
from hf_tx.conformance.backend_checks import BACKEND_CHECKS
from hf_tx.conformance.checks import CheckTable, run_checks
from hf_tx.conformance.cross_checks import CROSS_CHECKS
from hf_tx.conformance.feed_forward_checks import FEED_FORWARD_CHECKS
from hf_tx.conformance.mixer_checks import MIXER_CHECKS
from hf_tx.conformance.model_checks import MODEL_CHECKS
from hf_tx.conformance.norm_checks import NORM_CHECKS
from hf_tx.conformance.pointwise_checks import POINTWISE_CHECKS
from hf_tx.conformance.position_checks import POSITION_CHECKS
from hf_tx.conformance.saving_checks import SAVING_CHECKS
from hf_tx.conformance.training_checks import TRAINING_CHECKS

KINDS: dict[str, tuple[list[CheckTable], dict[str, Callable[[], Any]]]] = {
    "mixer": ([MIXER_CHECKS], MIXER_MUTANTS),
    "cross_mixer": ([CROSS_CHECKS], CROSS_MUTANTS),
    "norm": ([POINTWISE_CHECKS, NORM_CHECKS], NORM_MUTANTS),
    "feed_forward": ([POINTWISE_CHECKS, FEED_FORWARD_CHECKS], FEED_FORWARD_MUTANTS),
    "position": ([POSITION_CHECKS], POSITION_MUTANTS),
    "backend": ([BACKEND_CHECKS], BACKEND_MUTANTS),
    "model": ([MODEL_CHECKS, TRAINING_CHECKS, SAVING_CHECKS], MODEL_MUTANTS),
}

#: Checks that catch a mutant besides its own, because its fault is one of theirs too.
ALSO: dict[str, set[str]] = {
    "causality": {
        *("padding_left", "padding_right", "padding_interior", "packing"),
        *("cache_split", "chunked_prefill", "static_cache", "cache_reorder", "generation"),
    },
    "padding_left": {"packing", "generation"},
    "padding_right": {"padding_interior"},
    "batch_equals_single": {
        *("padding_left", "padding_right", "padding_interior"),
        *("fully_masked_row", "cache_reorder", "generation"),
    },
    "cache_split": {"chunked_prefill", "static_cache", "cache_reorder"},
    # What comes back as a list is no key of a table.
    "options_round_trip": {"buffers_after_reload"},
    "chunked_prefill": {"static_cache"},
    "position_padding": {"position_packing", "position_cache"},
    # Without a mask function no model of hf_tx takes the backend.
    "registered_with_mask": set(BACKEND_CHECKS) - {"cross_attention"},
    "shared_heads": {"cross_attention", "models_of_the_library"},
    "masked_padding": {
        *("windows", "patterns", "softcap", "sinks", "scale", "position_bias"),
        *("growing_cache", "fixed_cache", "cross_attention", "low_precision", "models_of_the_library"),
    },
    "growing_cache": {"fixed_cache", "cross_attention"},
    "nothing_to_see": {
        *("masked_padding", "windows", "patterns", "softcap", "scale", "position_bias", "growing_cache"),
        *("fixed_cache", "large_scores", "low_precision", "models_of_the_library"),
    },
    "rows_are_independent": {
        *("left_padding", "right_padding", "row_of_pads", "prefill_in_chunks"),
        *("generates_as_forward", "language_loss", "attention_backends"),
    },
    "left_padding": {"generates_as_forward"},
    "direction": {
        *("left_padding", "right_padding", "split_with_cache", "prefill_in_chunks"),
        *("generates_as_forward", "language_loss", "attention_backends"),
    },
    "split_with_cache": {"prefill_in_chunks"},
    "prefill_in_chunks": {"generates_as_forward"},
    "save_and_load": {"resized_vocabulary"},
    "initial_values": {"partial_checkpoint"},
    "draws_what_is_missing": {"language_loss"},
}
EACH = [(kind, name) for kind, (_, mutants) in KINDS.items() for name in mutants]
#: Those whose check starts a process, or compiles.
SLOW = {"clean_process_load", "loads_in_new_process"}


def _is_slow(name: str) -> bool:
    """One mutant of a check runs always; those that show where else it must look run with the slow tests."""
    return _check_of(name) in SLOW or name != _check_of(name)


def _checks(kind: str, name: str) -> contextlib.AbstractContextManager[list[Check]]:
    made = KINDS[kind][1][name]()
    return made if isinstance(made, contextlib.AbstractContextManager) else contextlib.nullcontext(made)


def _check_of(name: str) -> str:
    """The check that must catch a mutant: `softcap` for `softcap: in later tiles`."""
    return name.partition(":")[0]


@pytest.mark.parametrize("kind", list(KINDS))
def test_every_check_has_a_mutant(kind: str) -> None:
    tables, mutants = KINDS[kind]
    assert {name for table in tables for name in table} == {_check_of(name) for name in mutants}


@pytest.mark.parametrize(
    ("kind", "name"),
    [pytest.param(*each, marks=[pytest.mark.slow] if _is_slow(each[1]) else []) for each in EACH],
)
def test_the_check_catches_its_mutant(kind: str, name: str) -> None:
    with _checks(kind, name) as checks:
        (check,) = (check for check in checks if check.name == _check_of(name))
        (result,) = run_checks([check])
    assert result.outcome == ("not offered" if check.optional else "failed"), (
        f"the mutant survives: {result.outcome} {result.message}"
    )


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "name"), [each for each in EACH if each[1] == _check_of(each[1])])
def test_no_other_check_catches_the_mutant_unless_its_fault_is_theirs_too(kind: str, name: str) -> None:
    with _checks(kind, name) as checks:
        results = list(run_checks([check for check in checks if not check.slow]))
    caught = {result.check.name for result in results if result.outcome == "failed"} - {name}
    allowed = ALSO.get(name, set())
    assert caught <= allowed, caught - allowed
