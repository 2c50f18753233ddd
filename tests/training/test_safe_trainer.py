# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""What hf_tx's trainers add to those of transformers: whole checkpoints, a stop at NaN, decay of matrices only."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from child_process import environment
from safetensors.torch import load_file
from tiny_models import build
from training.runs import SAVES, STEPS, run_for
from transformers import Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

from hf_tx.models.mixers import MIXERS
from hf_tx.training import NonFiniteLoss, TxSeq2SeqTrainer, TxTrainer

HERE = Path(__file__).parent


def checkpoints(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def losses(trainer: TxTrainer) -> list[float]:
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


@pytest.fixture(scope="module")
def whole_run(tmp_path_factory: pytest.TempPathFactory) -> TxTrainer:
    trainer = run_for(tmp_path_factory.mktemp("whole"))
    trainer.train()
    return trainer


def test_auxiliary_losses_are_logged_beside_the_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = type(build("decoder", head="lm").model.layers[0].mlp)
    forward, seen = kind.forward, []

    def penalising(self: Any, hidden_states: torch.Tensor, losses: Any = None) -> torch.Tensor:
        output = forward(self, hidden_states)
        if losses is not None:
            losses.add("size", size := 0.1 * output.square().mean())
            if self.training:
                seen.append(size.item())
        return output

    monkeypatch.setattr(kind, "forward", penalising)
    monkeypatch.setattr(kind, "auxiliary_losses", ("size",), raising=False)
    model = build("decoder", head="lm")
    trainer = run_for(tmp_path, model, max_steps=4, save_strategy="no", logging_steps=2, eval_strategy="steps")
    trainer.check_first_batch()
    seen.clear()
    trainer.train()
    logged = [entry["aux_loss_size"] for entry in trainer.state.log_history if "loss" in entry]
    half = len(seen) // 2  # four batches of all layers
    assert logged == pytest.approx([sum(seen[:half]) / 4, sum(seen[half:]) / 4])
    assert all("aux_loss_size" not in entry for entry in trainer.state.log_history if "eval_loss" in entry)


# -------------------------------------------------------------------------------------------------------- checkpoints
@pytest.mark.parametrize("when", ["training", "saving"])
def test_a_killed_run_goes_on_as_if_nothing_had_been(when: str, whole_run: TxTrainer, tmp_path: Path) -> None:
    killed = subprocess.run([sys.executable, str(HERE / "runs.py"), str(tmp_path), when], env=environment())
    assert killed.returncode == -signal.SIGKILL
    assert Path(get_last_checkpoint(tmp_path)).name == f"checkpoint-{SAVES}"
    assert ("_unfinished" in checkpoints(tmp_path)) == (when == "saving")

    trainer = run_for(tmp_path)
    trainer.train(resume_from_checkpoint=True)
    assert trainer.state.global_step == STEPS
    assert losses(trainer) == losses(whole_run)
    for name, weight in whole_run.model.state_dict().items():
        assert torch.equal(trainer.model.state_dict()[name], weight), name
    assert checkpoints(tmp_path) == [f"checkpoint-{step}" for step in (3, 6, 8)]


def test_a_failed_save_leaves_no_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = run_for(tmp_path)

    def fail(output_dir: str) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(trainer, "_save_scaler", fail)
    with pytest.raises(OSError, match="no space left"):
        trainer.train()
    assert get_last_checkpoint(tmp_path) is None
    monkeypatch.undo()
    trainer._save_checkpoint(trainer.model, None)
    assert checkpoints(tmp_path) == [f"checkpoint-{SAVES}"]


def test_a_checkpoint_is_replaced_whole(tmp_path: Path) -> None:
    (tmp_path / f"checkpoint-{SAVES}").mkdir()
    (tmp_path / f"checkpoint-{SAVES}" / "optimizer.pt").write_text("of another run")
    run_for(tmp_path, max_steps=SAVES).train()
    assert checkpoints(tmp_path) == [f"checkpoint-{SAVES}"]
    assert torch.load(tmp_path / f"checkpoint-{SAVES}" / "optimizer.pt")["state"]


def test_the_best_checkpoint_is_kept_found_and_loaded(tmp_path: Path) -> None:
    trainer = run_for(
        tmp_path,
        save_total_limit=2,
        load_best_model_at_end=True,
        metric_for_best_model="quality",
        greater_is_better=True,
        eval_strategy="steps",
        eval_steps=SAVES,
        max_steps=3 * SAVES,
    )
    qualities = {SAVES: 1.0, 2 * SAVES: 3.0, 3 * SAVES: 2.0}
    weights: dict[int, torch.Tensor] = {}

    def evaluate(*args: Any, **kwargs: Any) -> dict[str, float]:
        weights[trainer.state.global_step] = trainer.model.lm_head.weight.detach().clone()
        return {"eval_quality": qualities[trainer.state.global_step]}

    trainer._evaluate = evaluate
    trainer.train()
    best = tmp_path / f"checkpoint-{2 * SAVES}"
    assert checkpoints(tmp_path) == [best.name, f"checkpoint-{3 * SAVES}"]
    assert trainer.state.best_model_checkpoint == str(best)
    for folder in checkpoints(tmp_path):
        state = json.loads((tmp_path / folder / "trainer_state.json").read_text("utf-8"))
        assert state["best_model_checkpoint"] == str(best)
    assert torch.equal(trainer.model.lm_head.weight, weights[2 * SAVES])


# --------------------------------------------------------------------------------------------------------------- NaN
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_loss_that_is_no_number_stops_the_run_and_keeps_its_batch(value: float, tmp_path: Path) -> None:
    batches, before = [], {}

    class Spoil(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
            if state.global_step == 2:
                with torch.no_grad():
                    model.lm_head.weight[5] = value
                before.update({name: weight.clone() for name, weight in model.state_dict().items()})

    trainer = run_for(tmp_path)
    collate = trainer.data_collator
    trainer.data_collator = lambda examples: batches.append(collate(examples)) or batches[-1]
    trainer.add_callback(Spoil())
    with pytest.raises(NonFiniteLoss, match=r"the loss of step 3 is (nan|inf): .* The batch is in ") as stopped:
        trainer.train()
    assert stopped.value.step == 3
    saved = load_file(stopped.value.batch)
    assert any(all(torch.equal(saved[name], batch[name]) for name in batch) for batch in batches)
    assert checkpoints(tmp_path) == ["_nonfinite-step-3"]
    for name, weight in trainer.model.state_dict().items():
        assert torch.equal(weight, before[name]) or not torch.isfinite(before[name]).all(), name


# ------------------------------------------------------------------------------------------------------- weight decay
@pytest.mark.parametrize("trainer", [TxTrainer, TxSeq2SeqTrainer])
@pytest.mark.parametrize("mixer", list(MIXERS))
def test_matrices_are_decayed_and_nothing_else(mixer: str, trainer: Any) -> None:
    sinks = MIXERS.get(mixer).is_attention
    model = build("decoder", head="lm", mixers=mixer, attention_sinks=sinks, position_type="none", qk_norm=sinks)
    decayed = trainer.get_decay_parameter_names(object.__new__(trainer), model)
    matrices = {name for name, weight in model.named_parameters() if weight.ndim > 1}
    assert set(decayed) == matrices


# ----------------------------------------------------------------------------------------------------------- wrappers
def test_a_compiled_model_trains_saves_and_resumes_as_itself(tmp_path: Path) -> None:
    graphs = []

    def backend(graph: Any, _: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    def compiled() -> Any:
        return torch.compile(build("decoder", head="lm", num_hidden_layers=1), backend=backend)

    settings = dict(max_steps=2, save_steps=1, gradient_accumulation_steps=1)
    first = run_for(tmp_path, compiled(), **settings)
    names = set(compiled()._orig_mod.state_dict())
    first.train()
    assert graphs, "not compiled any more"
    first.save_model(str(tmp_path / "final"))
    for folder in (tmp_path / "final", tmp_path / "checkpoint-1"):
        assert set(load_file(folder / "model.safetensors")) <= names
    again = run_for(tmp_path, compiled(), **settings)
    again._load_from_checkpoint(str(tmp_path / "final"))
    for name, weight in first.model.state_dict().items():
        assert torch.equal(again.model.state_dict()[name], weight), name


def compile_layers(model: Any) -> Any:
    for idx, layer in enumerate(model.model.layers):
        model.model.layers[idx] = torch.compile(layer, backend="eager")
    return model


def compile_base(model: Any) -> Any:
    model.model = torch.compile(model.model, backend="eager")
    return model


@pytest.mark.parametrize(
    "wrap",
    [
        compile_layers,
        compile_base,
        torch.nn.DataParallel,
        lambda model: torch.nn.DataParallel(torch.compile(model)),
        lambda model: torch.compile(torch.nn.DataParallel(compile_base(model))),
    ],
)
def test_a_trainer_takes_models_out_of_their_wrappers(wrap: Any, tmp_path: Path) -> None:
    model = build("decoder", head="lm")
    names = set(model.state_dict())
    arguments = TrainingArguments(str(tmp_path), use_cpu=True, report_to=[])
    assert TxTrainer(wrap(model), arguments).model is model
    assert set(model.state_dict()) == names


def test_the_library_saves_what_is_in_a_compiled_model(tmp_path: Path) -> None:
    model = build("decoder", head="lm")
    arguments = TrainingArguments(str(tmp_path), use_cpu=True, report_to=[], disable_tqdm=True)
    Trainer(torch.compile(model, backend="eager"), arguments).save_model(str(tmp_path))
    loaded, info = type(model).from_pretrained(tmp_path, output_loading_info=True)
    assert not any(info.values())
    for name, weight in model.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], weight), name


@pytest.mark.parametrize("schedule", ["reduce_lr_on_plateau", "greedy"])
@pytest.mark.parametrize(("measure", "greater"), [("bits_per_byte", False), ("accuracy", True)])
def test_schedules_know_which_way_is_better(tmp_path: Path, schedule: str, measure: str, greater: bool) -> None:
    best = {"metric_for_best_model": measure, "greater_is_better": greater}
    trainer = run_for(tmp_path, lr_scheduler_type=schedule, eval_strategy="steps", eval_steps=1, **best)
    trainer.create_optimizer_and_scheduler(8)
    assert trainer.lr_scheduler.mode == ("max" if greater else "min")
    assert not trainer.args.lr_scheduler_kwargs  # as it was given


def test_a_wrong_direction_is_refused(tmp_path: Path) -> None:
    """What transformers guesses: all is better when it is greater, but what ends in `loss`."""
    with pytest.raises(ValueError, match="metric_for_best_model = mse: a smaller value is better"):
        run_for(tmp_path, metric_for_best_model="mse")
    run_for(tmp_path, metric_for_best_model="mse", greater_is_better=False)
    run_for(tmp_path, metric_for_best_model="of_my_own")
