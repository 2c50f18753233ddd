# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
import pickle

import pytest
import torch
from datasets import Dataset
from objective_data import make, make_texts, real_tokens
from tiny_models import assert_close, build
from transformers import GPT2Config, GPT2LMHeadModel

from hf_tx.objectives import CausalLM, pack_for_causal_lm


def rows_of(objective, texts):
    return list(objective.prepare(Dataset.from_dict({"text": texts})))


@pytest.mark.parametrize("packed", [True, False])
def test_every_token_is_learnt_once_and_so_is_the_end(packed):
    texts = make_texts()
    objective = make("causal-lm", packed=packed)
    tokenizer = objective.tokenizer
    batch = objective(rows_of(objective, texts))
    targets = batch["labels"][batch["labels"] != -100].tolist()
    documents = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts]
    assert targets == sum(([*document, tokenizer.eos_token_id] for document in documents), [])
    assert ("position_ids" in batch, "attention_mask" in batch) == (packed, not packed)
    if packed:
        assert batch["input_ids"].shape[1] == 32


def test_packed_or_not_the_loss_is_one():
    batches = []
    for packed in (True, False):
        objective = make("causal-lm", packed=packed)
        batches.append(objective(rows_of(objective, ["river mill", "stone water under", "bread"])))
    assert [len(batch["input_ids"]) for batch in batches] == [1, 3]
    model = build("decoder", "sdpa", "lm", vocab_size=len(objective.tokenizer))
    assert_close(model(**batches[0]).loss, model(**batches[1]).loss)


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("side", ["left", "right"])
def test_eos_is_learnt_where_it_is_padding_too(packed, side):
    """The collator of transformers ignores every label that equals the padding token."""
    tokenizer = pickle.loads(pickle.dumps(make("causal-lm").tokenizer))
    tokenizer.padding_side = side
    tokenizer.pad_token = tokenizer.bos_token = tokenizer.eos_token  # as GPT-2 has them
    objective = CausalLM(tokenizer, 32, packed=packed)
    texts = ["river mill", "stone water under", "bread"]
    labels = objective(rows_of(objective, texts))["labels"]
    encoded = tokenizer(texts, add_special_tokens=False)["input_ids"]
    assert labels[labels != -100].tolist() == sum(([*text, tokenizer.eos_token_id] for text in encoded), [])


def test_rows_that_were_tokenized_and_padded_elsewhere():
    objective = make("causal-lm")
    tokenizer = objective.tokenizer
    encoded = tokenizer(make_texts(4), truncation=True, max_length=20, padding="max_length")
    rows = [dict(zip(encoded, values, strict=True)) for values in zip(*encoded.values(), strict=True)]
    batch = objective(rows)
    for number, row in enumerate(encoded["input_ids"]):
        tokens = [token for token, real in zip(row, encoded["attention_mask"][number], strict=True) if real]
        line = {name: values[number] for name, values in batch.items()}
        assert real_tokens(line) == tokens
        assert real_tokens(line, "labels") == [-100, *tokens[1:]]
        assert (line["labels"][line["attention_mask"] == 0] == -100).all()


def test_packed_rows_of_other_lengths_keep_their_documents_apart():
    objective = make("causal-lm")
    rows = [
        {"input_ids": [1, 5, 6, 1, 7], "position_ids": [0, 1, 2, 0, 1]},
        {"input_ids": [1, 8, 9]},  # one document
    ]
    batch = objective(rows)
    pad = objective.tokenizer.pad_token_id
    assert batch["input_ids"].tolist() == [[1, 5, 6, 1, 7], [pad, pad, 1, 8, 9]]
    assert batch["position_ids"].tolist() == [[0, 1, 2, 0, 1], [0, 1, 0, 1, 2]]
    assert batch["labels"].tolist() == [[-100, 5, 6, -100, 7], [-100, -100, -100, 8, 9]]


def test_without_bos_the_first_token_of_a_piece_is_no_target():
    rows = pack_for_causal_lm([[5, 6], [7]], 6, bos_token_id=None, eos_token_id=2, pad_token_id=0)
    assert rows == [
        {
            "input_ids": [5, 6, 2, 7, 2, 0],
            "position_ids": [0, 1, 2, 0, 1, 0],
            "labels": [-100, 6, 2, -100, 2, -100],
        }
    ]


def test_a_model_of_the_library_learns_from_unpacked_rows():
    objective = make("causal-lm", packed=False)
    torch.manual_seed(0)
    model = GPT2LMHeadModel(
        GPT2Config(vocab_size=len(objective.tokenizer), n_embd=16, n_layer=1, n_head=2, n_positions=32)
    ).eval()
    rows = rows_of(objective, make_texts(3))
    batch = objective(rows)
    logits = model(batch["input_ids"], attention_mask=batch["attention_mask"]).logits[:, :-1]
    expected = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch["labels"][:, 1:].flatten())
    assert_close(model(**batch).loss, expected)
    assert int((batch["labels"][:, 1:] != -100).sum()) == sum(len(row["input_ids"]) - 1 for row in rows)
