# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Registers the classes with the Auto classes and in the tables of transformers and PEFT."""

import importlib
import importlib.util
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import transformers
from transformers import AutoConfig
from transformers.models.auto import modeling_auto

from . import backends
from .models.configuration_base import TxConfigMixin
from .models.configuration_decoder import TxDecoderConfig
from .models.configuration_encoder import TxEncoderConfig
from .models.configuration_encoder_decoder import TxEncoderDecoderConfig
from .models.plugin_loading import AFTER_LOAD
from .models.registries import REGISTRIES

CONFIGS: tuple[type[TxConfigMixin], ...] = (TxEncoderConfig, TxDecoderConfig, TxEncoderDecoderConfig)


def classes_of(config: type[TxConfigMixin]) -> dict[str, type]:
    """Return the classes of a family by the Auto class that loads them; the table is the config's `full_auto_map`."""
    found = {}
    for auto, reference in config.full_auto_map.items():
        module, name = reference.split(".")
        found[auto] = getattr(importlib.import_module(f".models.{module}", __package__), name)
    return found


def register() -> None:
    """Register the backends and all families: `AutoModelFor*.from_pretrained` then needs no `trust_remote_code`."""
    backends.register()
    for config in CONFIGS:
        AutoConfig.register(config.model_type, config)  # type: ignore[attr-defined]
        for auto, cls in classes_of(config).items():
            if auto != "AutoConfig":
                getattr(transformers, auto).register(config, cls)
    # Label smoothing in Trainer shifts the labels of the classes that are named here.
    modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES["hf_tx_decoder"] = "TxDecoderForCausalLM"
    AFTER_LOAD.append(_refill_peft_tables)
    if "peft.utils.constants" in sys.modules:
        _refill_peft_tables()
    else:
        sys.meta_path.insert(0, _PeftWatcher())


def fill_peft_tables(constants: ModuleType) -> None:
    """Set the default target modules of PEFT: those of a Llama, and the projections that parts declare as
    `adapter_targets`.

    Args:
        constants: the module `peft.utils.constants`.
    """
    ours = {"input_layernorm": "mixer_norm", "post_attention_layernorm": "mlp_norm", "norm": "norm"}
    norms, of_plugins = set(ours.values()), dict[str, str]()
    for registry in REGISTRIES:
        for name in registry:
            declared = dict.fromkeys(registry.get(name).adapter_targets)
            (of_plugins if "/" in name else ours).update({target: target for target in declared})
    for name, table in vars(constants).items():
        if not name.startswith("TRANSFORMERS_MODELS_TO_") or not isinstance(table, dict):
            continue
        targets = [ours[target] for target in table.get("llama") or () if target in ours]
        if "TARGET_MODULES" in name and not norms.issuperset(targets):
            targets += of_plugins.keys() - ours.keys()
        for config in CONFIGS if targets else ():
            known = table.setdefault(config.model_type, [])
            known += [target for target in targets if target not in known]


def _refill_peft_tables() -> None:
    if "peft.utils.constants" in sys.modules:
        fill_peft_tables(sys.modules["peft.utils.constants"])


class _PeftWatcher(MetaPathFinder):
    """Fills the tables of PEFT when it is imported, so that `import hf_tx` does not import it."""

    def find_spec(self, fullname: str, path: Any, target: ModuleType | None = None) -> ModuleSpec | None:
        if fullname != "peft.utils.constants":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module

            def run_and_fill(module: ModuleType) -> None:
                run(module)
                fill_peft_tables(module)

            spec.loader.exec_module = run_and_fill  # type: ignore[method-assign]
        return spec
