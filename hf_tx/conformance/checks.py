# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Named checks: how they are collected, run and reported."""

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch

from ..common.quiet import without_progress_bars, without_warnings


class Skip(Exception):
    """Raised by a check that does not apply to its subject; says why."""


@dataclass(frozen=True)
class Check:
    """One named check of one subject. Calling it raises what is wrong, or [`Skip`].

    Attributes:
        subject: what is checked, as in `mixer full`.
        name: of the check.
        summary: what must hold, in a sentence.
        function: takes no arguments.
        slow: whether it starts a process or takes seconds otherwise.
        optional: whether it is about what nobody has promised: where it does not hold, it is not offered.
    """

    subject: str
    name: str
    summary: str
    function: Callable[[], None]
    slow: bool = False
    optional: bool = False

    def __call__(self) -> None:
        with _conditions():
            self.function()


@dataclass(frozen=True)
class CheckResult:
    """What became of a check.

    Attributes:
        check: which one.
        outcome: `ok`, `failed`, `expected` (it failed as expected), `skipped` (it does not apply) or `not offered` (an
            optional check does not hold).
        seconds: how long it took.
        message: what is wrong or not offered, or why it was expected or skipped.
        error: what the check raised, if that is why it failed.
    """

    check: Check
    outcome: Literal["ok", "failed", "expected", "skipped", "not offered"]
    seconds: float
    message: str = ""
    error: Exception | None = None


class CheckTable:
    """The checks of one kind of subject. A function is added by its decorator and gets the subject as its argument;
    its name is that of the check, the first sentence of its docstring says what must hold."""

    def __init__(self) -> None:
        self._functions: list[tuple[Callable[[Any], None], dict[str, bool]]] = []

    def add(self, function: Callable[[Any], None]) -> Callable[[Any], None]:
        """Add a check."""
        self._functions.append((function, {}))
        return function

    def add_slow(self, function: Callable[[Any], None]) -> Callable[[Any], None]:
        """Add a check that takes seconds."""
        self._functions.append((function, {"slow": True}))
        return function

    def add_optional(self, function: Callable[[Any], None]) -> Callable[[Any], None]:
        """Add a check of what nobody has promised."""
        self._functions.append((function, {"optional": True}))
        return function

    def __iter__(self) -> Iterator[str]:
        return (function.__name__ for function, _ in self._functions)

    def of(self, label: str, subject: Any) -> list[Check]:
        """Return the checks of one subject."""

        def bound(function: Callable[[Any], None]) -> Callable[[], None]:
            return lambda: function(subject)

        return [
            Check(label, function.__name__, (function.__doc__ or "").strip(), bound(function), **flags)
            for function, flags in self._functions
        ]


@contextlib.contextmanager
def _conditions() -> Iterator[None]:
    """Make a check repeatable: a fixed seed, NaN in memory that nobody has written to, and a quiet library."""
    deterministic = torch.are_deterministic_algorithms_enabled()
    warns = torch.is_deterministic_algorithms_warn_only_enabled()
    memory: Any = torch.utils.deterministic
    fills = memory.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True, warn_only=True)
    memory.fill_uninitialized_memory = True
    try:
        with torch.random.fork_rng(), without_progress_bars(), without_warnings():
            torch.manual_seed(0)
            yield
    finally:
        memory.fill_uninitialized_memory = fills
        torch.use_deterministic_algorithms(deterministic, warn_only=warns)


def _reason(check: Check, expected_failures: Mapping[str, str]) -> str | None:
    return expected_failures.get(f"{check.subject}: {check.name}", expected_failures.get(check.name))


def _refuse_unknown(checks: list[Check], expected_failures: Mapping[str, str]) -> None:
    known = {check.name for check in checks} | {f"{check.subject}: {check.name}" for check in checks}
    for name, reason in expected_failures.items():
        if name not in known:
            raise ValueError(f"expected_failures names {name!r}, which is not one of the checks: {sorted(known)}.")
        if not reason:
            raise ValueError(f"expected_failures[{name!r}] needs a reason.")


def run_checks(checks: Iterable[Check], expected_failures: Mapping[str, str] | None = None) -> Iterator[CheckResult]:
    """Run checks one after the other.

    Args:
        checks: what `check_mixer` and its like return.
        expected_failures: reasons by the name of a check, or by `subject: name`. Strict: such a check that passes is
            a failure, since its reason is gone.

    Yields:
        The result of every check, as soon as it is known.

    Raises:
        ValueError: `expected_failures` names no check, or gives no reason.

    Example:

    ```python
    >>> from hf_tx.conformance import check_mixer, run_checks
    >>> checks = [check for check in check_mixer("lstm") if check.name == "causality"]
    >>> [(result.check.name, result.outcome) for result in run_checks(checks)]
    [('causality', 'ok')]

    ```
    """
    checks = list(checks)
    expected = expected_failures or {}
    _refuse_unknown(checks, expected)
    for check in checks:
        yield _run(check, _reason(check, expected))


def _run(check: Check, reason: str | None) -> CheckResult:
    """Run a check that is expected to fail if there is a reason."""
    begin = time.perf_counter()
    outcome, message, error = _outcome(check, reason)
    return CheckResult(check, outcome, time.perf_counter() - begin, message, error)


def _outcome(check: Check, reason: str | None) -> tuple[Any, str, Exception | None]:
    try:
        check()
    except Skip as skip:
        if reason is not None:
            return "failed", f"does not apply ({skip}), though it is expected to fail: {reason}", None
        return "skipped", str(skip), None
    except Exception as error:
        if reason is not None:
            return "expected", reason, None
        text = str(error) or "no message"
        if check.optional:
            return "not offered", text, None
        return "failed", text if isinstance(error, AssertionError) else f"{type(error).__name__}: {text}", error
    if reason is not None:
        return "failed", f"passes, though it is expected to fail: {reason}", None
    return "ok", "", None


def parametrize_with_checks(checks: Iterable[Check], expected_failures: Mapping[str, str] | None = None) -> Any:
    """Return a pytest decorator that runs a test once for every check, which the test gets as `check` and calls.

    Args:
        checks: what `check_mixer` and its like return. Slow ones get the mark `slow`.
        expected_failures: reasons by the name of a check, or by `subject: name`; such a test is reported as `xfail`,
            and fails when the check passes.

    Raises:
        ValueError: `expected_failures` names no check, or gives no reason.

    Example:

    ```python
    >>> from hf_tx.conformance import check_mixer, parametrize_with_checks
    >>> @parametrize_with_checks(check_mixer("retention"))
    ... def test_retention(check):
    ...     check()

    ```
    """
    import pytest

    checks = list(checks)
    expected = expected_failures or {}
    _refuse_unknown(checks, expected)

    def bound(check: Check) -> Callable[[], None]:
        def call() -> None:
            result = _run(check, _reason(check, expected))
            if result.error is not None:
                raise result.error
            if result.outcome == "failed":
                pytest.fail(result.message)
            elif result.outcome == "expected":
                pytest.xfail(result.message)
            elif result.outcome in ("skipped", "not offered"):
                pytest.skip(f"{result.outcome}: {result.message}")

        return call

    parameters = [
        pytest.param(bound(check), id=f"{check.subject}: {check.name}", marks=[pytest.mark.slow] if check.slow else [])
        for check in checks
    ]
    return pytest.mark.parametrize("check", parameters)
