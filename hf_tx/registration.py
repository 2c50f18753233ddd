# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Makes the classes known to the Auto classes, and to the tables by which the library and peft look classes up."""

import importlib
import sys

import transformers
from transformers import AutoConfig
from transformers.models.auto import modeling_auto

from .models.configuration_base import TxConfigMixin
from .models.configuration_decoder import TxDecoderConfig
from .models.configuration_encoder import TxEncoderConfig
from .models.configuration_encoder_decoder import TxEncoderDecoderConfig

CONFIGS: tuple[type[TxConfigMixin], ...] = (TxEncoderConfig, TxDecoderConfig, TxEncoderDecoderConfig)


def classes_of(config: type[TxConfigMixin]) -> dict[str, type]:
    """Return the classes of a family by the Auto class that loads them; the table is the config's `full_auto_map`."""
    found = {}
    for auto, reference in config.full_auto_map.items():
        module, name = reference.split(".")
        found[auto] = getattr(importlib.import_module(f".models.{module}", __package__), name)
    return found


def register() -> None:
    """Register all families, so that `AutoModelFor*.from_pretrained` needs no trust flag."""
    for config in CONFIGS:
        AutoConfig.register(config.model_type, config)  # type: ignore[attr-defined]
        for auto, cls in classes_of(config).items():
            if auto != "AutoConfig":
                getattr(transformers, auto).register(config, cls)
    # Label smoothing in Trainer shifts the labels of the classes that are named here.
    modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES["hf_tx_decoder"] = "TxDecoderForCausalLM"
    if "peft" in sys.modules:
        register_with_peft()


def register_with_peft() -> None:
    """Tell peft which projections its adapters replace by default. Called when peft is imported first; call it
    yourself when peft is imported later.
    """
    constants = importlib.import_module("peft.utils.constants")
    for config in CONFIGS:
        kind: str = config.model_type  # type: ignore[attr-defined]
        constants.TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING[kind] = ["q_proj", "v_proj"]
        constants.TRANSFORMERS_MODELS_TO_IA3_TARGET_MODULES_MAPPING[kind] = ["k_proj", "v_proj", "down_proj"]
        constants.TRANSFORMERS_MODELS_TO_IA3_FEEDFORWARD_MODULES_MAPPING[kind] = ["down_proj"]
