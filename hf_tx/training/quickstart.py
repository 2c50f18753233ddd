# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""A pre-training with other defaults: a small model of the text that comes with hf_tx, and samples at the end."""

from dataclasses import dataclass, field

from ..common.packaged import SPEECHES
from .pretraining import PretrainingArguments, PretrainingOptions


@dataclass
class QuickstartArguments(PretrainingArguments):
    """See [`PretrainingArguments`]."""

    text: list[str] = field(
        default_factory=list,
        metadata={"action": "extend", "help": "Text files, or folders of *.txt. Default: text that comes with hf_tx."},
    )
    samples: bool = field(
        default=True, metadata={"help": "At the end, load the model without hf_tx, and print what it writes."}
    )

    def __post_init__(self) -> None:
        if not self.dataset:
            self.text = self.text or [SPEECHES]
        self.output = self.output or f"runs/quickstart-{self.family}"
        super().__post_init__()


@dataclass
class QuickstartOptions(PretrainingOptions):
    """See [`PretrainingOptions`]."""

    per_device_train_batch_size: int = field(default=4, metadata={"help": "Rows per step and device."})
