# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""What training needs beside the library's Trainer: texts, recipes of the families, epochs, Ctrl-C, and whole
checkpoints."""

from .corpus import Document, encode_documents, read_documents, split_documents
from .epochs import SetEpoch
from .interruption import StopOnInterrupt
from .recipes import RECIPES, Measurement, Recipe
from .saving import check_checkpoint_folder, save_checkpoint

__all__ = [
    "RECIPES",
    "Document",
    "Measurement",
    "Recipe",
    "SetEpoch",
    "StopOnInterrupt",
    "check_checkpoint_folder",
    "encode_documents",
    "read_documents",
    "save_checkpoint",
    "split_documents",
]
