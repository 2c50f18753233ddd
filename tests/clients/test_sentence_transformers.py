# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""An encoder as bi-encoder and as cross-encoder of sentence-transformers: training, saving, loading."""

from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from tiny_models import assert_close
from transformers import AutoModel, AutoTokenizer

import hf_tx

st = pytest.importorskip("sentence_transformers", reason="sentence-transformers is absent")
losses = pytest.importorskip("sentence_transformers.sentence_transformer.losses")
cross_losses = pytest.importorskip("sentence_transformers.cross_encoder.losses")

FIRST = ["The miller runs.", "The river runs past the mill.", "Who runs?", "The old mill."]
SECOND = ["The miller runs past.", "The river.", "Who runs past the river?", "The mill."]


def arguments(kind: Any, folder: Path) -> Any:
    return kind(
        str(folder),
        max_steps=4,
        per_device_train_batch_size=4,
        learning_rate=1e-2,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
    )


def train(trainer: Any) -> None:
    trainer.train()
    found = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert found[-1] < found[0]


def test_a_bi_encoder(encoder: Path, tmp_path: Path) -> None:
    model = st.SentenceTransformer(str(encoder), device="cpu")
    assert type(model[0].auto_model) is hf_tx.TxEncoderModel
    inputs = AutoTokenizer.from_pretrained(encoder)(FIRST, padding=True, return_tensors="pt")
    with torch.no_grad():
        states = AutoModel.from_pretrained(encoder)(**inputs).last_hidden_state
    real = inputs["attention_mask"][..., None]
    assert_close(model.encode(FIRST, convert_to_tensor=True), (states * real).sum(1) / real.sum(1))

    train(
        st.SentenceTransformerTrainer(
            model,
            arguments(st.SentenceTransformerTrainingArguments, tmp_path / "run"),
            train_dataset=Dataset.from_dict(dict(anchor=FIRST, positive=SECOND)),
            loss=losses.MultipleNegativesRankingLoss(model),
        )
    )
    model.save_pretrained(str(tmp_path / "saved"))
    loaded = st.SentenceTransformer(str(tmp_path / "saved"), device="cpu")
    assert_close(loaded.encode(FIRST, convert_to_tensor=True), model.encode(FIRST, convert_to_tensor=True), 1e-6)
    # Beside the pooling lies the code of the model, for those without hf_tx.
    assert (tmp_path / "saved" / "modeling_encoder.py").exists()


def test_a_cross_encoder(encoder: Path, tmp_path: Path) -> None:
    pairs = list(zip(FIRST, SECOND, strict=True))
    model = st.CrossEncoder(str(encoder), num_labels=1, device="cpu")
    assert type(model.model) is hf_tx.TxEncoderForSequenceClassification
    train(
        st.CrossEncoderTrainer(
            model,
            arguments(st.CrossEncoderTrainingArguments, tmp_path / "run"),
            train_dataset=Dataset.from_dict(dict(first=FIRST, second=SECOND, label=[1.0, 0.0, 1.0, 0.0])),
            loss=cross_losses.BinaryCrossEntropyLoss(model),
        )
    )
    found = model.predict(pairs, convert_to_tensor=True)
    inputs = AutoTokenizer.from_pretrained(encoder)(FIRST, SECOND, padding=True, return_tensors="pt")
    assert inputs["token_type_ids"].any()
    with torch.no_grad():
        assert_close(found, model.model.eval()(**inputs).logits[:, 0].sigmoid())
    model.save_pretrained(str(tmp_path / "saved"))
    loaded = st.CrossEncoder(str(tmp_path / "saved"), device="cpu")
    assert_close(loaded.predict(pairs, convert_to_tensor=True), found, 1e-6)
