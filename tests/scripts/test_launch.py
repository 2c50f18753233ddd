# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""The files of scripts/launch/: what accelerate, transformers and DeepSpeed make of them, and runs on several
machines, each of which is a launcher of its own here."""

import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import child_process
import pytest
from accelerate.commands.config.config_args import load_config_from_file
from accelerate.commands.launch import _validate_launch_command, launch_command_parser
from accelerate.utils import FullyShardedDataParallelPlugin
from accelerate.utils.launch import prepare_multi_gpu_env
from scripts.scripts import FOLDER, loaded
from scripts.test_pretrain import TEXT, TINY
from tiny_models import FAMILIES, build
from transformers import TrainingArguments

import hf_tx

LAUNCH = FOLDER / "launch"
CONFIGS = sorted(path.name for path in LAUNCH.glob("*.yaml"))
ZERO = sorted(path.name for path in LAUNCH.glob("*.json"))


def arguments_of(name: str, *flags: str) -> Any:
    """What `accelerate launch` makes of a file and flags."""
    command = ["--config_file", str(LAUNCH / name), *flags, str(FOLDER / "pretrain.py")]
    return _validate_launch_command(launch_command_parser().parse_args(command))[0]


def test_there_is_a_file_of_every_kind() -> None:
    assert CONFIGS == ["ddp.yaml", "fsdp2.yaml", "multi_node.yaml", "zero2.yaml", "zero3.yaml"]
    assert ZERO == ["zero2.json", "zero3.json"]


@pytest.mark.parametrize("name", CONFIGS)
def test_accelerate_knows_every_field(name: str) -> None:
    config = load_config_from_file(str(LAUNCH / name))  # refuses unknown fields
    known = vars(launch_command_parser().parse_args([str(FOLDER / "pretrain.py")]))
    assert set(config.fsdp_config) | set(config.deepspeed_config) <= known.keys()
    args = arguments_of(name)
    used = [flag for flag in ("multi_gpu", "use_fsdp", "use_deepspeed") if getattr(args, flag)]
    assert used == [
        {"fsdp2": "use_fsdp", "zero2": "use_deepspeed", "zero3": "use_deepspeed"}.get(name[:5], "multi_gpu")
    ]


@pytest.mark.parametrize("name", CONFIGS)
def test_flags_go_before_the_file(name: str) -> None:
    flags = ["--num_processes", "6", "--num_machines", "3", "--machine_rank", "2", "--main_process_ip", "10.0.0.9"]
    args = arguments_of(name, *flags)
    found = (args.num_processes, args.num_machines, args.machine_rank, args.main_process_ip)
    assert found == (6, 3, 2, "10.0.0.9")


@pytest.mark.parametrize("family", FAMILIES)
def test_fsdp_wraps_the_blocks(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for key, value in prepare_multi_gpu_env(arguments_of("fsdp2.yaml")).items():
        if key.startswith("FSDP_"):
            monkeypatch.setenv(key, value)
    plugin = FullyShardedDataParallelPlugin()
    assert plugin.fsdp_version == 2
    assert plugin.reshard_after_forward is True
    assert plugin.state_dict_type.name == "FULL_STATE_DICT"
    assert not plugin.activation_checkpointing
    model = build(family, head="lm")
    assert set(plugin.transformer_cls_names_to_wrap) == set(model._no_split_modules)
    plugin.set_auto_wrap_policy(model)
    wrapped = plugin.auto_wrap_policy.keywords["transformer_layer_cls"]
    blocks = [module for module in model.modules() if isinstance(module, tuple(wrapped))]
    assert len(blocks) == 2 * (2 if family == "encoder_decoder" else 1)


@pytest.mark.parametrize("name", ZERO)
def test_zero_is_named_by_its_accelerate_file(name: str) -> None:
    config = load_config_from_file(str(LAUNCH / name.replace("json", "yaml"))).deepspeed_config
    assert FOLDER.parent / config["deepspeed_config_file"] == LAUNCH / name
    stage = json.loads((LAUNCH / name).read_text("utf-8"))["zero_optimization"]["stage"]
    assert name == f"zero{stage}.json"
    assert config["zero3_init_flag"] == (stage == 3)


@pytest.mark.parametrize("name", ZERO)
def test_the_trainer_fills_what_is_auto(name: str, tmp_path: Path) -> None:
    pytest.importorskip("deepspeed", reason="deepspeed is absent")
    from transformers.integrations.deepspeed import HfTrainerDeepSpeedConfig, unset_hf_deepspeed_config

    args = TrainingArguments(
        str(tmp_path), use_cpu=True, per_device_train_batch_size=3, gradient_accumulation_steps=2, bf16=True
    )
    config = HfTrainerDeepSpeedConfig(str(LAUNCH / name))
    config.trainer_config_process(args)
    config.trainer_config_finalize(args, build("encoder_decoder", head="lm"), num_training_steps=10)
    unset_hf_deepspeed_config()
    assert '"auto"' not in json.dumps(config.config)
    assert config.config["train_batch_size"] == 6
    assert config.config["gradient_clipping"] == args.max_grad_norm
    assert config.config["bf16"] == {"enabled": True}


# ------------------------------------------------------------------------------------------------------------- runs
STUBS = {"scontrol": "echo 127.0.0.1", "srun": '"$@" & "$@" & wait -n && wait -n'}


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """A folder with a text, and commands of SLURM that make two machines of this one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    Path("text.txt").write_text(TEXT, "utf-8")
    Path("bin").mkdir()
    for name, code in STUBS.items():
        Path("bin", name).write_text(f"#!/bin/bash\n{code}\n", "utf-8")
    Path("bin/torchrun").write_text(f'#!/bin/bash\nexec {sys.executable} -m torch.distributed.run "$@"\n', "utf-8")
    for path in Path("bin").iterdir():
        path.chmod(0o755)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    path = os.pathsep.join([str(tmp_path / "bin"), os.environ["PATH"]])
    return child_process.environment(HF_DATASETS_CACHE="cache", MASTER_PORT=port, PATH=path)


def options(**changes: Any) -> list[str]:
    chosen = {**TINY, "max_steps": 4, "logging_steps": 1, "per_device_train_batch_size": 2, **changes}
    return [f"--{name}={value}" for name, value in chosen.items()]


def losses(folder: str) -> list[float]:
    state = json.loads(Path(folder, "checkpoint-4/trainer_state.json").read_text("utf-8"))
    return [entry["loss"] for entry in state["log_history"] if "loss" in entry]


def equals_one_process(folder: str) -> None:
    assert json.loads(Path(folder, "run.json").read_text("utf-8"))["training"]["processes"] == 2
    with loaded("pretrain") as script:
        assert script.main(options(output="one", per_device_train_batch_size=4)) == 0
    assert losses(folder) == pytest.approx(losses("one"), rel=1e-4)


@pytest.mark.distributed
def test_two_machines_under_slurm(environment: dict[str, str]) -> None:
    job = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "a,b", "SLURM_NNODES": "2", "SLURM_GPUS_ON_NODE": "1"}
    command = ["bash", str(LAUNCH / "slurm.sbatch"), str(FOLDER / "pretrain.py"), *options()]
    run = subprocess.run(command, env=environment | job, capture_output=True, text=True, timeout=200)
    assert run.returncode == 0, run.stderr[-3000:]
    equals_one_process("out")


@pytest.mark.distributed
def test_two_machines_by_accelerate(environment: dict[str, str]) -> None:
    launcher = [sys.executable, "-m", "accelerate.commands.launch", "--config_file", str(LAUNCH / "multi_node.yaml")]
    launcher += ["--num_processes", "2", "--main_process_port", environment.pop("MASTER_PORT")]
    command = [str(FOLDER / "pretrain.py"), *options()]
    machines = [
        subprocess.Popen([*launcher, "--machine_rank", str(rank), *command], env=environment, stderr=subprocess.PIPE)
        for rank in range(2)
    ]
    for machine in machines:
        _, errors = machine.communicate(timeout=200)
        assert machine.returncode == 0, errors.decode()[-3000:]
    equals_one_process("out")


@pytest.mark.distributed
@pytest.mark.parametrize("name", ZERO)
def test_zero_learns_what_one_process_learns(name: str, environment: dict[str, str]) -> None:
    """From the same weights; the second run goes on from the first one's checkpoint, to the same weights."""
    pytest.importorskip("deepspeed", reason="deepspeed is absent")
    from safetensors.torch import load_file

    rows = [{"prompt": f"{line[:4]}", "response": f"{line}"} for line in TEXT.splitlines()]
    Path("turns.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    with loaded("pretrain") as script:
        assert script.main(options(output="base", mixers="gated_delta,full")) == 0
    tune = {"--model": "base", "--task": "chat", "--dataset": "turns.jsonl", "--max-steps": "4", "--save-steps": "2"}
    tune |= {"--logging-steps": "1", "--learning-rate": "0.01", "--disable-tqdm": "True", "--seed": "1"}
    plain = [part for pair in tune.items() for part in pair]
    torchrun = ["torchrun", "--standalone", "--nproc-per-node", "2", str(FOLDER / "finetune.py"), *plain]
    torchrun += ["--per-device-train-batch-size", "2", "--deepspeed", str(LAUNCH / name), "--output", "out"]

    def run(*more: str) -> dict[str, Any]:
        own = {"DS_ACCELERATOR": "cpu", **environment}
        done = subprocess.run([*torchrun, *more], env=own, capture_output=True, text=True, timeout=280)
        assert done.returncode == 0, done.stderr[-3000:]
        return load_file("out/model.safetensors")

    whole = run()
    with loaded("finetune") as script:
        assert script.main([*plain, "--per-device-train-batch-size", "4", "--output", "one"]) == 0
    assert losses("out") == pytest.approx(losses("one"), rel=1e-3)
    shutil.rmtree("out/checkpoint-4")
    Path("out/model.safetensors").unlink()
    again = run("--resume")
    assert all((again[key] == weight).all() for key, weight in whole.items())
    hf_tx.TxDecoderForCausalLM.from_pretrained("out")
