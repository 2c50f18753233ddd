# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""All families, by the library's name."""

from . import (
    bart,
    bert,
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
    modernbert,
    mpnet,
    nomic_bert,
    olmo,
    opt,
    phi,
    roberta,
    smollm3,
    stablelm,
    starcoder2,
    t5,
)
from .family import Family

_MODULES = (
    *(llama, gpt2, gpt_neox, gptj, opt, gemma, phi, olmo, smollm3, stablelm, starcoder2, granite, cohere, bloom),
    *(bert, roberta, distilbert, electra, mpnet, modernbert, eurobert, nomic_bert),
    *(t5, bart),
)

FAMILIES: dict[str, Family] = {family.model_type: family for module in _MODULES for family in module.FAMILIES}

#: Families that the blocks cannot express, and why.
REFUSED = {
    "deberta-v2": "its scores have terms between contents and distances",
    "mixtral": "its feed-forward layers choose between experts",
}
