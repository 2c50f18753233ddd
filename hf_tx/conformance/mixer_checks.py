# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""The checks of a mixer, inside tiny stacks with large random weights, against its reference."""

import copy
import functools
import itertools
import tempfile
from collections.abc import Callable
from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassError
from transformers.cache_utils import DynamicCache, StaticCache

from ..models.mixers import MIXERS, Mixer
from ..models.modeling_decoder import TxDecoderForCausalLM
from ..plugins import resolve_reference
from .checks import Check, CheckTable, Skip
from .clean_process import assert_loads_elsewhere
from .mixer_subject import LENGTH, LENGTHS, LONG, LONG_DOCUMENTS, MixerSubject, label, run, states
from .references import MIXER_REFERENCES, Reference
from .tools import (
    assert_beams,
    assert_close,
    assert_finite,
    assert_gradients_close,
    backends,
    build_large,
    expect,
    gradients,
    meta_tensors,
    normal,
    padded_columns,
    place,
    registered_while_run,
    tokens,
    unless_refused,
)

MIXER_CHECKS = CheckTable()


# ---------------------------------------------------------------------------------------------------------- reference
@MIXER_CHECKS.add
def reference_forward(subject: MixerSubject) -> None:
    """The parallel form equals the reference, at odd lengths, in all directions and settings."""
    for causal in subject.directions:
        for setting in range(len(subject.reference.settings)):
            model = subject.build(causal, setting)
            for length in LENGTHS:
                row = tokens(length)
                what = f"{label(causal)}, setting {setting}, length {length}"
                assert_close(states(model, row[None])[0], subject.expected(model, row), what)


@MIXER_CHECKS.add
def reference_gradient(subject: MixerSubject) -> None:
    """The gradients of all parameters equal those of the reference."""
    for causal in subject.directions:
        for setting in range(len(subject.reference.settings)):
            model = subject.build(causal, setting)
            for length in (7, LONG):
                row = tokens(length)
                what = f"{label(causal)}, setting {setting}, length {length}"
                expected = subject.expected_gradients(model, [row])
                assert_gradients_close(gradients(model, run(model, row[None])[0]), expected, what)


@MIXER_CHECKS.add
def backends_agree(subject: MixerSubject) -> None:
    """Every attention backend equals `eager`, forward and gradient, padded and packed, or refuses before it starts."""
    if not subject.mixer.is_attention:
        raise Skip("the mixer takes no attention backend")
    for causal in subject.directions:
        for setting in range(len(subject.reference.settings)):
            _compare_backends(subject, causal, setting)


def _long_rows(side: str) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Two texts of several chunks, and where they stand in a batch with more than a chunk of pads."""
    sizes = [LONG, LONG - 110]
    return [tokens(size, seed=size) for size in sizes], padded_columns(sizes, side, LONG + 3)


def _compare_backends(subject: MixerSubject, causal: bool, setting: int) -> None:
    model = subject.build(causal, setting)
    rows = [tokens(size, seed=size) for size in (LENGTH, 7)]
    cases: dict[str, Any] = {"unpadded": (tokens(2, LENGTH), {})}
    for side in ("left", "right"):
        batch, mask = place(rows, padded_columns([LENGTH, 7], side, LENGTH + 1), LENGTH + 1)
        cases[side] = (batch, {"attention_mask": mask})
    cases["packed"] = (
        torch.cat(rows)[None],
        {"position_ids": torch.cat([torch.arange(len(row)) for row in rows])[None]},
    )
    long, long_mask = place(*_long_rows("left"), LONG + 3)
    cases["long"] = (long, {"attention_mask": long_mask})
    expected = {case: states(model, batch, **inputs) for case, (batch, inputs) in cases.items()}
    wanted = gradients(model, run(model, long, attention_mask=long_mask)[long_mask.bool()])
    for name in backends():
        if name == "eager":
            continue
        other = unless_refused(functools.partial(subject.build, causal, setting, name))
        if other is None:
            continue
        for case, (batch, inputs) in cases.items():
            real = inputs.get("attention_mask", torch.ones_like(batch)).bool()
            what = f"{name}, {label(causal)}, setting {setting}, {case}"
            actual = unless_refused(functools.partial(states, other, batch, **inputs), other.layers[0])
            if actual is not None:
                assert_close(actual[real], expected[case][real], what)

        def train(other: Any = other) -> dict[str, torch.Tensor]:
            return gradients(other, run(other.train(), long, attention_mask=long_mask)[long_mask.bool()])

        trained = unless_refused(train, other.layers[0])
        if trained is not None:
            assert_gradients_close(trained, wanted, f"{name}, {label(causal)}, setting {setting}")


# ------------------------------------------------------------------------------------------------ what a position sees
@MIXER_CHECKS.add
def causality(subject: MixerSubject) -> None:
    """A change of a token moves no state before it."""
    subject.causal()
    model = subject.build(True)
    for length, places in ((LENGTH, range(1, LENGTH)), (LONG, (64, 100, 128, LONG - 1))):
        row = tokens(1, length)
        before = states(model, row)
        for at in places:
            changed = row.clone()
            changed[:, at:] = tokens(1, length - at, seed=at + 1)
            assert_close(states(model, changed)[:, :at], before[:, :at], f"states before a change at {at}")


def _padding(subject: MixerSubject, side: str) -> None:
    sizes = [LENGTH, 6, 1]
    length = 2 * LENGTH if side == "interior" else LENGTH + 2
    for causal in subject.directions:
        model = subject.build(causal)
        rows = [tokens(size, seed=size) for size in sizes]
        columns, first = padded_columns(sizes, side, length), None
        for garbage in (77, 78):
            batch, mask = place(rows, columns, length, seed=garbage)
            actual = states(model, batch, attention_mask=mask)
            if side != "interior" or not subject.counts_pads:
                for idx, row in enumerate(rows):
                    what = f"{label(causal)}, {side} padding, a row of {len(row)}"
                    assert_close(actual[idx, columns[idx]], subject.expected(model, row), what)
            if first is not None:
                assert_close(actual[mask.bool()], first, f"{label(causal)}, other tokens in the pads")
            first = actual[mask.bool()]
        if side != "interior":
            rows, columns = _long_rows(side)
            batch, mask = place(rows, columns, LONG + 3)
            actual = run(model, batch, attention_mask=mask)[mask.bool()]
            expected = torch.cat([subject.expected(model, row) for row in rows])
            what = f"{label(causal)}, {side} padding, a row of {LONG}"
            assert_close(actual, expected, what)
            assert_gradients_close(gradients(model, actual), subject.expected_gradients(model, rows), what)


@MIXER_CHECKS.add
def padding_left(subject: MixerSubject) -> None:
    """Rows padded on the left are as they are alone, whatever tokens the pads hold."""
    _padding(subject, "left")


@MIXER_CHECKS.add
def padding_right(subject: MixerSubject) -> None:
    """Rows padded on the right are as they are alone, whatever tokens the pads hold."""
    _padding(subject, "right")


@MIXER_CHECKS.add
def padding_interior(subject: MixerSubject) -> None:
    """What pads inside of a text hold changes nothing, and they change nothing where distances do not count them."""
    _padding(subject, "interior")


@MIXER_CHECKS.add
def batch_equals_single(subject: MixerSubject) -> None:
    """A row of a batch is as it is alone."""
    for causal in subject.directions:
        model = subject.build(causal)
        batch = tokens(3, LENGTH)
        together = states(model, batch)
        for idx in range(len(batch)):
            assert_close(together[idx], states(model, batch[idx : idx + 1])[0], f"{label(causal)}, row {idx}")


@MIXER_CHECKS.add
def packing(subject: MixerSubject) -> None:
    """Documents packed in one row are as they are alone, with and without mask, cache and padding around them."""
    for causal in subject.directions:
        model = subject.build(causal)
        for sizes in ((5, 1, 7), LONG_DOCUMENTS):
            rows = [tokens(size, seed=idx) for idx, size in enumerate(sizes)]
            row = torch.cat(rows)[None]
            position_ids = torch.cat([torch.arange(len(part)) for part in rows])[None]
            expected = torch.cat([subject.expected(model, part) for part in rows])
            arguments: dict[str, dict[str, Any]] = {"no mask": {}, "a mask": {"attention_mask": torch.ones_like(row)}}
            if causal:
                arguments["a cache"] = {"cache": DynamicCache(config=model.config)}
            for what, inputs in arguments.items():
                actual = states(model, row, position_ids=position_ids, **inputs)[0]
                assert_close(actual, expected, f"{label(causal)}, documents of {sizes}, {what}")
            trained = gradients(model, run(model, row, position_ids=position_ids)[0])
            wanted = subject.expected_gradients(model, rows)
            assert_gradients_close(trained, wanted, f"{label(causal)}, documents of {sizes}")
            padded = torch.cat((tokens(1, 3, seed=9), row, tokens(1, 2, seed=10)), dim=1)
            mask = torch.tensor([[0] * 3 + [1] * row.shape[1] + [0] * 2])
            zeros, ones = torch.zeros(1, 3, dtype=torch.long), torch.ones(1, 2, dtype=torch.long)
            places = torch.cat((zeros, position_ids, ones), dim=1)
            actual = states(model, padded, attention_mask=mask, position_ids=places)[mask.bool()]
            assert_close(actual, expected, f"{label(causal)}, documents of {sizes}, padded on both sides")


@MIXER_CHECKS.add
def fully_masked_row(subject: MixerSubject) -> None:
    """A row of pads only gives finite states and gradients, in all precisions, and leaves the other rows alone."""
    for causal, dtype in itertools.product(subject.directions, (torch.float32, torch.bfloat16, torch.float16)):
        model = subject.build(causal).to(dtype)
        what, batch = f"{label(causal)}, {dtype}", tokens(2, LENGTH)
        mask = torch.ones_like(batch)
        mask[0] = 0
        actual = run(model, batch, attention_mask=mask)
        assert_finite(actual, f"{what}, states")
        if dtype == torch.float32:
            assert_close(actual[1], states(model, batch[1:])[0], f"{what}, the other row")
        for name, grad in gradients(model, actual).items():
            assert_finite(grad, f"{what}, gradient of {name}")


# -------------------------------------------------------------------------------------------------------------- cache
@MIXER_CHECKS.add
def cache_split(subject: MixerSubject) -> None:
    """A text in two calls with a cache, split at any place, is as in one."""
    subject.causal()
    model = subject.build(True)
    for length, places in ((LENGTH, range(1, LENGTH)), (LONG, (1, 63, 64, 70, 128, LONG - 1))):
        batch = tokens(2, length)
        expected = states(model, batch)
        for at in places:
            cache = DynamicCache(config=model.config)
            parts = [states(model, part, cache=cache) for part in (batch[:, :at], batch[:, at:])]
            assert_close(torch.cat(parts, dim=1), expected, f"{length} tokens, split at {at}")


def _in_chunks(model: Any, batch: torch.Tensor, mask: torch.Tensor, cache: Any, size: int) -> torch.Tensor:
    parts = [
        states(model, batch[:, at : at + size], attention_mask=mask[:, : at + size], cache=cache)
        for at in range(0, batch.shape[1], size)
    ]
    return torch.cat(parts, dim=1)


@MIXER_CHECKS.add
def chunked_prefill(subject: MixerSubject) -> None:
    """A padded batch in chunks of any size, down to single steps, is as in one call; a chunk may be all pads."""
    subject.causal()
    model = subject.build(True)
    for sizes, chunks in (([LENGTH, 4], (1, 2, 3)), ([40, 9], (1,)), ([LONG, 90], (70,))):
        rows = [tokens(size, seed=size) for size in sizes]
        batch, mask = place(rows, padded_columns(sizes, "left", sizes[0]), sizes[0])
        expected = states(model, batch, attention_mask=mask)[mask.bool()]
        for size in chunks:
            actual = _in_chunks(model, batch, mask, DynamicCache(config=model.config), size)
            assert_close(actual[mask.bool()], expected, f"{sizes[0]} tokens in chunks of {size}")


@MIXER_CHECKS.add
def static_cache(subject: MixerSubject) -> None:
    """A static cache gives what a dynamic one gives, also when it is used again after a reset."""
    subject.causal()
    model = subject.build(True)
    for longest, size in ((LENGTH, 4), (40, 1)):
        cache = StaticCache(config=model.config, max_cache_len=longest + 5)
        for seed in (0, 1):
            rows = [tokens(size, seed=size + seed) for size in (longest, 4)]
            batch, mask = place(rows, padded_columns([longest, 4], "left", longest), longest)
            cache.reset()
            actual = _in_chunks(model, batch, mask, cache, size)[mask.bool()]
            expected = states(model, batch, attention_mask=mask)[mask.bool()]
            assert_close(actual, expected, f"{longest} tokens, {'after a reset' if seed else 'static cache'}")


@MIXER_CHECKS.add
def cache_reorder(subject: MixerSubject) -> None:
    """Rows of a cache can be reordered, repeated and selected, as beam search does."""
    subject.causal()
    model = subject.build(True)
    batch, after = tokens(3, 6), tokens(3, 4, seed=1)
    order = torch.tensor([2, 0, 0])
    cases: dict[str, tuple[Callable[[Any], Any], torch.Tensor]] = {
        "reorder_cache": (lambda cache: cache.reorder_cache(order), batch[order]),
        "batch_select_indices": (lambda cache: cache.batch_select_indices(order), batch[order]),
        "batch_repeat_interleave": (lambda cache: cache.batch_repeat_interleave(2), batch.repeat_interleave(2, 0)),
    }
    for name, (change, seen) in cases.items():
        cache = DynamicCache(config=model.config)
        states(model, batch, cache=cache)
        change(cache)
        following = after.repeat(2, 1)[: len(seen)]
        expected = states(model, torch.cat((seen, following), dim=1))[:, 6:]
        assert_close(states(model, following, cache=cache), expected, name)


@MIXER_CHECKS.add
def generation(subject: MixerSubject) -> None:
    """`generate()` scores a left-padded batch, greedy and by beams, as calls without a cache do: all texts and scores
    of all beams."""
    subject.causal()
    model = build_large(TxDecoderForCausalLM, subject.config(True))
    rows = [tokens(size, seed=size) for size in (6, 3)]
    batch, mask = place(rows, padded_columns([6, 3], "left", 6), 6)

    def logits_of(text: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            return model(text[None], use_cache=False).logits[0]

    for beams, steps in ((1, 36), (3, 5)):  # the long text leaves every window behind
        out = model.generate(
            batch,
            attention_mask=mask,
            max_new_tokens=steps,
            min_new_tokens=steps,
            do_sample=False,
            num_beams=beams,
            num_return_sequences=beams,
            return_dict_in_generate=True,
            output_logits=True,
            output_scores=True,
        )
        for idx, row in enumerate(rows):
            if beams == 1:
                expected = logits_of(torch.cat((row, out.sequences[idx, 6:-1])))[len(row) - 1 :]
                assert_close(torch.stack(out.logits)[:, idx], expected, f"logits of row {idx}")
                continue

            def scores_of(text: tuple[int, ...], row: torch.Tensor = row) -> torch.Tensor:
                scores = logits_of(torch.cat((row, row.new_tensor(text))))[-1].log_softmax(-1)
                scores[model.config.eos_token_id] = float("-inf")  # min_new_tokens forbids the end
                return scores

            assert_beams(out, idx, 6, scores_of, beams, steps)


@MIXER_CHECKS.add
def recorded_outputs(subject: MixerSubject) -> None:
    """Hidden states that are recorded are those between the layers, and the attention weights those that mix the
    values: nothing of what is hidden, and a sum of at most one."""
    for causal in subject.directions:
        for setting in range(len(subject.reference.settings)):
            _compare_recorded(
                subject.build(causal, setting), subject.mixer.is_attention, f"{label(causal)}, {setting}"
            )


def _compare_recorded(model: Any, has_weights: bool, where: str) -> None:
    entered: list[torch.Tensor] = []
    mixed: list[tuple[Any, torch.Tensor, torch.Tensor]] = []
    hooks = [layer.register_forward_pre_hook(lambda _, inputs: entered.append(inputs[0])) for layer in model.layers]
    for layer in model.layers:
        hooks.append(
            layer.mixer.register_forward_hook(lambda module, inputs, out: mixed.append((module, inputs[0], out[0])))
        )
    batch, mask = place(*_long_rows("left"), LONG + 3)
    with torch.no_grad():
        out = model(batch, attention_mask=mask, output_hidden_states=True, output_attentions=has_weights)
    for hook in hooks:
        hook.remove()
    recorded = out.hidden_states
    expect(len(recorded) == len(entered) + 1, f"{where}: {len(recorded)} hidden states of {len(entered)} layers")
    for idx, (actual, expected) in enumerate(zip(recorded, [*entered, out.last_hidden_state], strict=True)):
        assert_close(actual, expected, f"{where}: hidden state {idx}")
    if not has_weights:
        return
    expect(len(out.attentions) == len(mixed), f"{where}: attention weights of {len(out.attentions)} layers")
    for idx, (weights, (module, states_in, states_out)) in enumerate(zip(out.attentions, mixed, strict=True)):
        what, real = f"{where}: attention weights of layer {idx}", mask.bool()
        assert_finite(weights, what)
        expect(bool((weights.sum(-1) <= 1 + 1e-4).all()), f"{what}: a sum is more than one")
        of_tokens = weights.transpose(1, 2)[real]  # of queries that are tokens
        hidden = ~real[:, None].expand(-1, real.shape[1], -1)[real]
        expect(bool((of_tokens.transpose(0, 1)[:, hidden] == 0).all()), f"{what}: pads have a share")
        if hasattr(module, "v_proj") and hasattr(module, "o_proj"):
            value = module.v_proj(states_in).unflatten(-1, (-1, module.head_dim)).transpose(1, 2)
            value = value.repeat_interleave(weights.shape[1] // value.shape[1], dim=1)
            applied = module.o_proj((weights @ value).transpose(1, 2).flatten(2))
            assert_close(applied[real], states_out[real], f"{what}, applied to the values")


# ----------------------------------------------------------------------------------------------------------- training
@MIXER_CHECKS.add
def parameters_get_gradients(subject: MixerSubject) -> None:
    """Every parameter of the mixer gets a gradient that is finite and not zero."""
    for causal in subject.directions:
        for setting in range(len(subject.reference.settings)):
            model = subject.build(causal, setting)
            grads = gradients(model, run(model, tokens(2, LENGTH)))
            for name, grad in grads.items():
                if ".mixer." in name:
                    assert_finite(grad, f"{label(causal)}: gradient of {name}")
                    expect(grad.abs().amax() > 0, f"{label(causal)}: {name} gets no gradient")


@MIXER_CHECKS.add
def large_norms(subject: MixerSubject) -> None:
    """Inputs a thousand times as large give finite states and gradients, in float64, float32 and bfloat16."""
    for causal in subject.directions:
        for dtype in (torch.float64, torch.float32, torch.bfloat16):
            # Without norms nothing takes the size away before the mixer sees it.
            model = subject.build(causal, norm_type="none", ffn_type="none", embedding_scale=1000.0).to(dtype)
            what = f"{label(causal)}, {dtype}"
            batch, mask = place([tokens(LENGTH), tokens(4)], padded_columns([LENGTH, 4], "left", LENGTH), LENGTH)
            actual = run(model, batch, attention_mask=mask)
            expect(actual.dtype == dtype, f"{what}: states are {actual.dtype}")
            assert_finite(actual, f"{what}, states")
            for name, grad in gradients(model, actual).items():
                assert_finite(grad, f"{what}, gradient of {name}")


@MIXER_CHECKS.add
def low_precision(subject: MixerSubject) -> None:
    """In bfloat16 and float16, states and gradients are as near to float32 as those of the reference, but for a factor
    of two."""
    for causal, dtype in itertools.product(subject.directions, (torch.bfloat16, torch.float16)):
        for setting in range(len(subject.reference.settings)):
            half = subject.build(causal, setting).to(dtype)
            full = copy.deepcopy(half).float()
            for length in (7, 66):
                row = tokens(1, length)
                with subject.by_reference(full), subject.by_reference(half):
                    exact, rounded = _states_and_gradients(full, row), _states_and_gradients(half, row)
                for name, one, other, true in zip(
                    ("states", "gradients"), _states_and_gradients(half, row), rounded, exact, strict=True
                ):
                    own, allowed = (((each - true).norm() / true.norm()).item() for each in (one, other))
                    what = f"{label(causal)}, {dtype}, setting {setting}, length {length}, {name}"
                    expect(
                        own <= 2 * allowed, f"{what}: off by {own:.1e} of their norm, the reference by {allowed:.1e}"
                    )


def _states_and_gradients(model: Any, row: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return both in float32, the gradients of all parameters as one vector."""
    output = run(model, row)
    return output.float(), torch.cat([grad.flatten().float() for grad in gradients(model, output).values()])


@MIXER_CHECKS.add
def gradient_checkpointing(subject: MixerSubject) -> None:
    """Recomputing the layers in the backward pass changes no gradient."""
    for causal in subject.directions:
        model = subject.build(causal).train()
        batch, mask = place([tokens(LENGTH), tokens(4)], padded_columns([LENGTH, 4], "left", LENGTH), LENGTH)
        expected = gradients(model, run(model, batch, attention_mask=mask))
        for reentrant in (False, True):
            model.activation_checkpointing_enable({"use_reentrant": reentrant})
            model.zero_grad()
            output = run(model, batch, attention_mask=mask)
            (
                output * normal(*output.shape, seed=5)
            ).sum().backward()  # re-entrant checkpointing knows no torch.autograd.grad
            actual = {
                name: torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
                for name, parameter in model.named_parameters()
            }
            assert_gradients_close(actual, expected, f"{label(causal)}, use_reentrant={reentrant}")


@MIXER_CHECKS.add_slow
def compilation(subject: MixerSubject) -> None:
    """A mixer that is said to compile is traced as one graph and gives the same; one that is not says so."""
    for causal in subject.directions:
        model = subject.build(causal)
        batch, mask = place([tokens(LENGTH), tokens(4)], padded_columns([LENGTH, 4], "left", LENGTH), LENGTH)
        torch._dynamo.reset()
        compiled = torch.compile(model, fullgraph=True, backend="eager")
        if subject.mixer.compilable:
            actual = states(compiled, batch, attention_mask=mask)
            expected = states(model, batch, attention_mask=mask)
            assert_close(actual[mask.bool()], expected[mask.bool()], label(causal))
            continue
        try:
            states(compiled, batch, attention_mask=mask)
        except Exception as error:
            expect("compile" in str(error), f"{label(causal)}: fails without saying why: {error}")
        else:
            raise AssertionError(f"{label(causal)}: compiles, though it is declared not to (compilable=False)")


# -------------------------------------------------------------------------------------------------- config and saving
@MIXER_CHECKS.add
def options_round_trip(subject: MixerSubject) -> None:
    """A saved config comes back with the same mixer and options."""
    for causal in subject.directions:
        for setting in range(len(subject.reference.settings)):
            config = subject.config(causal, setting)
            with tempfile.TemporaryDirectory() as folder:
                config.save_pretrained(folder)
                loaded = type(config).from_pretrained(folder)
            for field in ("mixers", "mixer_options", "sliding_window", "layer_types"):
                before, after = getattr(config, field), getattr(loaded, field)
                expect(before == after, f"{label(causal)}: {field} = {before!r} comes back as {after!r}")


@MIXER_CHECKS.add
def unknown_options_refused(subject: MixerSubject) -> None:
    """An option that the mixer does not have, and a direction that it does not have, are refused with its name."""
    for causal in (True, False):
        unknown: dict[str, Any] = {"mixer_options": {subject.name: {"nonsense": 1}}}
        try:
            subject.config(causal, **(unknown if causal in subject.directions else {}))
        except (ValueError, StrictDataclassError) as error:
            expect(subject.name in str(error), f"{label(causal)}: the refusal does not name the mixer: {error}")
        else:
            raise AssertionError(f"{label(causal)}: a config that asks for what the mixer does not have is accepted")


@MIXER_CHECKS.add
def meta_construction(subject: MixerSubject) -> None:
    """The mixer can be built on the meta device, and its parameters are all there."""
    for causal in subject.directions:
        with torch.device("meta"):
            model = type(subject.build(causal))(subject.config(causal))
        named = {name: parameter.shape for name, parameter in model.named_parameters()}
        real = {name: parameter.shape for name, parameter in subject.build(causal).named_parameters()}
        expect(named == real, f"{label(causal)}: parameters differ on the meta device: {named.keys() ^ real.keys()}")
        expect(all(p.is_meta for p in model.parameters()), f"{label(causal)}: a parameter is not on the meta device")


@MIXER_CHECKS.add
def buffers_after_reload(subject: MixerSubject) -> None:
    """A saved and loaded model has the same parameters and buffers, gives the same, and leaves nothing on meta."""
    for causal in subject.directions:
        model = subject.build(causal)
        batch = tokens(2, LENGTH)
        with tempfile.TemporaryDirectory() as folder:
            model.save_pretrained(folder, include_code=False)
            loaded = type(model).from_pretrained(folder, attn_implementation="eager").eval()
        left = meta_tensors(loaded)
        expect(not left, f"{label(causal)}: on the meta device after a load: {', '.join(left)}")
        before = dict([*model.named_parameters(), *model.named_buffers()])
        after = dict([*loaded.named_parameters(), *loaded.named_buffers()])
        expect(before.keys() == after.keys(), f"{label(causal)}: names differ: {before.keys() ^ after.keys()}")
        for name, tensor in before.items():
            expect(torch.equal(tensor, after[name]), f"{label(causal)}: {name} changes by a load")
        assert_close(states(loaded, batch), states(model, batch), f"{label(causal)}: states")


@MIXER_CHECKS.add
def initialisation(subject: MixerSubject) -> None:
    """A new model has initial values everywhere: what a load finds no weights for is drawn, and finite."""
    for causal in subject.directions:
        model = subject.build(causal)
        kept = {name: tensor for name, tensor in model.state_dict().items() if ".mixer." not in name}
        kind = type(model)
        loaded = kind.from_pretrained(None, config=subject.config(causal), state_dict=kept)
        for name, parameter in loaded.named_parameters():
            assert_finite(parameter, f"{label(causal)}: initial {name}")


@MIXER_CHECKS.add_slow
def clean_process_load(subject: MixerSubject) -> None:
    """A saved model gives the same in a new process, by its own code and without hf_tx."""
    if subject.name not in MIXERS:
        raise Skip("the mixer is not registered, so no other process knows it")
    model = subject.build(subject.directions[0], backend="eager")
    batch = tokens(2, LENGTH)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        assert_loads_elsewhere(folder, "AutoModel", {"input_ids": batch}, {"last_hidden_state": states(model, batch)})


def check_mixer(
    name_or_spec: str | Mixer,
    *,
    reference: Callable[..., torch.Tensor] | None = None,
    settings: tuple[dict[str, Any], ...] | None = None,
) -> list[Check]:
    """Return the checks of a mixer; nothing runs yet.

    Args:
        name_or_spec: a name of the registry; or a [`Mixer`] that is not registered, for which the name `mixer` is
            registered while a check runs.
        reference: see `hf_tx.conformance.references`. Default: that of a built-in mixer, or the one that the mixer
            declares.
        settings: see [`Reference`]. Default: those of a built-in mixer, or its defaults.

    Raises:
        ValueError: the name is unknown, or there is no reference.
        ImportError: the mixer belongs to a plug-in that cannot be used.
    """
    name, mixer = ("mixer", name_or_spec) if isinstance(name_or_spec, Mixer) else (name_or_spec, None)
    spec = mixer or MIXERS.get(name)
    known = MIXER_REFERENCES.get(name) if mixer is None else None
    function = reference or (known.function if known is not None else resolve_reference(spec))
    if function is None:
        raise ValueError(f"mixer {name!r} has no reference to compare with; give reference=.")
    subject = MixerSubject(name, spec, Reference(function, settings or (known.settings if known else ({},))))
    checks = MIXER_CHECKS.of(f"mixer {name}", subject)
    return checks if mixer is None else registered_while_run(checks, MIXERS, name, mixer)
