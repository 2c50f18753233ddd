# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""All families, by the library's name."""

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
