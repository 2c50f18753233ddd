# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""The checks of a feed-forward layer: those of everything that maps positions on its own, and what only these must
do."""

from collections.abc import Callable
from typing import Any

import torch

from ..models.feed_forwards import FEED_FORWARDS, FeedForward
from .checks import Check, CheckTable
from .mixer_subject import LENGTH
from .pointwise_checks import POINTWISE_CHECKS, PointwiseSubject, inputs_of, pointwise_checks
from .references import FEED_FORWARD_REFERENCES
from .tools import assert_close

FEED_FORWARD_CHECKS = CheckTable()


@FEED_FORWARD_CHECKS.add
@torch.no_grad()
def drops_as_asked(subject: PointwiseSubject) -> None:
    """Without dropout in the config, training computes what evaluation does."""
    for what, module in subject.each():
        inputs = inputs_of(2, LENGTH)
        assert_close(module.train()(inputs), module.eval()(inputs), what)


def check_feed_forward(
    name_or_spec: str | FeedForward,
    *,
    reference: Callable[..., torch.Tensor] | None = None,
    settings: tuple[dict[str, Any], ...] | None = None,
) -> list[Check]:
    """Return the checks of a feed-forward layer; nothing runs yet.

    Args:
        name_or_spec: a name of the registry; or a [`FeedForward`] that is not registered, for which the name
            `feed-forward` is registered while a check runs.
        reference: `reference(module, hidden_states)` returns what the layer must return. Default: that of a built-in
            layer, or the one that the layer declares.
        settings: dicts of config fields in which it is checked; `options` among them are its own. Default: those of a
            built-in layer, or its defaults.

    Raises:
        ValueError: the name is unknown, or there is no reference.
        ImportError: the layer belongs to a plug-in that cannot be used.

    Example:

    ```python
    >>> from hf_tx.conformance import check_feed_forward, run_checks
    >>> {result.outcome for result in run_checks(check_feed_forward("glu")) if not result.check.slow}
    {'ok'}

    ```
    """
    tables = (POINTWISE_CHECKS, FEED_FORWARD_CHECKS)
    return pointwise_checks(tables, FEED_FORWARDS, "mlp", name_or_spec, FEED_FORWARD_REFERENCES, reference, settings)
