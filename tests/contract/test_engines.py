# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""What vLLM's backend for models of transformers does, without vLLM: it names an attention function without a mask
function in the config, builds the base model by its Auto class, feeds requests end to end in one row with positions
that begin again, keeps keys itself, and multiplies by what it finds in the config."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from tiny_models import assert_close, build, config_of, tokens
from transformers import AttentionInterface, AutoModel

PROMPTS = [tokens(length, seed=length) for length in (5, 9, 1, 12)]
STEPS = 6
SERVED: dict[str, dict[str, Any]] = {
    "full": {},
    "sliding,full": dict(mixers="sliding,full"),
    "learned": dict(position_type="learned", norm_type="layernorm"),
    "sinusoidal": dict(position_type="sinusoidal"),
    "softcap": dict(attn_logit_softcapping=2.0, final_logit_softcapping=3.0),
    "scaled": dict(logit_scale=0.3),
}


class Engine:
    """Serves a model: masks, keys, softcap and windows of its own, by what it reads from the config.

    Args:
        config: of the model, as it was loaded.
        state: weights of the whole model.
    """

    def __init__(self, config: Any, state: dict[str, torch.Tensor]) -> None:
        AttentionInterface.register("vllm", self.attend)
        config._attn_implementation = "vllm"
        self.config, self.keys = config, {}
        self.model = AutoModel.from_config(config).eval()
        self.model.load_state_dict({k.removeprefix("model."): v for k, v in state.items() if k.startswith("model.")})
        self.head = state["lm_head.weight"]
        self.lengths: list[int] = []

    def attend(self, module: Any, query: Any, key: Any, value: Any, mask: Any, scaling: float, **kwargs: Any) -> Any:
        assert mask is None
        sliding = self.config.layer_types[module.layer_idx] == "sliding_attention"
        cap, rows = getattr(self.config, "attn_logit_softcapping", None), []
        parts = (states[0].split(self.lengths, dim=1) for states in (query, key, value))
        for request, (q, *new) in enumerate(zip(*parts, strict=True)):
            slot = (module.layer_idx, request)
            if slot in self.keys:
                new = [torch.cat(pair, 1) for pair in zip(self.keys[slot], new, strict=True)]
            k, v = self.keys[slot] = new
            k, v = (states.repeat_interleave(q.shape[0] // k.shape[0], dim=0) for states in (k, v))
            scores = q @ k.mT * scaling
            scores = scores if cap is None else cap * torch.tanh(scores / cap)
            distance = torch.arange(k.shape[1] - q.shape[1], k.shape[1])[:, None] - torch.arange(k.shape[1])
            seen = (distance >= 0) & (distance < self.config.sliding_window if sliding else True)
            rows.append((scores.masked_fill(~seen, -torch.inf).softmax(-1) @ v).transpose(0, 1))
        return torch.cat(rows).flatten(1), None  # (tokens, features), without a batch

    @torch.no_grad()
    def step(self, new: list[torch.Tensor], past: list[int]) -> list[torch.Tensor]:
        """Return the logits of the last token of every request."""
        self.lengths = [len(ids) for ids in new]
        positions = torch.cat([torch.arange(length) + begin for length, begin in zip(self.lengths, past, strict=True)])
        arguments = dict(input_ids=torch.cat(new)[None], position_ids=positions[None])
        states = self.model(**arguments, inputs_embeds=None, use_cache=False, return_dict=False)[0][0]
        logits = states[torch.tensor(self.lengths).cumsum(0) - 1] @ self.head.T
        if (cap := getattr(self.config, "final_logit_softcapping", None)) is not None:
            logits = cap * torch.tanh(logits / cap)
        return list(logits * getattr(self.config, "logit_scale", 1.0))


@pytest.fixture(autouse=True)
def _engine_leaves() -> Iterator[None]:
    yield
    AttentionInterface._global_mapping.pop("vllm", None)


@pytest.mark.parametrize("name", SERVED)
def test_an_engine_writes_what_generate_writes(name: str) -> None:
    model = build("decoder", "eager", "lm", **SERVED[name])
    engine = Engine(config_of("decoder", **SERVED[name]), model.state_dict())
    rows, new, past = [ids.clone() for ids in PROMPTS], list(PROMPTS), [0] * len(PROMPTS)
    for _ in range(STEPS):
        logits = engine.step(new, past)
        with torch.no_grad():
            for row, found in zip(rows, logits, strict=True):
                assert_close(found, model(row[None]).logits[0, -1])
        past = [len(row) for row in rows]
        new = [found.argmax()[None] for found in logits]
        rows = [torch.cat(pair) for pair in zip(rows, new, strict=True)]


@pytest.mark.parametrize("settings", [dict(position_type="alibi"), dict(attention_sinks=True), dict(mixers="gru")])
def test_an_engine_is_refused_what_it_cannot_compute(settings: dict[str, Any]) -> None:
    state = build("decoder", "eager", "lm", **settings).state_dict()
    with pytest.raises(ValueError, match="attn_implementation='vllm' cannot compute layer 0"):
        Engine(config_of("decoder", **settings), state)


def test_scaled_and_capped_logits_are_refused() -> None:
    """vLLM caps first."""
    settings = dict(logit_scale=0.3, final_logit_softcapping=3.0)
    with pytest.raises(ValueError, match="it applies final_logit_softcapping before logit_scale"):
        Engine(config_of("decoder", **settings), {})


def test_other_functions_without_masks_are_refused() -> None:
    AttentionInterface.register("vllm_of_somebody_else", lambda *args, **kwargs: None)
    try:
        with pytest.raises(ValueError, match="has no mask function, so padding would be ignored"):
            build("decoder", "vllm_of_somebody_else")
    finally:
        AttentionInterface._global_mapping.pop("vllm_of_somebody_else", None)
