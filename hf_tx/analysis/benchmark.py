# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Measures time and peak memory of mixers and backends for several lengths, in comparison with transformers.

Times that are compared are measured in one process, in alternating order. Peak memory is that of a separate process,
minus its size after the imports.
"""

import dataclasses
import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from tqdm.auto import tqdm  # type: ignore[import-untyped]

from ..models.attention import eager_attention_forward
from ..models.configuration_decoder import TxDecoderConfig
from ..models.mixers import MIXERS
from ..models.modeling_decoder import TxDecoderForCausalLM, TxDecoderModel
from ..models.positions import alibi_slopes
from .plots import import_pyplot

#: Sizes of the models of `long` and `attention`.
WINDOW, VOCABULARY, LAYERS, HEADS, KV_HEADS, HEAD_DIM, INTERMEDIATE = 256, 8192, 4, 4, 2, 64, 688
SIDES = ("peer", "hf_tx")
# glibc gives blocks of more than 32 MB back at once and pays for their pages again: where tensors reach that size, a
# curve over lengths would have a step that is no property of what is measured.
_KEEP_MEMORY = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(2**40)}
#: What is measured of the attention functions alone: side, rival.
ALONE = {
    "window": ("banded", "sdpa"),
    "alibi": ("tiled", "eager"),
    "relative": ("tiled", "eager"),
}


@dataclass(frozen=True)
class Case:
    """What one process measures.

    Attributes:
        kind: `mixer`, a layer of one mixer; `long`, the training step of a language model; `config`, that of a decoder
            of hf_tx that a config describes; `alone`, an attention function; or `load`, a checkpoint of transformers.
        name: the mixer; the side, `peer` or `hf_tx`; or the mechanism.
        backend: the attention implementation.
        length: tokens of the text.
        loss: the loss implementation of a language model of hf_tx.
        repeats: how often it is timed after one run that is not.
        threads: threads of torch; 0: as torch chooses.
        folder: the checkpoint to load, or the folder of the config.
        rows: texts in a training step.
    """

    kind: str
    name: str
    backend: str
    length: int
    loss: str = "full"
    repeats: int = 3
    threads: int = 0
    folder: str = ""
    rows: int = 1


@dataclass(frozen=True)
class Cost:
    """A measured case.

    Attributes:
        seconds: median of the repeats.
        megabytes: peak memory of the process, minus its size after the imports.
    """

    case: Case
    seconds: float
    megabytes: float


def measure(case: Case) -> Cost:
    """Measure a case in a separate process.

    Raises:
        RuntimeError: the process failed; the message ends with what it said.
    """
    command = [sys.executable, "-m", __name__, json.dumps(dataclasses.asdict(case))]
    environment = {**os.environ, **(_KEEP_MEMORY if case.kind == "mixer" else {})}
    child = subprocess.run(command, capture_output=True, text=True, env=environment)
    if child.returncode:
        last = child.stderr.strip().splitlines()[-1:] or [f"exit code {child.returncode}"]
        what = case.folder or f"{case.backend} at {case.length} tokens"
        raise RuntimeError(f"{case.name} by {what}: {last[0]}")
    return Cost(case, **json.loads(child.stdout.splitlines()[-1]))


def compare(
    sides: dict[str, Callable[[], Any]], rounds: int, description: str | None = None
) -> dict[str, list[float]]:
    """Time functions in turn, the order alternating, after one run of each that does not count.

    Args:
        sides: what to time, by name.
        rounds: how often.
        description: the label of a progress bar; None for no bar.

    Returns:
        The seconds of every round, by name.
    """
    for run in sides.values():
        run()
    times: dict[str, list[float]] = {name: [] for name in sides}
    for idx in tqdm(range(rounds), desc=description, unit=" rounds", disable=description is None, leave=False):
        names = list(sides)
        for name in names if idx % 2 else names[::-1]:
            times[name].append(_seconds(sides[name]))
    return times


def growth(lengths: Sequence[float], costs: Sequence[float]) -> float:
    """Fit `cost = c * length**e` by least squares of the logarithms, and return `e`.

    Example:

    ```python
    >>> round(growth([1, 2, 4], [3, 12, 48]), 6)
    2.0

    ```
    """
    x, y = ([math.log(value) for value in values] for values in (lengths, costs))
    mean_x, mean_y = statistics.fmean(x), statistics.fmean(y)
    return sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True)) / sum((a - mean_x) ** 2 for a in x)


# ------------------------------------------------------------------------------------------------ what is measured
def language_model(side: str, backend: str, length: int, loss: str = "full") -> Any:
    """Build the same 4-layer Mistral on either side, with random weights.

    Args:
        side: `peer`, transformers' class, or `hf_tx`.
        backend: the attention implementation.
        length: the longest text.
        loss: the loss implementation of the side of hf_tx.
    """
    common: dict[str, Any] = dict(
        vocab_size=VOCABULARY,
        hidden_size=HEADS * HEAD_DIM,
        intermediate_size=INTERMEDIATE,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS,
        head_dim=HEAD_DIM,
        sliding_window=WINDOW,
        max_position_embeddings=length,
        tie_word_embeddings=True,
        attn_implementation=backend,
    )
    torch.manual_seed(0)
    if side == "peer":
        from transformers import MistralConfig, MistralForCausalLM

        return MistralForCausalLM(MistralConfig(**common))
    return TxDecoderForCausalLM(TxDecoderConfig(**common, mixers="sliding"), loss_implementation=loss)


def random_batch(vocab_size: int, rows: int, length: int) -> dict[str, torch.Tensor]:
    """Return random texts, which are the same each time, with their labels. *Shape:* `(rows, length)` each, int64."""
    ids = torch.randint(5, vocab_size, (rows, length), generator=torch.Generator().manual_seed(0))
    return {"input_ids": ids, "labels": ids}


def training_step(model: Any, batch: dict[str, torch.Tensor]) -> Callable[[], None]:
    """Return a function that takes one step of AdamW on a batch with labels."""
    optimizer = torch.optim.AdamW(model.train().parameters(), lr=1e-4)

    def step() -> None:
        model(**batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def decoding_steps(model: Any, context: int, tokens: int) -> Callable[[], None]:
    """Return a function that generates tokens one by one, the likeliest each, after a random text that is in the cache
    already. Each call continues where the last one ended."""
    model.eval()
    batch = random_batch(model.config.vocab_size, 1, context)
    with torch.no_grad():
        found = model(input_ids=batch["input_ids"], use_cache=True, logits_to_keep=1)

    def steps() -> None:
        nonlocal found
        with torch.no_grad():
            for _ in range(tokens):
                found = model(input_ids=found.logits.argmax(-1), cache=found.cache, use_cache=True)

    return steps


def mixer_step(mixer: str, backend: str, length: int) -> Callable[[], None]:
    """Return a function that runs one layer, a mixer and nothing else, forward and backward."""
    settings: dict[str, Any] = dict(
        vocab_size=2,
        hidden_size=HEADS * HEAD_DIM,
        num_hidden_layers=1,
        num_attention_heads=HEADS,
        mixers=mixer,
        sliding_window=WINDOW if "sliding_window" in MIXERS.get(mixer).needs else None,
        mixer_options={"chunked": {"chunk_size": WINDOW}} if mixer == "chunked" else None,
        ffn_type="none",
        norm_type="none",
        max_position_embeddings=length,
        attn_implementation=backend,
    )
    torch.manual_seed(0)
    model = TxDecoderModel(TxDecoderConfig(**settings))
    inputs = torch.randn(1, length, HEADS * HEAD_DIM, requires_grad=True)

    def step() -> None:
        model(inputs_embeds=inputs, use_cache=False).last_hidden_state.sum().backward()

    return step


def function_step(mechanism: str, backend: str, length: int) -> Callable[[], None]:
    """Return a function that runs an attention function alone, forward and backward, with heads of 64.

    Args:
        mechanism: `window`, 256 keys; or `alibi` or `relative`, a bias of the positions in a causal layer.
        backend: the attention implementation.
        length: tokens of the text.
    """
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import causal_mask_function, sliding_window_causal_mask_function

    generator = torch.Generator().manual_seed(0)
    states = [
        torch.randn(1, length, HEADS, HEAD_DIM, generator=generator).transpose(1, 2).requires_grad_() for _ in range(3)
    ]
    weight = torch.randn(1, length, HEADS, HEAD_DIM, generator=generator)
    module = SimpleNamespace(num_key_value_groups=1, training=True, is_causal=True)
    attend: Any = eager_attention_forward if backend == "eager" else AttentionInterface._global_mapping[backend]
    window = WINDOW if mechanism == "window" else None
    rule: Any = causal_mask_function if window is None else sliding_window_causal_mask_function(window)
    make_mask: Any = AttentionMaskInterface._global_mapping[backend]
    mask = make_mask(1, length, length, 0, 0, mask_function=rule, local_size=window, allow_is_causal_skip=True)
    distance = torch.arange(1 - length, length)
    by_distance = -torch.tensor(alibi_slopes(HEADS))[:, None] * distance.abs()
    if mechanism == "relative":
        by_distance = torch.randn(HEADS, 2 * length - 1, generator=generator).requires_grad_()

    def step() -> None:
        kwargs: dict[str, Any] = {}
        if mechanism != "window":
            bias = by_distance if backend == "tiled" else by_distance.unfold(-1, length, 1).flip(-2)[None]
            kwargs["position_bias"] = bias
        mixed, _ = attend(module, *states, mask, scaling=HEAD_DIM**-0.5, dropout=0.0, **kwargs)
        (mixed * weight).sum().backward()

    return step


def loading(side: str, folder: str) -> Callable[[], Any]:
    """Return what loads a checkpoint, whose class transformers has imported."""
    import transformers

    from ..conversion import from_hf

    architectures = transformers.AutoConfig.from_pretrained(folder).architectures
    if not architectures:
        raise ValueError(f"{folder}: config.json has no architectures; add the name of the class.")
    cls = getattr(transformers, architectures[0])
    transformers.utils.logging.disable_progress_bar()
    return {
        "peer": lambda: cls.from_pretrained(folder),
        "hf_tx": lambda: from_hf(folder),
        "views": lambda: from_hf(folder, copy=False),
    }[side]


def build(case: Case) -> Callable[[], Any]:
    """Return the function that a case times."""
    if case.kind == "load":
        return loading(case.name, case.folder)
    if case.kind == "long":
        model = language_model(case.name, case.backend, case.length, case.loss)
        return training_step(model, random_batch(VOCABULARY, case.rows, case.length))
    if case.kind == "config":
        config = TxDecoderConfig.from_pretrained(case.folder, attn_implementation=case.backend)
        model = TxDecoderForCausalLM(config)
        return training_step(model, random_batch(config.vocab_size, case.rows, case.length))
    make: Any = {"mixer": mixer_step, "alone": function_step}[case.kind]
    return make(case.name, case.backend, case.length)


# ------------------------------------------------------------------------------------------------------ the reports
def run_attention(
    mixers: Sequence[str], implementations: Sequence[str], lengths: Sequence[int], repeats: int = 3, threads: int = 0
) -> list[dict[str, Any]]:
    """Measure mixers with backends at several lengths, and fit how they grow.

    Args:
        mixers: names of mixers. What is no attention is measured once, whatever the backends.
        implementations: names of backends; a pair that raises an error is skipped, and the reason is printed.
        lengths: tokens of the texts.
        repeats: timed runs of each.
        threads: threads of torch; 0: as torch chooses.

    Returns:
        For every pair its name, `lengths`, `seconds`, `megabytes`, and the fitted exponents of both.
    """
    rows = []
    for mixer in mixers:
        for backend in implementations if MIXERS.get(mixer).is_attention else ["eager"]:
            try:
                mixer_step(mixer, backend, 8)()
            except (ValueError, ImportError) as error:
                print(f"left out: {error}", file=sys.stderr)
                continue
            costs = [measure(Case("mixer", mixer, backend, n, repeats=repeats, threads=threads)) for n in lengths]
            name = f"{mixer} by {backend}" if MIXERS.get(mixer).is_attention else mixer
            rows.append(_row(name, costs))
            print(f"measured {name}", file=sys.stderr)
    return rows


def run_long(lengths: Sequence[int], rounds: int = 3, threads: int = 0) -> list[dict[str, Any]]:
    """Compare the training step of the same Mistral: that of transformers with sdpa, and hf_tx with `banded`.

    Args:
        lengths: tokens of the texts.
        rounds: rounds of the comparison of times.
        threads: threads of torch; 0: as torch chooses.

    Returns:
        For every length the seconds and megabytes of both sides, and the ratios, peer by hf_tx. Times are taken with
        the plain loss on both sides, memory with the chunked loss of hf_tx.
    """
    _set_threads(threads)
    rows = []
    for length in lengths:
        steps = {side: build(case) for side, case in _long_cases(length, "full", threads).items()}
        times = compare(steps, rounds)
        del steps
        megabytes = {side: measure(case).megabytes for side, case in _long_cases(length, "chunked", threads).items()}
        rows.append(_versus(f"step at {length}", times, megabytes, *SIDES))
    return rows


def _long_cases(length: int, loss: str, threads: int) -> dict[str, Case]:
    return {
        "peer": Case("long", "peer", "sdpa", length, repeats=1, threads=threads),
        "hf_tx": Case("long", "hf_tx", "banded", length, loss, repeats=1, threads=threads),
    }


def run_alone(length: int, rounds: int = 3, threads: int = 0) -> list[dict[str, Any]]:
    """Compare the attention functions alone, at one length: `banded` with sdpa and the full mask in a window, `tiled`
    with eager and a bias of the positions.

    Args:
        length: tokens of the text.
        rounds: rounds of the comparison of times.
        threads: threads of torch; 0: as torch chooses.

    Returns:
        See `run_long`.
    """
    _set_threads(threads)
    rows = []
    for mechanism, (ours, rival) in ALONE.items():
        times = compare({name: function_step(mechanism, name, length) for name in (rival, ours)}, rounds)
        cases = {name: Case("alone", mechanism, name, length, repeats=1, threads=threads) for name in (rival, ours)}
        megabytes = {name: measure(case).megabytes for name, case in cases.items()}
        rows.append(_versus(f"{mechanism} at {length}", times, megabytes, rival, ours))
    return rows


def run_load(folder: str, rounds: int = 3, threads: int = 0) -> list[dict[str, Any]]:
    """Compare loading a checkpoint of transformers: `from_pretrained` with `from_hf`, also with views of its file.

    Every load has a process of its own, in which it is the first.

    Args:
        folder: the checkpoint.
        rounds: loads of each side, which alternate.
        threads: threads of torch; 0: as torch chooses.

    Returns:
        See `run_long`. Memory is taken when all weights have been read, for files are mapped and not read before.
    """
    sides = ("peer", "hf_tx", "views")
    costs: dict[str, list[Cost]] = {side: [] for side in sides}
    for idx in range(rounds):
        for side in sides if idx % 2 else sides[::-1]:
            costs[side].append(measure(Case("load", side, "", 0, threads=threads, folder=folder)))
    times = {side: [cost.seconds for cost in found] for side, found in costs.items()}
    megabytes = {side: statistics.median(cost.megabytes for cost in found) for side, found in costs.items()}
    return [_versus(side, times, megabytes, "peer", side) for side in sides[1:]]


def _row(name: str, costs: list[Cost]) -> dict[str, Any]:
    lengths = [cost.case.length for cost in costs]
    row: dict[str, Any] = dict(name=name, lengths=lengths)
    for field in ("seconds", "megabytes"):
        row[field] = [getattr(cost, field) for cost in costs]
        row[f"exponent of {field}"] = growth(lengths, row[field]) if len(lengths) > 1 else None
    return row


def _versus(
    name: str, times: dict[str, list[float]], megabytes: dict[str, float], peer: str, ours: str
) -> dict[str, Any]:
    row: dict[str, Any] = {"name": name}
    for side in (peer, ours):
        row |= {f"{side} seconds": statistics.median(times[side]), f"{side} megabytes": megabytes[side]}
    row["times faster"] = statistics.median(a / b for a, b in zip(times[peer], times[ours], strict=True))
    row["times less memory"] = megabytes[peer] / megabytes[ours]
    return row


def table(rows: list[dict[str, Any]]) -> str:
    """Lay rows out as text; lists get one column per entry."""
    flat = []
    for row in rows:
        line: dict[str, str] = {}
        lengths = row.get("lengths", [])
        for key, value in row.items():
            if isinstance(value, list):
                if key != "lengths":
                    line |= {f"{key[:1]}@{n}": f"{v:.3g}" for n, v in zip(lengths, value, strict=True)}
            else:
                line[key] = f"{value:.3g}" if isinstance(value, float) else str(value)
        flat.append(line)
    heads = list(dict.fromkeys(key for line in flat for key in line))
    lines = [heads, *([line.get(key, "") for key in heads] for line in flat)]
    widths = [max(len(line[idx]) for line in lines) for idx in range(len(heads))]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in lines)


def plot(rows: list[dict[str, Any]], path: str | Path) -> None:
    """Draw time and memory against the length, both logarithmic, and save a picture.

    Args:
        rows: what `run_attention` returned.
        path: the file, by whose ending matplotlib chooses the format.

    Raises:
        ImportError: matplotlib is not installed.
    """
    pyplot = import_pyplot()
    from matplotlib.ticker import FuncFormatter

    figure, axes = pyplot.subplots(1, 2, figsize=(11, 4.5), layout="constrained")
    for axis, field in zip(axes, ("seconds", "megabytes"), strict=True):
        for row in rows:
            exponent = row[f"exponent of {field}"]
            label = row["name"] if exponent is None else f"{row['name']} (n^{exponent:.2f})"
            axis.plot(row["lengths"], row[field], marker="o", label=label)
        axis.set(xscale="log", yscale="log", xlabel="tokens", ylabel=field)
        ticks = sorted({length for row in rows for length in row["lengths"]})
        axis.set_xticks(ticks, minor=False)
        axis.set_xticks([], minor=True)
        axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.grid(alpha=0.3)
        axis.legend(fontsize="small")
    axes[0].set_title("forward and backward of one layer")
    axes[1].set_title("peak memory")
    figure.savefig(path, dpi=150)
    pyplot.close(figure)


# ------------------------------------------------------------------------------------------------------ the process
def _seconds(run: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


def _set_threads(threads: int) -> None:
    if threads:
        torch.set_num_threads(threads)


def _process_megabytes(peak: bool) -> float:
    """Return the memory of this process: now, or at its peak."""
    status = Path("/proc/self/status")
    if status.exists():
        word = "VmHWM" if peak else "VmRSS"
        return int(next(line for line in status.read_text().splitlines() if line.startswith(word)).split()[1]) / 1024
    import resource  # not on Windows

    usage = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return usage / 1024**2 if sys.platform == "darwin" else usage / 1024


def _child(case: Case) -> None:
    """Measure a case and print it."""
    if case.name == "peer":
        import transformers.models.mistral.modeling_mistral  # noqa: F401
    _set_threads(case.threads)
    base = _process_megabytes(peak=False)
    run = build(case)
    if case.kind == "load":
        base = _process_megabytes(peak=False)
        begin = time.perf_counter()
        model = run()
        times = [time.perf_counter() - begin]
        for weight in model.parameters():
            weight.sum()  # reads it
    else:
        times = [_seconds(run) for _ in range(case.repeats + 1)][1:]
    megabytes = _process_megabytes(peak=True) - base
    print(json.dumps(dict(seconds=statistics.median(times), megabytes=megabytes)))


if __name__ == "__main__":
    _child(Case(**json.loads(sys.argv[1])))
