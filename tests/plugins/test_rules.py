# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""What a plug-in may do, what is said when it does something else, and that nobody but it is concerned."""

import re
import sys
import threading
from importlib.metadata import entry_points
from types import ModuleType
from typing import Any

import pytest
import torch
from huggingface_hub.errors import StrictDataclassError
from remote_code import Heard
from tiny_models import FAMILIES, build, config_of, tokens
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.modeling_utils import AttentionInterface

from hf_tx.models import plugin_loading
from hf_tx.models.backend_rules import BACKENDS
from hf_tx.models.mixers import MIXERS
from hf_tx.models.plugin_api import REGISTRIES
from hf_tx.plugins import load_plugin
from hf_tx.registration import fill_peft_tables

SHIFT = 'api.mixer("acme/shift", Shift, state="recurrent", reference=plain)'
FAST = 'api.backend("acme_fast", attention=fast, mask=fast_mask)'
ORIGIN = re.escape("acme-tx 1.2 (plugin_acme_tx:register)")
SMALL = dict(vocab_size=61, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24)
EVERYTHING = """
from transformers import initialization as init

class Scale(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.norm = nn.Parameter(torch.full((size,), 1.5))
    def init_parameters(self):
        init.constant_(self.norm, 1.5)
    def forward(self, hidden_states):
        return hidden_states * self.norm

class Spiral(api.PositionScheme):
    has_bias = True
    def __init__(self, config):
        super().__init__(config)
        self.heads = config.num_attention_heads
    def bias(self, distance, is_causal, dtype):
        return distance.cos().to(dtype).expand(1, self.heads, -1, -1)

class Doubled(api.Attention):
    def forward(self, hidden_states, **kwargs):
        mixed, weights = super().forward(2 * hidden_states, **kwargs)
        return mixed, weights

api.mixer("acme/doubled", Doubled, state="kv", reference=lambda mixer, hidden_states, **kwargs: None)
api.mixer("acme/near", Doubled, state="window kv", reference=lambda mixer, hidden_states, **kwargs: None)
api.position("acme/spiral", Spiral, reference={"bias": lambda config, scheme, head, distance, is_causal: 0.0})
api.norm("acme/scale", lambda config, size: Scale(size), reference=plain)
api.feed_forward("acme/narrow", lambda config: nn.Linear(config.hidden_size, config.hidden_size), reference=plain)
"""


def known() -> list[Any]:
    return [list(registry) for registry in REGISTRIES] + [list(BACKENDS)]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Records every search for plug-ins."""
    calls: list[Any] = []

    def recorded(**selected: str) -> Any:
        calls.append(selected)
        return entry_points(**selected)

    monkeypatch.setattr(plugin_loading, "entry_points", recorded)
    return calls


def test_only_a_name_with_a_prefix_is_searched_for(install: Any, asked: list[Any]) -> None:
    module = install(SHIFT)
    build("decoder", mixers="sliding,full").set_attn_implementation("sdpa")
    with pytest.raises(ValueError, match="Did you mean 'full'"):
        config_of("decoder", mixers="fll")
    assert not asked
    assert module not in sys.modules
    config_of("decoder", mixers="acme/shift")
    assert asked == [{"group": "hf_tx.plugins", "name": "acme"}]
    config_of("decoder", mixers="acme/shift")
    assert len(asked) == 1, "what is known is not searched for"


def test_built_in_names_have_no_prefix() -> None:
    assert not [name for registry in REGISTRIES for name in registry._entries if "/" in name]


@pytest.mark.parametrize("family", FAMILIES)
def test_everything_that_can_be_registered(install: Any, family: str) -> None:
    install(f"{EVERYTHING}\n{FAST}")
    settings: dict[str, Any] = dict(
        mixers=["acme/doubled", "acme/near"],
        sliding_window=4,
        position_type="acme/spiral",
        norm_type="acme/scale",
        ffn_type="acme/narrow",
    )
    model = build(family, "sdpa", head="lm", **settings)
    stack = getattr(model.model, "decoder", model.model)
    assert type(stack.layers[0].mixer).__name__ == "Doubled"
    assert abs(stack.layers[1].mixer_norm.norm.mean() - 1.5) < 0.3
    assert isinstance(stack.layers[0].mlp, torch.nn.Linear)
    assert "acme/spiral" in stack.positions
    assert stack.config.layer_types == ["full_attention", "sliding_attention"]
    plain = build(family, "sdpa", head="lm", **{**settings, "position_type": "none"})
    inputs = dict(input_ids=tokens(2, 9))
    if family == "encoder_decoder":
        inputs["decoder_input_ids"] = tokens(2, 7)
    assert (model(**inputs).logits - plain(**inputs).logits).abs().max() > 0.1
    with pytest.raises(ValueError, match="'acme_fast' cannot compute layer 0 .*position bias"):
        build(family, "acme_fast", **settings)


@pytest.mark.parametrize(
    "settings",
    [
        dict(mixers="full,acme/doubled"),
        dict(norm_type="acme/scale"),
        dict(position_type="acme/spiral"),
        dict(per_layer_config={1: {"ffn_type": "acme/narrow"}}),
        dict(per_layer_config={1: {"position_type": "acme/spiral"}}),
    ],
    ids=str,
)
def test_a_config_records_its_plugins(install: Any, another_copy: Any, settings: Any) -> None:
    install(EVERYTHING)
    config = config_of("decoder", **settings)
    record = {"acme": {"distribution": "acme-tx", "version": "1.2"}}
    stored = config.to_dict()
    assert config.plugins == stored["plugins"] == record
    another_copy()
    again = type(config).from_dict(stored)
    assert again == config
    assert again.plugins == record


def test_a_record_follows_the_names(install: Any) -> None:
    install(SHIFT)
    config = config_of("decoder", mixers="acme/shift,full")
    config.mixers = ["full", "full"]
    assert config.to_dict()["plugins"] is None
    config.mixers = ["full", "acme/shift"]
    assert config.to_dict()["plugins"] == {"acme": {"distribution": "acme-tx", "version": "1.2"}}


def test_backends_are_not_recorded(install: Any) -> None:
    install(FAST)
    model = build("decoder", "acme_fast")
    assert model.config._attn_implementation == "acme_fast"
    assert model.config.to_dict()["plugins"] is None


# ------------------------------------------------------------------------------------------------------- broken ones
BROKEN = {
    "import": (
        "",
        dict(before="import no_such_module"),
        "importing it raises ModuleNotFoundError: No module named 'no_such",
    ),
    "import that raises": ("", dict(before="raise RuntimeError('boom')"), "importing it raises RuntimeError: boom"),
    "no such function": ("pass", dict(target="plugin_acme_tx:enrol"), "importing it raises AttributeError: .*enrol"),
    "no function named": ("pass", dict(target="not a target"), "importing it raises"),
    "api of later": (
        SHIFT,
        dict(after="register.api_version = 2"),
        "needs version 2 of the plug-in api, .* has version 1",
    ),
    "registration": (
        SHIFT + "\nraise RuntimeError('half way')",
        {},
        "its register function raises RuntimeError: half way",
    ),
    "no prefix": ('api.mixer("shift", Shift, state="recurrent", reference=plain)', {}, "must begin with 'acme/'"),
    "other prefix": (
        'api.norm("emca/norm", Shift, reference=plain)',
        {},
        "norm_type 'emca/norm': .* must begin with 'acme/'",
    ),
    "only a prefix": ('api.norm("acme/", Shift, reference=plain)', {}, "must begin with 'acme/'"),
    "backend without prefix": (FAST.replace("acme_fast", "fast"), {}, "must begin with 'acme_'"),
    "backend with a slash": (FAST.replace("acme_fast", "acme/fast"), {}, "must begin with 'acme_'"),
    "twice": (
        f"{SHIFT}\n{SHIFT}",
        {},
        f"mixer 'acme/shift' is already registered by {ORIGIN}; {ORIGIN} needs another",
    ),
    "no reference": ('api.mixer("acme/shift", Shift, state="recurrent")', {}, "'acme/shift': has no reference"),
    "no path": (SHIFT.replace("=plain", "='plain'"), {}, "reference = 'plain': must be 'module:function'"),
    "no mask": (FAST.replace(", mask=fast_mask", ""), {}, "backend 'acme_fast': has no mask function"),
    "name of transformers": (
        FAST.replace("acme_fast", "acme_flash"),
        {},
        "'acme_flash': transformers treats names with 'flash'",
    ),
    "no feature": (
        FAST.replace("mask=", "computes=['magic'], mask="),
        {},
        "computes has the unknown features \\['magic'\\]; the features are",
    ),
    "no state": (SHIFT.replace('"recurrent"', '"lstm"'), {}, "state = 'lstm': must be"),
    "causal without state": (
        'api.mixer("acme/shift", Shift, state=None, is_causal=True, reference=plain)',
        {},
        "a causal mixer needs a state",
    ),
    "pattern": (SHIFT.replace("state", "pattern=plain, state"), {}, "a pattern defines which keys"),
    "options": (SHIFT.replace("state", "options=dict, state"), {}, "options = <class 'dict'>: must be a dataclass"),
    "module": (SHIFT.replace("Shift,", "3,"), {}, "module = 3: must be callable"),
    "position": ('api.position("acme/x", Shift, reference={"bias": plain})', {}, "must be a subclass of PositionSch"),
    "a place": (
        'api.position("acme/x", api.PositionScheme, reference={"bias": 3})',
        {},
        "bias: reference = 3: must be",
    ),
    "no reference of a norm": ('api.norm("acme/norm", Shift)', {}, "norm_type 'acme/norm': has no reference"),
    "misspelt": (SHIFT.replace("state", "stat"), {}, "TypeError: .*stat"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_what_is_wrong_is_said_when_it_is_asked_for(install: Any, case: str) -> None:
    body, arguments, message = BROKEN[case]
    install(body or "pass", **arguments)
    install(SHIFT.replace("acme", "fine"), vendor="fine", distribution="fine-tx")
    before = known()
    for _ in range(2):  # it stays wrong
        with pytest.raises(ImportError, match=f"the plug-in 'acme' of acme-tx 1.2 .* cannot be used: .*{message}"):
            config_of("decoder", mixers="acme/shift")
        with pytest.raises(ImportError, match="the plug-in 'acme' of acme-tx 1.2"):
            build("decoder", "acme_fast")
        assert known() == before, "a plug-in counts as a whole or not at all"
    assert build("decoder", mixers="fine/shift,full").config.plugins == {
        "fine": {"distribution": "fine-tx", "version": "1.2"}
    }


@pytest.mark.parametrize("vendor", ["ac_me", "ac.me"])
def test_names_of_vendors(install: Any, vendor: str) -> None:
    install(SHIFT.replace("acme/", f"{vendor}/"), vendor=vendor)
    with pytest.raises(ImportError, match=f"the plug-in '{vendor}' of .* the name of its entry point must not"):
        config_of("decoder", mixers=f"{vendor}/shift")


def test_two_distributions_of_one_vendor(install: Any) -> None:
    install(SHIFT)
    install(SHIFT, distribution="emca", version="0.3")
    other = re.escape("emca 0.3 (plugin_emca:register)")
    with pytest.raises(ImportError, match=f"'acme' is claimed by {ORIGIN} and {other}; uninstall all but one"):
        config_of("decoder", mixers="acme/shift")
    assert config_of("decoder", mixers="full")


def test_a_name_that_is_taken(install: Any) -> None:
    install(SHIFT + '\napi.norm("acme/norm", Shift, reference=plain)')
    norms = next(registry for registry in REGISTRIES if registry.kind == "norm_type")
    norms.register("acme/norm", norms.get("none"), origin="a notebook")
    with pytest.raises(
        ImportError, match=f"norm_type 'acme/norm' is already registered by a notebook; {ORIGIN} needs"
    ):
        config_of("decoder", mixers="acme/shift")
    assert "acme/shift" not in REGISTRIES[0]._entries


def test_a_name_that_the_plugin_does_not_have(install: Any) -> None:
    install(SHIFT)
    with pytest.raises(
        ValueError, match=f"'acme/shifts'. Did you mean 'acme/shift'.* The plug-in 'acme' of {ORIGIN} does not"
    ):
        config_of("decoder", mixers="acme/shifts")
    with pytest.raises(
        ValueError, match="'emca/shift'.* the plug-in 'emca' is not installed. Installed plug-ins: acme"
    ):
        config_of("decoder", mixers="emca/shift")


# ------------------------------------------------------------------------------------------------------- turned off
def test_turned_off(install: Any, asked: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    module = install(SHIFT + "\n" + FAST)
    monkeypatch.setenv("HF_TX_PLUGINS", "0")
    with pytest.raises(ValueError, match="unknown mixer 'acme/shift'.* HF_TX_PLUGINS=0 turns them off"):
        config_of("decoder", mixers="acme/shift")
    with pytest.raises(ValueError, match="'acme_fast' is unknown.* HF_TX_PLUGINS=0 turns plug-ins off"):
        build("decoder", "acme_fast")
    record = {"acme": {"distribution": "acme-tx", "version": "1.2"}}
    with pytest.raises(
        ImportError,
        match="needs the plug-in 'acme'.*acme-tx 1.2; unset HF_TX_PLUGINS: HF_TX_PLUGINS=0 turns plug-ins off",
    ):
        config_of("decoder", mixers="acme/shift", plugins=record)
    assert not asked
    assert module not in sys.modules
    monkeypatch.setenv("HF_TX_PLUGINS", "1")
    assert config_of("decoder", mixers="acme/shift")


def test_a_switch_has_two_positions(install: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    install(SHIFT)
    monkeypatch.setenv("HF_TX_PLUGINS", "no")
    with pytest.raises(ValueError, match="HF_TX_PLUGINS = 'no': must be 0"):
        config_of("decoder", mixers="acme/shift")


# ---------------------------------------------------------------------------------------------------------- missing
def stored_config(plugins: Any) -> dict[str, Any]:
    stored = config_of("decoder", mixers="full,full", position_type="none").to_dict()
    return {**stored, "mixers": ["full", "acme/shift"], "layer_types": None, "plugins": plugins}


def test_a_missing_plugin_is_named_with_the_command_that_installs_it() -> None:
    stored = stored_config({"acme": {"distribution": "acme-tx", "version": "1.2"}})
    with pytest.raises(ImportError) as error:
        type(config_of("decoder")).from_dict(stored)
    assert str(error.value) == (
        "this config needs the plug-in 'acme' (for 'acme/shift'), saved with acme-tx 1.2. It is not installed: "
        "pip install acme-tx"
    )
    without = type(config_of("decoder")).from_dict(stored, mixers="full")
    assert without.plugins is None


def test_a_missing_plugin_of_an_encoder_decoder(
    install: Any, another_copy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(SHIFT)
    config = config_of("encoder_decoder", encoder=dict(mixers="acme/shift,full"))
    stored = config.to_dict()
    assert stored["encoder"]["plugins"] == {"acme": {"distribution": "acme-tx", "version": "1.2"}}
    assert stored["decoder"]["plugins"] is None
    another_copy()
    assert type(config).from_dict(stored) == config
    another_copy()
    monkeypatch.setattr(plugin_loading, "entry_points", lambda **selected: [])
    with pytest.raises(ImportError, match="needs the plug-in 'acme' .* pip install acme-tx"):
        type(config).from_dict(stored)


def test_a_record_that_is_no_name(install: Any) -> None:
    stored = stored_config({"acme": {"distribution": "x; rm", "version": "1.2"}})
    with pytest.raises(ValueError, match="'x; rm': must be the name of a distribution"):
        type(config_of("decoder")).from_dict(stored)


def test_another_distribution_has_taken_the_name(install: Any) -> None:
    install(SHIFT, distribution="emca")
    stored = stored_config({"acme": {"distribution": "acme-tx", "version": "1.2"}})
    with pytest.raises(ImportError, match="saved with acme-tx 1.2; the installed plug-in 'acme' is of emca 1.2"):
        type(config_of("decoder")).from_dict(stored)


def test_another_version_is_told(install: Any) -> None:
    install(SHIFT, distribution="acme_tx", version="1.3")
    with Heard() as messages:
        type(config_of("decoder")).from_dict(stored_config({"acme": {"distribution": "Acme-tx", "version": "1.2"}}))
    assert len(set(messages)) == 1
    assert "saved with Acme-tx 1.2; the installed version is 1.3" in messages[0]
    with Heard() as messages:
        type(config_of("decoder")).from_dict(stored_config({"acme": {"distribution": "acme-tx", "version": "1.3"}}))
    assert not messages


# --------------------------------------------------------------------------------------------------------- backends
def test_a_backend(install: Any) -> None:
    install(
        FAST.replace("mask=", "supports=lambda layer, features: 'softcap' in features and 'no caps' or None, mask=")
    )
    mask = torch.ones(2, 9, dtype=torch.long)
    mask[0, :3] = 0
    inputs = dict(input_ids=tokens(2, 9), attention_mask=mask)
    expected = build("decoder", "sdpa", head="lm")(**inputs).logits
    model = build("decoder", "acme_fast", head="lm")
    assert torch.equal(model(**inputs).logits, expected)
    switched = build("decoder", "eager", head="lm")
    switched.set_attn_implementation("acme_fast")
    assert torch.equal(switched(**inputs).logits, expected)
    with pytest.raises(ValueError, match="'acme_fast' cannot compute layer 0 .*no caps"):
        build("decoder", "acme_fast", attn_logit_softcapping=2.0)


def test_a_backend_for_models_of_the_library(install: Any) -> None:
    install(FAST)
    config = LlamaConfig(**SMALL, num_key_value_heads=1, pad_token_id=0)
    torch.manual_seed(0)
    model = LlamaForCausalLM._from_config(config, attn_implementation="sdpa").eval()
    expected = model(tokens(2, 9)).logits
    with pytest.raises(ValueError, match="acme_fast"):
        model.set_attn_implementation("acme_fast")
    assert load_plugin("acme").distribution == "acme-tx"
    model.set_attn_implementation("acme_fast")
    assert torch.equal(model(tokens(2, 9)).logits, expected)


def test_two_copies_share_the_tables_of_the_library(install: Any, another_copy: Any) -> None:
    capped = FAST.replace("mask=", "computes=['position bias'], mask=")
    install(capped)
    build("decoder", "acme_fast", position_type="alibi")
    another_copy()
    build("decoder", "acme_fast", position_type="alibi")


def test_a_backend_that_another_has_registered(install: Any, another_copy: Any) -> None:
    def other(*args: Any, **kwargs: Any) -> None: ...

    install(FAST)
    AttentionInterface.register("acme_fast", other)
    with pytest.raises(
        ImportError, match=f"'acme_fast' is already registered by .*other; {ORIGIN} needs another name"
    ):
        build("decoder", "acme_fast")


def test_threads_load_it_once(install: Any) -> None:
    install(f"import time\ntime.sleep(0.05)\nCOUNT.append(1)\n{SHIFT}", before="COUNT = []")
    errors: list[Exception] = []

    def ask() -> None:
        try:
            config_of("decoder", mixers="acme/shift")
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert sys.modules["plugin_acme_tx"].COUNT == [1]


def test_options(install: Any) -> None:
    before = """
    from dataclasses import dataclass

    @dataclass(frozen=True)
    class Options:
        size: int = 3
    """
    install(SHIFT.replace("state", "options=Options, state"), before=before)
    config = config_of("decoder", mixers="acme/shift", mixer_options={"acme/shift": {"size": 5}})
    assert MIXERS.options(config, "acme/shift").size == 5
    with pytest.raises(StrictDataclassError, match="Did you mean 'size'"):
        config_of("decoder", mixers="acme/shift", mixer_options={"acme/shift": {"sise": 5}})


def test_adapters_know_the_projections_of_a_plugin(install: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tables of peft, as far as they matter, have them as soon as the plug-in is loaded."""
    constants = ModuleType("peft.utils.constants")
    tables = {"LORA": ["q_proj", "v_proj"], "IA3": ["k_proj", "v_proj", "down_proj"], "LNTUNING": ["input_layernorm"]}
    for method, llama in tables.items():
        setattr(constants, f"TRANSFORMERS_MODELS_TO_{method}_TARGET_MODULES_MAPPING", {"llama": llama})
    monkeypatch.setitem(sys.modules, "peft.utils.constants", constants)
    fill_peft_tables(constants)

    def targets(method: str) -> list[str]:
        table = getattr(constants, f"TRANSFORMERS_MODELS_TO_{method}_TARGET_MODULES_MAPPING")
        return table["hf_tx_decoder"]

    built_in = {"LORA": ["q_proj", "v_proj"], "IA3": ["k_proj", "v_proj", "down_proj"], "LNTUNING": ["mixer_norm"]}
    assert {method: targets(method) for method in tables} == built_in
    install('api.feed_forward("acme/x", Shift, adapter_targets=("proj", "down_proj"), reference=plain)')
    load_plugin("acme")
    assert targets("LORA") == ["q_proj", "v_proj", "proj"]
    assert targets("LNTUNING") == ["mixer_norm"]
