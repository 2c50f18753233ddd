# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""A text from a text: translations, summaries, paraphrases."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from transformers import AutoModelForSeq2SeqLM, DataCollatorForSeq2Seq, EvalPrediction

from ...evaluation.directions import MEASURES
from ...evaluation.loading import longest_input
from ...evaluation.task_metrics import seq2seq_metrics
from ...models.losses import IGNORE
from ..trainer import TxSeq2SeqTrainer
from .options import TaskOptions, option
from .task import Task


@dataclass(frozen=True, kw_only=True)
class Seq2SeqOptions(TaskOptions):
    """See [`TaskOptions`]."""

    max_target_length: int | None = option(None, "the most tokens of a target; default: those of a source", least=1)


class Seq2Seq(Task):
    """Write a target for a source. See [`Task`].

    What is measured is what the model generates: by ROUGE, BLEU and chrF, beside what copying the source gives. It is
    compared with the targets as the data has them, also where the tokenizer cannot write them or they were cut.
    """

    name = "seq2seq"
    options_class = Seq2SeqOptions
    pipeline_tag = "text2text-generation"
    auto_class = AutoModelForSeq2SeqLM
    texts = ("source",)
    labels = ("target",)
    metric = "seq2seq"
    honours = (*Task.honours, "predict_with_generate", "generation_max_length", "generation_num_beams")
    trainer_class = TxSeq2SeqTrainer
    baseline_name = "the source, copied"
    cuts: ClassVar = {
        "cut_rows": "sources that were cut",
        "cut_targets": "targets that were cut",
        "unknown_targets": "targets with unknown tokens",
    }

    def set_up(self) -> None:
        """Check that both are texts."""
        max_target_length = self.given.max_target_length
        self.check_texts(*self.columns, self.label_column)
        longest = longest_input(self.config, self.tokenizer)
        if max_target_length is not None and longest is not None and max_target_length > longest:
            raise ValueError(
                f"--task-options: max_target_length = {max_target_length}: the model and its tokenizer take at most "
                f"{longest} tokens."
            )
        self.max_target_length = max_target_length or self.max_length
        if self.tokenizer.eos_token_id is None:
            raise ValueError("the tokenizer has no eos_token: the model would never learn where to stop.")

    def measuring_options(self) -> dict[str, Any]:
        """Return the length of targets."""
        return {"max_target_length": self.max_target_length}

    def encode(self, batch: Mapping[str, list[Any]]) -> Mapping[str, list[Any]]:
        """Encode sources, and targets that end with eos unless they were cut."""
        encoded, cut = self.encode_cut(batch[self.columns[0]])
        targets = self.tokenizer(text_target=batch[self.label_column])["input_ids"]
        eos = self.tokenizer.eos_token_id
        closed = [ids if ids[-1:] == [eos] else [*ids, eos] for ids in targets]
        return {
            **encoded,
            "labels": [ids[: self.max_target_length] for ids in closed],
            "cut_rows": cut,
            "cut_targets": [len(ids) > self.max_target_length for ids in closed],
            "unknown_targets": [self.unknown in ids for ids in closed],
        }

    def collator(self, model: Any) -> DataCollatorForSeq2Seq:
        """Pad sources and targets."""
        return DataCollatorForSeq2Seq(self.tokenizer, model=model)

    def prepare_options(self, options: Any) -> None:
        """Let the Trainer generate when it measures."""
        options.predict_with_generate = True
        if options.generation_max_length is None:
            options.generation_max_length = self.max_target_length + 1  # the start token counts
        for name, least in (("generation_max_length", 2), ("generation_num_beams", 1)):
            value = getattr(options, name)
            if value is not None and value < least:
                raise ValueError(f"--{name} {value}: must be at least {least}.")

    @property
    def measured(self) -> Iterable[str]:
        """The names of the numbers in `measures`."""
        return MEASURES["seq2seq"]

    def measures(self, prediction: EvalPrediction) -> dict[str, Any]:
        """Compare what is written with the targets."""
        pad: Any = self.tokenizer.pad_token_id
        # Of several processes, transformers' Trainer repeats rows at the end to fill a batch.
        written = np.asarray(prediction.predictions)[: len(self.held_out_rows)]
        written = np.where(written == IGNORE, pad, written)
        return self._compare(self.tokenizer.batch_decode(written, skip_special_tokens=True))

    def baseline(self) -> dict[str, Any]:
        """Return the measures of the sources, as targets."""
        return self._compare(self.held_out[self.columns[0]])

    def _compare(self, written: Iterable[str]) -> dict[str, Any]:
        right = self.held_out[self.label_column]
        return seq2seq_metrics([text.strip() for text in written], [text.strip() for text in right])

    def facts(self) -> dict[str, Any]:
        """Add the length of targets."""
        return {**super().facts(), "most tokens of a target": self.max_target_length}
