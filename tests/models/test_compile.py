# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""torch.compile(fullgraph=True): no graph break, few compilations, the same numbers. What Dynamo traces decides that,
so most cases run the traced graph as it is; those that generate code are slow."""

import pytest
import torch
from tiny_models import FAMILIES, assert_close, build, padded, shared, tokens, uncompiled
from transformers import CompileConfig, DynamicCache, EncoderDecoderCache, StaticCache

import hf_tx
from hf_tx.models.positions import POSITIONS

SLOW = pytest.mark.slow


class Backend:
    """A compiler that counts how often it is asked, and runs the graph as it is, or through a real one."""

    def __init__(self, name="eager"):
        self.count = 0
        self.name = name

    def __call__(self, graph, inputs, **options):
        self.count += 1
        return graph.forward if self.name == "eager" else torch._dynamo.lookup_backend(self.name)(graph, inputs)

    def __deepcopy__(self, memo):
        return self  # generate() copies its config, and the count with it


@pytest.fixture(autouse=True)
def _fresh_dynamo():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def compiled(model, name="eager", **options):
    backend = Backend(name)
    return torch.compile(model, fullgraph=True, backend=backend, **options), backend


def inputs_of(family, length=6, padded_rows=True, labels=False):
    batch = tokens(2, length)
    mask = torch.ones_like(batch)
    if padded_rows:
        mask[0, : length // 3] = 0
    inputs = dict(input_ids=batch, attention_mask=mask)
    if family == "encoder_decoder":
        inputs["decoder_input_ids"] = tokens(2, length + 1, seed=2)
    if family != "encoder":
        inputs["use_cache"] = False
    if labels:
        target = inputs.get("decoder_input_ids", batch).clone()
        target[:, 1] = -100
        inputs["labels"] = target
    return inputs


def check_step(model, family, name="eager", **options):
    """Compare loss and gradients of a compiled training step with the plain one. Labels are the tokens themselves."""
    function, backend = compiled(model, name)
    inputs = inputs_of(family, labels=True, **options)
    parameters = [p for p in model.parameters() if p.requires_grad]
    results = []
    for call in (function, model):
        output = call(**inputs)
        results.append((output.loss, torch.autograd.grad(output.loss, parameters, allow_unused=True)))
    (loss, gradients), (expected_loss, expected) = results
    assert_close(loss.detach(), expected_loss.detach())
    largest = max(gradient.abs().amax() for gradient in expected if gradient is not None)
    for gradient, wanted in zip(gradients, expected, strict=True):
        if wanted is not None:
            assert ((gradient - wanted).abs().amax() / largest) < 1e-5
    assert backend.count == 1


POSITION = {"decoder": "rope", "encoder": "learned", "encoder_decoder": "relative"}
FORWARD_IN_CI = ("encoder_decoder", "relative")  # the training steps trace the others
EVERY_POSITION = [
    pytest.param(family, position, marks=[] if POSITION[family] == position else SLOW)
    for family in FAMILIES
    for position in POSITIONS
]
STEPS = [
    *[pytest.param(*case.values, "eager", marks=case.marks) for case in EVERY_POSITION],
    *[pytest.param(*case.values, "aot_eager", marks=SLOW) for case in EVERY_POSITION],
    *[pytest.param(family, position, "inductor", marks=SLOW) for family, position in POSITION.items()],
]


@pytest.mark.parametrize(
    ("family", "position_type"),
    [
        pytest.param(family, position, marks=[] if (family, position) == FORWARD_IN_CI else SLOW)
        for family in FAMILIES
        for position in POSITIONS
    ],
)
def test_a_forward_is_one_graph(family, position_type):
    model = build(family, "sdpa", "lm", position_type=position_type, mixers="sliding,full")
    function, backend = compiled(model)
    inputs = inputs_of(family)
    with torch.no_grad():
        assert_close(function(**inputs).logits, model(**inputs).logits)
        function(**inputs)
    assert backend.count == 1


@pytest.mark.parametrize(("family", "position_type", "name"), STEPS)
def test_a_training_step_is_one_graph(family, position_type, name):
    check_step(build(family, "sdpa", "lm", position_type=position_type, mixers="sliding,full").train(), family, name)


@pytest.mark.parametrize("loss", [pytest.param("full", marks=SLOW), "chunked"])
@pytest.mark.parametrize("family", ["decoder", pytest.param("encoder", marks=SLOW)])
def test_the_losses_compile(family, loss):
    model = build(family, "sdpa", "lm").train()
    model.loss_implementation = loss
    check_step(model, family)


@SLOW
@pytest.mark.parametrize("backend", ["eager", "sdpa"])
@pytest.mark.parametrize("dropout", [0.0, 0.1])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_training_step_with_dropout_compiles(family, dropout, backend):
    model = build(family, backend, "lm", attention_dropout=dropout, hidden_dropout=dropout).train()
    function, counter = compiled(model)
    for _ in range(2):
        function(**inputs_of(family, labels=True)).loss.backward()
    assert counter.count == 1


HEADS = [
    cls
    for config in (hf_tx.TxDecoderConfig, hf_tx.TxEncoderConfig, hf_tx.TxEncoderDecoderConfig)
    for auto, cls in hf_tx.registration.classes_of(config).items()
    if auto != "AutoConfig"
]


@SLOW
@pytest.mark.parametrize("cls", HEADS, ids=lambda cls: cls.__name__)
def test_every_head_is_one_graph(cls):
    family = next(f for f in ("encoder_decoder", "decoder", "encoder") if f in cls.config_class.model_type)
    model = cls(shared(family).config).eval()
    function, backend = compiled(model)
    inputs = inputs_of(family)
    if "MultipleChoice" in cls.__name__:
        inputs = {name: value[None] for name, value in inputs.items()}
    if "ForSequenceClassification" in cls.__name__:
        inputs.pop("use_cache", None)
    with torch.no_grad():
        output, expected = function(**inputs), model(**inputs)
    for actual, wanted in zip(output.to_tuple(), expected.to_tuple(), strict=True):
        if torch.is_tensor(wanted):
            assert_close(actual, wanted)
    assert backend.count == 1


def test_lengths_of_training_batches_are_dynamic():
    """C61: five lengths, two compilations at most."""
    model = build("decoder", "sdpa", "lm", mixers="sliding,full").train()
    function, backend = compiled(model, dynamic=True)
    for length in (6, 9, 12, 17, 23):
        inputs = inputs_of("decoder", length, labels=True)
        with torch.no_grad():
            assert_close(function(**inputs).loss, model(**inputs).loss)
    assert backend.count <= 2


def decode(family, function, model, cache, masked, prefill, steps):
    """Prefill plainly, decode compiled, and return the logits of all steps and those of one uncached forward."""
    length = prefill + steps
    batch, mask = tokens(2, length), torch.ones(2, length, dtype=torch.long)
    mask[0, :3] = 0
    name, mask_name = "input_ids", "attention_mask"
    more = {}
    if family == "encoder_decoder":
        name, mask_name = "decoder_input_ids", "decoder_attention_mask"
        with torch.no_grad():
            more["encoder_outputs"] = (model.model.encoder(tokens(2, 7, seed=5)).last_hidden_state,)

    def inputs(first, last):
        given = {mask_name: mask[:, :last].clone()} if masked else {}
        return {name: batch[:, first:last], **given, **more}

    with torch.no_grad():
        expected = model(**inputs(0, length), use_cache=False).logits
        outputs = [model(**inputs(0, prefill), cache=cache).logits]
        outputs += [function(**inputs(i, i + 1), cache=cache).logits for i in range(prefill, length)]
    kept = mask.bool() if masked else torch.ones_like(mask).bool()
    return torch.cat(outputs, dim=1)[kept], expected[kept]


def static_cache(model, length):
    config = model.config.get_text_config(decoder=True)
    cache = StaticCache(config=config, max_cache_len=length)
    return EncoderDecoderCache(cache, DynamicCache()) if model.config.is_encoder_decoder else cache


@pytest.mark.parametrize(
    ("family", "mixers", "masked", "position_type"),
    [
        ("decoder", "sliding,full", True, "rope"),
        ("encoder_decoder", "full", False, "relative"),
        pytest.param("decoder", "full", False, "learned", marks=SLOW),
        pytest.param("decoder", "full", True, "alibi", marks=SLOW),
        pytest.param("decoder", "sliding", True, "sinusoidal", marks=SLOW),
        pytest.param("decoder", "sliding", False, "none", marks=SLOW),
        pytest.param("encoder_decoder", "sliding,full", True, "rope", marks=SLOW),
        pytest.param("encoder_decoder", "sliding", False, "learned", marks=SLOW),
    ],
)
def test_static_decoding_compiles_twice_at_most(family, mixers, masked, position_type):
    """Ten steps beyond the window; a growing mask is one reason to compile again."""
    model = build(family, "sdpa", "lm", mixers=mixers, position_type=position_type)
    function, backend = compiled(model)
    actual, expected = decode(family, function, model, static_cache(model, 20), masked, 6, 10)
    assert_close(actual, expected)
    assert backend.count <= 2


@SLOW
@pytest.mark.parametrize("family", ["decoder", "encoder_decoder"])
def test_static_decoding_with_generated_code(family):
    model = build(family, "sdpa", "lm", mixers="sliding,full")
    function, backend = compiled(model, "inductor")
    actual, expected = decode(family, function, model, static_cache(model, 20), True, 6, 10)
    assert_close(actual, expected)
    assert backend.count <= 2


@pytest.mark.parametrize(
    ("family", "mixers", "compilations"),
    [
        ("decoder", "sliding,full", 2),
        pytest.param("decoder", "full", 1, marks=SLOW),
        pytest.param("encoder_decoder", "full", 1, marks=SLOW),
        # The decoder's text starts within the window, and transformers' static cache branches on whether it is full.
        pytest.param("encoder_decoder", "sliding,full", 3, marks=SLOW),
    ],
)
def test_generate_compiles_its_steps(family, mixers, compilations, monkeypatch):
    """generate() compiles by itself on accelerators; it is told to here."""
    model = build(family, "sdpa", "lm", mixers=mixers)
    batch, mask = padded([tokens(4), tokens(7)], "left")
    arguments = dict(attention_mask=mask, max_new_tokens=11, do_sample=False, eos_token_id=None)
    expected = model.generate(batch, use_cache=False, **arguments)
    monkeypatch.setattr(type(model), "_valid_auto_compile_criteria", lambda *args, **kwargs: True)
    backend = Backend()
    config = CompileConfig(fullgraph=True, dynamic=None, backend=backend)
    output = model.generate(batch, cache_implementation="static", compile_config=config, **arguments)
    assert torch.equal(output, expected)
    assert 0 < backend.count <= compilations


@pytest.mark.parametrize(
    ("mixers", "position_type"),
    [
        ("sliding", "rope"),
        ("full", "relative"),
        pytest.param("full", "alibi", marks=SLOW),
        pytest.param("chunked", "rope", marks=SLOW),
    ],
)
def test_a_graph_refuses_padding_between_tokens(mixers, position_type):
    """It was made for distances by index, and cannot know the mask."""
    model = build("decoder", "sdpa", mixers=mixers, position_type=position_type)
    function, backend = compiled(model)
    batch, mask = tokens(2, 8), torch.tensor([[1] * 8, [0, 0, *[1] * 6]])
    with torch.no_grad():
        expected = model(batch, attention_mask=mask).last_hidden_state[mask.bool()]
        assert_close(function(batch, attention_mask=mask).last_hidden_state[mask.bool()], expected)
        with pytest.raises(RuntimeError, match="attention_mask has padding between the tokens of a row"):
            function(batch, attention_mask=torch.tensor([[1] * 8, [0, 1, 0, *[1] * 5]]))
    assert backend.count == 1


@pytest.mark.parametrize("position_type", ["alibi", pytest.param("relative", marks=SLOW)])
def test_generate_compiles_its_steps_with_padding_between_tokens(position_type, monkeypatch):
    model = build("decoder", "sdpa", "lm", mixers="full,chunked", position_type=position_type)
    batch, mask = tokens(2, 8), torch.tensor([[1] * 8, [1, 1, 0, 0, 1, 1, 1, 1]])
    arguments = dict(attention_mask=mask, max_new_tokens=7, do_sample=False, eos_token_id=None)
    expected = model.generate(batch, use_cache=False, **arguments)
    monkeypatch.setattr(type(model), "_valid_auto_compile_criteria", lambda *args, **kwargs: True)
    backend = Backend()
    config = CompileConfig(fullgraph=True, dynamic=None, backend=backend)
    assert torch.equal(
        model.generate(batch, cache_implementation="static", compile_config=config, **arguments), expected
    )
    assert backend.count == 1


LAYOUT = (5, 3, 6)


@pytest.mark.parametrize(
    ("family", "backend", "masked", "given", "mixers"),
    [
        ("decoder", "sdpa", False, "position_ids", "sliding,full"),
        ("encoder", "sdpa", True, "seq_idx", "full"),
        *[
            pytest.param(family, backend, masked, given, mixers, marks=SLOW)
            for family in ("decoder", "encoder")
            for backend in ("eager", "sdpa")
            for masked in (False, True)
            for given in ("position_ids", "seq_idx", "both")
            for mixers in ("full", "sliding")
        ],
    ],
)
def test_packed_documents_stay_apart_under_a_compiler(family, backend, masked, given, mixers):
    """Where the values of positions cannot be read, the rule that isolates documents is always part of the mask."""
    model = build(family, backend, mixers=mixers)
    row = tokens(2, sum(LAYOUT))
    positions = torch.cat([torch.arange(size) for size in LAYOUT])[None].expand(2, -1).contiguous()
    inputs = dict(input_ids=row)
    if masked:
        inputs["attention_mask"] = torch.ones_like(row)
    if given in ("position_ids", "both"):
        inputs["position_ids"] = positions
    if given in ("seq_idx", "both"):
        inputs["seq_idx"] = (positions == 0).cumsum(-1)
    if family == "decoder":
        inputs["use_cache"] = False
    function, counter = compiled(model)
    with torch.no_grad():
        actual = function(**inputs).last_hidden_state
        expected = torch.cat([model(input_ids=part)[0] for part in row.split(LAYOUT, dim=1)], dim=1)
        assert_close(actual, expected)
        inputs.pop("seq_idx", None)
        plain = torch.arange(sum(LAYOUT))[None].expand(2, -1).contiguous()
        if given == "position_ids":  # the same graph serves a row of one document
            assert_close(function(**{**inputs, "position_ids": plain})[0], model(input_ids=row)[0])
    assert counter.count == 1


@SLOW
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("mixers", ["full", "sliding,full"])
def test_a_packed_row_goes_on_under_a_compiler(mixers, masked):
    model = build("decoder", "sdpa", mixers=mixers)
    row = tokens(2, sum(LAYOUT))
    positions = torch.cat([torch.arange(size) for size in LAYOUT])[None]
    function, _ = compiled(model)
    cache = StaticCache(config=model.config, max_cache_len=16)
    outputs, done = [], 0
    with torch.no_grad():
        expected = torch.cat([model(part).last_hidden_state for part in row.split(LAYOUT, dim=1)], dim=1)
        for part in (6, *[1] * 8):
            done += part
            inputs = {"attention_mask": torch.ones(2, done, dtype=torch.long)} if masked else {}
            call = model if part > 1 else function
            positions_of_part = positions[:, done - part : done].clone()
            outputs.append(call(row[:, done - part : done], position_ids=positions_of_part, cache=cache, **inputs)[0])
    assert_close(torch.cat(outputs, dim=1), expected)


@SLOW
def test_compiled_flex_equals_eager_at_all_lengths():
    """C59, compiled as it is used: about ten seconds a graph."""
    model, eager = build("decoder", "flex_attention", mixers="sliding,full"), shared("decoder", mixers="sliding,full")
    with torch.no_grad():
        for length in (1, 7, 128, 129):
            batch = tokens(2, length)
            for pads in (0, length // 3):
                mask = torch.ones_like(batch)
                mask[0, :pads] = 0
                positions = (mask.cumsum(-1) - 1).clamp(min=0)
                inputs = dict(attention_mask=mask, position_ids=positions, use_cache=False)
                kept = mask.bool()
                actual, expected = (m(batch, **inputs).last_hidden_state[kept] for m in (model, eager))
                assert_close(actual, expected)


@SLOW
def test_a_whole_model_with_flex_is_one_graph():
    """With masks made ahead: torch 2.13 warns where transformers makes them, which Dynamo cannot trace."""
    model = build("decoder", "flex_attention", mixers="sliding,full")
    batch = tokens(2, 7)
    masks = model.create_masks_for_generate(model.config, model.embed_tokens(batch), None, None)
    with torch.no_grad():
        actual = torch.compile(model, fullgraph=True)(batch, attention_mask=masks, use_cache=False).last_hidden_state
        with uncompiled():
            assert_close(actual, model(batch, use_cache=False).last_hidden_state)
