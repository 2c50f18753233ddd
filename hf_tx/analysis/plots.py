# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Plots with matplotlib, if it is installed."""

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
    axis.xaxis.get_major_locator().set_params(integer=True)
    axis.set_ylabel("loss")
    axis.grid(alpha=0.3)
    axis.legend()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def plot_comparison(record: Any, path: str | os.PathLike[str]) -> None:
    """Plot a comparison of mixers: bits per byte at equal data and at equal time, and losses over tokens and seconds.

    Args:
        record: a [`ComparisonRecord`].
        path: of the file, by whose ending matplotlib chooses the format.

    Raises:
        ImportError: matplotlib is not installed.
    """
    pyplot = import_pyplot()
    from matplotlib import ticker

    figure, ((left, right), (tokens, seconds)) = pyplot.subplots(
        2, 2, figsize=(11, 4.5 + 0.5 * len(record.mixers)), layout="constrained"
    )
    styles = {mixers: _style(number) for number, mixers in enumerate(record.mixers)}
    for axis, text in zip((left, right), record.measured, strict=True):
        for height, mixers in enumerate(record.mixers):
            found = [record.bits_per_byte(mixers, equal, text) for equal in ("data", "time")]
            color = styles[mixers]["color"]
            axis.plot([mean for mean, _ in found], [height] * 2, color=color, alpha=0.4)
            for (mean, spread), marker, filled in zip(found, "oD", (True, False), strict=True):
                face = color if filled else "white"
                axis.errorbar(mean, height, xerr=spread or None, marker=marker, color=color, markerfacecolor=face)
        axis.set_yticks(range(len(record.mixers)), record.mixers)
        axis.invert_yaxis()
        axis.set_title(f"{text} (unigram model: {record.baseline[text]:.2f})")
        axis.set_xlabel("bits per byte")
    for marker, face, equal in (("o", "black", "data"), ("D", "white", "time")):
        right.plot([], [], marker, color="black", markerfacecolor=face, label=f"equal {equal}")
    right.legend(loc="upper left", bbox_to_anchor=(1.01, 1), frameon=False)
    for axis, equal, label in ((tokens, "data", "tokens"), (seconds, "time", "seconds of training")):
        for mixers in record.mixers:
            training = record.of(mixers, equal)[0]
            of_a_step = record.tokens_of_a_step if equal == "data" else training.seconds / training.steps
            steps, losses = zip(*training.losses, strict=True)
            axis.plot([step * of_a_step for step in steps], losses, label=mixers, **styles[mixers])
        axis.set(xscale="log", xlabel=label, ylabel="training loss (nats per token)", title=f"equal {equal}")
        axis.xaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
        axis.xaxis.set_major_formatter(ticker.EngFormatter())
        axis.xaxis.set_minor_formatter(ticker.NullFormatter())
    seconds.legend(loc="upper left", bbox_to_anchor=(1.01, 1), frameon=False)
    for axis in figure.axes:
        axis.grid(alpha=0.3)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def _style(number: int) -> dict[str, Any]:
    """Return a colour that the colour-blind can tell from the others (Okabe and Ito), and a dash for those after."""
    colors = ("#000000", "#E69F00", "#56B4E9", "#009E73", "#D55E00", "#0072B2", "#CC79A7", "#8C8C8C")
    return {"color": colors[number % len(colors)], "linestyle": ("-", "--", ":", "-.")[number // len(colors) % 4]}
