# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""StableLM."""

from .family import CLASSIFIER_DROPOUT, DECODER, Family, decoder_heads
from .fields import Entry, always, renamed, same
from .llama import DERIVED_HEAD_DIM, LAYER, SIZES, norms_of_heads, rope, weights

STABLELM = Family(
    model_type="stablelm",
    kind=DECODER,
    fields=(
        *SIZES,
        DERIVED_HEAD_DIM,
        CLASSIFIER_DROPOUT,
        same("hidden_act", "attention_dropout", "hidden_dropout"),
        renamed(layer_norm_eps="norm_eps", use_qkv_bias="attention_bias"),
        rope(partial=True),
        Entry(
            ("use_parallel_residual",),
            ("parallel_residual", "parallel_shared_norm"),
            lambda config: dict.fromkeys(("parallel_residual", "parallel_shared_norm"), config.use_parallel_residual),
            lambda settings: {"use_parallel_residual": settings["parallel_residual"]},
        ),
        norms_of_heads("qk_layernorm"),
        always(embedding_dropout=0.0, norm_type="layernorm", attention_out_bias=False),
    ),
    weights=weights(
        LAYER | {f"mixer__{part}_norm": f"self_attn.{part}_layernorm.norms.#" for part in "qk"},
    ),
    heads=decoder_heads("StableLm", "ForSequenceClassification", "ForTokenClassification"),
)

FAMILIES = (STABLELM,)
