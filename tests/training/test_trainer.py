# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""All heads under transformers' own Trainer, and under PEFT."""

import copy
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import peft
import pytest
import torch
from tiny_models import FAMILIES, NORM_TYPES, VOCABULARY, assert_close, config_of, enlarge, tokens
from torch.nn.functional import cross_entropy
from torch.nn.utils.rnn import pad_sequence
from transformers import (
    DataCollatorWithFlattening,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    Trainer,
    TrainingArguments,
)

import hf_tx

IGNORE = -100
PREFIXES = {"decoder": "TxDecoder", "encoder": "TxEncoder", "encoder_decoder": "TxEncoderDecoder"}
LENGTHS = [3, 4, 6, 5, 11, 9, 10, 12]  # two evaluation batches of different lengths


def text(index: int, size: int) -> list[int]:
    return tokens(size, seed=index).tolist()


def collate(examples: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    """Pad on the right: labels with -100, all else with 0."""
    batch = {}
    for key in examples[0]:
        values = [torch.tensor(example[key]) for example in examples]
        fill = IGNORE if key == "labels" else 0
        if values[0].ndim == 2:  # choices
            padded = pad_sequence([value.T for value in values], batch_first=True, padding_value=fill).transpose(1, 2)
        elif values[0].ndim == 1:
            padded = pad_sequence(values, batch_first=True, padding_value=fill)
        else:
            padded = torch.stack(values)
        batch[key] = padded
    return batch


@dataclass(frozen=True)
class Head:
    """A head and what it learns.

    Attributes:
        family: name of the family.
        kind: what follows the family in the name of the class.
        targets: makes the targets of an example from its number and its tokens.
        num_labels: of a classifier.
        loss: `full` or `chunked`.
    """

    family: str
    kind: str
    targets: Callable[[int, list[int]], dict[str, Any]]
    num_labels: int = 3
    loss: str = "full"

    def model(self, **settings: Any) -> Any:
        """Build a model with random weights; all weights are drawn anew, so that seeds play no part."""
        config = config_of(self.family, **settings)
        config.num_labels = self.num_labels
        model = enlarge(getattr(hf_tx, PREFIXES[self.family] + self.kind)(config))
        model.loss_implementation = self.loss
        return model

    def data(self, lengths: list[int] = LENGTHS) -> list[dict[str, Any]]:
        examples = []
        for index, size in enumerate(lengths):
            ids = text(index, size)
            example: dict[str, Any] = dict(input_ids=ids, attention_mask=[1] * size) | self.targets(index, ids)
            if self.kind == "ForMultipleChoice":
                choices = [ids, ids[::-1], [token % VOCABULARY or 3 for token in (value + 1 for value in ids)]]
                example |= dict(input_ids=choices, attention_mask=[[1] * size] * 3)
            examples.append(example)
        return examples


def _one_of_three(index: int, ids: list[int]) -> dict[str, Any]:
    return dict(labels=ids[0] % 3)


def _every_token(index: int, ids: list[int]) -> dict[str, Any]:
    return dict(labels=[token % 3 for token in ids])


def _span(index: int, ids: list[int]) -> dict[str, Any]:
    return dict(start_positions=1, end_positions=2)


def _some_tokens(index: int, ids: list[int]) -> dict[str, Any]:
    return dict(labels=[token if place % 2 == index % 2 else IGNORE for place, token in enumerate(ids)])


HEADS = {
    "causal_lm": Head("decoder", "ForCausalLM", lambda index, ids: dict(labels=ids)),
    "causal_lm_chunked": Head("decoder", "ForCausalLM", lambda index, ids: dict(labels=ids), loss="chunked"),
    "masked_lm": Head("encoder", "ForMaskedLM", _some_tokens),
    "seq2seq_lm": Head("encoder_decoder", "ForConditionalGeneration", lambda index, ids: dict(labels=ids[1:] + [2])),
    "seq2seq_lm_chunked": Head(
        "encoder_decoder", "ForConditionalGeneration", lambda index, ids: dict(labels=ids[1:] + [2]), loss="chunked"
    ),
    **{f"{family}_classes": Head(family, "ForSequenceClassification", _one_of_three) for family in FAMILIES},
    "encoder_regression": Head(
        "encoder", "ForSequenceClassification", lambda i, ids: dict(labels=i / 4), num_labels=1
    ),
    "decoder_several_labels": Head(
        "decoder", "ForSequenceClassification", lambda i, ids: dict(labels=[float(ids[0] % 2), 1.0, 0.0])
    ),
    "encoder_tokens": Head("encoder", "ForTokenClassification", _every_token),
    "decoder_tokens": Head("decoder", "ForTokenClassification", _every_token),
    "encoder_spans": Head("encoder", "ForQuestionAnswering", _span),
    "decoder_spans": Head("decoder", "ForQuestionAnswering", _span),
    "encoder_choices": Head("encoder", "ForMultipleChoice", _one_of_three),
}


def trainer_for(model: Any, folder: Path, data: list[dict[str, Any]], **settings: Any) -> Trainer:
    """Build the stock trainer of the family; settings that are no arguments go to the trainer itself."""
    seq2seq = model.config.is_encoder_decoder and hasattr(type(model), "generate")
    own = {key: settings.pop(key) for key in ("compute_metrics", "data_collator") if key in settings}
    arguments = dict(
        output_dir=str(folder),
        use_cpu=True,
        report_to=[],
        disable_tqdm=True,
        save_strategy="no",
        logging_strategy="no",
        per_device_train_batch_size=4,
        per_device_eval_batch_size=4,
        learning_rate=3e-3,
        lr_scheduler_type="constant",
        max_steps=12,
    )
    args = (Seq2SeqTrainingArguments if seq2seq else TrainingArguments)(**arguments | settings)
    return (Seq2SeqTrainer if seq2seq else Trainer)(
        model, args, train_dataset=data, eval_dataset=data, **dict(data_collator=collate) | own
    )


# Every head.
@pytest.mark.parametrize("name", HEADS)
def test_training_lowers_the_loss(name: str, tmp_path: Path) -> None:
    head = HEADS[name]
    trainer = trainer_for(head.model(), tmp_path, head.data())
    before = trainer.evaluate()["eval_loss"]
    trainer.train()
    after = trainer.evaluate()["eval_loss"]
    assert after < 0.8 * before


@pytest.mark.parametrize("name", HEADS)
def test_evaluation_and_prediction_gather_the_logits_and_nothing_else(name: str, tmp_path: Path) -> None:
    head = HEADS[name]
    model, data = head.model(), head.data()
    seen: list[Any] = []

    def metrics(prediction: Any) -> dict[str, float]:
        seen.append((prediction.predictions, prediction.label_ids))
        return dict(count=len(seen))

    # Trainer turns caches off unless it is told otherwise.
    trainer = trainer_for(model, tmp_path, data, compute_metrics=metrics, use_cache=True)
    assert trainer.evaluate()["eval_count"] == 1
    assert trainer.predict(data).metrics["test_count"] == 2
    spans = "start_positions" in data[0]
    fields = ("start_logits", "end_logits") if spans else ("logits",)
    for predictions, labels in seen:
        predictions = predictions if spans else (predictions,)
        assert len(predictions) == len(fields)
        for field, array in zip(fields, predictions, strict=True):
            assert isinstance(array, np.ndarray), f"predictions hold {len(array)} arrays"
            assert len(array) == len(data)
            for row, example in zip(array, data, strict=True):
                with torch.no_grad():
                    expected = model(**collate([example]))[field][0]
                real = torch.tensor(row)[tuple(slice(size) for size in expected.shape)]
                assert_close(real, expected)
        assert len(labels[0] if spans else labels) == len(data)


@pytest.mark.parametrize("name", HEADS)
def test_accumulation_takes_the_step_of_the_whole_batch(name: str, tmp_path: Path) -> None:
    head = HEADS[name]
    # Very unequal numbers of targets. Scores of spans compete over the whole row, pads included, as in transformers,
    # so that their padding must not differ between batches.
    data = head.data([3, 12, 5, 2] if "span" not in name else [5, 5, 5, 5])
    whole = None
    for size in (4, 2, 1):
        model = head.model()
        trainer = trainer_for(
            model,
            tmp_path,
            data,
            per_device_train_batch_size=size,
            gradient_accumulation_steps=4 // size,
            max_steps=1,
            optim="sgd",
            learning_rate=1.0,
            max_grad_norm=0.0,
            logging_strategy="steps",
            logging_steps=1,
        )
        start = copy.deepcopy(model.state_dict())
        trainer.train()
        steps = {key: value - start[key] for key, value in model.state_dict().items()}
        loss = torch.tensor(trainer.state.log_history[0]["loss"])
        whole = whole or (steps, loss)
        assert_close(loss, whole[1], 1e-5)
        largest = max(step.abs().max().item() for step in whole[0].values())
        assert largest > 1e-3
        for key, step in whole[0].items():
            assert (steps[key] - step).abs().max().item() <= 1e-5 * largest, key


@pytest.mark.parametrize("norm_type", NORM_TYPES)
@pytest.mark.parametrize("name", [name for name, head in HEADS.items() if head.loss == "full"])
def test_weight_decay_takes_matrices_only(name: str, norm_type: str, tmp_path: Path) -> None:
    model = HEADS[name].model(
        norm_type=norm_type,
        norm_position="sandwich",
        qk_norm=True,
        embedding_norm=True,
        attention_bias=True,
        mlp_bias=True,
        lm_head_bias=True,
        position_type="relative",
    )
    trainer = trainer_for(model, tmp_path, HEADS[name].data())
    decayed = set(trainer.get_decay_parameter_names(model))
    matrices = {key for key, weight in model.named_parameters(remove_duplicate=False) if weight.ndim > 1}
    # The word "bias" keeps the table of T5's biases out.
    assert decayed == {key for key in matrices if "relative_bias" not in key}


def test_the_sequence_to_sequence_trainer_predicts_generated_text(tmp_path: Path) -> None:
    head = HEADS["seq2seq_lm"]
    model, data = head.model(), head.data()
    seen = []
    trainer = trainer_for(
        model,
        tmp_path,
        data,
        predict_with_generate=True,
        generation_max_length=6,
        compute_metrics=lambda prediction: seen.append(prediction) or {},
    )
    loss = trainer.evaluate()["eval_loss"]
    assert len(seen[0].predictions) == len(data)
    trainer.args.predict_with_generate = False
    assert trainer.evaluate()["eval_loss"] == pytest.approx(loss, rel=1e-5)
    for row, example in zip(seen[0].predictions, data, strict=True):
        source = {key: value for key, value in collate([example]).items() if key != "labels"}
        expected = model.generate(**source, max_length=6)[0].tolist()
        assert 1 < len(expected) <= 6
        assert row.tolist() == expected + [0] * (len(row) - len(expected))


# Label smoothing.
def smoothed(logits: torch.Tensor, targets: torch.Tensor, epsilon: float) -> torch.Tensor:
    """The definition: targets are `1 - epsilon` of the right token and `epsilon` spread over all."""
    return cross_entropy(logits.flatten(0, 1), targets.flatten(), label_smoothing=epsilon)


@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
@pytest.mark.parametrize("lora", [False, True], ids=["plain", "lora"])
@pytest.mark.parametrize("name", ["causal_lm", "causal_lm_chunked", "masked_lm", "seq2seq_lm", "seq2seq_lm_chunked"])
def test_label_smoothing_uses_the_targets_of_the_model(name: str, lora: bool, training: bool, tmp_path: Path) -> None:
    head = HEADS[name]
    model = head.model()
    data = head.data()
    batch = collate(data)
    if (
        head.family == "encoder_decoder"
    ):  # labels never reach the model, so a collator shifts them, as transformers' does
        batch["decoder_input_ids"] = model.prepare_decoder_input_ids_from_labels(batch["labels"])
    targets = batch["labels"]
    with torch.no_grad():
        logits = model.eval()(**batch).logits
    if head.family == "decoder":
        logits, targets = logits[:, :-1], targets[:, 1:]
    wrapped = peft.get_peft_model(model, peft.LoraConfig()) if lora else model  # starts as the model itself
    wrapped.train(training)
    for epsilon in (0.0, 0.1):
        trainer = trainer_for(wrapped, tmp_path, data, label_smoothing_factor=epsilon)
        loss = trainer.compute_loss(wrapped, dict(batch))
        assert_close(loss.detach(), smoothed(logits, targets, epsilon), 1e-5)


def test_label_smoothing_without_decoder_input_says_what_is_missing(tmp_path: Path) -> None:
    head = HEADS["seq2seq_lm"]
    trainer = trainer_for(head.model(), tmp_path, head.data(), label_smoothing_factor=0.1)
    with pytest.raises(ValueError, match="decoder_input_ids"):
        trainer.train()


@pytest.mark.parametrize("seq_idx", [False, True])
def test_a_batch_without_padding_has_the_loss_of_the_padded_one(seq_idx: bool, tmp_path: Path) -> None:
    head = HEADS["causal_lm"]
    model, data = head.model(), head.data()
    flattening = DataCollatorWithFlattening(return_position_ids=not seq_idx, return_seq_idx=seq_idx)
    steps = []
    for collator in (collate, flattening):
        trainer = trainer_for(model, tmp_path, data, data_collator=collator)
        batch = collator(data)
        assert len(batch["input_ids"]) == (1 if collator is flattening else len(data))
        model.zero_grad()
        loss = trainer.training_step(model, batch, trainer._get_num_items_in_batch([batch], torch.device("cpu")))
        steps.append((loss, model.model.layers[0].mixer.q_proj.weight.grad.clone()))
    assert_close(steps[1][0], steps[0][0], 1e-5)
    assert_close(steps[1][1], steps[0][1], 1e-5)


# What training may be asked for.
DROPOUT = dict(hidden_dropout=0.2, attention_dropout=0.1, ffn_dropout=0.1)


@pytest.mark.parametrize(
    ("name", "settings", "accumulation"),
    [
        ("causal_lm", {}, 1),
        ("causal_lm_chunked", dict(tie_word_embeddings=False), 2),
        ("masked_lm", {}, 1),
        ("seq2seq_lm", {}, 2),
    ],
)
def test_a_resumed_run_ends_where_a_straight_one_does(
    name: str, settings: dict[str, Any], accumulation: int, tmp_path: Path
) -> None:
    head = HEADS[name]
    common = dict(
        max_steps=10,
        save_strategy="steps",
        save_steps=5,
        logging_strategy="steps",
        logging_steps=1,
        gradient_accumulation_steps=accumulation,
        per_device_train_batch_size=2,
        lr_scheduler_type="linear",
    )
    straight = trainer_for(head.model(**DROPOUT, **settings), tmp_path, head.data(), **common)
    straight.train()
    fresh = enlarge(head.model(**DROPOUT, **settings), seed=9)
    fresh.loss_implementation = head.loss
    torch.manual_seed(99)
    resumed = trainer_for(fresh, tmp_path, head.data(), **common)
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-5"))
    assert resumed.state.global_step == 10
    assert len({entry["loss"] for entry in straight.state.log_history[:10]}) > 5
    for key in ("loss", "grad_norm"):
        first = [entry[key] for entry in straight.state.log_history if key in entry]
        second = [entry[key] for entry in resumed.state.log_history if key in entry]
        assert first == second
    for (key, first), second in zip(straight.model.state_dict().items(), fresh.state_dict().values(), strict=True):
        assert torch.equal(first, second), key


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("position_type", ["rope", "relative"])
@pytest.mark.parametrize("lora", [False, True], ids=["plain", "lora"])
@pytest.mark.parametrize("name", ["causal_lm_chunked", "masked_lm", "seq2seq_lm"])
def test_gradient_checkpointing_changes_no_gradient(
    name: str, lora: bool, position_type: str, reentrant: bool
) -> None:
    head = HEADS[name]
    gradients = []
    for checkpointing in (False, True):
        model = head.model(**DROPOUT, position_type=position_type)
        if lora:
            model = peft.get_peft_model(model, peft.LoraConfig(init_lora_weights=False, target_modules="all-linear"))
            for key, weight in model.named_parameters():
                if "lora" in key:
                    weight.data = torch.randn(weight.shape, generator=torch.Generator().manual_seed(0)) / 10
        if checkpointing:
            model.activation_checkpointing_enable(activation_checkpointing_kwargs=dict(use_reentrant=reentrant))
        calls: list[Any] = []
        for key, module in model.named_modules():
            if key.endswith("mlp.act_fn"):
                module.register_forward_hook(lambda *call, calls=calls: calls.append(call[0]))
        model.train()
        torch.manual_seed(0)
        model(**collate(head.data())).loss.backward()
        found = {key: weight.grad for key, weight in model.named_parameters() if weight.requires_grad}
        assert all(gradient is not None for gradient in found.values())
        gradients.append((found, len(calls)))
    (plain, once), (checkpointed, twice) = gradients
    assert twice == 2 * once
    assert plain.keys() == checkpointed.keys()
    for key, gradient in plain.items():
        assert_close(checkpointed[key], gradient, 1e-6)


@pytest.mark.parametrize("name", ["causal_lm_chunked", "masked_lm", "seq2seq_lm", "encoder_classes"])
def test_bfloat16_autocast_trains(name: str, tmp_path: Path) -> None:
    head = HEADS[name]
    losses = []
    for bf16 in (False, True):
        model = head.model()
        trainer = trainer_for(model, tmp_path, head.data(), bf16=bf16)
        trainer.train()
        assert {weight.dtype for weight in model.parameters()} == {torch.float32}
        losses.append(trainer.evaluate()["eval_loss"])
    assert losses[0] != losses[1], "autocast had no effect"
    assert losses[1] == pytest.approx(losses[0], rel=0.1)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["causal_lm", "causal_lm_chunked", "masked_lm", "seq2seq_lm", "decoder_classes"])
def test_a_compiled_training_step_equals_the_eager_one(name: str) -> None:
    head = HEADS[name]
    model = head.model().train()
    batch = collate(head.data())
    results = []
    for run in (model, torch.compile(model, fullgraph=True)):
        model.zero_grad(set_to_none=True)
        loss = run(**batch).loss
        loss.backward()
        results.append((loss.detach(), {key: weight.grad.clone() for key, weight in model.named_parameters()}))
    assert_close(results[1][0], results[0][0], 1e-5)
    for key, gradient in results[0][1].items():
        assert_close(results[1][1][key], gradient, 2e-5)


# Adapters.
@pytest.mark.parametrize("name", ["causal_lm_chunked", "masked_lm", "seq2seq_lm", "decoder_classes"])
def test_lora_trains_saves_loads_and_merges(name: str, tmp_path: Path) -> None:
    head = HEADS[name]
    base = head.model()
    frozen = copy.deepcopy(base.state_dict())
    task = {
        "causal_lm_chunked": "CAUSAL_LM",
        "masked_lm": None,
        "seq2seq_lm": "SEQ_2_SEQ_LM",
        "decoder_classes": "SEQ_CLS",
    }[name]
    torch.manual_seed(0)
    model = peft.get_peft_model(base, peft.LoraConfig(task_type=task, r=4))  # the default targets
    adapted = {key.rsplit(".lora_A", 1)[0].rsplit(".", 1)[-1] for key in model.state_dict() if "lora_A" in key}
    assert adapted == {"q_proj", "v_proj"}
    data = head.data()
    trainer = trainer_for(model, tmp_path / "run", data, learning_rate=3e-2)
    before = trainer.evaluate()["eval_loss"]
    trainer.train()
    after = trainer.evaluate()["eval_loss"]
    assert after < 0.95 * before
    trainer.save_model(str(tmp_path / "adapter"))

    fresh = head.model().eval()
    assert all(torch.equal(value, frozen[key]) for key, value in fresh.state_dict().items())
    loaded = peft.PeftModel.from_pretrained(fresh, tmp_path / "adapter").eval()
    batch = collate(data)
    if head.family == "encoder_decoder":
        batch["decoder_input_ids"] = base.prepare_decoder_input_ids_from_labels(batch["labels"])
    del batch["labels"]
    model.eval()
    with torch.no_grad():
        expected = model(**batch).logits
        assert_close(loaded(**batch).logits, expected, 1e-6)
    ask = {key: batch[key][-2:] for key in ("input_ids", "attention_mask")} | dict(max_new_tokens=5)
    text_of_adapter = model.generate(**ask).tolist() if task in ("CAUSAL_LM", "SEQ_2_SEQ_LM") else None
    merged = loaded.merge_and_unload()
    assert type(merged) is type(base)
    with torch.no_grad():
        assert_close(merged(**batch).logits, expected, 1e-5)
    if text_of_adapter:
        assert merged.generate(**ask).tolist() == text_of_adapter


@pytest.mark.parametrize("implementation", ["full", "chunked"])
def test_an_adapter_on_the_head_is_trained_by_every_loss(implementation: str) -> None:
    gradients = []
    for loss in ("full", implementation):
        model = HEADS["causal_lm"].model(tie_word_embeddings=False)
        model.loss_implementation = loss
        torch.manual_seed(0)
        model = peft.get_peft_model(
            model, peft.LoraConfig(target_modules=["lm_head"], init_lora_weights=False)
        ).train()
        model(**collate(HEADS["causal_lm"].data())).loss.backward()
        gradients.append({key: weight.grad for key, weight in model.named_parameters() if "lora" in key})
    assert len(gradients[0]) == 2
    for key, gradient in gradients[0].items():
        assert gradient.abs().max() > 0
        assert_close(gradients[1][key], gradient, 1e-5)


def test_adapters_know_their_targets_when_peft_is_imported_last() -> None:
    code = """
import hf_tx
import peft
config = hf_tx.TxDecoderConfig(vocab_size=9, hidden_size=8, num_hidden_layers=1, num_attention_heads=2)
peft.get_peft_model(hf_tx.TxDecoderForCausalLM(config), peft.LoraConfig())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-500:]
