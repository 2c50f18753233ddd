# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Auxiliary losses: terms that a part of a model adds to the loss in training, such as load balancing of a router
(Shazeer et al., 2017, https://huggingface.co/papers/1701.06538).

A part declares the names of its terms in an attribute `auxiliary_losses`. It is then called with an argument `losses`,
except if they are not collected, and adds each term, multiplied with its factor, once per call:

```python
>>> import torch
>>> class Scaled(torch.nn.Linear):
...     auxiliary_losses = ("size",)
...
...     def forward(self, hidden_states, losses=None):
...         output = super().forward(hidden_states)
...         if losses is not None:
...             losses.add("size", 0.01 * output.square().mean())
...         return output
>>> losses = AuxiliaryLosses(Scaled.auxiliary_losses)
>>> output = call_part(Scaled(4, 4), losses, torch.ones(2, 3, 4))
>>> list(losses.terms)
['size']

```

Parts are mixers, cross-attention, feed-forward layers, the norms of layers and of the stack, and position schemes in
`embed()`. Norms of queries and keys, and those of heads, are called without `losses`.

Terms with the same name are summed over the layers. The output of a model has them as `aux_losses`, and in training a
head adds them to its loss. A term is a mean over the tokens of a call: if `num_items_in_batch` divides the summed
loss, the term is weighted by the share of these items in the call, so that gradient accumulation and several processes
give the same result as one large batch. `TxTrainer` logs each term as `aux_loss_` and its name.
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch

from .losses import IGNORE


class AuxiliaryLosses:
    """The terms of one call. Every call creates its own object, so that nothing is shared between calls.

    Args:
        names: names of the terms that can be added.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self.names = tuple(names)
        self.terms: dict[str, torch.Tensor] = {}

    def add(self, name: str, value: torch.Tensor) -> None:
        """Add to a term.

        Args:
            name: one of those that the part has declared.
            value: *Shape:* `()`, floating point.

        Raises:
            ValueError: the name has not been declared, or the value is no single number.
        """
        if name not in self.names:
            raise ValueError(f"loss {name!r} is not declared: auxiliary_losses = {self.names}.")
        if value.ndim:
            raise ValueError(f"loss {name!r} has the shape {tuple(value.shape)}; it must be a single number.")
        self.terms[name] = self.terms[name] + value if name in self.terms else value

    def values(self, like: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return the terms in the order of their names, 0 for one that was not added.

        Args:
            like: gives the device.
        """
        return tuple(self.terms[name] if name in self.terms else like.new_zeros(()) for name in self.names)


def declared_losses(parts: Iterable[Any]) -> tuple[str, ...]:
    """Return the names of the terms that parts declare, each once."""
    return tuple(dict.fromkeys(name for part in parts for name in getattr(part, "auxiliary_losses", ())))


def call_part(part: Callable[..., Any], losses: AuxiliaryLosses | None, *inputs: Any, **keywords: Any) -> Any:
    """Call a part of a model, with `losses` if it adds terms to them."""
    if losses is not None and declared_losses([part]):
        keywords["losses"] = losses
    return part(*inputs, **keywords)


def added(*several: dict[str, torch.Tensor] | None) -> dict[str, torch.Tensor] | None:
    """Return the sums of the terms of several stacks by name, or None if there are none."""
    losses = AuxiliaryLosses(name for terms in several for name in terms or ())
    for terms in several:
        for name, value in (terms or {}).items():
            losses.add(name, value)
    return losses.terms or None


def with_auxiliary(
    loss: torch.Tensor | None,
    terms: dict[str, torch.Tensor] | None,
    labels: torch.Tensor | None,
    num_items_in_batch: torch.Tensor | int | None,
    training: bool,
) -> torch.Tensor | None:
    """Return the loss of a head plus the auxiliary losses of its stack in training, or the loss alone in evaluation.

    Args:
        loss: *Shape:* `()`, floating point; or None.
        terms: the `aux_losses` of the stack, or None.
        labels: targets of this call. *Shape:* any, -100 for none where they are integers.
        num_items_in_batch: number of targets that the summed loss is divided by, or None for those of this call.
        training: whether the model is training.
    """
    if loss is None or labels is None or not terms or not training:
        return loss
    total = torch.stack([term.to(loss.device, loss.dtype) for term in terms.values()]).sum()
    if num_items_in_batch is not None:
        count: Any = labels.numel() if labels.is_floating_point() else (labels != IGNORE).sum().to(loss.device)
        items = num_items_in_batch
        total = total * (count / (items.to(loss.device) if isinstance(items, torch.Tensor) else items))
    return loss + total
