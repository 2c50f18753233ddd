# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""The stacks in which parts are checked: a mixer under its name, and how a stack is built and called."""

import contextlib
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from ..models.configuration_decoder import TxDecoderConfig
from ..models.configuration_encoder import TxEncoderConfig
from ..models.mixers import Mixer
from ..models.modeling_decoder import TxDecoderModel
from ..models.modeling_encoder import TxEncoderModel
from .checks import Skip
from .references import Reference
from .tools import build_large, gradients

# Heads times head size is not the hidden size, and three heads share a key head, so that a confusion shows.
SIZES: dict[str, Any] = dict(
    vocab_size=61,
    hidden_size=24,
    num_hidden_layers=2,
    num_attention_heads=6,
    num_key_value_heads=2,
    head_dim=8,
    intermediate_size=20,
    max_position_embeddings=512,
    norm_eps=1e-2,  # smaller ones blow up the rounding of a head whose output is nearly zero
    pad_token_id=0,
    bos_token_id=1,
    eos_token_id=2,
)
LENGTH = 11
#: Tokens of a long text: more than three chunks of the parallel forms.
LONG = 200
#: Documents of a long text: some end where a chunk does, one is a single token.
LONG_DOCUMENTS = (64, 64, 1, 63, 8)
#: Odd, one and two tokens past the chunks of the parallel forms, and many chunks.
LENGTHS = (1, 2, 7, 17, 66, LONG)


@dataclass(frozen=True)
class MixerSubject:
    """A mixer under its name, with its reference."""

    name: str
    mixer: Mixer
    reference: Reference

    @property
    def directions(self) -> list[bool]:
        """Whether causal, for every direction that the mixer has."""
        flags = ((True, self.mixer.is_causal), (False, self.mixer.is_bidirectional))
        return [direction for direction, has in flags if has]

    @property
    def counts_pads(self) -> bool:
        """Whether distances count the pads inside of a text, as those of windows and patterns do."""
        return self.mixer.pattern is not None or "sliding_window" in self.mixer.needs

    def causal(self) -> None:
        """Skip what needs a causal stack."""
        if not self.mixer.is_causal:
            raise Skip("the mixer cannot be causal")

    def config(self, causal: bool, setting: int = 0, backend: str = "eager", **changes: Any) -> Any:
        """Return the config of a stack of nothing but the mixer, in one of the settings of its reference."""
        fields = dict(self.reference.settings[setting])
        if "sliding_window" in self.mixer.needs:
            fields.setdefault("sliding_window", 4)
        if options := fields.pop("options", None):
            fields["mixer_options"] = {self.name: options}
        kind: Any = TxDecoderConfig if causal else TxEncoderConfig
        other = {} if causal else {"type_vocab_size": 0}
        return kind(**{**SIZES, **other, "mixers": self.name, **fields, **changes}, attn_implementation=backend)

    def build(self, causal: bool, setting: int = 0, backend: str = "eager", **changes: Any) -> Any:
        """Return such a stack. Equal arguments give equal weights, whatever the backend."""
        kind = TxDecoderModel if causal else TxEncoderModel
        return build_large(kind, self.config(causal, setting, backend, **changes))

    @contextlib.contextmanager
    def by_reference(self, model: Any) -> Iterator[None]:
        """Let the layers of a stack compute their mixers by the reference."""

        def forward(module: Any, hidden_states: torch.Tensor, **inputs: Any) -> tuple[torch.Tensor, None]:
            wanted = ["is_causal", *(["position_embeddings", "position_bias"] if self.mixer.is_attention else [])]
            return self.reference.function(module, hidden_states, **{name: inputs[name] for name in wanted}), None

        for layer in model.layers:
            layer.mixer.forward = functools.partial(forward, layer.mixer)
        try:
            yield
        finally:
            for layer in model.layers:
                del layer.mixer.forward

    def expected(self, model: Any, row: torch.Tensor) -> torch.Tensor:
        """Return what the reference gives for one text. *Shape:* `(length, hidden_size)`."""
        with self.by_reference(model):
            return states(model, row[None])[0]

    def expected_gradients(self, model: Any, rows: list[torch.Tensor]) -> dict[str, torch.Tensor]:
        """Return the gradients that the reference gives for several texts, each by itself."""
        with self.by_reference(model):
            return gradients(model, torch.cat([run(model, row[None])[0] for row in rows]))


def states(model: Any, input_ids: torch.Tensor, **inputs: Any) -> torch.Tensor:
    """Return the last states, without a cache unless one is given, and without gradients."""
    with torch.no_grad():
        return run(model, input_ids, **inputs)


def run(model: Any, input_ids: torch.Tensor, **inputs: Any) -> torch.Tensor:
    """Return the last states."""
    if model.config.is_causal_family:
        inputs.setdefault("use_cache", "cache" in inputs)
    return model(input_ids=input_ids, **inputs).last_hidden_state


def label(causal: bool) -> str:
    """Name a direction in messages."""
    return "causal" if causal else "bidirectional"
