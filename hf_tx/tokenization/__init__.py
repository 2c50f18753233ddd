# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Trains BPE, WordPiece and Unigram tokenizers, and reads text files and datasets."""

from .corpus import iter_dataset, iter_texts
from .saving import check_output_folder, save_tokenizer
from .training import train_tokenizer

__all__ = ["check_output_folder", "iter_dataset", "iter_texts", "save_tokenizer", "train_tokenizer"]
