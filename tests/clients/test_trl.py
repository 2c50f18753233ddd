# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Fine-tuning a decoder with the trainers of TRL."""

from pathlib import Path
from typing import Any

import peft
import pytest
import torch
from datasets import Dataset
from tiny_models import assert_close
from torch.nn.functional import logsigmoid
from transformers import AutoModelForCausalLM, AutoTokenizer

trl = pytest.importorskip("trl", reason="trl is absent")

ARGUMENTS = dict(
    max_steps=4,
    per_device_train_batch_size=2,
    learning_rate=1e-2,
    warmup_steps=0,
    logging_steps=1,
    save_strategy="no",
    report_to="none",
    use_cpu=True,
    bf16=False,
)
MESSAGES = [
    [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
    for question, answer in [("Who runs?", "The miller."), ("What runs?", "The river."), ("Where?", "Past the mill.")]
]


def losses_of(trainer: Any) -> list[float]:
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


@pytest.mark.parametrize("packing", [False, True])
def test_sft_on_chats(packing: bool, decoder: Path, tmp_path: Path) -> None:
    trainer = trl.SFTTrainer(
        str(decoder),
        args=trl.SFTConfig(str(tmp_path), packing=packing, max_length=64, **ARGUMENTS),
        train_dataset=Dataset.from_dict({"messages": MESSAGES * 2}),
    )
    rows = list(trainer.train_dataset)
    documents = [
        document
        for row in rows
        for document in torch.tensor(row["input_ids"]).split(row.get("seq_lengths", [len(row["input_ids"])]))
    ]
    assert len(documents) == 6
    assert (len(rows) < len(documents)) == packing
    with torch.no_grad():
        found = trainer.model.eval()(**trainer.data_collator(rows)).loss
        sums = [trainer.model(row[None], labels=row[None]).loss * (len(row) - 1) for row in documents]
    # Of every document, packed or not, all tokens but the first are predicted, from that document alone.
    assert_close(found, sum(sums) / sum(len(row) - 1 for row in documents), 1e-5)
    trainer.train()
    losses = losses_of(trainer)
    assert losses[-1] < 0.8 * losses[0]
    trainer.save_model(str(tmp_path / "saved"))
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "saved")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "saved")
    inputs = tokenizer.apply_chat_template(
        MESSAGES[0][:1], add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    assert model.generate(**inputs, max_new_tokens=3).shape[1] > inputs["input_ids"].shape[1]


@pytest.mark.parametrize("lora", [False, True])
def test_dpo(lora: bool, decoder: Path, tmp_path: Path) -> None:
    preferences = dict(prompt=["The miller"] * 4, chosen=[" runs past"] * 4, rejected=[" mill the"] * 4)
    trainer = trl.DPOTrainer(
        str(decoder),
        args=trl.DPOConfig(str(tmp_path), beta=0.5, **ARGUMENTS | dict(learning_rate=2e-2)),
        train_dataset=Dataset.from_dict(preferences),
        processing_class=AutoTokenizer.from_pretrained(decoder),
        peft_config=peft.LoraConfig(task_type="CAUSAL_LM") if lora else None,
    )
    trainer.train()
    losses = losses_of(trainer)
    # Model and reference begin as one.
    assert losses[0] == pytest.approx(-logsigmoid(torch.tensor(0.0)).item(), abs=1e-6)
    assert losses[-1] < 0.95 * losses[0]
