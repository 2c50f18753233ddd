# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Plots, by matplotlib where it is installed."""

import os
from collections.abc import Sequence
from typing import Any


def import_pyplot() -> Any:
    """Return pyplot, drawing into files.

    Raises:
        ImportError: matplotlib is not installed.
    """
    try:
        import matplotlib
    except ImportError as error:
        raise ImportError('plots need matplotlib: pip install "hf_tx[plots]"') from error
    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


def plot_losses(history: Sequence[dict[str, Any]], path: str | os.PathLike[str]) -> None:
    """Plot the losses of a training, and of its evaluations, by step.

    Args:
        history: `trainer.state.log_history`.
        path: of the file, by whose ending matplotlib chooses the format.

    Raises:
        ImportError: matplotlib is not installed.
    """
    pyplot = import_pyplot()
    figure, axis = pyplot.subplots(figsize=(6, 4), layout="constrained")
    for key, label, style in (("loss", "training", "-"), ("eval_loss", "held-out", "o-")):
        points = [(entry["step"], entry[key]) for entry in history if key in entry]
        if points:
            axis.plot(*zip(*points, strict=True), style, label=label, markersize=4)
    axis.set_xlabel("step")
    axis.set_ylabel("loss")
    axis.grid(alpha=0.3)
    axis.legend()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
