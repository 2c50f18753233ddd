# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""What models learn from texts: rows of tokens, and collators that make batches with labels of them."""

from .causal_lm import CausalLM
from .continuation import Continuation, continuation_pairs
from .contrastive import Contrastive, InfoNCE, SentenceEmbedder
from .denoising import Denoising
from .masked_lm import MaskedLM
from .objective import Objective, TokenObjective
from .packing import pack_documents, pack_for_causal_lm
from .prefix_lm import PrefixLM
from .span_corruption import SpanCorruption

#: The objectives by name. The first of a family is what it learns if nothing else is said.
OBJECTIVES: dict[str, type[Objective]] = {
    objective.name: objective
    for objective in (CausalLM, PrefixLM, MaskedLM, Contrastive, SpanCorruption, Denoising, Continuation)
}


def objectives_of(family: str) -> list[str]:
    """Return the names of the objectives that a family of models can learn, the default first."""
    return [name for name, kind in OBJECTIVES.items() if family in kind.families]


def text_objective_of(family: str) -> str:
    """Return the name of the objective of a family that scores all of a text (`text_task`), or else the default."""
    names = objectives_of(family)
    return next((name for name in names if OBJECTIVES[name].text_task is not None), names[0])


__all__ = [
    "OBJECTIVES",
    "CausalLM",
    "Continuation",
    "Contrastive",
    "Denoising",
    "InfoNCE",
    "MaskedLM",
    "Objective",
    "PrefixLM",
    "SentenceEmbedder",
    "SpanCorruption",
    "TokenObjective",
    "continuation_pairs",
    "objectives_of",
    "pack_documents",
    "pack_for_causal_lm",
    "text_objective_of",
]
