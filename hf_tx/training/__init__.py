# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""What training needs beside transformers' Trainer: texts, configs of new models, distillation, epochs, Ctrl-C, and
whole checkpoints."""

from .corpus import read_documents, split_documents
from .distillation import DistillationTrainer, logits_loss, transfer_errors, transfer_loss
from .epochs import SetEpoch
from .healing import Healing, HealingSettings, load_language_model
from .interruption import StopOnInterrupt
from .new_models import NEW_MODELS, new_config, width_fields
from .saving import check_checkpoint_folder, save_checkpoint
from .trainer import NonFiniteLoss, TxSeq2SeqTrainer, TxTrainer

__all__ = [
    "NEW_MODELS",
    "DistillationTrainer",
    "Healing",
    "HealingSettings",
    "NonFiniteLoss",
    "SetEpoch",
    "StopOnInterrupt",
    "TxSeq2SeqTrainer",
    "TxTrainer",
    "check_checkpoint_folder",
    "load_language_model",
    "logits_loss",
    "new_config",
    "read_documents",
    "save_checkpoint",
    "split_documents",
    "transfer_errors",
    "transfer_loss",
    "width_fields",
]
