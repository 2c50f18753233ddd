# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""The checks of a norm: those of everything that maps positions on its own, and what only norms must do."""

from collections.abc import Callable
from typing import Any

import torch

from ..models.norms import NORMS, Norm
from .checks import Check, CheckTable, Skip
from .mixer_subject import LENGTH, SIZES
from .pointwise_checks import POINTWISE_CHECKS, PointwiseSubject, inputs_of, pointwise_checks
from .references import NORM_REFERENCES
from .tools import assert_close

NORM_CHECKS = CheckTable()


@NORM_CHECKS.add
@torch.no_grad()
def other_sizes(subject: PointwiseSubject) -> None:
    """As the norm of queries and keys, it normalises the features of a head, not those of a position."""
    if subject.name == "none":
        raise Skip("queries and keys cannot be normalised by nothing")
    for scope, size in (("head", SIZES["head_dim"]), ("all", SIZES["num_attention_heads"] * SIZES["head_dim"])):
        norm = subject.build(qk_norm=True, qk_norm_scope=scope).layers[0].mixer.q_norm
        inputs = inputs_of(2, LENGTH, 3, size=size)
        assert_close(norm(inputs), subject.expected(norm, inputs), f"qk_norm_scope = {scope!r}")


@NORM_CHECKS.add
def large_in_float16(subject: PointwiseSubject) -> None:
    """Inputs whose squares overflow float16 are normalised like those of float32."""
    for what, module in subject.each():
        inputs = inputs_of(2, LENGTH, scale=300.0).half().float()
        half = module.half()
        with torch.no_grad():
            actual = half(inputs.half()).float()
            expected = subject.expected(module.float(), inputs)
        assert_close(actual, expected, what, tolerance=5e-3)


def check_norm(
    name_or_spec: str | Norm,
    *,
    reference: Callable[..., torch.Tensor] | None = None,
    settings: tuple[dict[str, Any], ...] | None = None,
) -> list[Check]:
    """Return the checks of a norm; nothing runs yet.

    Args:
        name_or_spec: a name of the registry; or a [`Norm`] that is not registered, for which the name `norm` is
            registered while a check runs.
        reference: `reference(module, hidden_states)` returns what the norm must return. Default: that of a built-in
            norm, or the one that the norm declares.
        settings: dicts of config fields in which it is checked; `options` among them are its own. Default: those of a
            built-in norm, or its defaults.

    Raises:
        ValueError: the name is unknown, or there is no reference.
        ImportError: the norm belongs to a plug-in that cannot be used.

    Example:

    ```python
    >>> from hf_tx.conformance import check_norm, run_checks
    >>> {result.outcome for result in run_checks(check_norm("dyt")) if not result.check.slow}
    {'ok'}

    ```
    """
    tables = (POINTWISE_CHECKS, NORM_CHECKS)
    return pointwise_checks(tables, NORMS, "mlp_norm", name_or_spec, NORM_REFERENCES, reference, settings)
