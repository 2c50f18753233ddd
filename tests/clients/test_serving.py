# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""`hf-tx serve` and `hf-tx chat`, over a tiny model."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import hf_tx
from hf_tx.cli import launch, main

COMMAND = [sys.executable, "-c", "import sys; from hf_tx.cli import main; sys.exit(main())"]
GREEDY = {"max_new_tokens": 6, "do_sample": False, "eos_token_id": None}
QUESTION = [{"role": "user", "content": "Who runs?"}]


def environment() -> dict[str, str]:
    found = os.environ | {"PYTHONPATH": str(Path(hf_tx.__file__).parents[1]), "COLUMNS": "200"}
    found.pop("HF_HUB_OFFLINE", None)  # it would keep the client of `chat` from 127.0.0.1
    return found


def post(address: str, **body: Any) -> Any:
    request = urllib.request.Request(address, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


@contextlib.contextmanager
def serving(*arguments: str) -> Iterator[str]:
    """Run `hf-tx serve` with these arguments."""
    for library in launch.serve.libraries + launch.chat.libraries:
        pytest.importorskip(library, reason=f"{library} is absent")
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    where = ["--host", "127.0.0.1", "--port", str(port), "--device", "cpu"]
    process = subprocess.Popen(
        [*COMMAND, "serve", *arguments, *where], env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    try:
        for _ in range(600):
            assert process.poll() is None, process.communicate()[0].decode()[-2000:]
            try:
                with urllib.request.urlopen(f"{address}/health", timeout=5):
                    break
            except urllib.error.URLError:
                time.sleep(0.1)
        else:
            raise AssertionError("the server does not start")
        yield address
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)


@pytest.fixture(scope="module")
def server(decoder: Path) -> Iterator[str]:
    with serving(str(decoder)) as address:
        yield address


@pytest.fixture(scope="module")
def batching_server() -> Iterator[str]:
    with serving("--continuous-batching", "--cb-num-blocks", "64") as address:
        yield address


def test_batched_completions_are_what_generate_writes(batching_server: str, decoder: Path) -> None:
    model, tokenizer = AutoModelForCausalLM.from_pretrained(decoder), AutoTokenizer.from_pretrained(decoder)
    prompts = ["The miller", "The river runs past the old mill and past", "Who"]
    settings = dict(model=str(decoder), generation_config=json.dumps(GREEDY | {"eos_token_id": -1}))
    with ThreadPoolExecutor(len(prompts)) as users:
        url = f"{batching_server}/v1/completions"
        answers = list(users.map(lambda prompt: post(url, prompt=prompt, **settings), prompts))
    for prompt, answer in zip(prompts, answers, strict=True):
        ids = tokenizer(prompt).input_ids
        row = model.generate(torch.tensor([ids]), **GREEDY)[0, len(ids) :]
        assert answer["choices"][0]["text"] == tokenizer.decode(row, skip_special_tokens=True)


def test_a_refusal_reaches_the_user(batching_server: str, recurrent_decoder: Path) -> None:
    with pytest.raises(urllib.error.HTTPError) as refused:
        post(f"{batching_server}/v1/completions", prompt="The miller", model=str(recurrent_decoder))
    assert refused.value.code == 400
    words = json.load(refused.value)["error"]
    assert "continuous batching with 'sdpa' cannot compute layer 0 ('gru')" in words
    assert "use generate() with one of" in words


def test_a_completion_is_what_generate_writes(server: str, decoder: Path) -> None:
    model, tokenizer = AutoModelForCausalLM.from_pretrained(decoder), AutoTokenizer.from_pretrained(decoder)

    def written(ids: list[int]) -> str:
        row = model.generate(torch.tensor([ids]), **GREEDY)[0, len(ids) :]
        assert len(row) == GREEDY["max_new_tokens"]
        return tokenizer.decode(row, skip_special_tokens=True)

    settings = dict(model=str(decoder), generation_config=json.dumps(GREEDY))
    answer = post(f"{server}/v1/completions", prompt="The miller", **settings)
    assert answer["choices"][0]["text"] == written(tokenizer("The miller").input_ids)
    answer = post(f"{server}/v1/chat/completions", messages=QUESTION, **settings)
    ids = tokenizer.apply_chat_template(QUESTION, add_generation_prompt=True)["input_ids"]
    assert answer["choices"][0]["message"]["content"] == written(ids)


def test_a_chat(server: str, decoder: Path, tmp_path: Path) -> None:
    flags = ["max_new_tokens=3", "do_sample=False"]
    talk = subprocess.run(
        [*COMMAND, "chat", str(decoder), f"{server}/v1", *flags, "--user", "miller"],
        input="Who runs?\nn\n!exit\n",
        env=environment(),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert talk.returncode == 0, talk.stderr[-2000:]
    assert "<miller>" in talk.stdout
    assert "3 tokens in" in talk.stdout


@pytest.mark.parametrize("command", ["serve", "chat"])
def test_what_is_absent_is_named(command: str, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    launcher = getattr(launch, command)
    monkeypatch.setattr(launcher, "libraries", ("no_such_library", "torch"))
    assert main([command, "--port", "1", "model"]) == 2
    message = capsys.readouterr().err
    assert message == (
        f'hf-tx {command}: error: not installed: no_such_library. Install them with `pip install "hf_tx[serving]"`.\n'
    )
