# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Contrastive learning of sentence embeddings: texts that belong together come to lie together."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import distributed, nn
from transformers import AutoModel
from transformers.utils import ModelOutput

from ..common.pieces import Text, beginning
from ..models.heads import pooled_states
from .batches import Batch, Row, pad_rows
from .objective import Objective

_POOLINGS = ("mean", "first")
# Rows that the tokenizer reads in one call.
_ROWS = 100


@dataclass(eq=False, kw_only=True)
class Contrastive(Objective):
    """Tell the text that belongs to an anchor from all others in the batch. See [`Objective`].

    There are no `labels`: the first text of a row is the anchor, the second belongs to it, and those of more columns
    do not (hard negatives). `trainable` gives the module that computes the loss; what it trains is the encoder alone.
    Nothing is drawn at random. Texts are cut at `max_length`. A text that is in a batch twice is a wrong answer to one
    of its anchors: keep duplicates out.

    Args:
        temperature: see [`InfoNCE`].
        pooling: the embedding is the `mean` of the states of a text, or the state of its `first` token.
    """

    temperature: float = 0.05
    pooling: str = "mean"

    name = "contrastive"
    predicts = "the text that belongs to an anchor"
    families = ("encoder",)
    auto_class = AutoModel
    pipeline_tag = "sentence-similarity"
    columns = ("anchor", "positive")
    takes_more_columns = True
    honours = ("prediction_loss_only",)  # what is trained is a module around the model

    def _set_up(self) -> None:
        SentenceEmbedder(nn.Identity(), self.temperature, self.pooling)  # refuses what it cannot do

    def trainable(self, model: nn.Module) -> nn.Module:
        """Return the encoder with pooling and loss around it."""
        return SentenceEmbedder(model, self.temperature, self.pooling)

    def features(self) -> dict[str, Any]:
        """Return the columns of the rows and their types."""
        from datasets import List

        return {"input_ids": List(super().features()["input_ids"])}

    def encode(self, *columns: Iterable[Text]) -> Iterator[dict[str, Any]]:
        """Return a row for every anchor and its texts."""
        options = {"split_special_tokens": True, "verbose": False, "truncation": True, "max_length": self.max_length}
        rows = zip(*columns, strict=True)
        while part := list(islice(rows, _ROWS)):
            encoded = [
                self.tokenizer([beginning(text, self.max_length, self.tokenizer) for text in texts], **options)
                for texts in zip(*part, strict=True)
            ]
            for texts in zip(*(found["input_ids"] for found in encoded), strict=True):
                yield {"input_ids": list(texts)}

    def fix(self, row: Row) -> dict[str, Any]:
        """Return the row as it is."""
        return dict(row)

    def __call__(self, rows: Sequence[Row]) -> Batch:
        """Return `input_ids` and `attention_mask`. *Shape:* `(rows, texts, longest)`, int64.

        Raises:
            ValueError: a row is not two texts or more, has another number of them than others, or a text is empty or
                longer than `max_length`.
        """
        batch_texts: list[list[list[int]]] = []
        for number, row in enumerate(rows):
            texts = row.get("input_ids") if isinstance(row, Mapping) else None
            if texts is None or not all(np.ndim(text) == 1 for text in texts):
                raise ValueError(
                    f"row {number} of a batch must have a list of texts, each a list of tokens, as input_ids: make "
                    "rows with prepare(), and keep the Trainer from leaving columns out (remove_unused_columns=False)."
                )
            batch_texts.append([np.asarray(text).tolist() for text in texts])
            lengths = [len(text) for text in texts]
            if len(lengths) < 2 or len(lengths) != len(batch_texts[0]):
                raise ValueError(
                    f"row {number} of a batch has {len(lengths)} texts, and row 0 {len(batch_texts[0])}: every row "
                    "needs an anchor and the same number of other texts."
                )
            if min(lengths) == 0 or max(lengths) > self.max_length:
                raise ValueError(
                    f"row {number} of a batch has texts of {lengths} tokens: each must have at least one and at most "
                    f"max_length = {self.max_length}."
                )
        batch = pad_rows([{"input_ids": text} for texts in batch_texts for text in texts], self.tokenizer)
        return {name: values.unflatten(0, (len(rows), -1)) for name, values in batch.items()}


class InfoNCE(nn.Module):
    """The cross-entropy of choosing, by cosine similarity, the text that belongs to an anchor among all texts of the
    batch (van den Oord et al., 2018, https://huggingface.co/papers/1807.03748).

    With several processes, the loss is that of the anchors and texts of all of them, and so are the gradients of the
    weights, where these are the mean over the processes, as with DDP and FSDP. All need batches of one size.

    Args:
        temperature: divides the similarities. The smaller, the more the nearest wrong texts count.

    Raises:
        ValueError: a temperature that is not above 0.
    """

    def __init__(self, temperature: float = 0.05) -> None:
        super().__init__()
        if temperature <= 0:
            raise ValueError(f"temperature = {temperature}: must be above 0.")
        self.temperature = temperature

    def forward(self, anchors: torch.Tensor, texts: torch.Tensor) -> torch.Tensor:
        """Return the mean loss.

        Args:
            anchors: *Shape:* `(rows, size)`, floating point.
            texts: those of a row, the first of which belongs to its anchor. *Shape:* `(rows, texts, size)`.

        Returns:
            *Shape:* `()`, float32.
        """
        anchors = _of_all_processes(nn.functional.normalize(anchors.float(), dim=-1))
        texts = _of_all_processes(nn.functional.normalize(texts.float(), dim=-1))
        # The texts that belong to anchors come first.
        candidates = texts.transpose(0, 1).flatten(0, 1)
        targets = torch.arange(len(anchors), device=anchors.device)
        return nn.functional.cross_entropy(anchors @ candidates.T / self.temperature, targets)


def _of_all_processes(own: torch.Tensor) -> torch.Tensor:
    """Return the rows of all processes. Gradients reach those of this one, as many times as there are processes, since
    their mean over the processes is what the weights get."""
    if not (distributed.is_available() and distributed.is_initialized()):
        return own
    count = distributed.get_world_size()
    rows = [torch.empty_like(own) for _ in range(count)]
    distributed.all_gather(rows, own.detach().contiguous())
    rows[distributed.get_rank()] = own + (count - 1) * (own - own.detach())
    return torch.cat(rows)


class SentenceEmbedder(nn.Module):
    """An encoder whose states are pooled to one embedding a text, with [`InfoNCE`] as loss.

    Args:
        encoder: a model that gives `last_hidden_state`. It alone has weights, and it is what is saved (`saved_model`).
        temperature: see [`InfoNCE`].
        pooling: `mean` or `first`, over the real tokens.

    Raises:
        ValueError: no such pooling, or a temperature that is not above 0.
    """

    def __init__(self, encoder: nn.Module, temperature: float = 0.05, pooling: str = "mean") -> None:
        super().__init__()
        if pooling not in _POOLINGS:
            raise ValueError(f"pooling = {pooling!r}: must be one of {', '.join(_POOLINGS)}.")
        self.encoder = encoder
        self.pooling = pooling
        self.loss = InfoNCE(temperature)

    @property
    def saved_model(self) -> nn.Module:
        """The encoder."""
        return self.encoder

    def embed(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """Return the embeddings of texts.

        Args:
            input_ids: *Shape:* `(texts, length)`, int64.
            attention_mask: 1 for real tokens. *Shape:* `(texts, length)`.

        Returns:
            *Shape:* `(texts, hidden_size)`.
        """
        states = self.encoder(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        return pooled_states(states, attention_mask, self.pooling)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor, return_loss: bool = True) -> ModelOutput:
        """Embed texts that belong together.

        Args:
            input_ids: rows of an anchor and its texts. *Shape:* `(rows, texts, length)`, int64.
            attention_mask: 1 for real tokens. *Shape:* `(rows, texts, length)`.
            return_loss: compute the loss. By this name the Trainer knows that there is one without labels.

        Returns:
            `loss`, and `embeddings`. *Shape:* `(rows, texts, hidden_size)`.
        """
        rows, texts, _ = input_ids.shape
        embeddings = self.embed(input_ids.flatten(0, 1), attention_mask.flatten(0, 1)).unflatten(0, (rows, texts))
        if not return_loss:
            return ModelOutput(embeddings=embeddings)
        return ModelOutput(loss=self.loss(embeddings[:, 0], embeddings[:, 1:]), embeddings=embeddings)
