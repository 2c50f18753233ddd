# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""The definition of a family: its config table, its weight table and its heads.

"Theirs" is transformers, "ours" is hf_tx.
"""

import copy
import dataclasses
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassError
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from ..models.configuration_decoder import TxDecoderConfig
from ..models.configuration_encoder import TxEncoderConfig
from ..models.configuration_encoder_decoder import TxEncoderDecoderConfig
from .fields import COMMON, Entry, NotExpressible, Settings, computed, refuse_unknown
from .weights import Rule, rule

# Fields that record where a config comes from, or that are derived.
_NO_SETTINGS = {
    "origin",
    "hf_tx_version",
    "plugins",
    "transformers_version",
    "architectures",
    "dtype",
    "output_hidden_states",
    "output_attentions",
    "return_dict",
    "chunk_size_feed_forward",
    "use_cache",
}


#: Tensors in checkpoints of older versions of transformers, and why current models do not have them.
OLD_BUFFERS = {
    r"(.*\.)?rotary_emb\.inv_freq": "frequencies are computed from the config",
    r"(.*\.)?position_ids": "positions are computed",
    r"(.*\.)?att(entio)?n\.masked_bias": "the score of masked keys is not a weight",
}


OTHER_HEAD = "they belong to another head than the one that is loaded"


@dataclass(frozen=True)
class Head:
    """One of their classes and ours.

    Attributes:
        theirs: name of their class.
        ours: name of ours.
        prefix: where their class keeps the base model.
        rules: the weights of the head, which come before those of the base model.
        settings: fields of ours that this class decides.
    """

    theirs: str
    ours: str
    prefix: str = ""
    rules: tuple[Rule, ...] = ()
    settings: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Family:
    """A family of transformers as settings of hf_tx.

    Attributes:
        model_type: its name in transformers.
        kind: our config class.
        fields: the config table; [`COMMON`] comes on top.
        weights: the weight table of the base model; where it depends on our config, a function of that.
        heads: the classes.
        dropped: tensors of theirs that have no part here (regular expressions), and why.
        constants: of those, the ones that are computed here: makes of such a tensor what it must be.
        refused: classes of theirs that cannot be converted, and why.
        other_heads: modules of heads of theirs that no class here has.
        by_weights: fields of ours that no field of theirs says, but the weights of a model: `tie_word_embeddings`,
            `add_pooling_layer`.
        encoder: of an encoder-decoder, the family of the classes that are its encoder alone.
    """

    model_type: str
    kind: type[Any]
    fields: tuple[Entry, ...]
    weights: tuple[Rule, ...] | Callable[[Any], tuple[Rule, ...]]
    heads: tuple[Head, ...]
    dropped: dict[str, str] = field(default_factory=dict)
    constants: dict[str, Callable[[torch.Tensor], torch.Tensor]] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    other_heads: tuple[str, ...] = ()
    by_weights: tuple[str, ...] = ()
    encoder: "Family | None" = None

    @property
    def entries(self) -> tuple[Entry, ...]:
        """The whole config table; entries of the family come before those that all have."""
        own = {name for entry in self.fields for name in entry.theirs}
        return self.fields + tuple(entry for entry in COMMON if not own & set(entry.theirs))

    def for_class(self, name: str) -> "Family":
        """Return the family that has this class of theirs or of ours: this one, or that of its encoder."""
        alone = self.encoder is not None and any(name in (head.theirs, head.ours) for head in self.encoder.heads)
        return self.encoder if alone else self  # type: ignore[return-value]

    def head_of(self, name: str) -> Head:
        """Return the head whose class of theirs, or of ours, has this name.

        Raises:
            NotExpressible: if there is none.
        """
        for head in self.heads:
            if name in (head.theirs, head.ours):
                return head
        ours = name.startswith("Tx")
        known = ", ".join(head.ours if ours else head.theirs for head in self.heads)
        known += "" if ours else "; pass one of them as architecture, if it has the weights that you need"
        reason = f"{self.refused[name]}; " if name in self.refused else ""
        raise NotExpressible("architectures", [name], f"{reason}the classes of {self.model_type} are {known}")

    def leaves_out(self, name: str, cls: type[Any]) -> str | None:
        """Return why a tensor of a checkpoint is not needed in a model of this class of theirs, or None if it may be
        needed: only tensors that are known to have no effect are left out."""
        for pattern, reason in (self.dropped | OLD_BUFFERS).items():
            if re.fullmatch(pattern, name):
                return reason
        if any(re.search(pattern, name) for pattern in cls._keys_to_ignore_on_load_unexpected or ()):
            return f"a {cls.__name__} of transformers does not have it either"
        head, rules = self.head_of(cls.__name__), () if callable(self.weights) else self.weights
        others = {*self.other_heads, *(each.theirs for other in self.heads for each in other.rules)}
        poolers = {each.theirs for each in rules if each.ours[0].startswith("pooler.")}
        others |= poolers | {f"{head.prefix}.{each}" for each in poolers}
        if _is_in(name, others) and not _is_in(name, {each.theirs for each in head.rules}):
            return OTHER_HEAD
        return None

    def rules_of(self, head: Head, config: Any) -> list[Rule]:
        """Return the weight table of a class, for one config of ours."""
        weights = self.weights(config) if callable(self.weights) else self.weights
        inner = "" if head.ours in ("TxDecoderModel", "TxEncoderModel", "TxEncoderDecoderModel") else "model"
        return [*head.rules, *(each.with_prefix(head.prefix, inner) for each in weights)]

    def read(self, config: Any) -> dict[str, Any]:
        """Return our settings for their config.

        Raises:
            NotExpressible: if a field is unknown, or has a value that hf_tx cannot compute.
        """
        entries = self.entries
        refuse_unknown(config, entries)
        settings: dict[str, Any] = {}
        for entry in entries:
            settings.update(entry.read(config))
        return settings

    def build(self, settings: Settings, **more: Any) -> Any:
        """Return our config with these settings.

        Raises:
            NotExpressible: if a value breaks a rule of hf_tx.
        """
        nested: dict[str, Any] = {}
        for name, value in {**settings, **more}.items():
            stack, dot, inner = name.partition(".")
            if dot:
                nested.setdefault(stack, {})[inner] = value
            else:
                nested[name] = value
        try:
            return self.kind(**nested)
        except (ValueError, StrictDataclassError) as error:
            raise NotExpressible.by_rule(error) from error

    def write(self, config: Any, base: Any | None, head: Head) -> Any:
        """Return a config of theirs that computes the same as ours.

        Args:
            config: our config.
            base: a config of theirs, of which only the fields that differ are changed. None: a new one, of which every
                field is written, because the default of a field can depend on other fields.
            head: the class.

        Raises:
            NotExpressible: if the family does not have a setting.
        """
        wanted, new = flatten(config), base is None
        base = CONFIG_MAPPING[self.model_type]() if base is None else base
        found = flatten(self.build(self.read(base) | head.settings))
        written = stored = base.to_dict()
        for entry in self.entries:
            if not wanted.keys() >= set(entry.ours):  # what is no setting
                continue
            if new or any(found.get(name) != wanted[name] for name in entry.ours):
                changes = {name: value for name, value in entry.write(wanted).items() if name in entry.theirs}
                for name in changes.keys() & type(base).sub_configs.keys():
                    changes[name] = written[name] | changes[name]
                written = written | changes
        if written != stored:
            try:
                base = type(base).from_dict(copy.deepcopy(written))  # which fills in rope parameters in place
            except (KeyError, ValueError, StrictDataclassError) as error:
                changes = {name: value for name, value in written.items() if value != stored.get(name)}
                reason = f"the config of a {self.model_type} does not accept it: {error}"
                raise NotExpressible(", ".join(changes), list(changes.values()), reason) from error
            found = flatten(self.build(self.read(base) | head.settings))
        for name, value in wanted.items():
            if found[name] != value and name not in self.by_weights:
                raise NotExpressible(name, value, f"a {self.model_type} has {found[name]!r} instead")
        return base


def _is_in(name: str, modules: Iterable[str]) -> bool:
    return any(name == module or name.startswith(f"{module}.") for module in modules)


# What both stacks of an encoder-decoder have in common is said by the config that holds them.
_SAID_ABOVE = {
    *("id2label", "label2id", "problem_type", "tie_word_embeddings", "cross_attention_hidden_size"),
    *("pad_token_id", "bos_token_id", "eos_token_id", "is_encoder_decoder"),
}


def flatten(config: Any) -> dict[str, Any]:
    """Return all fields of a config of ours that are settings, those of stacks as `stack.field`."""
    stored = config.to_dict()
    found: dict[str, Any] = {}
    for name in (*(each.name for each in dataclasses.fields(type(config))), "per_layer_config"):
        if name in config.sub_configs:
            own = flatten(getattr(config, name))
            found |= {f"{name}.{inner}": value for inner, value in own.items() if inner not in _SAID_ABOVE}
        elif name not in _NO_SETTINGS:
            found[name] = stored.get(name)
    rope = found.get("rope_parameters") or {}
    if rope.get("partial_rotary_factor") == 1.0:  # the default
        found["rope_parameters"] = {name: value for name, value in rope.items() if name != "partial_rotary_factor"}
    for name in ("classifier_dropout", "embedding_dropout"):
        if found.get(name) is None:
            found[name] = found.get("hidden_dropout")  # their default
    return found


def decoder_heads(
    name: str,
    *kinds: str,
    prefix: str = "model",
    qa_prefix: str | None = None,
    token_classifier: str = "score",
    causal: str | None = None,
) -> tuple[Head, ...]:
    """Return the heads of a decoder.

    Args:
        name: what their classes begin with.
        *kinds: what they end with, besides the base model and the causal one.
        prefix: where they keep the base model.
        qa_prefix: where the one for question answering does. Default: `prefix`.
        token_classifier: their name of the output layer of a classifier of tokens.
        causal: name of the causal class. Default: `nameForCausalLM`.
    """
    rules = {
        "ForSequenceClassification": rule("score", "score"),
        "ForTokenClassification": rule(token_classifier, "score"),
        "ForQuestionAnswering": rule("qa_outputs", "qa_outputs"),
    }
    return (
        Head(f"{name}Model", "TxDecoderModel"),
        Head(causal or f"{name}ForCausalLM", "TxDecoderForCausalLM", prefix, (rule("lm_head", "lm_head"),)),
        *(
            Head(
                f"{name}{kind}",
                f"TxDecoder{kind}",
                qa_prefix if qa_prefix and kind == "ForQuestionAnswering" else prefix,
                (rules[kind],),
            )
            for kind in kinds
        ),
    )


DECODER, ENCODER, ENCODER_DECODER = TxDecoderConfig, TxEncoderConfig, TxEncoderDecoderConfig


def _classifier_dropout(config: Any) -> float:
    given = (getattr(config, name, None) for name in ("classifier_dropout", "hidden_dropout"))
    return next((value for value in given if value is not None), 0.1)


# A decoder's classifier of tokens reads this from any config, and drops 10 % where there is none.
CLASSIFIER_DROPOUT = computed(
    "classifier_dropout",
    "classifier_dropout",
    _classifier_dropout,
    lambda settings: settings["classifier_dropout"],
)
