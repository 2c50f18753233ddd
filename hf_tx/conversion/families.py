# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""All families, by their model type in transformers."""

from typing import Any

from . import (
    bart,
    bert,
    blenderbot,
    bloom,
    cohere,
    distilbert,
    electra,
    eurobert,
    gemma,
    gpt2,
    gpt_neox,
    gptj,
    granite,
    llama,
    m2m_100,
    marian,
    modernbert,
    mpnet,
    nomic_bert,
    olmo,
    opt,
    pegasus,
    phi,
    roberta,
    smollm3,
    stablelm,
    starcoder2,
    t5,
    t5gemma,
)
from .family import Family
from .fields import NotExpressible

_MODULES = (
    *(llama, gpt2, gpt_neox, gptj, opt, gemma, phi, olmo, smollm3, stablelm, starcoder2, granite, cohere, bloom),
    *(bert, roberta, distilbert, electra, mpnet, modernbert, eurobert, nomic_bert),
    *(t5, bart, pegasus, marian, m2m_100, blenderbot, t5gemma),
)

FAMILIES: dict[str, Family] = {family.model_type: family for module in _MODULES for family in module.FAMILIES}

#: Families that cannot be converted, and why.
REFUSED = {
    "blenderbot-small": "its decoder normalizes the embeddings before it adds the positions, its encoder afterwards",
    "deberta-v2": "hf_tx has no disentangled attention",
    "mixtral": "hf_tx has no mixture of experts",
}


def family_of(config: Any) -> Family:
    """Return the family of a config of transformers.

    Raises:
        NotExpressible: if it cannot be converted.
    """
    family = family_named(config.model_type, hasattr(config, "text_config"))
    if getattr(config, "quantization_config", None) is not None:
        raise NotExpressible(
            "quantization_config", config.quantization_config, "load the model dequantized, and pass it as source"
        )
    return family


def family_named(name: str, holds_text: bool = False) -> Family:
    """Return the family with this model type; `holds_text`: the model contains a text model.

    Raises:
        NotExpressible: if it cannot be converted.
        ValueError: if the model type is one of hf_tx.
    """
    if name.startswith("hf_tx"):
        raise ValueError(f"source is already a model of hf_tx ({name}): load it with AutoModel*.from_pretrained.")
    if name not in FAMILIES and holds_text:
        way_out = "load it with AutoModel, and convert its text model with from_hf(model.language_model)"
        raise NotExpressible("model_type", name, f"it does not only read text; {way_out}")
    if name not in FAMILIES:
        raise NotExpressible(
            "model_type", name, REFUSED.get(name, f"model types that can be converted are {', '.join(FAMILIES)}")
        )
    return FAMILIES[name]
