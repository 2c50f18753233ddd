# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Saving, loading, casting, resizing, placing: the weights, buffers and ties of a model survive all of it."""

import copy
import json
import logging
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from accelerate import cpu_offload, disk_offload, infer_auto_device_map
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from tiny_models import FAMILIES, SIZES, TOKENS, VOCABULARY, assert_close, build, config_of, enlarge, tokens
from torch import nn
from transformers import AutoModel, AutoModelForCausalLM, AutoModelForMaskedLM, AutoModelForSeq2SeqLM

import hf_tx
from hf_tx.models.modeling_stack import TxStack
from hf_tx.models.positions import POSITIONS
from hf_tx.registration import CONFIGS, classes_of

HEADS: dict[str, dict[str, Any]] = {
    config.model_type.removeprefix("hf_tx_"): {
        auto: cls for auto, cls in classes_of(config).items() if auto != "AutoConfig"
    }
    for config in CONFIGS
}
EVERY_HEAD = [(family, cls) for family in FAMILIES for cls in HEADS[family].values()]
LM_AUTO = {"decoder": AutoModelForCausalLM, "encoder": AutoModelForMaskedLM, "encoder_decoder": AutoModelForSeq2SeqLM}

every_head = pytest.mark.parametrize(
    ("family", "cls"), EVERY_HEAD, ids=lambda value: getattr(value, "__name__", value)
)
every_family = pytest.mark.parametrize("family", FAMILIES)

ROPES: dict[str, dict[str, Any]] = {
    "default": {},
    "partial": dict(partial_rotary_factor=0.5),
    "linear": dict(rope_type="linear", factor=4.0),
    "dynamic": dict(rope_type="dynamic", factor=2.0),
    "yarn": dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=16),
    "llama3": dict(
        rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=16
    ),
    "longrope": dict(
        rope_type="longrope",
        factor=4.0,
        short_factor=[1.0, 1.1, 1.2, 1.3],
        long_factor=[2.0, 3.0, 4.0, 5.0],
        original_max_position_embeddings=16,
    ),
    "proportional": dict(rope_type="proportional", partial_rotary_factor=0.5),
}
#: Settings by what the model knows of positions.
POSITIONED: dict[str, dict[str, Any]] = {
    **{name: dict(position_type=name) for name in POSITIONS if name != "rope"},
    **{
        f"rope-{name}": dict(rope_parameters=dict(rope_type="default", rope_theta=1000.0) | parameters)
        for name, parameters in ROPES.items()
    },
    "rope-by-layer-type": dict(
        mixers="sliding,full",
        rope_parameters=dict(
            sliding_attention=dict(rope_type="default", rope_theta=100.0),
            full_attention=dict(rope_type="linear", rope_theta=1000.0, factor=2.0),
        ),
    ),
}


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    transformers.utils.logging.disable_progress_bar()
    yield
    transformers.utils.logging.enable_progress_bar()


def settings_of(name: str) -> dict[str, Any]:
    return copy.deepcopy(POSITIONED[name])


def inputs_of(family: str, length: int = 9) -> dict[str, torch.Tensor]:
    inputs = dict(input_ids=tokens(2, length))
    if family == "encoder_decoder":
        inputs["decoder_input_ids"] = tokens(2, length - 2, seed=1)
    return inputs


def outputs_of(model: Any, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    if "MultipleChoice" in type(model).__name__:
        inputs = {name: value[:, None] for name, value in inputs.items()}
    with torch.no_grad():
        return model.eval()(**inputs)[0].clone()


def same_outputs(model: Any, family: str, expected: torch.Tensor) -> None:
    """Compare up to what the alignment of weights in memory changes in a product with few columns."""
    assert_close(outputs_of(model, inputs_of(family)), expected, 1e-6)


def same_weights(first: Any, second: Any) -> None:
    assert first.state_dict().keys() == second.state_dict().keys()
    for name, weight in first.state_dict().items():
        assert torch.equal(weight, second.state_dict()[name]), name


def poison() -> None:
    """Leave NaN in the memory that small tensors will be made of."""
    junk = [torch.full((size,), torch.nan) for size in (1, 2, 4, 8, 16, 32, 64, 256, 1024) for _ in range(64)]
    del junk


def tensors_in(value: Any, depth: int = 4) -> Iterator[torch.Tensor]:
    """All tensors that an attribute holds, in containers and objects of ours too."""
    if isinstance(value, torch.Tensor):
        yield value
    elif depth and isinstance(value, dict):
        for part in value.values():
            yield from tensors_in(part, depth - 1)
    elif depth and isinstance(value, list | tuple | set):
        for part in value:
            yield from tensors_in(part, depth - 1)
    elif (
        depth
        and not isinstance(value, nn.Module | type)
        and hasattr(value, "__dict__")
        and "hf_tx" in repr(type(value))
    ):
        yield from tensors_in(vars(value), depth - 1)


@pytest.mark.parametrize("name", POSITIONED)
@every_family
def test_buffers_and_outputs_after_loading(family: str, name: str, tmp_path: Path) -> None:
    model = build(family, head="lm", **settings_of(name))
    expected = outputs_of(model, inputs_of(family))
    model.save_pretrained(tmp_path)
    fresh = dict(type(model)(config_of(family, **settings_of(name))).named_buffers())
    assert bool(fresh) == name.startswith("rope"), "a buffer is new here: see that it is computed again on loading"

    for loader in (type(model), LM_AUTO[family]):
        poison()
        loaded = loader.from_pretrained(tmp_path, attn_implementation="eager")
        buffers = dict(loaded.named_buffers())
        assert buffers.keys() == fresh.keys()
        for key, value in buffers.items():
            assert torch.equal(value, fresh[key]), key
            assert value.dtype == fresh[key].dtype
        for module in loaded.modules():
            assert not [tensor for tensor in tensors_in(vars(module)) if tensor.is_meta], type(module).__name__
        same_outputs(loaded, family, expected)


def test_tensors_are_found_wherever_they_are() -> None:
    """The search of the test above."""
    module = nn.Linear(2, 2)
    module.kept = {"a": [(torch.zeros(1, device="meta"),)]}
    assert [tensor.is_meta for tensor in tensors_in(vars(module))].count(True) == 1


@pytest.mark.parametrize("unit_offset", [False, True])
@every_head
def test_loaded_weights_are_not_initialised_again(family: str, cls: Any, unit_offset: bool, tmp_path: Path) -> None:
    norms = dict(norm_type="rmsnorm", norm_unit_offset=True) if unit_offset else dict(norm_type="layernorm")
    model = cls(config_of(family, attention_bias=True, position_type="learned", **norms))
    with torch.no_grad():
        for weight in model.parameters():
            weight.fill_(0.5)
    model.save_pretrained(tmp_path / "same")
    loaded, report = cls.from_pretrained(tmp_path / "same", output_loading_info=True)
    assert not any(report.values()), report
    for name, weight in loaded.named_parameters():
        assert bool((weight == 0.5).all()), name
    assert {name for name, _ in loaded.named_parameters()} == {name for name, _ in model.named_parameters()}

    base = getattr(model, "model", model)
    base.save_pretrained(tmp_path / "base")
    loaded, report = cls.from_pretrained(tmp_path / "base", output_loading_info=True)
    old = {f"model.{name}" if base is not model else name for name, _ in base.named_parameters()}
    tied = set(loaded.all_tied_weights_keys)
    for name, weight in loaded.named_parameters():
        if name in old or name in tied:
            assert bool((weight == 0.5).all()), name
        else:
            assert name in report["missing_keys"]
            if weight.ndim > 1:  # drawn with the initialiser's width
                assert 0.005 < weight.std() < 0.05, name
            else:
                assert not bool((weight == 0.5).any()), name


def test_loading_draws_nothing_that_it_overwrites(tmp_path: Path, monkeypatch: Any) -> None:
    """Linear layers of torch draw their weights when they are built."""
    model = build("decoder")
    model.save_pretrained(tmp_path)
    monkeypatch.setattr(nn.init, "kaiming_uniform_", None)
    type(model).from_pretrained(tmp_path)


@every_head
def test_a_head_is_loaded_without_the_rest(family: str, cls: Any, tmp_path: Path) -> None:
    """The base model of any head is the base model."""
    model = enlarge(cls(config_of(family)))
    model.save_pretrained(tmp_path)
    loaded = AutoModel.from_pretrained(tmp_path)
    for name, weight in getattr(model, "model", model).state_dict().items():
        assert torch.equal(loaded.state_dict()[name], weight), name


@pytest.mark.parametrize("activation", ["prelu", "xielu"])
def test_parameters_of_activations(activation: str, tmp_path: Path) -> None:
    """Those of a layer come back as they were, and those of a head that is new begin as in a new model."""
    config = config_of("encoder", hidden_act=activation, num_hidden_layers=1)
    base = hf_tx.TxEncoderModel(config)
    for parameter in base.layers[0].mlp.act_fn.parameters():
        parameter.data += 0.01234567
    base.save_pretrained(tmp_path)
    poison()
    loaded = hf_tx.TxEncoderForMaskedLM.from_pretrained(tmp_path)
    fresh = hf_tx.TxEncoderForMaskedLM(config)
    for found, wanted in (
        (loaded.model.layers[0].mlp.act_fn, base.layers[0].mlp.act_fn),
        (loaded.transform.act_fn, fresh.transform.act_fn),
    ):
        for name, value in wanted.state_dict().items():
            assert value.dtype == torch.float32, name
            assert torch.equal(found.state_dict()[name], value), name


@every_family
def test_saving_again_writes_the_same(family: str, tmp_path: Path) -> None:
    build(family, head="lm").save_pretrained(tmp_path / "first")
    LM_AUTO[family].from_pretrained(tmp_path / "first").save_pretrained(tmp_path / "second")
    names = sorted(path.name for path in (tmp_path / "first").iterdir() if path.is_file())
    assert names == sorted(path.name for path in (tmp_path / "second").iterdir() if path.is_file())
    for name in names:
        first, second = ((tmp_path / folder / name).read_bytes() for folder in ("first", "second"))
        if name == "config.json":
            first, second = json.loads(first), json.loads(second)
            for stack in ("encoder", "decoder"):  # where transformers notes the dtype on loading
                second.get(stack, {}).pop("dtype", None)
        assert first == second, name


@every_family
def test_only_safetensors_are_written(family: str, tmp_path: Path) -> None:
    build(family, head="lm").save_pretrained(tmp_path)
    kinds = {path.suffix for path in tmp_path.iterdir() if path.is_file()}
    assert kinds == {".json", ".py", ".safetensors"}
    with safe_open(tmp_path / "model.safetensors", "pt") as file:
        stored = set(file.keys())
    assert "lm_head.weight" not in stored, "tied"
    assert not [key for key in stored if "inv_freq" in key], "a table that the config gives"


def embeddings(model: Any) -> tuple[torch.Tensor, ...]:
    """Weights of the embeddings of the encoder and the decoder, as far as there are such."""
    if model.config.is_encoder_decoder:
        return model.get_encoder().embed_tokens.weight, model.get_decoder().embed_tokens.weight
    return (model.get_input_embeddings().weight,)


def check_ties(model: Any) -> None:
    """Weights are the same object exactly where the config says so."""
    config = model.config
    tables = embeddings(model)
    if len(tables) == 2:
        assert (tables[0] is tables[1]) == config.share_embeddings
    head = model.get_output_embeddings()
    if head is not None:
        assert (head.weight is tables[-1]) == config.tie_word_embeddings
        if len(tables) == 2:
            assert (head.weight is tables[0]) == (config.tie_word_embeddings and config.share_embeddings)


def through_disk(model: Any, folder: Path) -> Any:
    model.save_pretrained(folder)
    return type(model).from_pretrained(folder)


def on_meta(model: Any, folder: Path) -> Any:
    with torch.device("meta"):
        made = type(model)._from_config(model.config)
    assert all(weight.is_meta for weight in made.parameters())
    return made


def through_meta_device_map(model: Any, folder: Path) -> Any:
    model.save_pretrained(folder)
    made = type(model).from_pretrained(folder, device_map="meta")
    assert all(weight.is_meta for weight in made.parameters())
    return made


TRIPS: dict[str, Callable[[Any, Path], Any]] = {
    "construction": lambda model, folder: model,
    "loading": through_disk,
    "to bfloat16": lambda model, folder: model.to(torch.bfloat16),
    "deepcopy": lambda model, folder: copy.deepcopy(model),
    "from_config on meta": on_meta,
    "device_map meta": through_meta_device_map,
    "resize": lambda model, folder: (model.resize_token_embeddings(VOCABULARY + 3), model)[1],
    "post_init again": lambda model, folder: (model.post_init(), model)[1],
    "tie_weights again": lambda model, folder: (model.tie_weights(), model)[1],
}


#: Heads of which something may be tied.
TIED = {
    "decoder": [hf_tx.TxDecoderForCausalLM],
    "encoder": [hf_tx.TxEncoderForMaskedLM],
    "encoder_decoder": list(HEADS["encoder_decoder"].values()),
}


def tie_cases() -> list[Any]:
    cases = [
        (family, cls, dict(tie_word_embeddings=tied, **({} if shared is None else dict(share_embeddings=shared))))
        for family, cls in EVERY_HEAD
        for tied in (True, False)
        for shared in ((True, False) if family == "encoder_decoder" else (None,))
        if tied or cls in TIED[family]
    ]
    return [
        pytest.param(*case, id="-".join([case[1].__name__, *(str(value) for value in case[2].values())]))
        for case in cases
    ]


def tied_config(family: str, **settings: Any) -> Any:
    if family != "encoder_decoder":
        return config_of(family, **settings)
    stacks = {"encoder": dict(SIZES, type_vocab_size=0), "decoder": dict(SIZES)}
    for name in ("lm_head_bias", "vocab_size"):
        if name in settings:
            stacks["decoder"][name] = settings.pop(name)
    return hf_tx.TxEncoderDecoderConfig(**stacks, **TOKENS, **settings)


@pytest.mark.parametrize("trip", TRIPS)
@pytest.mark.parametrize(("family", "cls", "settings"), tie_cases())
def test_ties_follow_the_config(family: str, cls: Any, settings: dict[str, bool], trip: str, tmp_path: Path) -> None:
    model = enlarge(cls(tied_config(family, **settings)))
    before = outputs_of(model, inputs_of(family))
    made = TRIPS[trip](model, tmp_path)
    check_ties(made)
    if trip in ("loading", "deepcopy", "post_init again", "tie_weights again"):
        same_outputs(made, family, before)


@every_head
def test_new_embeddings(family: str, cls: Any) -> None:
    """They are those of all stacks that share them, and of the head once it is tied again."""
    model = cls(config_of(family))
    table = nn.Embedding(VOCABULARY, SIZES["hidden_size"])
    model.set_input_embeddings(table)
    assert model.get_input_embeddings() is table
    assert all(weight is table.weight for weight in embeddings(model))
    model.tie_weights()
    check_ties(model)
    assert all(weight is table.weight for weight in embeddings(model))


@pytest.mark.parametrize(("family", "cls", "settings"), tie_cases())
def test_shards(family: str, cls: Any, settings: dict[str, bool], tmp_path: Path) -> None:
    model = enlarge(cls(tied_config(family, **settings)))
    model.save_pretrained(tmp_path, max_shard_size="4KB")
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    files = {path.name for path in tmp_path.glob("*.safetensors")}
    assert files == set(index["weight_map"].values())
    assert len(files) > 3
    # What is shared is written once.
    different = {id(weight) for weight in model.state_dict(keep_vars=True).values()}
    assert len(index["weight_map"]) == len(different)

    with heard() as records:
        loaded, report = cls.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(report.values()), report
    assert not records
    check_ties(loaded)
    same_weights(loaded, model)
    same_outputs(loaded, family, outputs_of(model, inputs_of(family)))


class heard:
    """Collects what transformers and the package log, warnings and worse."""

    def __enter__(self) -> list[str]:
        self.records: list[str] = []
        self.handler = logging.Handler(logging.WARNING)
        self.handler.emit = lambda record: self.records.append(record.getMessage())  # type: ignore[method-assign]
        self.loggers = [logging.getLogger(name) for name in ("transformers", "hf_tx", "accelerate")]
        for logger in self.loggers:
            logger.addHandler(self.handler)
        return self.records

    def __exit__(self, *_: Any) -> None:
        for logger in self.loggers:
            logger.removeHandler(self.handler)


def test_missing_weights_are_heard(tmp_path: Path) -> None:
    """The listening of the test above."""
    build("decoder").save_pretrained(tmp_path)
    with heard() as records:
        hf_tx.TxDecoderForTokenClassification.from_pretrained(tmp_path)
    assert "score.weight" in "".join(records)


def resize_cases() -> list[Any]:
    cases = []
    for family in FAMILIES:
        for tied in (True, False):
            for bias in (True, False):
                for shared in (True, False) if family == "encoder_decoder" else (None,):
                    settings = dict(tie_word_embeddings=tied, lm_head_bias=bias)
                    if shared is not None:
                        settings["share_embeddings"] = shared
                    name = "-".join(key for key, value in settings.items() if value)
                    cases.append(pytest.param(family, settings, id=f"{family}-{name}"))
    return cases


@pytest.mark.parametrize(("family", "settings"), resize_cases())
def test_resizing_the_vocabulary(family: str, settings: dict[str, bool], tmp_path: Path) -> None:
    cls = type(build(family, head="lm"))
    model = enlarge(cls(tied_config(family, **settings))).eval()
    inputs = inputs_of(family)
    labels = inputs.get("decoder_input_ids", inputs["input_ids"])
    before, old_tables = outputs_of(model, inputs), [table.detach().clone() for table in embeddings(model)]

    def check(model: Any, size: int) -> None:
        stacks = [model.config] if family != "encoder_decoder" else [model.config.encoder, model.config.decoder]
        assert {config.vocab_size for config in [model.config, *stacks]} == {size}
        assert {len(table) for table in embeddings(model)} == {size}
        assert {module.num_embeddings for module in model.modules() if isinstance(module, nn.Embedding)} == {size}
        assert model.lm_head.out_features == len(model.lm_head.weight) == size
        assert (model.lm_head.bias is not None) == settings["lm_head_bias"]
        assert model.lm_head.bias is None or len(model.lm_head.bias) == size
        check_ties(model)
        for table, old in zip(embeddings(model), old_tables, strict=True):
            assert torch.equal(table[:VOCABULARY], old)
        outputs = model(**inputs, labels=labels)
        assert outputs.logits.shape[-1] == size
        assert_close(outputs.logits[..., :VOCABULARY], before, 1e-6)
        assert torch.isfinite(outputs.loss)
        model.train()
        model(**inputs, labels=labels).loss.backward()
        assert all(torch.isfinite(weight.grad).all() for weight in model.parameters() if weight.grad is not None)
        model.zero_grad()
        model.eval()

    model.resize_token_embeddings(VOCABULARY + 1, pad_to_multiple_of=8)
    check(model, 64)
    new_ids = {name: torch.full_like(value, 63) for name, value in inputs.items()}
    assert torch.isfinite(outputs_of(model, new_ids)).all()
    after = outputs_of(model, inputs)
    model.post_init()
    assert torch.equal(outputs_of(model, inputs), after), "initialised again"
    check(model, 64)

    loaded = through_disk(model, tmp_path)
    same_weights(loaded, model)
    check(loaded, 64)
    assert_close(outputs_of(loaded, new_ids), outputs_of(model, new_ids), 1e-6)

    loaded.resize_token_embeddings(VOCABULARY)
    check(loaded, VOCABULARY)


@every_head
def test_resizing_works_for_every_head(family: str, cls: Any) -> None:
    model = enlarge(cls(config_of(family)))
    table = model.resize_token_embeddings(VOCABULARY + 3)
    assert table is model.get_input_embeddings()
    assert {len(weight) for weight in embeddings(model)} == {model.config.vocab_size} == {VOCABULARY + 3}


def test_asking_for_the_embeddings_changes_nothing() -> None:
    """transformers promises this of a call without a size."""
    model = hf_tx.TxEncoderDecoderForConditionalGeneration(
        tied_config("encoder_decoder", vocab_size=VOCABULARY + 9, share_embeddings=False)
    )
    assert model.resize_token_embeddings() is model.get_input_embeddings()
    assert [len(table) for table in embeddings(model)] == [VOCABULARY, VOCABULARY + 9]


HALVES: dict[str, Callable[[Any, Path], Any]] = {
    "to bfloat16": lambda model, folder: model.to(torch.bfloat16),
    "to float16": lambda model, folder: model.to(torch.float16),
    "half": lambda model, folder: model.half(),
    "bfloat16": lambda model, folder: model.bfloat16(),
    "to device and dtype": lambda model, folder: model.to("cpu", torch.bfloat16),
    "to tensor": lambda model, folder: model.to(torch.zeros(1, dtype=torch.bfloat16)),
    "and back": lambda model, folder: model.half().float(),
    "to float64": lambda model, folder: model.double(),
    "loaded as bfloat16": lambda model, folder: (
        model.save_pretrained(folder),
        type(model).from_pretrained(folder, dtype=torch.bfloat16),
    )[1],
    "saved as bfloat16": lambda model, folder: through_disk(copy.deepcopy(model).to(torch.bfloat16), folder),
}


@pytest.mark.parametrize("way", HALVES)
@pytest.mark.parametrize("name", [name for name in POSITIONED if name.startswith("rope")])
def test_rotations_keep_their_precision(name: str, way: str, tmp_path: Path) -> None:
    exact = build("decoder", **settings_of(name))
    model = HALVES[way](build("decoder", **settings_of(name)), tmp_path)
    positions = torch.arange(8193)[None]
    states = torch.zeros(1, 1, 1, dtype=model.dtype)
    for layer_type in ("full_attention", "sliding_attention"):
        if layer_type not in exact.config.layer_types:
            continue
        expected = exact.positions["rope"].rotate(states.float(), positions, layer_type)
        tables = model.positions["rope"].rotate(states, positions, layer_type)
        for table, right in zip(tables, expected, strict=True):
            assert table.dtype == model.dtype
            assert torch.equal(table, right.to(model.dtype)), "cast before it was computed"
        distance = (tables[0][0, 0, 257] - tables[0][0, 0, 256]).abs().max()
        assert distance > 0, "two positions became one"
    for buffer in model.buffers():
        assert buffer.dtype == torch.float32


@pytest.mark.parametrize("name", [name for name in POSITIONED if name.startswith("rope")])
def test_rotations_under_autocast(name: str) -> None:
    model = build("decoder", **settings_of(name))
    states, positions = torch.zeros(1, 1, 1), torch.arange(600)[None]
    layer_type = model.config.layer_types[0]
    expected = model.positions["rope"].rotate(states, positions, layer_type)
    with torch.autocast("cpu", torch.bfloat16):
        tables = model.positions["rope"].rotate(states, positions, layer_type)
    assert torch.equal(tables[0], expected[0])
    assert torch.equal(tables[1], expected[1])


@every_head
def test_blocks_that_are_not_split_exist(family: str, cls: Any) -> None:
    model = cls(config_of(family))
    names = {type(module).__name__ for module in model.modules()}
    assert model._no_split_modules
    assert set(model._no_split_modules) <= names


@pytest.mark.parametrize("share", [0.0, 0.4, 0.6, 0.8, 2.0])
@every_head
def test_a_device_map_covers_everything(family: str, cls: Any, share: float) -> None:
    """Whatever the budget, every weight has a place, and a block only one."""
    with torch.device("meta"):
        model = cls(config_of(family, num_hidden_layers=6, mlp_bias=True))
    total = sum(weight.numel() * 4 for weight in model.parameters())
    budget = {"cpu": int(share * total), "disk": 10 * total}
    places = infer_auto_device_map(model, budget, no_split_module_classes=model._no_split_modules)
    for name, _ in [*model.named_parameters(), *model.named_buffers()]:
        covering = [key for key in places if key == "" or name == key or name.startswith(f"{key}.")]
        assert covering, f"{name} has no place in {places}"
    assert not [key for key in places if re.search(r"layers\.\d+\.", key)], places
    if share == 0.6:
        assert set(places.values()) == {"cpu", "disk"}


def half_on_disk(model: Any, folder: Path) -> Any:
    blocks = [name for name, module in model.named_modules() if type(module).__name__ == "TxBlock"]
    names = [name for name, _ in model.named_parameters(remove_duplicate=False)]
    places = {block: "disk" if idx % 2 else "cpu" for idx, block in enumerate(blocks)}
    for name in names:
        if not name.startswith(tuple(f"{block}." for block in blocks)):
            places[name.rpartition(".")[0]] = "cpu"
    if not model.config.is_encoder_decoder:  # the rotary tables
        places["model.positions"] = "cpu"
    else:
        places |= {"model.encoder.positions": "cpu", "model.decoder.positions": "cpu"}
    return type(model).from_pretrained(
        folder, device_map=places, offload_folder=folder / "offload", attn_implementation="eager"
    )


OFFLOADS: dict[str, Callable[[Any, Path], Any]] = {
    "all on disk": lambda model, folder: type(model).from_pretrained(
        folder,
        device_map="auto",
        max_memory={"cpu": 1000, "disk": 10**9},
        offload_folder=folder / "offload",
        attn_implementation="eager",
    ),
    "half on disk": half_on_disk,
    "device_map cpu": lambda model, folder: type(model).from_pretrained(
        folder, device_map="cpu", attn_implementation="eager"
    ),
    "cpu_offload": lambda model, folder: cpu_offload(copy.deepcopy(model), execution_device="cpu"),
    "disk_offload": lambda model, folder: disk_offload(
        copy.deepcopy(model), offload_dir=folder / "offload", execution_device="cpu"
    ),
}


@pytest.mark.parametrize("way", OFFLOADS)
@every_family
@pytest.mark.filterwarnings("ignore:Current model requires")
def test_offloading_changes_nothing(family: str, way: str, tmp_path: Path) -> None:
    model = build(family, head="lm", mixers="sliding,full")
    model.save_pretrained(tmp_path)
    placed = OFFLOADS[way](model, tmp_path)
    assert (way == "device_map cpu") == all(weight.device.type == "cpu" for weight in placed.parameters())
    inputs = inputs_of(family)
    same_outputs(placed, family, outputs_of(model, inputs))
    if model.can_generate():
        ask = dict(max_new_tokens=6, do_sample=False)
        expected = model.generate(inputs["input_ids"], **ask)
        assert torch.equal(placed.generate(inputs["input_ids"], **ask), expected)


@every_family
def test_loss_implementation_is_a_keyword_of_loading(family: str, tmp_path: Path) -> None:
    model = build(family, head="lm")
    cls, auto = type(model), LM_AUTO[family]
    model.save_pretrained(tmp_path)
    for loader in (cls, auto):
        assert loader.from_pretrained(tmp_path).loss_implementation == "full"
        chunked = loader.from_pretrained(tmp_path, loss_implementation="chunked")
        assert chunked.loss_implementation == "chunked"
        assert copy.deepcopy(chunked).loss_implementation == "chunked"
    assert auto.from_config(model.config, loss_implementation="chunked").loss_implementation == "chunked"

    with heard() as records:
        chunked.save_pretrained(tmp_path / "again")
    assert not records
    assert "loss_implementation" not in (tmp_path / "again" / "config.json").read_text()
    assert cls.from_pretrained(tmp_path / "again").loss_implementation == "full"
    with pytest.raises(ValueError, match="loss_implementation = 'chunkd'.* full, chunked"):
        cls.from_pretrained(tmp_path, loss_implementation="chunkd")
    with pytest.raises(ValueError, match="loss_implementation = 'none'"):
        model.loss_implementation = "none"


@every_family
def test_backend_is_a_keyword_of_loading(family: str, tmp_path: Path) -> None:
    model = build(family, head="lm")
    model.save_pretrained(tmp_path)
    for loader in (type(model), LM_AUTO[family]):
        for backend in ("eager", "sdpa"):
            loaded = loader.from_pretrained(tmp_path, attn_implementation=backend)
            stacks = [module for module in loaded.modules() if isinstance(module, TxStack)]
            assert stacks
            assert {module.config._attn_implementation for module in stacks} == {backend}
    assert type(model).from_pretrained(tmp_path).config._attn_implementation == "sdpa", (
        "the default, not what was saved"
    )


# ------------------------------------------------------------------------------------------- names of wrappers
WRAPPED: dict[str, Callable[[str], str]] = {
    "torch.compile": lambda name: f"_orig_mod.{name}",
    "DataParallel": lambda name: f"module.{name}",
    "both": lambda name: f"module._orig_mod.{name}",
    "both, the other way round": lambda name: f"_orig_mod.module.{name}",
    "torch.compile of a part": lambda name: name.replace("layers.0.", "layers.0._orig_mod.", 1),
    "FSDP and checkpointing": lambda name: (
        "_fsdp_wrapped_module."
        + name.replace("layers.1.", "layers.1._fsdp_wrapped_module._checkpoint_wrapped_module.")
    ),
}


def rename_weights(folder: Path, rename: Callable[[str], str | None]) -> None:
    """Give the weights of a checkpoint other names, or leave them out, in files and index."""
    for file in folder.glob("*.safetensors"):
        state = {rename(name): weight for name, weight in load_file(file).items()}
        save_file({name: weight for name, weight in state.items() if name}, file, metadata={"format": "pt"})
    for file in folder.glob("*.index.json"):
        index = json.loads(file.read_text("utf-8"))
        index["weight_map"] = {rename(name): shard for name, shard in index["weight_map"].items()}
        file.write_text(json.dumps(index), "utf-8")


@pytest.mark.parametrize(
    ("family", "wrapper", "shard_size"),
    [
        *(("decoder", wrapper, "5GB") for wrapper in WRAPPED),
        *((family, "both", "20KB") for family in FAMILIES),
        ("encoder_decoder", "torch.compile of a part", "5GB"),
    ],
)
def test_names_of_wrappers_are_no_part_of_a_checkpoint(
    family: str, wrapper: str, shard_size: str, tmp_path: Path
) -> None:
    cls = HEADS[family][LM_AUTO[family].__name__]
    model = enlarge(cls(config_of(family)))
    model.save_pretrained(tmp_path, max_shard_size=shard_size, include_code=False)
    assert len(list(tmp_path.glob("*.safetensors"))) == 1 or shard_size == "20KB"
    rename_weights(tmp_path, WRAPPED[wrapper])
    loaded, info = cls.from_pretrained(tmp_path, output_loading_info=True)
    same_weights(model, loaded)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    base = AutoModel.from_pretrained(tmp_path)  # another class, whose names are shorter
    same_weights(model.base_model, base)
    loaded.save_pretrained(tmp_path / "again", include_code=False)
    with safe_open(tmp_path / "again" / "model.safetensors", framework="pt") as file:
        assert set(file.keys()) <= set(model.state_dict())


@pytest.mark.parametrize(
    ("family", "wraps"),
    [*(("decoder", wraps) for wraps in ("all", "base", "layer", "parallel")), ("encoder_decoder", "base")],
)
def test_wrapped_models_save_what_the_model_in_them_does(family: str, wraps: str, tmp_path: Path) -> None:
    cls = HEADS[family][LM_AUTO[family].__name__]
    model, other = enlarge(cls(config_of(family))), enlarge(cls(config_of(family)))
    model.save_pretrained(tmp_path / "plain", include_code=False)
    expected = load_file(tmp_path / "plain" / "model.safetensors")
    state = None
    if wraps == "all":
        state = torch.compile(model).state_dict()
    elif wraps == "parallel":
        state = nn.DataParallel(torch.compile(model)).state_dict()
    for each in (model, other):
        stack = next(module for module in each.modules() if isinstance(module, TxStack))
        if wraps == "base":
            each.model = torch.compile(each.model)
        elif wraps == "layer":
            stack.layers[0] = torch.compile(stack.layers[0])
    model.save_pretrained(tmp_path / "wrapped", state_dict=state, include_code=False)
    written = load_file(tmp_path / "wrapped" / "model.safetensors")
    assert written.keys() == expected.keys()
    for name, weight in expected.items():
        assert torch.equal(weight, written[name])
    with torch.no_grad():  # as a resumed run does, into a model that is wrapped as well
        for weight in other.parameters():
            weight.zero_()
    assert not other.load_state_dict(written, strict=False).unexpected_keys
    same_weights(model, other)


def test_a_wrapper_says_that_it_loads_nothing() -> None:
    model = enlarge(hf_tx.TxDecoderForCausalLM(config_of("decoder")))
    with pytest.raises(RuntimeError, match="load it into the TxDecoderForCausalLM inside of the wrapper"):
        torch.compile(model).load_state_dict(model.state_dict(), strict=False)


def test_a_weight_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    build("decoder").save_pretrained(tmp_path)
    state = load_file(tmp_path / "model.safetensors")
    state["_orig_mod.norm.weight"] = state["norm.weight"] + 1
    save_file(state, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ValueError, match=r"_orig_mod\.norm\.weight and norm\.weight, which are both"):
        AutoModel.from_pretrained(tmp_path)


def other_name(name: str) -> str:
    return f"backbone.{name}"


@every_family
def test_a_load_that_fills_nothing_of_a_stack_is_an_error(family: str, tmp_path: Path) -> None:
    build(family).save_pretrained(tmp_path, include_code=False)
    stack = "decoder" if family == "encoder_decoder" else "model"
    rename_weights(tmp_path, lambda name: f"backbone.{name}" if stack in ("model", name.split(".")[0]) else name)
    for cls in HEADS[family].values():
        with pytest.raises(ValueError, match=rf"{tmp_path}: has none of the \d+ weights of the {stack} .*'backbone\."):
            cls.from_pretrained(tmp_path)
    mapping = {r"^backbone\.": ""}
    _, info = AutoModel.from_pretrained(tmp_path, key_mapping=mapping, output_loading_info=True)
    assert not info["missing_keys"]


@every_family
def test_only_what_fills_nothing_is_an_error(family: str, tmp_path: Path) -> None:
    """Fresh heads, sizes that are to be ignored, and a model that is asked for without weights go on as before."""
    cls = HEADS[family][LM_AUTO[family].__name__]
    model = enlarge(cls(config_of(family)))
    model.save_pretrained(tmp_path)
    for kind in HEADS[family].values():
        same_weights(kind.from_pretrained(tmp_path).base_model, model.base_model)
    loaded = cls.from_pretrained(None, config=model.config, state_dict={})
    assert loaded.num_parameters() == model.num_parameters()
    parts = ("encoder_", "decoder_") if family == "encoder_decoder" else ("",)
    fewer = {**{f"{part}vocab_size": 7 for part in parts}, **dict.fromkeys(TOKENS), "decoder_start_token_id": None}
    if family != "encoder_decoder":
        del fewer["decoder_start_token_id"]
    _, info = cls.from_pretrained(tmp_path, **fewer, ignore_mismatched_sizes=True, output_loading_info=True)
    assert info["mismatched_keys"]
    wider = {f"{part}hidden_size": 48 for part in parts}
    if family == "encoder_decoder":
        wider["decoder_cross_attention_hidden_size"] = 48
    with pytest.raises(ValueError, match="has none of the"):
        cls.from_pretrained(tmp_path, **wider, ignore_mismatched_sizes=True)
    with pytest.raises(RuntimeError, match="ignore_mismatched_sizes"):
        cls.from_pretrained(tmp_path, **wider)
