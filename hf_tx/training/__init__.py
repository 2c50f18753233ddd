# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""What training needs beside the library's Trainer: texts, recipes of the families, distillation, epochs, Ctrl-C, and
whole checkpoints."""

from .corpus import Document, encode_documents, read_documents, split_documents
from .distillation import DistillationTrainer, logits_loss, transfer_errors, transfer_loss
from .epochs import SetEpoch
from .healing import Healing, HealingSettings, load_language_model
from .interruption import StopOnInterrupt
from .recipes import RECIPES, Measurement, Recipe, width_fields
from .saving import check_checkpoint_folder, save_checkpoint
from .trainer import NonFiniteLoss, TxSeq2SeqTrainer, TxTrainer

__all__ = [
    "RECIPES",
    "DistillationTrainer",
    "Document",
    "Healing",
    "HealingSettings",
    "Measurement",
    "NonFiniteLoss",
    "Recipe",
    "SetEpoch",
    "StopOnInterrupt",
    "TxSeq2SeqTrainer",
    "TxTrainer",
    "check_checkpoint_folder",
    "encode_documents",
    "load_language_model",
    "logits_loss",
    "read_documents",
    "save_checkpoint",
    "split_documents",
    "transfer_errors",
    "transfer_loss",
    "width_fields",
]
