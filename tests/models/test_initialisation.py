# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""What a checkpoint does not hold has its initial value after a load, or the model is refused when it is built."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_hub.errors import StrictDataclassError
from tiny_models import FAMILIES, build, config_of, tokens
from torch import nn
from transformers import initialization as init

import hf_tx
from hf_tx.conformance.tools import meta_tensors, registered
from hf_tx.models.feed_forwards import FEED_FORWARDS, FeedForward
from hf_tx.models.norms import NORMS, DyT, Norm
from hf_tx.models.registries import REGISTRIES


class Scale(nn.Module):
    """A norm with a parameter and a buffer of its own that nothing sets."""

    def __init__(self, config: Any, size: int) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.ones(size))
        self.register_buffer("shift", torch.zeros(size), persistent=False)

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        return self.alpha * hidden_states + self.shift


class HalfSet(Scale):
    def init_parameters(self) -> None:
        init.ones_(self.alpha)


class Replaced(HalfSet):
    """Its initialiser sets a buffer past what transformers sees, so that it would overwrite what a checkpoint has."""

    def init_parameters(self) -> None:
        super().init_parameters()
        self.shift.data.zero_()


class Set(HalfSet):
    def init_parameters(self) -> None:
        super().init_parameters()
        init.zeros_(self.shift)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    ("norm", "unset"), [(Scale, "alpha, shift"), (HalfSet, "shift"), (Replaced, "shift")], ids=lambda each: str(each)
)
def test_what_nothing_sets_is_refused(family: str, norm: type, unset: str, tmp_path: Path) -> None:
    model = build(family, norm_type="rmsnorm")
    model.save_pretrained(tmp_path)
    with registered(NORMS, "mine", Norm(norm)):
        message = rf"{unset} of .*layers\.0\.mixer_norm \({norm.__name__}\) is not initialized, .* init_parameters\(\)"
        with pytest.raises(ValueError, match=message):
            build(family, norm_type="mine")
        changes = {"norm_type": "mine"}
        if family == "encoder_decoder":
            changes = {f"{stack}_norm_type": "mine" for stack in ("encoder", "decoder")}
        with pytest.raises(ValueError, match=message):
            type(model).from_pretrained(tmp_path, **changes)


def test_what_is_set_is_right_after_a_load(tmp_path: Path) -> None:
    build("decoder").save_pretrained(tmp_path)
    with registered(NORMS, "mine", Norm(Set)):
        model = hf_tx.TxDecoderModel.from_pretrained(tmp_path, norm_type="mine")
    for module in model.modules():
        if isinstance(module, Set):
            assert bool((module.alpha == 1).all())
            assert bool((module.shift == 0).all())
    assert not meta_tensors(model)


@pytest.mark.parametrize("kind", [nn.GRU, nn.RNN, nn.LSTM, nn.PReLU, nn.Conv1d, nn.BatchNorm1d, nn.MultiheadAttention])
def test_layers_of_torch_need_no_initialiser(kind: Any) -> None:
    """Those that transformers draws, and those that draw themselves; also where a load has switched torch off."""

    class Layer(nn.Module):
        def __init__(self, config: Any) -> None:
            super().__init__()
            sizes = {nn.PReLU: (1,), nn.BatchNorm1d: (4,), nn.Conv1d: (4, 4, 1)}
            self.layer = kind(*sizes.get(kind, (4, 4)))

        def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
            return hidden_states

    with registered(FEED_FORWARDS, "mine", FeedForward(Layer)):
        config = config_of("decoder", ffn_type="mine")
        state = {name: value for name, value in build("decoder").state_dict().items() if ".mlp." not in name}
        for model in (
            hf_tx.TxDecoderModel(config),
            hf_tx.TxDecoderModel.from_pretrained(None, config=config, state_dict=state),
        ):
            for name, value in model.layers[0].mlp.state_dict().items():
                assert bool(torch.isfinite(value).all()), name
                assert float(value.float().abs().max()) < 2, name


def test_a_layer_of_torch_that_nobody_draws_is_refused() -> None:
    class Layer(nn.Module):
        def __init__(self, config: Any) -> None:
            super().__init__()
            self.layer = nn.Bilinear(2, 2, 2)

    message = r"weight, bias of layers\.0\.mlp\.layer \(Bilinear\) is not initialized"
    with registered(FEED_FORWARDS, "mine", FeedForward(Layer)), pytest.raises(ValueError, match=message):
        build("decoder", ffn_type="mine")


def test_the_search_draws_no_random_numbers() -> None:
    """Equal seeds give equal weights, whether a kind of module has been seen before or not."""
    from hf_tx.models import initialisation

    drawn = []
    for _ in range(2):
        torch.manual_seed(0)
        drawn.append(hf_tx.TxDecoderModel(config_of("decoder", mixers="gated_delta,lstm")).state_dict())
        initialisation._KNOWN.clear()
    assert all(torch.equal(value, drawn[1][name]) for name, value in drawn[0].items())


# ----------------------------------------------------------------------------------------------------------------- dyt
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("alpha", [None, 0.8])
def test_dyt_over_a_checkpoint_with_rmsnorm(family: str, alpha: float | None, tmp_path: Path) -> None:
    """A warm start: weights are those of the checkpoint, and what it lacks starts where a new model does."""
    changes: dict[str, Any] = {"norm_type": "dyt", **({"norm_options": {"dyt": {"alpha": alpha}}} if alpha else {})}
    model = build(family, norm_type="rmsnorm", mixers="full,gated_delta")
    model.save_pretrained(tmp_path)
    new = type(model)(config_of(family, **changes))
    if family == "encoder_decoder":
        changes = {f"{s}_{name}": value for name, value in changes.items() for s in ("encoder", "decoder")}
    loaded = type(model).from_pretrained(tmp_path, **changes)
    state = model.state_dict()
    for made in (new, loaded):
        norms = {name: module for name, module in made.named_modules() if isinstance(module, DyT)}
        assert len(norms) >= 5
        for name, norm in norms.items():
            assert norm.alpha.item() == pytest.approx(alpha or 0.5)
            assert bool((norm.bias == 0).all())
            assert torch.equal(
                norm.weight, state[f"{name}.weight"] if made is loaded else torch.ones_like(norm.weight)
            )
    loaded.save_pretrained(tmp_path / "again")
    again = type(model).from_pretrained(tmp_path / "again")
    assert again.config == loaded.config
    assert all(torch.equal(value, again.state_dict()[name]) for name, value in loaded.state_dict().items())


def test_options_go_with_the_part_that_has_them(tmp_path: Path) -> None:
    config = config_of("decoder", norm_type="dyt", norm_options={"dyt": {"alpha": 0.8}})
    stored = config.to_dict()
    assert type(config).from_dict(stored, norm_type="rmsnorm").norm_options is None
    assert type(config).from_dict(stored, mixers="retention").norm_options == {"dyt": {"alpha": 0.8}}


BAD_OPTIONS = [
    (dict(norm_options={"dyt": {}}), "norm_options = 'dyt': is used by no layer; the layers have 'rmsnorm'"),
    (dict(norm_options={"rmsnorm": {"eps": 1}}), "norm_options = 'rmsnorm': has no options"),
    (
        dict(norm_type="dyt", norm_options={"dyt": {"alfa": 1}}),
        "norm_options['dyt'] = 'alfa': is unknown. Did you mean",
    ),
    (dict(norm_type="dyt", norm_options={"dyt": {"alpha": 0}}), "alpha = 0: must be a finite number above 0"),
    (dict(ffn_options={"mlp": {}}), "ffn_options = 'mlp': is used by no layer; the layers have 'glu'"),
    (dict(position_options={"alibi": {}}), "position_options = 'alibi': is used by no layer; the layers have 'rope'"),
    (dict(norm_type="dyt", norm_unit_offset=True), "norm_unit_offset = True: needs norm_type = 'rmsnorm', not 'dyt'"),
    (dict(norm_type="dyt", norm_affine=False), "norm_affine = False: needs norm_bias = False with norm_type = 'dyt'"),
    (
        dict(norm_type="dyt", qk_norm=True, qk_norm_scope="heads"),
        "needs norm_type = 'layernorm' or 'rmsnorm', not 'dyt'",
    ),
]


@pytest.mark.parametrize(("settings", "message"), BAD_OPTIONS, ids=[message for _, message in BAD_OPTIONS])
def test_options_that_break_a_rule(settings: dict[str, Any], message: str) -> None:
    refused = pytest.raises((ValueError, StrictDataclassError), match=re.escape(message))
    with refused:
        config_of("decoder", **settings)
    stored = {**config_of("decoder").to_dict(), **settings}
    with refused:
        hf_tx.TxDecoderConfig.from_dict(stored)


def test_every_kind_of_part_has_checked_options() -> None:
    """In the config that has such parts, as the field beside that of their names."""
    fields = set(hf_tx.TxDecoderConfig._field_names())
    for registry in REGISTRIES:
        assert registry.options_field in fields
        assert registry in hf_tx.TxDecoderConfig.registries


def test_dyt_trains() -> None:
    model = build("decoder", head="lm", norm_type="dyt", qk_norm=True).train()
    loss = model(tokens(2, 9), labels=tokens(2, 9)).loss
    loss.backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert bool(parameter.grad.abs().sum() > 0), name
