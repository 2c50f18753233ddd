# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""`hf-tx serve` and `hf-tx chat`, over a tiny model."""

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


@pytest.fixture(scope="module")
def server(decoder: Path) -> Iterator[str]:
    for library in launch.serve.libraries + launch.chat.libraries:
        pytest.importorskip(library, reason=f"{library} is absent")
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    arguments = ["serve", str(decoder), "--host", "127.0.0.1", "--port", str(port), "--device", "cpu"]
    process = subprocess.Popen(
        [*COMMAND, *arguments], env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT
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
        f'hf-tx {command}: error: no_such_library cannot be found; install them by `pip install "hf_tx[serving]"`\n'
    )
