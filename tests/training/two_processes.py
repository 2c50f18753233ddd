# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Checks that two processes make together, each against what one computes alone:
`torchrun --nproc-per-node 2 two_processes.py FOLDER`. Every process writes what became of each check."""

import json
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from objective_data import make, make_texts
from safetensors.torch import load_file
from tiny_models import FAMILIES, assert_close, config_of, enlarge, tokens
from torch.utils.data import DataLoader
from training.runs import SAVES, run_for, spoil_last_process
from training.test_trainer import HEADS, collate
from transformers import TrainerCallback, TrainingArguments

import hf_tx
from hf_tx.training import NonFiniteLoss, TxTrainer
from hf_tx.training.streaming import TextStream, stream_rows

CHECKS: dict[str, Callable[[Path], None]] = {}
CLASSES = {
    "decoder": "TxDecoderForCausalLM",
    "encoder": "TxEncoderForMaskedLM",
    "encoder_decoder": "TxEncoderDecoderForConditionalGeneration",
}


TENSOR_PARALLEL = {"tp_size": 2, "tp_plan": "auto"}
#: What differs from head to head, so that a device with some of the heads would need its part of it.
BY_HEAD: dict[str, dict[str, Any]] = {
    "relative": dict(position_type="relative"),
    "alibi": dict(position_type="alibi"),
    "sinks": dict(attention_sinks=True),
}


def check(name: str, function: Callable[..., None], *arguments: Any) -> None:
    CHECKS[name] = lambda folder: function(folder, *arguments)


def _shared(folder: Path) -> Path:
    """Wait for the other process."""
    dist.barrier()
    return folder


# ---------------------------------------------------------------------------------------------------- data parallel
def _train(folder: Path, name: str) -> dict[str, torch.Tensor]:
    head = HEADS[name]
    model, data = head.model(), head.data([5] * 8)
    args = TrainingArguments(
        str(folder),
        use_cpu=True,
        report_to=[],
        disable_tqdm=True,
        save_strategy="no",
        per_device_train_batch_size=2,
        learning_rate=0.1,
        lr_scheduler_type="constant",
        optim="sgd",
        max_grad_norm=0.0,
        max_steps=3,
        train_sampling_strategy="sequential",
        ddp_find_unused_parameters=False,
    )
    trainer = TxTrainer(model, args, train_dataset=data, data_collator=collate)
    trainer.train()
    assert dist.get_world_size() == args.world_size == 2
    return dict(model.state_dict())


def trains_as_one_process(folder: Path, name: str) -> None:
    """Three steps on halves of the batches lead to the weights of one process; no parameter is left without a
    gradient, which DDP would refuse."""
    together, alone, start = _train(folder, name), _alone(HEADS[name]), HEADS[name].model().state_dict()
    assert any((value - start[key]).abs().max() > 1e-4 for key, value in alone.items())
    for key, value in alone.items():
        assert_close(together[key], value, 1e-5)


def _alone(head: Any) -> dict[str, torch.Tensor]:
    """Take the same steps by hand."""
    model, data = head.model().train(), head.data([5] * 8)
    for start in (0, 4, 0):
        batch = collate(data[start : start + 4])
        model.zero_grad()
        model(**batch).loss.backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 0.1 * parameter.grad
    return dict(model.state_dict())


def resumes(folder: Path) -> None:
    """A run with dropout on packed rows that goes on from a checkpoint ends as the whole one, bit by bit."""
    whole = run_for(folder)
    whole.train()
    again = run_for(folder)
    again.train(resume_from_checkpoint=str(folder / f"checkpoint-{SAVES}"))
    assert dist.get_world_size() == whole.args.world_size == 2
    for name, weight in whole.model.state_dict().items():
        assert torch.equal(again.model.state_dict()[name], weight), name


def stops_at_a_nan_of_the_other(folder: Path) -> None:
    """A loss that is NaN in one process stops both before the weights move, and keeps the batch of that one."""
    trainer, before = run_for(folder), {}

    class Remember(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            before.update({name: weight.clone() for name, weight in trainer.model.state_dict().items()})

    trainer.add_callback(Remember())
    spoil_last_process(trainer)
    with pytest.raises(NonFiniteLoss, match=f"the loss of step {SAVES + 1} is nan: ") as stopped:
        trainer.train()
    assert [path.name for path in stopped.value.batch.parent.iterdir()] == ["batch-1.safetensors"]
    assert stopped.value.batch.name == "batch-1.safetensors"
    assert load_file(stopped.value.batch)["input_ids"].shape == (2, 16)
    assert before
    for name, weight in trainer.model.state_dict().items():
        assert torch.equal(weight, before[name]), name


def shares_a_stream(folder: Path, name: str) -> None:
    """Each process learns from its share of the rows of each step, however long they are."""
    file = folder / f"text-{dist.get_rank()}.txt"
    file.write_text("\n".join(make_texts(20)), "utf-8")
    args = TrainingArguments(str(folder), use_cpu=True, report_to=[], per_device_train_batch_size=2, max_steps=3)
    objective = make(name)
    rows = stream_rows(objective, TextStream((str(file),)), ["text"], args, 4)
    trainer = TxTrainer(HEADS["causal_lm"].model(), args, train_dataset=rows, data_collator=objective)
    own = [[real_labels(row) for row in batch["labels"]] for batch in trainer.get_train_dataloader()]
    both: Any = [None, None]
    dist.all_gather_object(both, own)
    expected = [[real_labels(row) for row in batch["labels"]] for batch in DataLoader(rows, 4, collate_fn=objective)]
    assert len(both[0]) == len(both[1]) == len(expected) > 5
    # The last batch is filled up with rows of the first.
    assert [one + other for one, other in zip(*both, strict=True)][:-1] == expected[:-1]


def real_labels(labels: torch.Tensor) -> list[int]:
    return labels[labels != -100].tolist()


check("stream-packed", shares_a_stream, "causal-lm")
check("stream-padded", shares_a_stream, "span-corruption")
for head_name in HEADS:
    check(f"ddp-{head_name}", trains_as_one_process, head_name)
check("ddp-resume", resumes)
check("ddp-nan", stops_at_a_nan_of_the_other)


# -------------------------------------------------------------------------------------------------- FSDP2 and tensors
def _batch(family: str) -> dict[str, torch.Tensor]:
    ids = tokens(2, 9)
    batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": tokens(2, 9, seed=1)}
    batch["attention_mask"][1, 6:] = 0
    batch["labels"][1, 6:] = -100
    return batch


def _full(tensor: Any) -> torch.Tensor:
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def shards(
    folder: Path, family: str, mixers: str, distributed: dict[str, Any], settings: dict[str, Any] | None = None
) -> None:
    """A sharded model has the texts, logits, loss and gradients of one process, and is saved and loaded as a whole."""
    kind = getattr(hf_tx, CLASSES[family])
    model = enlarge(kind(config_of(family, mixers=mixers, vocab_size=64, **(settings or {})))).eval()
    if dist.get_rank() == 0:
        model.save_pretrained(folder / "one")
    _shared(folder)
    sharded = kind.from_pretrained(folder / "one", distributed_config=distributed).eval()
    split = [name for name, parameter in sharded.named_parameters() if hasattr(parameter, "full_tensor")]
    assert split, "nothing is sharded"
    batch = _batch(family)
    ask = dict(input_ids=batch["input_ids"][:1], max_new_tokens=3, do_sample=False, eos_token_id=None)
    text = model.generate(**ask) if model.can_generate() else None
    # Before any forward pass and after a backward pass: FSDP then holds pieces of what the encoder alone reads.
    assert text is None or torch.equal(sharded.generate(**ask), text)
    expected, actual = model(**batch), sharded(**batch)
    assert_close(_full(actual.logits), expected.logits, 1e-5)
    assert_close(_full(actual.loss), expected.loss, 1e-5)
    expected.loss.backward()
    actual.loss.backward()
    for name, parameter in sharded.named_parameters():
        assert_close(_full(parameter.grad), model.get_parameter(name).grad, 1e-4)
    assert text is None or torch.equal(sharded.generate(**ask), text)
    sharded.save_pretrained(folder / "two", is_main_process=dist.get_rank() == 0)
    _shared(folder)
    again = kind.from_pretrained(folder / "two")
    for name, weight in model.state_dict().items():
        assert torch.equal(again.state_dict()[name], weight), name


def refuses_heads_that_do_not_divide(folder: Path) -> None:
    """One key head for two devices."""
    model = hf_tx.TxDecoderForCausalLM(config_of("decoder", num_key_value_heads=1))
    if dist.get_rank() == 0:
        model.save_pretrained(folder)
    with pytest.raises(
        ValueError, match="layer 0 has num_key_value_heads = 1, which is not a multiple of tp_size = 2"
    ):
        hf_tx.TxDecoderForCausalLM.from_pretrained(_shared(folder), distributed_config=TENSOR_PARALLEL)


check("fsdp2-hybrid", shards, "decoder", "gated_delta,lstm", {"fsdp_size": 2})
check("tensor-parallel-hybrid", shards, "decoder", "gated_delta,full", TENSOR_PARALLEL)
check("fsdp2-types", shards, "encoder_decoder", "full", {"fsdp_size": 2}, {"encoder": {"type_vocab_size": 2}})
for family_name in FAMILIES:
    check(f"fsdp2-{family_name}", shards, family_name, "full", {"fsdp_size": 2})
    check(f"tensor-parallel-{family_name}", shards, family_name, "full", TENSOR_PARALLEL)
    for feature, by_head in BY_HEAD.items():
        check(f"tensor-parallel-{feature}-{family_name}", shards, family_name, "full", TENSOR_PARALLEL, by_head)
check("tensor-parallel-heads", refuses_heads_that_do_not_divide)


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    assert dist.get_world_size() == 2
    results = {}
    for name, function in CHECKS.items():
        own = folder / name
        own.mkdir(exist_ok=True)
        try:
            function(_shared(own))
            results[name] = "ok"
        except Exception:
            results[name] = traceback.format_exc()
        (folder / f"results-{dist.get_rank()}.json").write_text(json.dumps(results), "utf-8")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
