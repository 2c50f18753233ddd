# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""A short training with dropout on packed rows, and, as a program, one that is killed on the way, or
gets a loss that is no number in one process of several: `python runs.py FOLDER training|saving|nan`."""

import os
import signal
import sys
from pathlib import Path
from typing import Any

import torch
from tiny_models import VOCABULARY, config_of, enlarge, tokens
from transformers import TrainerCallback, TrainingArguments, default_data_collator

import hf_tx
from hf_tx.objectives import pack_for_causal_lm
from hf_tx.training import TxTrainer

STEPS, SAVES = 8, 3
DROPOUT = dict(hidden_dropout=0.2, attention_dropout=0.1, ffn_dropout=0.1)


def packed_rows() -> list[dict[str, Any]]:
    documents = [tokens(3 + 5 * (seed % 4), seed=seed).tolist() for seed in range(40)]
    return pack_for_causal_lm(documents, 16, bos_token_id=1, eos_token_id=2, pad_token_id=0)


def run_for(folder: Path | str, model: Any = None, **settings: Any) -> TxTrainer:
    """Return the trainer of the run; equal arguments give equal runs."""
    if model is None:
        model = enlarge(hf_tx.TxDecoderForCausalLM(config_of("decoder", mixers="full,gru", **DROPOUT)))
    assert model.config.vocab_size == VOCABULARY
    arguments = dict(
        use_cpu=True,
        report_to=[],
        disable_tqdm=True,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=2,
        learning_rate=3e-3,
        max_steps=STEPS,
        save_steps=SAVES,
        logging_steps=1,
        seed=7,
    )
    args = TrainingArguments(str(folder), **(arguments | settings))
    rows = packed_rows()
    return TxTrainer(model, args, train_dataset=rows, eval_dataset=rows[:4], data_collator=default_data_collator)


class _Kill(TrainerCallback):
    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == SAVES + 2:
            os.kill(os.getpid(), signal.SIGKILL)


def spoil_last_process(trainer: TxTrainer) -> None:
    """Make the loss of the step after the first checkpoint NaN in the last process, as one bad row would."""
    compute = trainer.compute_loss

    def spoilt(*arguments: Any, **keywords: Any) -> torch.Tensor:
        bad = trainer.state.global_step == SAVES and trainer.args.process_index == trainer.args.world_size - 1
        return compute(*arguments, **keywords) * (float("nan") if bad else 1.0)

    trainer.compute_loss = spoilt  # type: ignore[method-assign]


def main(folder: str, when: str) -> None:
    trainer = run_for(folder)
    if when == "training":
        trainer.add_callback(_Kill())
    elif when == "nan":
        spoil_last_process(trainer)
    else:
        save = torch.save

        def save_or_die(value: Any, path: Any, **kwargs: Any) -> None:
            if str(path).endswith("optimizer.pt") and trainer.state.global_step > SAVES:
                Path(path).write_bytes(b"half")
                os.kill(os.getpid(), signal.SIGKILL)
            save(value, path, **kwargs)

        torch.save = save_or_die
    trainer.train()


if __name__ == "__main__":
    main(*sys.argv[1:])
