# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""GPT-J."""

import math
from typing import Any

from .family import DECODER, Family, decoder_heads
from .fields import Settings, always, computed, same
from .gpt2 import N_INNER, NAMES
from .weights import layers, rule


def _read_rope(config: Any) -> dict[str, Any]:
    size = config.n_embd // config.n_head
    share = config.rotary_dim / size
    if int(size * share) < config.rotary_dim:
        share = math.nextafter(share, 2)
    return {"rope_type": "default", "rope_theta": 10_000.0, "partial_rotary_factor": share}


def _write_rope(settings: Settings) -> int:
    return int(settings["head_dim"] * (settings["rope_parameters"] or {}).get("partial_rotary_factor", 1.0))


GPTJ = Family(
    model_type="gptj",
    kind=DECODER,
    fields=(
        same("vocab_size"),
        NAMES,
        N_INNER,
        computed("rotary_dim", "rope_parameters", _read_rope, _write_rope),
        always(norm_type="layernorm", parallel_residual=True, parallel_shared_norm=True, ffn_type="mlp"),
        always(mlp_bias=True, rope_interleaved=True, lm_head_bias=True),
    ),
    weights=(
        rule("wte", "embed_tokens"),
        *layers(
            "h",
            "layers",
            **{f"mixer__{part}_proj": f"attn.{part}_proj" for part in "qkv"},
            mixer__o_proj="attn.out_proj",
            mlp__up_proj="mlp.fc_in",
            mlp__down_proj="mlp.fc_out",
            mixer_norm="ln_1",
        ),
        rule("ln_f", "norm"),
    ),
    heads=decoder_heads("GPTJ", "ForSequenceClassification", "ForQuestionAnswering", prefix="transformer"),
)

FAMILIES = (GPTJ,)
