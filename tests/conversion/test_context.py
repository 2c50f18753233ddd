# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Longer texts for a loaded model: what the config says, that checkpoints keep it, and what it is worth untrained."""

import copy
import math
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf
from huggingface_hub.errors import StrictDataclassError
from peers.decoders import CAUSAL, PARTIAL
from peers.encoders import ENCODERS
from peers.parity import build as build_theirs
from peers.parity import randomise
from peers.tables import LENGTH, STANDARD
from tiny_models import BIASES, assert_close, build, tokens
from torch import nn

import hf_tx
from hf_tx.common.packaged import SPEECHES, path_of
from hf_tx.conversion import NotExpressible

LONG = 4 * LENGTH
TEXT = tokens(2, 100)
# The rotated features of a head of eight make four frequencies.
FACTORS = dict(long_factor=[1.0, 1.5, 2.5, 4.0])
METHODS: dict[str, dict[str, Any]] = {"linear": {}, "dynamic": {}, "yarn": {}, "longrope": FACTORS, "llama3": {}}
EXPECTED = {
    "linear": dict(rope_type="linear", factor=4.0),
    "dynamic": dict(rope_type="dynamic", factor=4.0),
    "yarn": dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=LENGTH),
    "longrope": dict(
        rope_type="longrope",
        factor=4.0,
        original_max_position_embeddings=LENGTH,
        short_factor=[1.0] * 4,
        long_factor=FACTORS["long_factor"],
    ),
    "llama3": dict(
        rope_type="llama3",
        factor=4.0,
        original_max_position_embeddings=LENGTH,
        low_freq_factor=1.0,
        high_freq_factor=4.0,
    ),
}


def logits(model: Any, text: torch.Tensor = TEXT) -> torch.Tensor:
    with torch.no_grad():
        return model(text).logits


def assert_kept(model: Any, folder: Path, text: torch.Tensor = TEXT) -> None:
    """Check that the saved model computes the same."""
    model.save_pretrained(folder)
    again = type(model).from_pretrained(folder, attn_implementation=model.config._attn_implementation)
    assert again.config == model.config
    assert_close(logits(again, text), logits(model, text))


# --------------------------------------------------------------------------------------------------------------- rope
@pytest.mark.parametrize("method", METHODS)
def test_rope(method: str, tmp_path: Path) -> None:
    model = build("decoder", head="lm", max_position_embeddings=LENGTH)
    weights = dict(model.state_dict())
    before, short = logits(model), logits(model, TEXT[:, : LENGTH - 1])
    assert hf_tx.extend_context(model, LONG, method, **METHODS[method]) is model
    assert model.config.rope_parameters == {"rope_theta": 10_000.0, **EXPECTED[method]}
    assert model.config.max_position_embeddings == (LENGTH if method == "dynamic" else LONG)
    assert not torch.allclose(logits(model), before, atol=1e-3)
    if method == "dynamic":  # within the trained length it is as it was
        assert_close(logits(model, TEXT[:, : LENGTH - 1]), short)
    assert all(torch.equal(weight, weights[name]) for name, weight in model.state_dict().items())
    assert_kept(model, tmp_path)


@pytest.mark.parametrize("method", METHODS)
def test_what_was_extended_is_extended_further_as_at_once(method: str) -> None:
    at_once = build("decoder", head="lm", max_position_embeddings=LENGTH)
    twice = copy.deepcopy(at_once)
    hf_tx.extend_context(at_once, 8 * LENGTH, method, **METHODS[method])
    hf_tx.extend_context(twice, int(3.7 * LENGTH), method, **METHODS[method])
    for other in METHODS.keys() - {method}:
        with pytest.raises(ValueError, match=f"frequencies are scaled by '{method}' already"):
            hf_tx.extend_context(twice, 8 * LENGTH, other, **METHODS[other])
    hf_tx.extend_context(twice, 8 * LENGTH, **METHODS[method])
    assert twice.config.rope_parameters["factor"] == pytest.approx(8.0)
    assert twice.config.max_position_embeddings == at_once.config.max_position_embeddings
    assert_close(logits(twice), logits(at_once))


def test_it_is_what_the_library_computes_with_the_same_parameters() -> None:
    theirs = hf.LlamaForCausalLM(hf.LlamaConfig(**STANDARD)).eval()
    randomise(theirs)
    for method, parameters in METHODS.items():
        ours = hf_tx.extend_context(hf_tx.from_hf(theirs), LONG, method, **parameters)
        back = hf_tx.to_hf(ours)
        assert type(back) is hf.LlamaForCausalLM
        assert back.config.rope_parameters == ours.config.rope_parameters
        assert back.config.max_position_embeddings == ours.config.max_position_embeddings
        text = TEXT % STANDARD["vocab_size"]
        torch.testing.assert_close(logits(back, text), logits(ours, text))


def test_a_family_that_has_no_such_scaling_says_so() -> None:
    theirs = hf.Phi3ForCausalLM(hf.Phi3Config(**STANDARD))
    ours = hf_tx.extend_context(hf_tx.from_hf(theirs), LONG, "linear")
    with pytest.raises(
        NotExpressible, match="not expressible: .*rope_parameters.* the config of a phi3 does not accept it"
    ):
        hf_tx.to_hf(ours)
    assert hf_tx.to_hf(ours, "llama").config.rope_parameters["factor"] == 4.0


def test_a_part_of_a_head_that_rotates() -> None:
    theirs = hf.GPTNeoXForCausalLM(hf.GPTNeoXConfig(**STANDARD, rope_parameters=dict(PARTIAL))).eval()
    randomise(theirs)
    ours = hf_tx.extend_context(hf_tx.from_hf(theirs), LONG, "longrope", long_factor=[2.0])
    assert ours.config.rope_parameters["short_factor"] == [1.0]
    assert ours.config.rope_parameters["partial_rotary_factor"] == PARTIAL["partial_rotary_factor"]
    text = TEXT % STANDARD["vocab_size"]
    torch.testing.assert_close(logits(hf_tx.to_hf(ours), text), logits(ours, text))


def test_llama_3_goes_on_from_the_length_that_it_has() -> None:
    """Its factor is 8, and yet it was trained on 16 times the original length."""
    scaled = dict(
        rope_theta=5e5, rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
        original_max_position_embeddings=8,
    )  # fmt: skip
    model = build("decoder", head="lm", max_position_embeddings=128, rope_parameters=scaled)
    assert hf_tx.extend_context(model, 256).config.rope_parameters == scaled | dict(factor=16.0)


def test_yarn_goes_on_from_its_factor_where_the_config_says_the_original_length_only() -> None:
    """As Qwen's model cards tell to write it."""
    scaled = dict(rope_theta=1e4, rope_type="yarn", factor=4.0, original_max_position_embeddings=LENGTH)
    model = build("decoder", head="lm", max_position_embeddings=LENGTH, rope_parameters=scaled)
    with pytest.raises(
        ValueError, match=f"max_position_embeddings = {LONG}: must be larger than the current context of {LONG}"
    ):
        hf_tx.extend_context(model, LONG)
    assert hf_tx.extend_context(model, 2 * LONG).config.rope_parameters["factor"] == 8.0


def test_the_length_of_the_training_can_be_another_than_that_of_the_config() -> None:
    model = build("decoder", head="lm", max_position_embeddings=2048)
    hf_tx.extend_context(model, 512, original_max_position_embeddings=128, beta_fast=16.0)
    assert model.config.max_position_embeddings == 512
    own = model.config.rope_parameters
    assert (own["factor"], own["original_max_position_embeddings"], own["beta_fast"]) == (4.0, 128, 16.0)
    with pytest.raises(ValueError, match="original_max_position_embeddings = 64: the model is already scaled"):
        hf_tx.extend_context(model, 1024, original_max_position_embeddings=64)


def test_layers_with_windows_of_their_own_parameters_stay(tmp_path: Path) -> None:
    nested = {
        "full_attention": dict(rope_theta=1e6, rope_type="default"),
        "sliding_attention": dict(rope_theta=1e4, rope_type="default"),
    }
    model = build("decoder", head="lm", mixers="sliding,full", max_position_embeddings=LENGTH, rope_parameters=nested)
    hf_tx.extend_context(model, LONG, "linear")
    assert model.config.rope_parameters["sliding_attention"] == nested["sliding_attention"]
    assert model.config.rope_parameters["full_attention"] == dict(rope_theta=1e6, rope_type="linear", factor=4.0)
    assert_kept(model, tmp_path)


@pytest.mark.parametrize("mixer", ["sliding", "chunked", "dilated"])
def test_where_all_layers_have_windows_there_is_nothing_to_scale(mixer: str) -> None:
    model = build("decoder", head="lm", mixers=mixer, max_position_embeddings=LENGTH)
    before = logits(model)
    with pytest.raises(
        ValueError, match="method = 'yarn': there is nothing to scale, because no layer with rotary positions"
    ):
        hf_tx.extend_context(model, LONG, "yarn")
    assert hf_tx.extend_context(model, LONG).config.max_position_embeddings == LONG
    assert_close(logits(model), before)


@pytest.mark.parametrize("mixers", ["global_local", "sliding,full", "gated_delta,full"])
def test_one_set_of_parameters_is_scaled_where_one_layer_sees_further(mixers: str, tmp_path: Path) -> None:
    model = build("decoder", head="lm", mixers=mixers, max_position_embeddings=LENGTH)
    assert hf_tx.extend_context(model, LONG).config.rope_parameters["rope_type"] == "yarn"
    assert_kept(model, tmp_path)


def test_layers_without_positions_stay(tmp_path: Path) -> None:
    theirs = hf.SmolLM3ForCausalLM(hf.SmolLM3Config(**STANDARD, no_rope_layers=[1, 0, 1])).eval()
    randomise(theirs)
    ours = hf_tx.extend_context(hf_tx.from_hf(theirs), LONG)
    assert ours.config.layer_positions == ["rope", "none", "rope"]
    text = TEXT % STANDARD["vocab_size"]
    assert_kept(ours, tmp_path, text)
    torch.testing.assert_close(logits(hf_tx.to_hf(ours), text), logits(ours, text))


def test_a_model_in_half_precision_keeps_exact_frequencies() -> None:
    model = hf_tx.extend_context(build("decoder", dtype=torch.bfloat16), LONG)
    [rotary] = model.positions["rope"].rotary_emb.values()
    assert rotary.inv_freq.dtype == torch.float32


def test_both_stacks_of_an_encoder_decoder_or_one(tmp_path: Path) -> None:
    model = build("encoder_decoder", head="lm", max_position_embeddings=LENGTH)
    hf_tx.extend_context(model.get_encoder(), LONG, "linear")
    assert [stack.max_position_embeddings for stack in model.config.stacks] == [LONG, LENGTH]
    assert model.config.decoder.rope_parameters["rope_type"] == "default"
    hf_tx.extend_context(model, LONG, "yarn")  # the one that is shorter
    assert [stack.rope_parameters["rope_type"] for stack in model.config.stacks] == ["linear", "yarn"]
    model.save_pretrained(tmp_path)
    again = type(model).from_pretrained(tmp_path, attn_implementation="eager")
    assert_close(again(TEXT, labels=TEXT).logits, model(TEXT, labels=TEXT).logits)


def test_generation_goes_past_the_old_length() -> None:
    model = hf_tx.extend_context(build("decoder", head="lm", max_position_embeddings=16), 64)
    text = TEXT[:, :14]
    cached, plain = (
        model.generate(text, max_new_tokens=20, do_sample=False, use_cache=use, eos_token_id=None)
        for use in (True, False)
    )
    assert torch.equal(cached, plain)
    assert cached.shape == (2, 34)


# ----------------------------------------------------------------------------------------------------- other positions
@pytest.mark.parametrize("offset", [0, 2])
def test_learned_positions_are_interpolated(offset: int, tmp_path: Path) -> None:
    model = build("decoder", head="lm", position_type="learned", max_position_embeddings=9, position_offset=offset)
    old = model.model.positions["learned"].embed_positions.weight
    assert hf_tx.extend_context(model, 17) is model
    new = model.model.positions["learned"].embed_positions.weight
    assert new.shape == (17 + offset, old.shape[1])
    assert new.requires_grad
    assert torch.equal(new[:offset], old[:offset])
    assert_close(new[offset::2], old[offset:])  # every second one is an old one, since 16 steps stand for 8
    assert_close(new[offset + 1 :: 2], (old[offset:-1] + old[offset + 1 :]) / 2)
    assert_kept(model, tmp_path, TEXT[:, :17])
    with pytest.raises(ValueError, match="position 17 is beyond the table"):
        model(TEXT[:, :18])


@pytest.mark.parametrize(
    ("peer", "offset"), [(CAUSAL["opt"], 0), (ENCODERS["mpnet_masked_lm"], 2)], ids=["opt", "mpnet"]
)
def test_a_longer_table_goes_back_to_the_library(peer: Any, offset: int, tmp_path: Path) -> None:
    """Also that of MPNet, which has biases of distances as well: these stay."""
    ours = hf_tx.from_hf(build_theirs(peer))
    assert hf_tx.extend_context(ours, 128).config.max_position_embeddings == 128
    text = 3 + TEXT % 56  # more than the 64 positions of the source
    assert_kept(ours, tmp_path, text)
    back = hf_tx.to_hf(ours)
    assert back.config.max_position_embeddings == 128 + offset
    torch.testing.assert_close(logits(back, text), logits(ours, text))


def test_learned_positions_of_which_some_were_never_trained() -> None:
    model = build("decoder", head="lm", position_type="learned", max_position_embeddings=32)
    old = model.model.positions["learned"].embed_positions.weight
    hf_tx.extend_context(model, 15, original_max_position_embeddings=8)
    new = model.model.positions["learned"].embed_positions.weight
    assert_close(new[::2], old[:8])
    with pytest.raises(
        ValueError, match="embeddings = 20: must be at most the size of the table of learned positions, 15"
    ):
        hf_tx.extend_context(model, 40, original_max_position_embeddings=20)


@pytest.mark.parametrize("position_type", ["none", *BIASES])
def test_what_has_no_length_keeps_its_function(position_type: str, tmp_path: Path) -> None:
    model = build("decoder", head="lm", position_type=position_type, max_position_embeddings=LENGTH)
    before = logits(model)
    with pytest.raises(ValueError, match="method = 'linear': there is nothing to scale"):
        hf_tx.extend_context(model, LONG, "linear")
    hf_tx.extend_context(model, LONG)
    assert model.config.max_position_embeddings == LONG
    assert_close(logits(model), before)
    assert_kept(model, tmp_path)


def test_sinusoids_are_told_of(monkeypatch: Any) -> None:
    said: list[str] = []
    monkeypatch.setattr(hf_tx.conversion.context.logger, "warning", said.append)
    hf_tx.extend_context(build("decoder", position_type="sinusoidal", max_position_embeddings=64), 256)
    assert said == [
        "position_type = 'sinusoidal': the model was not trained on positions 64 to 255, and sinusoids cannot "
        "be scaled; train it on longer texts."
    ]


# ----------------------------------------------------------------------------------------------------------- refusals
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((LENGTH,), f"max_position_embeddings = {LENGTH}: must be larger than the current context of {LENGTH}"),
        ((None,), "max_position_embeddings = None: must be an integer"),
        ((0,), "max_position_embeddings = 0: must be an integer of at least 1"),
        ((256.0,), "max_position_embeddings = 256.0: must be an integer"),
        ((True,), "max_position_embeddings = True: must be an integer"),
        ((LONG, "yarnn"), "method = 'yarnn' is unknown. Did you mean 'yarn'"),
        ((LONG, "longrope"), "'longrope' needs long_factor, a list with one factor for each of the 4 frequencies"),
        (
            (LONG, "yarn", dict(low_freq_factor=1.0)),
            "low_freq_factor is not a parameter of 'yarn'. Known: attention_f",
        ),
        ((LONG, "yarn", dict(beta_fst=1.0)), "beta_fst is not a parameter of 'yarn'. Did you mean 'beta_fast'"),
        ((LONG, "linear", dict(factor=2.0)), "factor is not a parameter of 'linear'. Known: there are none"),
        ((LONG, None, dict(original_max_position_embeddings=-1)), "original_max_position_embeddings = -1: must be"),
        ((LONG, None, dict(original_max_position_embeddings=0)), "original_max_position_embeddings = 0: must be"),
    ],
)
def test_refusals(arguments: Any, message: str) -> None:
    model = build("decoder", head="lm", max_position_embeddings=LENGTH)
    before = model.config.to_dict()
    *positional, named = (*arguments, {}) if not isinstance(arguments[-1], dict) else arguments
    with pytest.raises(ValueError, match=message):
        hf_tx.extend_context(model, *positional, **named)
    assert model.config.to_dict() == before


def test_a_refused_parameter_changes_nothing() -> None:
    model = build("encoder_decoder", head="lm", max_position_embeddings=LENGTH)
    before, rotary = model.config.to_dict(), model.get_encoder().positions["rope"]
    for parameters in (dict(long_factor=[1.0]), dict(long_factor=3)):
        with pytest.raises(StrictDataclassError, match="must be a list of 4 factors above 0, one per frequency"):
            hf_tx.extend_context(model, LONG, "longrope", **parameters)
    assert model.config.to_dict() == before
    assert model.get_encoder().positions["rope"] is rotary


def test_models_of_others() -> None:
    with pytest.raises(
        ValueError, match="model is a LlamaForCausalLM, not a model of hf_tx: convert it with hf_tx.from_hf"
    ):
        hf_tx.extend_context(hf.LlamaForCausalLM(hf.LlamaConfig(**STANDARD)), LONG)


# ------------------------------------------------------------------------------------------ what it is worth untrained
TRAINED, EVALUATED = 32, 128
CORPUS = path_of(SPEECHES)


@pytest.fixture(scope="module")
def characters() -> tuple[torch.Tensor, int]:
    if not CORPUS.exists():
        pytest.skip(f"{CORPUS.name} is part of the repository, not of the package")
    text = CORPUS.read_text("utf-8")[-400_000:]
    known = sorted(set(text))
    return torch.tensor([known.index(letter) for letter in text]), len(known)


def trained(characters: tuple[torch.Tensor, int], steps: int, **settings: Any) -> Any:
    """Train a language model of characters on texts of 32."""
    data, size = characters
    torch.manual_seed(0)
    config = hf_tx.TxDecoderConfig(
        vocab_size=size,
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=128,
        max_position_embeddings=TRAINED,
        **settings,
    )
    model = hf_tx.TxDecoderForCausalLM(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 5e-3, total_steps=steps)
    for _ in range(steps):
        start = torch.randint(0, len(data) - 30_000 - TRAINED, (32, 1))
        batch = data[start + torch.arange(TRAINED)]
        model(batch, labels=batch).loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    return model.eval()


def perplexity(model: Any, characters: tuple[torch.Tensor, int]) -> float:
    """Of what stands beyond the trained length, in held-out texts of four times that length."""
    rows = characters[0][-20 * EVALUATED :].view(20, EVALUATED)
    predicted, targets = logits(model, rows)[:, TRAINED - 1 : -1], rows[:, TRAINED:]
    return math.exp(nn.functional.cross_entropy(predicted.transpose(1, 2), targets))


@pytest.fixture(scope="module")
def rotating(characters: tuple[torch.Tensor, int]) -> tuple[Any, float]:
    model = trained(characters, 300)
    return model, perplexity(model, characters)


# The factors of NTK-aware scaling: none for the highest frequency, all of it for the lowest.
NTK = [4.0 ** (2 * idx / (16 - 2)) for idx in range(8)]


@pytest.mark.parametrize("method", ["dynamic", "yarn", "llama3", "longrope"])
def test_beyond_the_trained_length_scaling_is_better_than_none(
    method: str, rotating: tuple[Any, float], characters: tuple[torch.Tensor, int]
) -> None:
    model, unscaled = rotating
    parameters = dict(long_factor=NTK) if method == "longrope" else {}
    scaled = hf_tx.extend_context(copy.deepcopy(model), EVALUATED, method, **parameters)
    assert perplexity(scaled, characters) < 0.98 * unscaled


def test_dividing_all_positions_wants_training(
    rotating: tuple[Any, float], characters: tuple[torch.Tensor, int]
) -> None:
    """Linear scaling squeezes neighbours together, which the model does not know: it is worse until it is trained."""
    model, unscaled = rotating
    assert perplexity(hf_tx.extend_context(copy.deepcopy(model), EVALUATED, "linear"), characters) > unscaled


@pytest.mark.slow
def test_beyond_the_trained_length_interpolated_positions_are_better_than_new_ones(
    characters: tuple[torch.Tensor, int],
) -> None:
    model = trained(characters, 200, position_type="learned")
    interpolated = hf_tx.extend_context(copy.deepcopy(model), EVALUATED)
    drawn = hf_tx.extend_context(copy.deepcopy(model), EVALUATED)
    with torch.no_grad():
        table = model.model.positions["learned"].embed_positions.weight
        new = drawn.model.positions["learned"].embed_positions.weight
        new.normal_(0.0, table.std().item())
        new[:TRAINED] = table
    assert perplexity(interpolated, characters) < 0.97 * perplexity(drawn, characters)
