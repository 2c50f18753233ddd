# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Divides work among processes."""

from collections.abc import Callable, Iterable
from itertools import islice
from typing import TypeVar

from accelerate import PartialState
from accelerate.utils import gather_object

Item = TypeVar("Item")
Result = TypeVar("Result")


def shared(
    items: Iterable[Item],
    batch_size: int,
    work: Callable[[list[Item]], list[Result]],
    done: Callable[[list[Item]], object],
    state: PartialState | None,
) -> list[Result]:
    """Work on items batch by batch, each batch in one of the processes.

    Args:
        items: the same in all processes.
        batch_size: how many items are a batch.
        work: returns the results of a batch.
        done: called in every process for each batch that one of them has done.
        state: the processes; None for one.

    Returns:
        All results in the order of the items, in all processes.
    """
    process, num_processes = (state.process_index, state.num_processes) if state else (0, 1)
    iterator = iter(items)
    found = []
    for number, batch in enumerate(iter(lambda: list(islice(iterator, batch_size)), [])):
        if number % num_processes == process:
            found.append((number, work(batch)))
        done(batch)
    if num_processes > 1:
        found = sorted(gather_object(found), key=lambda entry: entry[0])
    return [result for _, results in found for result in results]
