# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""SmolLM3: a Llama, some of whose layers have no positions."""

from typing import Any

from .family import DECODER, Family, decoder_heads
from .fields import Entry, NotExpressible, Settings, same
from .llama import ATTENTION_BIAS, HEADS, LAYER, LLAMA_FIELDS, layer_types, rope, weights


def _read_layers(config: Any) -> dict[str, Any]:
    layers = config.no_rope_layers[: config.num_hidden_layers]
    if not any(layers):
        raise NotExpressible("no_rope_layers", config.no_rope_layers, "at least one layer must have positions")
    without = {str(idx): {"position_type": "none"} for idx, turns in enumerate(layers) if not turns}
    return {"per_layer_config": without} if without else {}


def _write_layers(settings: Settings) -> dict[str, Any]:
    overrides = {int(idx): own for idx, own in (settings["per_layer_config"] or {}).items()}  # stored as "03"
    own = [overrides.get(idx, {}) for idx in range(settings["num_hidden_layers"])]
    return {"no_rope_layers": [int(layer.get("position_type") != "none") for layer in own]}


SMOLLM3 = Family(
    model_type="smollm3",
    kind=DECODER,
    fields=(
        *LLAMA_FIELDS,
        rope(),
        ATTENTION_BIAS,
        same("mlp_bias"),
        layer_types("use_sliding_window"),
        Entry(("no_rope_layers", "no_rope_layer_interval"), ("per_layer_config",), _read_layers, _write_layers),
    ),
    weights=weights(LAYER),
    heads=decoder_heads("SmolLM3", *HEADS, qa_prefix="transformer"),
)

FAMILIES = (SMOLLM3,)
