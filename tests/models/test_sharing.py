# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Checkpoints in the hands of others: with hf_tx imported without a trust flag, and without hf_tx by remote code."""

import functools
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import remote_code
import torch
import transformers
from child_process import child
from filelock import FileLock
from remote_code import Heard, files_of, outputs_of, run_pipeline, same, tasks_of
from tiny_models import FAMILIES, config_of, enlarge, tokens
from transformers import AutoConfig, AutoModel

import hf_tx
from hf_tx.registration import CONFIGS, classes_of
from hf_tx.tokenization import train_tokenizer

CLASSES = {
    config.model_type.removeprefix("hf_tx_"): {
        auto: cls for auto, cls in classes_of(config).items() if auto != "AutoConfig"
    }
    for config in CONFIGS
}
SETTINGS: dict[str, dict[str, Any]] = {
    "decoder": dict(mixers="sliding,full", qk_norm=True, per_layer_config={1: {"intermediate_size": 12}}),
    "encoder": dict(
        position_type="learned", norm_position="post", embedding_norm=True, type_vocab_size=2, add_pooling_layer=True
    ),
    "encoder_decoder": dict(position_type="relative", ffn_type="mlp", lm_head_bias=True),
}
TEXTS = ["The river runs past the old mill, and the miller runs past the river.\n", "Who said hello?\n"] * 8
LANGUAGE_MODEL = {
    "decoder": "AutoModelForCausalLM",
    "encoder": "AutoModelForMaskedLM",
    "encoder_decoder": "AutoModelForSeq2SeqLM",
}
EVERY_HEAD = [(family, auto) for family in FAMILIES for auto in CLASSES[family]]
EVERY_TASK = [(family, auto, task) for family, auto in EVERY_HEAD for task in tasks_of(auto)]
CHECKS = [name.removeprefix("check_") for name in dir(remote_code.Stranger) if name.startswith("check_")]


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    transformers.utils.logging.disable_progress_bar()
    yield
    transformers.utils.logging.enable_progress_bar()


@pytest.fixture(scope="session")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that all workers of a run share."""
    base = tmp_path_factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


@pytest.fixture(scope="session")
def checkpoints(root: Path) -> Callable[[str], dict[str, str]]:
    """Gives for a family: the folder of a checkpoint with its tokenizer, by Auto class."""

    @functools.cache
    def made(family: str) -> dict[str, str]:
        folders = {auto: str(root / f"sharing-{family}" / f"checkpoint-{auto}") for auto in CLASSES[family]}
        with FileLock(root / f"sharing-{family}.lock"):
            done = root / f"sharing-{family}" / "done"
            if not done.exists():
                save_all(family, folders)
                done.touch()
        return folders

    return made


def save_all(family: str, folders: dict[str, str]) -> None:
    tokenizer = train_tokenizer(
        TEXTS,
        family=family.replace("_", "-"),  # type: ignore[arg-type]
        vocab_size=400,
        model_max_length=64,
        show_progress=False,
    )
    ids = {name: getattr(tokenizer, name) for name in ("pad_token_id", "bos_token_id", "eos_token_id")}
    for auto, cls in CLASSES[family].items():
        config = config_of(family, vocab_size=len(tokenizer), **SETTINGS[family])
        for name, value in ids.items():
            setattr(config, name, value)
        if auto == "AutoModelForSequenceClassification":
            config.id2label, config.label2id = (
                {0: "contradiction", 1: "entailment"},
                {"contradiction": 0, "entailment": 1},
            )
        model = enlarge(cls(config))
        model.save_pretrained(folders[auto])
        tokenizer.save_pretrained(folders[auto])


def inputs_of(family: str, auto: str) -> dict[str, torch.Tensor]:
    mask = torch.ones(2, 9, dtype=torch.long)
    mask[0, :3] = 0
    inputs = dict(input_ids=tokens(2, 9), attention_mask=mask)
    if family == "encoder_decoder":
        inputs["decoder_input_ids"] = tokens(2, 7, seed=1)
    if auto == "AutoModelForMultipleChoice":
        inputs = {name: value[None] for name, value in inputs.items()}
    return inputs


def prompt_of(family: str) -> dict[str, torch.Tensor]:
    inputs = inputs_of(family, "")
    return {name: inputs[name] for name in ("input_ids", "attention_mask")}


def local(auto: str, folder: Any, **kwargs: Any) -> Any:
    return getattr(transformers, auto).from_pretrained(folder, **kwargs)


@pytest.mark.parametrize(("family", "auto"), EVERY_HEAD)
def test_loading_needs_no_trust_with_hf_tx(family: str, auto: str, checkpoints: Any) -> None:
    folders = checkpoints(family)
    with Heard() as messages:
        model = local(auto, folders[auto])
    assert type(model) is CLASSES[family][auto]
    assert not messages
    assert type(AutoConfig.from_pretrained(folders[auto])) is CLASSES[family][auto].config_class
    assert type(getattr(transformers, auto).from_config(model.config)) is type(model)
    # The package's own code is used even where the checkpoint's is trusted.
    assert type(local(auto, folders[auto], trust_remote_code=True)) is type(model)
    # Any checkpoint of the family has the base of this head.
    other = local(auto, folders[LANGUAGE_MODEL[family]])
    assert type(other) is type(model)


@pytest.mark.parametrize(("family", "auto", "task"), EVERY_TASK)
def test_pipeline_with_hf_tx(family: str, auto: str, task: str, checkpoints: Any) -> None:
    run_pipeline(task, checkpoints(family)[auto])


def test_every_head_has_its_pipelines() -> None:
    """The tasks above are those of this version of transformers."""
    found = {(family, task) for family, _, task in EVERY_TASK}
    assert found >= {
        ("decoder", "text-generation"),
        ("decoder", "text-classification"),
        ("decoder", "token-classification"),
        ("decoder", "feature-extraction"),
        ("encoder", "fill-mask"),
        ("encoder", "text-classification"),
        ("encoder", "token-classification"),
        ("encoder", "feature-extraction"),
        ("encoder_decoder", "text-classification"),
        ("encoder_decoder", "feature-extraction"),
    }


@pytest.mark.parametrize(("family", "auto"), EVERY_HEAD)
def test_a_checkpoint_holds_the_code(family: str, auto: str, checkpoints: Any) -> None:
    folder = checkpoints(family)[auto]
    stored = json.loads(Path(folder, "config.json").read_text())
    assert stored["auto_map"] == CLASSES[family][auto].config_class.full_auto_map
    models = Path(hf_tx.__file__).parent / "models"
    for reference in stored["auto_map"].values():
        assert f"{reference.split('.')[0]}.py" in files_of(folder)
    for name in files_of(folder):
        assert Path(folder, name).read_bytes() == (models / name).read_bytes(), name


@pytest.mark.parametrize(("family", "auto"), EVERY_HEAD)
def test_saving_without_code(family: str, auto: str, checkpoints: Any, tmp_path: Path) -> None:
    model = local(auto, checkpoints(family)[auto])
    model.save_pretrained(tmp_path / "bare", include_code=False)
    assert not files_of(tmp_path / "bare")
    assert "auto_map" not in json.loads((tmp_path / "bare" / "config.json").read_text())
    same(
        outputs_of(local(auto, tmp_path / "bare"), inputs_of(family, auto)), outputs_of(model, inputs_of(family, auto))
    )
    # Saved with it afterwards, the code is there again.
    model.save_pretrained(tmp_path / "full")
    assert files_of(tmp_path / "full") == files_of(checkpoints(family)[auto])
    assert json.loads((tmp_path / "full" / "config.json").read_text())["auto_map"]

    model.config.save_pretrained(tmp_path / "config", include_code=False)
    assert [path.name for path in (tmp_path / "config").iterdir()] == ["config.json"]
    assert "auto_map" not in json.loads((tmp_path / "config" / "config.json").read_text())


@pytest.mark.parametrize("family", FAMILIES)
def test_a_config_alone_takes_the_code_along(family: str, checkpoints: Any, tmp_path: Path) -> None:
    CLASSES[family]["AutoModel"].config_class().save_pretrained(tmp_path)
    assert files_of(tmp_path) == files_of(checkpoints(family)["AutoModel"])


@pytest.mark.parametrize("failing", [False, True])
def test_saving_without_code_ends_with_the_call(failing: bool, tmp_path: Path) -> None:
    """Also when it fails: the next save writes the code."""
    model = CLASSES["decoder"]["AutoModel"](config_of("decoder"))
    if failing:
        model.config.num_key_value_heads = 5
        with pytest.raises(Exception, match="num_key_value_heads"):
            model.save_pretrained(tmp_path / "1", include_code=False)
        model.config.num_key_value_heads = 2
    else:
        model.save_pretrained(tmp_path / "1", include_code=False)
    model.save_pretrained(tmp_path / "2")
    assert files_of(tmp_path / "2")


@pytest.fixture(scope="session")
def reports(root: Path, checkpoints: Any) -> Callable[[str], dict[str, str]]:
    """Gives for a family: what a process without hf_tx reports of its checkpoints."""

    @functools.cache
    def made(family: str) -> dict[str, str]:
        folders, folder = checkpoints(family), root / f"stranger-{family}"
        with FileLock(root / f"stranger-{family}.lock"):
            if not folder.exists():
                ask(family, folders, folder)
        assert (folder / "report.json").exists(), "that process failed, as the first test to ask it shows"
        return json.loads((folder / "report.json").read_text())

    return made


def ask(family: str, folders: dict[str, str], folder: Path) -> None:
    folder.mkdir()
    (folder / "scratch").mkdir()
    expected: dict[str, Any] = {"inputs": {}, "outputs": {}}
    for auto, place in folders.items():
        expected["inputs"][auto] = inputs_of(family, auto)
        expected["outputs"][auto] = outputs_of(local(auto, place), inputs_of(family, auto))
    model = local(LANGUAGE_MODEL[family], folders[LANGUAGE_MODEL[family]])
    if model.can_generate():
        expected["prompt"] = prompt_of(family)
        expected["ids"] = model.generate(**prompt_of(family), max_new_tokens=8, do_sample=False, num_beams=2)
    torch.save(expected, folder / "expected.pt")
    answers = {}
    for auto in folders:
        for task in tasks_of(auto):
            try:
                answers[task] = run_pipeline(task, folders[auto])
            except Exception as error:  # told by another test
                answers[task] = repr(error)
    task = dict(
        family=family,
        folders=folders,
        answers=answers,
        expected=str(folder / "expected.pt"),
        scratch=str(folder / "scratch"),
    )
    (folder / "task.json").write_text(json.dumps(task))
    arguments = [remote_code.__file__, str(folder / "task.json"), str(folder / "report.json")]
    run = child(arguments, folder / "elsewhere")
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize(("family", "auto"), EVERY_HEAD)
def test_loading_without_hf_tx(family: str, auto: str, reports: Any) -> None:
    """Every class of the family, from its own checkpoint: equal outputs, and nothing logged."""
    assert reports(family)[f"load {auto}"] == "ok"


@pytest.mark.parametrize(("family", "auto", "task"), EVERY_TASK)
def test_pipeline_without_hf_tx(family: str, auto: str, task: str, reports: Any) -> None:
    assert reports(family)[f"pipeline {task}"] == "ok"


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("family", FAMILIES)
def test_without_hf_tx(family: str, check: str, reports: Any) -> None:
    """The checks of `remote_code.Stranger`."""
    assert reports(family)[check] == "ok"


@pytest.mark.parametrize(("family", "auto"), EVERY_HEAD)
def test_only_generative_heads_generate(family: str, auto: str) -> None:
    cls = CLASSES[family][auto]
    model = cls(config_of(family))
    generative = auto in ("AutoModelForCausalLM", "AutoModelForSeq2SeqLM")
    assert cls.can_generate() == model.can_generate() == generative
    assert hasattr(model, "generate") == generative
    if generative:
        assert model.generate(**prompt_of(family), max_new_tokens=2).shape[0] == 2
        return
    with pytest.raises(AttributeError) as error:
        model.generate(**prompt_of(family))
    message = str(error.value)
    right = {
        "decoder": "TxDecoderForCausalLM",
        "encoder": "TxDecoderForCausalLM or TxEncoderDecoderForConditionalGeneration",
        "encoder_decoder": "TxEncoderDecoderForConditionalGeneration",
    }
    assert cls.__name__ in message
    assert message.endswith(f"{right[family]}.")
    with pytest.raises(AttributeError, match="no attribute 'generat'"):
        model.generat()


@pytest.mark.parametrize("family", ["decoder", "encoder_decoder"])
def test_generating_with_a_config_without_special_tokens(family: str) -> None:
    """An untrained model whose config names no padding: one prompt needs none."""
    sizes = dict(vocab_size=32, hidden_size=16, num_hidden_layers=1, num_attention_heads=2)
    if family == "decoder":
        model = hf_tx.TxDecoderForCausalLM(hf_tx.TxDecoderConfig(**sizes))
        assert model.generate(torch.tensor([[3, 4]]), max_new_tokens=3).shape == (1, 5)
        return
    config = hf_tx.TxEncoderDecoderConfig(encoder=sizes, decoder=sizes)
    model = hf_tx.TxEncoderDecoderForConditionalGeneration(config)
    with pytest.raises(ValueError, match="decoder_start_token_id"):
        model.generate(torch.tensor([[3, 4]]), max_new_tokens=3)
    ids = model.generate(torch.tensor([[3, 4]]), max_new_tokens=3, decoder_start_token_id=1)
    assert ids.shape == (1, 4)


ADAPTERS = """
import json, sys
if sys.argv[1] == "before":
    import peft
import hf_tx
if sys.argv[1] == "after":
    assert "peft" not in sys.modules
    import peft
from peft import IA3Config, LoraConfig, get_peft_model
from tiny_models import build

found = {}
for family in ("decoder", "encoder", "encoder_decoder"):
    for name, config in {"LORA": LoraConfig(r=2), "IA3": IA3Config()}.items():
        model = get_peft_model(build(family, head="lm"), config)
        found[f"{family} {name}"] = sorted(
            {key.rsplit(".", 1)[-1] for key, module in model.named_modules() if hasattr(module, "base_layer")}
        )
from peft.utils import constants

found["unknown"] = [
    name
    for name, table in vars(constants).items()
    if name.endswith("TARGET_MODULES_MAPPING") and "q_proj" in table.get("llama", ()) and "hf_tx_decoder" not in table
]
print(json.dumps(found))
"""


@pytest.mark.parametrize("order", ["before", "after"])
def test_adapters_know_their_targets(order: str, tmp_path: Path) -> None:
    """Whichever is imported first, peft or hf_tx."""
    pytest.importorskip("peft")
    run = child(["-c", ADAPTERS, order], tmp_path)
    assert run.returncode == 0, run.stderr
    found = json.loads(run.stdout.splitlines()[-1])
    assert not found["unknown"], "kinds of adapters that know the projections of a Llama, but not ours"
    for family in FAMILIES:
        assert found[f"{family} LORA"] == ["q_proj", "v_proj"]
        assert found[f"{family} IA3"] == ["down_proj", "k_proj", "v_proj"]


def test_what_is_registered_is_what_is_loaded() -> None:
    for family in FAMILIES:
        config = config_of(family)
        assert type(AutoConfig.for_model(config.model_type)) is type(config)
        assert type(AutoModel.from_config(config)) is CLASSES[family]["AutoModel"]
