# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Models that are wrong on purpose, by the check that must catch them: variants of transformers' Llama."""

import contextlib
import copy
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from conformance.mixer_mutants import louder_gradient, one_unless_large
from torch import nn
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    BartForConditionalGeneration,
    LlamaConfig,
    LlamaForCausalLM,
    LlamaForSequenceClassification,
    Mamba2ForCausalLM,
    MixtralForCausalLM,
)
from transformers.cache_utils import DynamicCache
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from hf_tx.conformance import Check, check_model
from hf_tx.conformance.model_subject import tiny_config


def altered(alter: Callable[..., torch.Tensor]) -> list[Check]:
    """A Llama whose logits are altered: `alter(model, logits, inputs)`."""

    class Mutant(LlamaForCausalLM):
        @functools.wraps(LlamaForCausalLM.forward)
        def forward(self, *arguments: Any, **inputs: Any) -> Any:
            cache = inputs.get("cache")
            inputs["past"] = 0 if cache is None else cache.get_seq_length()
            given = dict(inputs)
            del inputs["past"]
            outputs = super().forward(*arguments, **inputs)
            outputs.logits = alter(self, outputs.logits, given)
            return outputs

    return check_model(Mutant)


def when(condition: Callable[..., Any]) -> list[Check]:
    """A Llama whose logits are too large by a tenth when `condition(mask, inputs)` says so; no mask is all ones."""

    def alter(model: Any, logits: torch.Tensor, inputs: dict[str, Any]) -> torch.Tensor:
        mask = inputs.get("attention_mask")
        mask = torch.ones(logits.shape[:2]) if mask is None or mask.ndim != 2 else mask
        return logits * (1.1 if condition(mask.bool(), {**inputs, "logits": logits, "model": model}) else 1.0)

    return altered(alter)


def built(change: Callable[[Any], None], **fields: Any) -> list[Check]:
    """A Llama with something changed after it is built."""

    class Mutant(LlamaForCausalLM):
        def __init__(self, config: Any) -> None:
            super().__init__(config)
            change(self)

    return check_model(Mutant, _config(**fields))


def _config(kind: type = LlamaForCausalLM, **fields: Any) -> Any:
    config: Any = tiny_config(kind)
    for name, value in fields.items():
        setattr(config, name, value)
    return config


def _count(model: Any) -> int:
    model.calls = getattr(model, "calls", 0) + 1
    return model.calls


def _share(inputs: dict[str, Any], logits: torch.Tensor) -> Any:
    """One for every row that has a token."""
    mask = inputs.get("attention_mask")
    return 1.0 if mask is None else (mask.sum(1) / mask.sum(1)).view(-1, 1, 1).to(logits.dtype)


class _OwnLoss(LlamaForCausalLM):
    @functools.wraps(LlamaForCausalLM.forward)
    def forward(self, *arguments: Any, num_items_in_batch: Any = None, **inputs: Any) -> Any:
        return super().forward(*arguments, **inputs)


def _keywords(change: Callable[[dict[str, Any]], None]) -> list[Check]:
    """A Llama whose keywords are changed before it sees them."""

    class Mutant(LlamaForCausalLM):
        @functools.wraps(LlamaForCausalLM.forward)
        def forward(self, *arguments: Any, **inputs: Any) -> Any:
            change(inputs)
            return super().forward(*arguments, **inputs)

    return check_model(Mutant)


def _outputs(change: Callable[[Any], None]) -> list[Check]:
    """A Llama whose outputs are changed."""

    class Mutant(LlamaForCausalLM):
        @functools.wraps(LlamaForCausalLM.forward)
        def forward(self, *arguments: Any, **inputs: Any) -> Any:
            outputs = super().forward(*arguments, **inputs)
            change(outputs)
            return outputs

    return check_model(Mutant)


def _more_loss(outputs: Any) -> None:
    if outputs.loss is not None:
        outputs.loss = outputs.loss * 1.1


def _reversed(name: str) -> Callable[[Any], None]:
    def change(outputs: Any) -> None:
        if outputs.get(name):
            outputs[name] = outputs[name][::-1]

    return change


class _OldCache(DynamicCache):
    """Keeps the rows of beams that have been left."""

    def reorder_cache(self, beam_idx: Any) -> None:
        pass


class _OldBeams(LlamaForCausalLM):
    def _prepare_cache_for_generation(self, generation_config: Any, model_kwargs: Any, *others: Any) -> Any:
        super()._prepare_cache_for_generation(generation_config, model_kwargs, *others)
        for name in ("cache", "past_key_values"):
            if name in model_kwargs:
                model_kwargs[name] = _OldCache(config=self.config)


def _plain_rope(model: Any) -> None:
    config = copy.copy(model.config)
    config.rope_parameters = {"rope_type": "default", "rope_theta": config.rope_parameters["rope_theta"]}
    model.model.rotary_emb = LlamaRotaryEmbedding(config)


def _restarts(inputs: dict[str, Any]) -> bool:
    ids = inputs.get("position_ids")
    return ids is not None and bool((ids.diff() < 0).any())


class _GrowingConfig(LlamaConfig):
    def __post_init__(self, **kwargs: Any) -> None:
        super().__post_init__(**kwargs)
        self.max_position_embeddings += 1


class _Growing(LlamaForCausalLM):
    config_class = _GrowingConfig


class _Untied(LlamaForCausalLM):
    _tied_weights_keys: Any = {}


class _Forgetful(LlamaForCausalLM):
    _keys_to_ignore_on_save = ["model.norm.weight"]


class _Gain(LlamaForCausalLM):
    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.gain = nn.Parameter(torch.ones(1))

    @functools.wraps(LlamaForCausalLM.forward)
    def forward(self, *arguments: Any, **inputs: Any) -> Any:
        outputs = super().forward(*arguments, **inputs)
        outputs.logits = outputs.logits * self.gain
        return outputs


class _Resizes(LlamaForCausalLM):
    def resize_token_embeddings(self, *arguments: Any, **keywords: Any) -> Any:
        before = self.config.vocab_size
        resized = super().resize_token_embeddings(*arguments, **keywords)
        self.config.vocab_size = before
        return resized


class _LocalConfig(LlamaConfig):
    model_type = "mutant_llama"


class _Local(LlamaForCausalLM):
    config_class = _LocalConfig


@contextlib.contextmanager
def _known_here_only() -> Iterator[list[Check]]:
    """A model that is registered in this process only."""
    AutoConfig.register("mutant_llama", _LocalConfig)
    AutoModelForCausalLM.register(_LocalConfig, _Local)
    try:
        yield check_model(_Local)
    finally:
        CONFIG_MAPPING._extra_content.pop("mutant_llama")
        MODEL_FOR_CAUSAL_LM_MAPPING._extra_content.pop(_LocalConfig)


def _meta(model: Any) -> None:
    model.lm_head = nn.Linear(model.config.hidden_size, model.config.vocab_size, bias=False, device="cpu")


def _embedding(model: Any) -> torch.Tensor:
    return model.get_input_embeddings().weight.detach()


MODEL_MUTANTS: dict[str, Callable[[], Any]] = {
    "rows_are_independent": lambda: altered(lambda model, logits, _: logits + logits.flip(0) * (len(logits) > 1)),
    "left_padding": lambda: when(lambda mask, _: (~mask[:, 0]).any() and not mask[:, 0].any()),
    "right_padding": lambda: when(lambda mask, _: (mask[:, 0] & ~mask[:, -1]).any()),
    "direction": lambda: altered(lambda model, logits, _: logits + logits.flip(1)),
    "packed_rows": lambda: when(lambda mask, inputs: _restarts(inputs) and mask.all()),
    "packed_rows_with_mask_or_cache": lambda: check_model(LlamaForCausalLM),
    "left_padding_of_encoders": lambda: check_model(BartForConditionalGeneration),
    "pads_of_any_token": lambda: check_model(LlamaForSequenceClassification),
    "rope_scaling": lambda: built(_plain_rope),
    "row_of_pads": lambda: altered(lambda model, logits, inputs: logits * _share(inputs, logits)),
    "embeddings_as_inputs": lambda: when(lambda mask, inputs: inputs.get("inputs_embeds") is not None),
    "split_with_cache": lambda: when(lambda mask, inputs: inputs["past"] and inputs["logits"].shape[1] > 1),
    "prefill_in_chunks": lambda: when(lambda mask, inputs: inputs["past"] and not mask.all() and len(mask) == 2),
    "pads_in_single_steps": lambda: check_model(Mamba2ForCausalLM),
    "generates_as_forward": lambda: when(lambda mask, inputs: len(mask) > 4),
    "all_parameters_train": lambda: built(lambda model: setattr(model, "spare", nn.Linear(2, 2))),
    "language_loss": lambda: _outputs(_more_loss),
    "loss_of_accumulated_batches": lambda: check_model(_OwnLoss),
    "shifted_labels": lambda: _keywords(lambda inputs: inputs.pop("shift_labels", None)),
    "recorded_outputs": lambda: _outputs(_reversed("hidden_states")),
    "double_precision": lambda: check_model(MixtralForCausalLM),
    "half_precision": lambda: altered(
        lambda model, logits, _: logits * (float("nan") if logits.dtype == torch.float16 else 1.0)
    ),
    "activation_checkpointing": lambda: when(
        lambda mask, inputs: inputs["model"].training and _count(inputs["model"]) % 2 == 0
    ),
    "deterministic_in_eval": lambda: altered(
        lambda model, logits, _: nn.functional.dropout(logits, model.config.attention_dropout, training=True)
    ),
    "large_embeddings": lambda: altered(lambda model, logits, _: logits * one_unless_large(_embedding(model))),
    "attention_backends": lambda: when(lambda mask, inputs: inputs["model"].config._attn_implementation != "eager"),
    "compiles": lambda: when(lambda mask, inputs: float(inputs["logits"].detach().sum()) == 1.5),
    "config_round_trip": lambda: check_model(_Growing),
    "builds_on_meta": lambda: built(_meta),
    "save_and_load": lambda: check_model(_Forgetful),
    "draws_what_is_missing": lambda: check_model(_Gain),
    "tied_weights": lambda: check_model(_Untied, _config(tie_word_embeddings=True)),
    "resized_vocabulary": lambda: check_model(_Resizes),
    "loads_in_new_process": _known_here_only,
    # Right in short texts, and for the best beam.
    "left_padding: of many tokens": lambda: when(lambda mask, _: (~mask[:, 0]).any() and mask.shape[1] > 100),
    "right_padding: of many tokens": lambda: when(lambda mask, _: (~mask[:, -1]).any() and mask.shape[1] > 100),
    "packed_rows: of many tokens": lambda: when(lambda mask, inputs: _restarts(inputs) and mask.shape[1] > 100),
    "split_with_cache: of many tokens": lambda: when(
        lambda mask, inputs: inputs["past"] > 30 and inputs["logits"].shape[1] > 1
    ),
    "prefill_in_chunks: past 30 tokens": lambda: when(
        lambda mask, inputs: inputs["past"] > 30 and inputs["logits"].shape[1] == 1
    ),
    "generates_as_forward: past 30 tokens": lambda: when(lambda mask, inputs: inputs["past"] > 30),
    "generates_as_forward: beams keep their old cache": lambda: check_model(_OldBeams),
    "recorded_outputs: attentions": lambda: _outputs(_reversed("attentions")),
    "attention_backends: in long texts": lambda: when(
        lambda mask, inputs: inputs["model"].config._attn_implementation != "eager" and mask.shape[1] > 100
    ),
    "attention_backends: gradient": lambda: altered(
        lambda model, logits, _: logits if model.config._attn_implementation == "eager" else louder_gradient(logits)
    ),
}
