# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""How a model of each family learns from plain text, and how well it has learnt.

| family            | learns to predict                        | is measured by                                  |
|-------------------|------------------------------------------|-------------------------------------------------|
| `decoder`         | the next token                           | perplexity, bits per byte                       |
| `encoder`         | masked tokens (Devlin et al., 2019)      | loss and accuracy at masked tokens              |
| `encoder-decoder` | the continuation of a prefix             | perplexity, bits per byte of the continuations  |
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from ..evaluation import Score, UnigramModel, score_causal_lm, score_targets
from ..models.configuration_base import TxStackConfig
from ..models.configuration_decoder import TxDecoderConfig
from ..models.configuration_encoder import TxEncoderConfig
from ..models.configuration_encoder_decoder import TxEncoderDecoderConfig
from ..models.mixer import Mixer
from ..models.mixers import MIXERS, expand_pattern
from ..objectives import CausalLM, Continuation, MaskedLM, TokenObjective
from ..objectives.texts import encode_texts
from .corpus import Document

# Masks of held-out text are the same in every run, whatever its seed.
_HELD_OUT_SEED = 0
_HELD_OUT_MASKED = 0.15
# More than that teaches more in a short training (Wettig et al., 2023, https://huggingface.co/papers/2202.08005).
_TRAINING_MASKED = 0.3
# Characters of a token, at most: not all of a long text is read for its start.
_LONGEST_TOKEN = 100
_BAR = "scoring the held-out text"
# Windows and chunks of a context.
_PARTS = 4

Example = dict[str, list[int]]
Batch = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Measurement:
    """What a model and the unigram model made of the same targets.

    Attributes:
        model: the score of the model.
        unigram: the score of the unigram model that was fitted to the training text.
        num_bytes: bytes of the text that the targets are; None where they are no whole text.
    """

    model: Score
    unigram: Score
    num_bytes: int | None

    def as_dict(self) -> dict[str, dict[str, float]]:
        """Return the measures of both, by name."""
        return {name: self._measures(getattr(self, name)) for name in ("model", "unigram")}

    def _measures(self, score: Score) -> dict[str, float]:
        measures = {"loss": score.loss, "perplexity": score.perplexity}
        if self.num_bytes is None:
            return {**measures, "accuracy": score.accuracy}
        return {**measures, "bits_per_byte": score.bits_per_byte(self.num_bytes)}


class Recipe(ABC):
    """Everything about training on plain text that depends on the family.

    Args:
        tokenizer: a tokenizer for the family.
        context_length: the most tokens that the model sees at a time, special ones included.
        seed: seed of what is drawn at random in training.
    """

    family: ClassVar[str]
    #: The class of the objective.
    learns: ClassVar[type[TokenObjective]]
    #: The Auto class that builds and loads the model.
    auto_class: ClassVar[Any]
    #: What is predicted, in words.
    predicts: ClassVar[str]

    def __init__(self, tokenizer: PreTrainedTokenizerBase, context_length: int, seed: int = 0) -> None:
        self.tokenizer = tokenizer
        self.context_length = context_length
        #: What the model is trained on, and the data collator for it.
        self.objective = self.learns(tokenizer, context_length, seed=seed)

    @classmethod
    @abstractmethod
    def config(cls, **fields: Any) -> PreTrainedConfig:
        """Return the config of the model; of an encoder-decoder, both stacks get fields that have no prefix. Where
        mixers have a window or chunks, and no size is given, it is a quarter of the context."""

    def token_fields(self) -> dict[str, Any]:
        """Return the fields of the config that the tokenizer decides."""
        return {"vocab_size": len(self.tokenizer), "pad_token_id": self.tokenizer.pad_token_id}

    def examples(self, documents: Sequence[Document]) -> list[Example]:
        """Return what the model is trained on, one entry a row."""
        return list(self.objective.rows(document.token_ids for document in documents))

    @abstractmethod
    def measure(
        self, model: PreTrainedModel, unigram: UnigramModel, documents: Sequence[Document], batch_size: int = 8
    ) -> Measurement:
        """Score held-out documents, each target exactly once."""

    def held_out_batches(self, documents: Sequence[Document], batch_size: int) -> list[Batch]:
        """Return batches, with labels, that are the same in every run."""
        return _batches(self.objective, self.examples(documents), batch_size)

    @abstractmethod
    def prompts(self, texts: Sequence[str]) -> list[str]:
        """Return prompts for samples, taken from texts."""

    def _start(self, text: str, num_tokens: int) -> str:
        (tokens,) = encode_texts(self.tokenizer, [text[: num_tokens * _LONGEST_TOKEN]])
        start = self.tokenizer.decode(tokens[:num_tokens])
        assert isinstance(start, str)  # one text, not several
        return start.rstrip("\ufffd").strip()  # a character may be cut in two

    def num_bytes(self, documents: Sequence[Document]) -> int:
        """Return the size of the texts in bytes."""
        return sum(document.num_bytes for document in documents)


class DecoderRecipe(Recipe):
    """Next-token prediction. Held-out tokens have at least half a window of context, except in the first window; the
    first token is predicted from `<bos>` alone, which is never scored itself."""

    family = "decoder"
    learns = CausalLM
    auto_class = CausalLM.auto_class
    predicts = "the next token"

    @classmethod
    def config(cls, **fields: Any) -> TxDecoderConfig:
        """Return the config of the model."""
        return TxDecoderConfig(**_with_sizes(fields))

    def token_fields(self) -> dict[str, Any]:
        """Return the fields of the config that the tokenizer decides."""
        ids = {name: getattr(self.tokenizer, name) for name in ("bos_token_id", "eos_token_id")}
        return {**super().token_fields(), **ids}

    def measure(
        self, model: PreTrainedModel, unigram: UnigramModel, documents: Sequence[Document], batch_size: int = 8
    ) -> Measurement:
        """Score the documents in windows that overlap by half."""
        scores = [
            score_causal_lm(
                model,
                document.token_ids,
                context_length=self.context_length,
                bos_token_id=self.tokenizer.bos_token_id,
                batch_size=batch_size,
                description=_BAR,
            )
            for document in documents
        ]
        return Measurement(Score.total(scores), _unigram(unigram, documents), self.num_bytes(documents))

    def prompts(self, texts: Sequence[str]) -> list[str]:
        """Return the first words of a line."""
        return [self._start(line, min(8, self.context_length // 2)) for line in _lines(texts)[:1]]


class EncoderRecipe(Recipe):
    """Masked tokens: 30% of all in training and 15% of held-out text, of which 80% read `[MASK]`, 10% another token,
    and 10% themselves."""

    family = "encoder"
    learns = MaskedLM
    auto_class = MaskedLM.auto_class
    predicts = "masked tokens"

    def __init__(self, tokenizer: PreTrainedTokenizerBase, context_length: int, seed: int = 0) -> None:
        super().__init__(tokenizer, context_length, seed)
        self.objective = MaskedLM(tokenizer, context_length, seed=seed, mlm_probability=_TRAINING_MASKED)

    @classmethod
    def config(cls, **fields: Any) -> TxEncoderConfig:
        """Return the config of the model."""
        return TxEncoderConfig(**_with_sizes(fields))

    def held_out_batches(self, documents: Sequence[Document], batch_size: int) -> list[Batch]:
        """Return batches whose masks are the same in every run."""
        objective = MaskedLM(
            self.tokenizer, self.context_length, seed=_HELD_OUT_SEED, mlm_probability=_HELD_OUT_MASKED
        )
        return _batches(objective, self.examples(documents), batch_size)

    def measure(
        self, model: PreTrainedModel, unigram: UnigramModel, documents: Sequence[Document], batch_size: int = 8
    ) -> Measurement:
        """Score masked tokens of the documents."""
        batches = [(batch, batch.pop("labels")) for batch in self.held_out_batches(documents, batch_size)]
        masked = [targets[targets >= 0].tolist() for _, targets in batches]
        score = score_targets(model, batches, description=_BAR)
        return Measurement(score, Score.total(map(unigram.score, masked)), None)

    def prompts(self, texts: Sequence[str]) -> list[str]:
        """Return the first words of some lines, with a mask in place of one in the middle."""
        lines = [self._start(line, min(24, self.context_length // 2)).split(" ") for line in _lines(texts)[:3]]
        return [
            " ".join([*words[: len(words) // 2], self.tokenizer.mask_token, *words[len(words) // 2 + 1 :]])
            for words in lines
        ]


class EncoderDecoderRecipe(Recipe):
    """Prefix to continuation, each half a context long. Each token is in one continuation; the first continuation of a
    text has an empty prefix."""

    family = "encoder-decoder"
    learns = Continuation
    auto_class = Continuation.auto_class
    predicts = "the continuation of a prefix"

    @classmethod
    def config(cls, **fields: Any) -> TxEncoderDecoderConfig:
        """Return the config of the model. `encoder_mixers` and `decoder_mixers` go before `mixers`, and a window is
        given to the stacks that have a mixer with one."""
        ids = {name: fields.pop(name) for name in list(fields) if name.endswith("_token_id")}
        own = {stack: fields.pop(f"{stack}_mixers", None) for stack in ("encoder", "decoder")}
        shared = fields.pop("mixers", "full")
        stacks: dict[str, Any] = {stack: {**fields, "mixers": mixers or shared} for stack, mixers in own.items()}
        windowed = [stack for stack in stacks.values() if _has_window(stack)]
        for stack in stacks.values():
            # Without any, both keep the window, and the config refuses it.
            if windowed and stack not in windowed:
                stack.pop("sliding_window", None)
        sized: dict[str, Any] = {name: _with_sizes(stack) for name, stack in stacks.items()}
        return TxEncoderDecoderConfig(**sized, **ids)

    def token_fields(self) -> dict[str, Any]:
        """Return the fields of the config that the tokenizer decides."""
        return {**super().token_fields(), "eos_token_id": self.tokenizer.eos_token_id}

    def measure(
        self, model: PreTrainedModel, unigram: UnigramModel, documents: Sequence[Document], batch_size: int = 8
    ) -> Measurement:
        """Score the continuations, which together are the documents."""
        objective = Continuation(self.tokenizer, self.context_length, closes=False)
        pairs = list(objective.rows(document.token_ids for document in documents))
        batches = [(batch, batch.pop("labels")) for batch in _batches(objective, pairs, batch_size)]
        shift: Any = model.prepare_decoder_input_ids_from_labels
        for batch, targets in batches:
            batch["decoder_input_ids"] = shift(targets)
        score = score_targets(model, batches, description=_BAR)
        return Measurement(score, _unigram(unigram, documents), self.num_bytes(documents))

    def prompts(self, texts: Sequence[str]) -> list[str]:
        """Return a prefix as long as those in training."""
        return [self._start(text, self.context_length // 2 - 1) for text in texts[:1]]


RECIPES: dict[str, type[Recipe]] = {
    recipe.family: recipe for recipe in (DecoderRecipe, EncoderRecipe, EncoderDecoderRecipe)
}


def width_fields(hidden_size: int) -> dict[str, Any]:
    """Return the fields of the config of a new model that follow from its width.

    The three matrices of a gated layer have as many weights as the usual two of `4 * hidden_size`. Initial weights are
    such that a layer's outputs are about as large as its inputs (LeCun et al., 1998, Efficient BackProp), and so are
    embeddings, whose matrix is the head's too (Vaswani et al., 2017, https://huggingface.co/papers/1706.03762, section
    3.4). The usual standard deviation of 0.02 is that of 2,500 features; with it, models of 256 learn much slower.

    Args:
        hidden_size: features of a position.

    Raises:
        ValueError: there are none.
    """
    if hidden_size < 1:
        raise ValueError(f"hidden_size = {hidden_size}: must be above 0.")
    return {
        "intermediate_size": max(16, round(hidden_size / 6) * 16),
        "initializer_range": hidden_size**-0.5,
        "embedding_scale": hidden_size**0.5,
    }


def _batches(objective: TokenObjective, examples: Sequence[Example], batch_size: int) -> list[Batch]:
    return [objective(examples[start : start + batch_size]) for start in range(0, len(examples), batch_size)]


def _lines(texts: Sequence[str]) -> list[str]:
    """Return the lines of texts; those of a usual length if there are any."""
    lines = [line.strip() for text in texts for line in text.splitlines() if line.strip()]
    return [line for line in lines if len(line) >= 80] or lines


def _mixers(fields: dict[str, Any]) -> dict[str, Mixer]:
    names = expand_pattern(
        fields.get("mixers", "full"), fields.get("num_hidden_layers", TxStackConfig.num_hidden_layers)
    )
    return {name: MIXERS.get(name) for name in names}


def _has_window(fields: dict[str, Any]) -> bool:
    return any("sliding_window" in mixer.needs for mixer in _mixers(fields).values())


def _with_sizes(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a stack in which attention that is to see a part of the context does: with sizes that are
    not given for the context, a window would be missing, and one chunk could hold all."""
    size = max(1, fields.get("max_position_embeddings", TxStackConfig.max_position_embeddings) // _PARTS)
    sized = dict(fields)
    if sized.get("sliding_window") is None and not sized.get("per_layer_config") and _has_window(sized):
        sized["sliding_window"] = size
    for name, mixer in _mixers(sized).items():
        if mixer.is_attention and hasattr(mixer.options, "chunk_size"):
            options = sized.get("mixer_options") or {}
            sized["mixer_options"] = {**options, name: {"chunk_size": size, **options.get(name, {})}}
    return sized


def _unigram(unigram: UnigramModel, documents: Sequence[Document]) -> Score:
    return Score.total(unigram.score(document.token_ids) for document in documents)
