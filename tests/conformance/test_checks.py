# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""The runner: what becomes of checks that pass, fail, do not apply, or are expected to fail."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from hf_tx.conformance import Check, check_backend, check_mixer, check_model, check_position, run_checks
from hf_tx.conformance.checks import CheckTable, Skip, parametrize_with_checks


def _check(function: Callable[[], None], name: str = "it_holds") -> Check:
    return Check("mixer x", name, "It holds.", function)


def _passes() -> None:
    pass


def _fails() -> None:
    raise AssertionError("2 is not 3")


def _breaks() -> None:
    raise KeyError("q_proj")


def _skips() -> None:
    raise Skip("it has no cache")


@pytest.mark.parametrize(
    ("function", "expected", "outcome", "words"),
    [
        (_passes, {}, "ok", ""),
        (_fails, {}, "failed", "2 is not 3"),
        (_breaks, {}, "failed", "KeyError: 'q_proj'"),
        (_skips, {}, "skipped", "it has no cache"),
        (_fails, {"it_holds": "known"}, "expected", "known"),
        (_fails, {"mixer x: it_holds": "known"}, "expected", "known"),
        (_passes, {"it_holds": "known"}, "failed", "passes, though it is expected to fail: known"),
        (_skips, {"it_holds": "known"}, "failed", "does not apply (it has no cache)"),
    ],
)
def test_outcomes(function: Callable[[], None], expected: dict[str, str], outcome: str, words: str) -> None:
    (result,) = run_checks([_check(function)], expected)
    assert (result.outcome, result.seconds >= 0) == (outcome, True)
    assert words in result.message


@pytest.mark.parametrize("expected", [{"it_hold": "known"}, {"mixer y: it_holds": "known"}, {"it_holds": ""}])
def test_expectations_without_a_check_or_a_reason_are_refused(expected: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=next(iter(expected))):
        list(run_checks([_check(_passes)], expected))
    with pytest.raises(ValueError, match=next(iter(expected))):
        parametrize_with_checks([_check(_passes)], expected)


def _outcome_in_pytest(function: Callable[[], None], expected: dict[str, str]) -> BaseException | None:
    mark = parametrize_with_checks([_check(function)], expected)
    (parameter,) = mark.args[1]
    assert parameter.id == "mixer x: it_holds"
    try:
        parameter.values[0]()
    except BaseException as error:  # pytest's outcomes are no Exception
        return error
    return None


def test_pytest_reports_what_the_runner_reports() -> None:
    assert _outcome_in_pytest(_passes, {}) is None
    assert isinstance(_outcome_in_pytest(_fails, {}), AssertionError)
    assert isinstance(_outcome_in_pytest(_breaks, {}), KeyError)
    assert isinstance(_outcome_in_pytest(_skips, {}), pytest.skip.Exception)
    assert isinstance(_outcome_in_pytest(_fails, {"it_holds": "known"}), pytest.xfail.Exception)
    for function in (_passes, _skips):
        assert isinstance(_outcome_in_pytest(function, {"it_holds": "known"}), pytest.fail.Exception)


def test_slow_checks_are_marked() -> None:
    mark = parametrize_with_checks(check_mixer("full"))
    slow = {parameter.id for parameter in mark.args[1] if parameter.marks}
    assert slow == {"mixer full: compilation", "mixer full: clean_process_load"}


def test_memory_that_nobody_wrote_to_is_nan_and_seeds_are_fixed() -> None:
    seen: list[torch.Tensor] = []

    def look() -> None:
        like = torch.ones(3)
        for memory in (torch.empty(3), torch.empty_like(like), like.new_empty(3), torch.empty_strided((3,), (1,))):
            assert memory.isnan().all()
        seen.append(torch.rand(2))

    before = torch.get_rng_state()
    results = list(run_checks([_check(look), _check(look)]))
    assert [result.outcome for result in results] == ["ok", "ok"], results
    assert torch.equal(seen[0], seen[1])
    assert torch.equal(torch.get_rng_state(), before)
    assert not torch.are_deterministic_algorithms_enabled()


def test_the_summary_of_a_check_is_its_docstring() -> None:
    table = CheckTable()

    @table.add
    def adds_up(subject: Any) -> None:
        """One and one are two."""
        assert subject + 1 == 2

    (check,) = table.of("number", 1)
    assert (check.subject, check.name, check.summary) == ("number", "adds_up", "One and one are two.")
    check()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: check_mixer("ful"), "unknown mixer 'ful'"),
        (lambda: check_position("rop"), "unknown position_type 'rop'"),
        (lambda: check_backend("eagr"), "unknown backend 'eagr'. Did you mean 'eager'?"),
        (lambda: check_model("no/such/folder"), "is no folder"),
        (lambda: check_model(torch.nn.Linear), "is no PreTrainedModel"),
        (lambda: check_model(3), "must be a class, a folder or a model"),
    ],
)
def test_unknown_subjects_are_refused(call: Callable[[], Any], words: str) -> None:
    with pytest.raises(ValueError, match="(?s).*" + words.replace("?", r"\?")):
        call()
