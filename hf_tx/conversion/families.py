# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""All families, by the library's name."""

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

#: Families that the blocks cannot express, and why.
REFUSED = {
    "blenderbot-small": "its decoder normalises the embeddings before it adds the positions, its encoder after that",
    "deberta-v2": "its scores have terms between contents and distances",
    "mixtral": "its feed-forward layers choose between experts",
}


def family_of(config: Any) -> Family:
    """Return the family of a config of theirs.

    Raises:
        NotExpressible: there is none.
    """
    family = family_named(config.model_type, hasattr(config, "text_config"))
    if getattr(config, "quantization_config", None) is not None:
        raise NotExpressible("quantization_config", config.quantization_config, "load it dequantized, and pass that")
    return family


def family_named(name: str, holds_text: bool = False) -> Family:
    """Return the family that has this name in the library; `holds_text`: a model of text is a part of it.

    Raises:
        NotExpressible: there is none.
        ValueError: the name is one of ours.
    """
    if name.startswith("hf_tx"):
        raise ValueError(f"source is a model of hf_tx already ({name}): AutoModel*.from_pretrained loads it.")
    if name not in FAMILIES and holds_text:
        way_out = "load it with AutoModel, and convert its text model: from_hf(model.language_model)"
        raise NotExpressible("model_type", name, f"it reads more than text; {way_out}")
    if name not in FAMILIES:
        raise NotExpressible("model_type", name, REFUSED.get(name, f"known families are {', '.join(FAMILIES)}"))
    return FAMILIES[name]
