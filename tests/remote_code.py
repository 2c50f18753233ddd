# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""A stranger's use of checkpoints: in a process where hf_tx cannot be imported, by remote code alone.

Run as `python remote_code.py task.json report.json`. The task names the family and, by Auto class, the folders of its
checkpoints. The report says of every check "ok", or how it failed. The module imports nothing of hf_tx.
"""

import json
import logging
import os
import shutil
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from transformers import AutoConfig, pipeline
from transformers.pipelines import PIPELINE_REGISTRY

LANGUAGE_MODELS = ("AutoModelForCausalLM", "AutoModelForMaskedLM", "AutoModelForSeq2SeqLM")
#: Pipelines by the Auto class that loads their model, and how each is asked.
TASKS: dict[str, dict[str, Callable[[Any], Any]]] = {
    "AutoModel": {"feature-extraction": lambda pipe: pipe("The river runs")},
    "AutoModelForCausalLM": {
        "text-generation": lambda pipe: pipe("The river", max_new_tokens=5, do_sample=False),
    },
    "AutoModelForMaskedLM": {"fill-mask": lambda pipe: pipe(f"The {pipe.tokenizer.mask_token} runs")},
    "AutoModelForSequenceClassification": {
        "text-classification": lambda pipe: pipe(["The river runs", "The mill"]),
        "zero-shot-classification": lambda pipe: pipe("The river runs", candidate_labels=["water", "stone"]),
    },
    "AutoModelForTokenClassification": {"token-classification": lambda pipe: pipe("The river runs")},
    "AutoModelForQuestionAnswering": {
        "question-answering": lambda pipe: pipe(question="What runs?", context="The river runs past the mill."),
    },
    "AutoModelForSeq2SeqLM": {
        name: lambda pipe: pipe("The river runs", max_new_tokens=5, do_sample=False)
        for name in ("text2text-generation", "summarization", "translation")
    },
}


def tasks_of(auto: str) -> list[str]:
    """The pipelines for an Auto class that this version of transformers has."""
    return [name for name in TASKS.get(auto, ()) if name in PIPELINE_REGISTRY.get_supported_tasks()]


class Heard:
    """Collects what is logged by transformers and by a model's code, from a level on."""

    def __init__(self, level: int = logging.WARNING) -> None:
        self.level = level
        self.messages: list[str] = []

    def __enter__(self) -> list[str]:
        self.handler = logging.Handler(self.level)
        self.handler.emit = lambda record: self.messages.append(record.getMessage())  # type: ignore[method-assign]
        self.loggers = [logging.getLogger(name) for name in ("", "transformers", "hf_tx", "transformers_modules")]
        for logger in self.loggers:
            logger.addHandler(self.handler)
        return self.messages

    def __exit__(self, *_: Any) -> None:
        for logger in self.loggers:
            logger.removeHandler(self.handler)


def run_pipeline(task: str, folder: Any, **kwargs: Any) -> Any:
    """Build and ask a pipeline; the answer as JSON would keep it.

    Raises:
        AssertionError: something was logged as an error, or the answer is empty.
    """
    with Heard(logging.ERROR) as errors:
        pipe = pipeline(task, model=str(folder), **kwargs)
        asked = next(tasks[task] for tasks in TASKS.values() if task in tasks)
        answer = json.loads(json.dumps(asked(pipe), default=float))
    assert not errors, errors
    assert answer
    return answer


def outputs_of(model: Any, inputs: dict[str, torch.Tensor]) -> list[torch.Tensor]:
    """All tensors that a model returns."""
    with torch.no_grad():
        outputs = model.eval()(**inputs, use_cache=False) if model.can_generate() else model.eval()(**inputs)
    return [value for value in outputs.to_tuple() if isinstance(value, torch.Tensor)]


def same(first: list[torch.Tensor], second: list[torch.Tensor]) -> None:
    assert len(first) == len(second)
    for one, other in zip(first, second, strict=True):
        assert torch.equal(one, other), f"differs by {(one - other).abs().max()}"


def files_of(folder: Any) -> set[str]:
    return {path.name for path in Path(folder).iterdir() if path.suffix == ".py"}


class Block:
    """Makes the import of a package fail."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        if name.partition(".")[0] == "hf_tx":
            raise ImportError("hf_tx is not here")


class Stranger:
    """The checks. A method whose name begins with `check` is one."""

    def __init__(self, task: dict[str, Any]) -> None:
        self.folders: dict[str, str] = task["folders"]
        self.family: str = task["family"]
        self.scratch = Path(task["scratch"])
        self.lm = next(auto for auto in LANGUAGE_MODELS if auto in self.folders)
        self.expected = torch.load(task["expected"])
        self.answers = task["answers"]

    def load(self, auto: str, folder: Any = None, **kwargs: Any) -> Any:
        folder = self.folders[auto] if folder is None else folder
        return getattr(transformers, auto).from_pretrained(folder, trust_remote_code=True, **kwargs)

    def checks(self) -> dict[str, Callable[[], None]]:
        found: dict[str, Callable[[], None]] = {
            name.removeprefix("check_"): getattr(self, name) for name in dir(self) if name.startswith("check_")
        }
        for auto in self.folders:
            found[f"load {auto}"] = lambda auto=auto: self.loads(auto)
            for task in tasks_of(auto):
                found[f"pipeline {task}"] = lambda auto=auto, task=task: self.pipes(auto, task)
        return found

    def loads(self, auto: str) -> None:
        with Heard() as messages:
            model = self.load(auto)
        assert not messages, messages
        assert type(model).__module__.startswith("transformers_modules."), type(model)
        same(outputs_of(model, self.expected["inputs"][auto]), self.expected["outputs"][auto])

    def pipes(self, auto: str, task: str) -> None:
        answer = run_pipeline(task, self.folders[auto], trust_remote_code=True)
        assert answer == self.answers[task], answer

    def check_import_is_blocked(self) -> None:
        with pytest.raises(ImportError, match="hf_tx is not here"):
            import hf_tx  # noqa: F401

    def check_trust_is_needed(self) -> None:
        for auto in ("AutoConfig", self.lm):
            with pytest.raises(ValueError, match="trust_remote_code=True"):
                getattr(transformers, auto).from_pretrained(self.folders[self.lm], trust_remote_code=False)

    def check_every_head_loads_the_checkpoint_of_another(self) -> None:
        for auto in self.folders:
            assert self.load(auto, self.folders[self.lm]) is not None

    def check_generate(self) -> None:
        if "ids" in self.expected:
            model = self.load(self.lm)
            ids = model.generate(**self.expected["prompt"], max_new_tokens=8, do_sample=False, num_beams=2)
            assert torch.equal(ids, self.expected["ids"]), ids
        else:
            assert not hasattr(self.load(self.lm), "generate")

    def check_saving_again(self) -> None:
        """From the base model and from a head, and a second time from there."""
        for auto in ("AutoModel", self.lm):
            folder = self.folders[auto]
            for again in (self.scratch / f"{auto}-1", self.scratch / f"{auto}-2"):
                self.load(auto, folder).save_pretrained(again)
                assert files_of(again) == files_of(folder)
                first, second = (json.loads(Path(at, "config.json").read_text()) for at in (folder, again))
                assert first["auto_map"] == second["auto_map"]
                for name in files_of(again):
                    assert Path(again, name).read_bytes() == Path(folder, name).read_bytes(), name
                same(outputs_of(self.load(auto, again), self.expected["inputs"][auto]), self.expected["outputs"][auto])
                folder = again

    def check_a_config_alone_takes_the_code_along(self) -> None:
        config = AutoConfig.from_pretrained(self.folders[self.lm], trust_remote_code=True)
        folder = self.scratch / "config"
        config.save_pretrained(folder)
        assert files_of(folder) == files_of(self.folders[self.lm])
        config = AutoConfig.from_pretrained(folder, trust_remote_code=True)
        for auto in self.folders:
            model = getattr(transformers, auto).from_config(config, trust_remote_code=True)
            outputs_of(model, self.expected["inputs"][auto])

    def check_saving_without_code(self) -> None:
        model = self.load(self.lm)
        folder = self.scratch / "bare"
        model.save_pretrained(folder, include_code=False)
        assert not files_of(folder), files_of(folder)
        assert "auto_map" not in json.loads((folder / "config.json").read_text())
        model.save_pretrained(self.scratch / "with")
        assert files_of(self.scratch / "with") == files_of(self.folders[self.lm])

    def check_other_paths(self) -> None:
        """C39: where a checkpoint lies does not matter."""
        if self.family != "decoder":
            return
        here = os.getcwd()
        for name in ("a-b.c", "with spaces", "1st", "class", "émile"):
            shutil.copytree(self.folders[self.lm], self.scratch / name)
        (self.scratch / "link").symlink_to(self.scratch / "a-b.c")
        try:
            os.chdir(self.scratch / "a-b.c")
            for path in (".", "./", "../a-b.c", str(self.scratch / "a-b.c") + "/"):
                self.same_from(path)
            os.chdir(self.scratch)
            for path in ("./a-b.c", "a-b.c", "with spaces", "link", "./link/", "1st", "class", "émile"):
                self.same_from(path)
        finally:
            os.chdir(here)

    def same_from(self, path: str) -> None:
        assert AutoConfig.from_pretrained(path, trust_remote_code=True).model_type == f"hf_tx_{self.family}"
        outputs = outputs_of(self.load(self.lm, path), self.expected["inputs"][self.lm])
        same(outputs, self.expected["outputs"][self.lm])

    def check_two_checkpoints_with_different_code(self) -> None:
        """They have one name, and do not disturb each other, nor what is loaded afterwards."""
        if self.family != "decoder":
            return
        inputs, expected = self.expected["inputs"][self.lm], self.expected["outputs"][self.lm]
        first = self.load(self.lm)
        other = self.scratch / "other" / Path(self.folders[self.lm]).name
        shutil.copytree(self.folders[self.lm], other)
        with (other / "heads.py").open("a") as file:
            file.write("\n\n_plain = LanguageModelHead.compute_logits\n")
            file.write("LanguageModelHead.compute_logits = lambda self, states: 2 * _plain(self, states)\n")
        second = self.load(self.lm, other)
        assert type(first) is not type(second)
        for _ in range(2):
            same(outputs_of(second, inputs), [2 * expected[0]])
            same(outputs_of(first, inputs), expected)
            same(outputs_of(self.load(self.lm), inputs), expected)

    def check_zz_hf_tx_beside_it(self) -> None:
        """The package may be imported later on: both copies of the code work, and know nothing of each other."""
        inputs, expected = self.expected["inputs"][self.lm], self.expected["outputs"][self.lm]
        remote = self.load(self.lm)
        sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, Block)]
        import hf_tx

        local = getattr(transformers, self.lm).from_pretrained(self.folders[self.lm])
        assert type(local) is getattr(hf_tx, type(remote).__name__)
        assert type(local) is not type(remote)
        for model in (local, remote):
            same(outputs_of(model, inputs), expected)
            folder = self.scratch / type(model).__module__
            model.save_pretrained(folder)
            assert files_of(folder) == files_of(self.folders[self.lm])
        # With the package here its own classes are used, trust or not.
        assert type(self.load(self.lm)) is type(local)


def main(task_file: str, report_file: str) -> None:
    sys.meta_path.insert(0, Block())  # type: ignore[arg-type]
    transformers.utils.logging.disable_progress_bar()
    stranger = Stranger(json.loads(Path(task_file).read_text()))
    report = {}
    for name, check in sorted(stranger.checks().items()):
        try:
            check()
            report[name] = "ok"
        except Exception:
            report[name] = traceback.format_exc()
    Path(report_file).write_text(json.dumps(report))


if __name__ == "__main__":
    main(*sys.argv[1:])
