# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Logits and losses of the heads of all families."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedConfig
from transformers.modeling_utils import slice_logits_to_keep
from transformers.utils.import_utils import torch_compilable_check

from .auxiliary import with_auxiliary
from .configuration_base import TxStackConfig
from .documents import begins_document, numbers_of
from .losses import IGNORE, chunked_cross_entropy, classification_loss, masked_cross_entropy
from .tracing import is_tracing
from .values import refuse_where


class LanguageModelHead:
    """Logits and loss of a language model whose output layer is `lm_head`. A mixin for model classes."""

    #: The targets are the next tokens, so that labels are shifted by one.
    shifts_labels = True
    #: In training, compute the head at labelled positions only: pays where few are.
    labels_are_sparse = False

    config: PreTrainedConfig
    training: bool
    lm_head: nn.Module
    loss_implementation: str

    def build_lm_head(self, config: TxStackConfig, size: int) -> None:
        """Add the output layer to the model.

        Args:
            config: of the stack under it.
            size: of the states that it reads.
        """
        self.lm_head = nn.Linear(size, config.vocab_size, bias=config.lm_head_bias)
        self.logit_scale, self.logit_softcap = config.logit_scale, config.final_logit_softcapping

    def compute_logits(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """Map states to scores of the tokens. *Shape:* `(..., hidden_size)` to `(..., vocab_size)`."""
        logits = self.lm_head(hidden_states)
        if self.logit_scale != 1.0:
            logits = logits * self.logit_scale
        if self.logit_softcap is not None:
            logits = self.logit_softcap * torch.tanh(logits / self.logit_softcap)
        return logits

    def targets(
        self,
        labels: torch.Tensor | None,
        attention_mask: torch.Tensor | None,
        position_ids: torch.Tensor | None,
        kwargs: Any,
    ) -> "Targets | None":
        """Say what is to be predicted, or return None; the keywords of the loss leave `kwargs`.

        A shifted label is dropped where padding would predict it, and where the first token of a packed document would
        be predicted from the document before it.
        """
        num_items, shifted = kwargs.pop("num_items_in_batch", None), kwargs.pop("shift_labels", None)
        if labels is not None and self.shifts_labels and shifted is None:
            first = _first_tokens(labels, attention_mask, position_ids, numbers_of(kwargs, labels))
            labels = labels.masked_fill(first, IGNORE)
            shifted = nn.functional.pad(labels[..., 1:], (0, 1), value=IGNORE)
        of_positions: torch.Tensor | None = labels if shifted is None else shifted
        if of_positions is None:
            return None
        return Targets(of_positions, of_positions if labels is None else labels, num_items)

    def loss_and_logits(
        self,
        outputs: Any,
        targets: "Targets | None",
        logits_to_keep: int | torch.Tensor = 0,
        skip_logits: bool | None = None,
    ) -> tuple[torch.Tensor | None, torch.Tensor | None]:
        """Compute the loss if there are targets, and the logits unless they are skipped.

        Args:
            outputs: of the base model: `last_hidden_state` and `aux_losses`.
            targets: what is to be predicted, or None.
            logits_to_keep: for how many of the last positions (0: all), or for which.
            skip_logits: whether logits are left out. Default: in training, where the loss needs none.

        Returns:
            The loss or None, and the logits or None.

        Raises:
            ValueError: logits are to be skipped, but there are no targets, or the loss was replaced by another.
        """
        loss, logits = self._task_loss(outputs.last_hidden_state, targets, logits_to_keep, skip_logits)
        if targets is not None:
            loss = with_auxiliary(
                loss, outputs.aux_losses, targets.of_positions, targets.num_items_in_batch, self.training
            )
        return loss, logits

    def _task_loss(
        self,
        hidden_states: torch.Tensor,
        targets: "Targets | None",
        logits_to_keep: int | torch.Tensor,
        skip_logits: bool | None,
    ) -> tuple[torch.Tensor | None, torch.Tensor | None]:
        hidden_states = slice_logits_to_keep(hidden_states, logits_to_keep)
        if targets is None:
            if skip_logits:
                raise ValueError("skip_logits = True needs labels: without them there is neither a loss nor logits.")
            return None, self.compute_logits(hidden_states)
        if not (isinstance(logits_to_keep, int) and logits_to_keep == 0):
            kept = slice_logits_to_keep(targets.of_positions[..., None], logits_to_keep)[..., 0].contiguous()
            targets = Targets(kept, kept, targets.num_items_in_batch)
        chunked = self.loss_implementation == "chunked"
        replaced = hasattr(self, "_loss_function")
        sparse = self.labels_are_sparse and not chunked and not replaced
        if skip_logits is None:
            skip_logits = self.training and (chunked or sparse)
        if not skip_logits:
            logits = self.compute_logits(hidden_states)
            return self._full_loss(logits, targets), logits
        if replaced:
            raise ValueError(
                "a replaced loss_function needs the logits: set loss_implementation = 'full', and leave skip_logits "
                "out."
            )
        labels, num_items = targets.of_positions, targets.num_items_in_batch
        if sparse and not is_tracing(labels):
            return masked_cross_entropy(hidden_states, labels, self.compute_logits, num_items), None
        vocab_size = self.config.get_text_config(decoder=True).vocab_size
        return chunked_cross_entropy(hidden_states, labels, self.compute_logits, vocab_size, num_items), None

    def _full_loss(self, logits: torch.Tensor, targets: "Targets") -> torch.Tensor:
        # With `shift_labels`, a loss function does not shift the labels itself.
        kwargs = {"shift_labels": targets.of_positions} if self.loss_type != "ForMaskedLM" else {}  # type: ignore[attr-defined]
        return self.loss_function(  # type: ignore[attr-defined]
            logits=logits,
            labels=targets.labels,
            vocab_size=logits.shape[-1],
            num_items_in_batch=targets.num_items_in_batch,
            **kwargs,
        )


@dataclass
class Targets:
    """The targets of a language model.

    Attributes:
        of_positions: the target of every position. *Shape:* `(batch, length)`, int64, -100 for none.
        labels: the same for the loss functions of transformers: not shifted, if the head shifts.
        num_items_in_batch: divides the summed loss; None: the number of targets.
    """

    of_positions: torch.Tensor
    labels: torch.Tensor
    num_items_in_batch: torch.Tensor | int | None


def _first_tokens(
    labels: torch.Tensor,
    attention_mask: torch.Tensor | None,
    position_ids: torch.Tensor | None,
    seq_idx: torch.Tensor | None,
) -> torch.Tensor:
    """Return where a token follows padding or begins a packed document. *Shape:* that of `labels`, bool."""
    first = torch.zeros_like(labels, dtype=torch.bool)
    if position_ids is not None or seq_idx is not None:
        first[..., 1:] |= begins_document(position_ids, seq_idx)[..., 1:]
    if attention_mask is not None and attention_mask.ndim == 2:
        real = attention_mask[:, -labels.shape[-1] :]
        first[..., 1:] |= real[..., :-1] == 0
    return first


def classifier_dropout(config: TxStackConfig) -> nn.Dropout:
    """Return the dropout before the output layer of a classifier. Default: that of the hidden states."""
    return nn.Dropout(config.hidden_dropout if config.classifier_dropout is None else config.classifier_dropout)


class TokenHead:
    """A classifier of every token. A mixin for model classes."""

    def build_classifier(self, config: TxStackConfig) -> None:
        """Add dropout and the output layer to the model."""
        self.dropout = classifier_dropout(config)
        self.score = nn.Linear(config.output_size, config.num_labels)

    def classify(
        self, hidden_states: torch.Tensor, labels: torch.Tensor | None, num_items_in_batch: torch.Tensor | int | None
    ) -> tuple[torch.Tensor | None, torch.Tensor]:
        """Return the loss if there are labels, and the logits. *Shape:* `(batch, length, num_labels)`."""
        logits = self.score(self.dropout(hidden_states))
        if labels is None:
            return None, logits
        flat = logits.flatten(0, 1)
        return classification_loss(flat, labels.flatten(), "single_label_classification", num_items_in_batch), logits


def for_wrapper(model: Any, inputs: dict[str, Any], attention_mask: torch.Tensor | None = None) -> dict[str, Any]:
    """Return the inputs of a step of `generate()` in the form that a wrapper expects, if it has replaced the
    `prepare_inputs_for_generation` of the model; otherwise unchanged.

    PEFT adds its prompt or prefix if it finds no cache, looks for the cache by its old name, and extends a 2-D mask.
    With the new name it would add the prompt at every token, and the model would not see the prefix.

    Args:
        model: the model that generates.
        inputs: arguments of its forward().
        attention_mask: the mask that the masks in `inputs` were made of. *Shape:* `(batch, past + length)`.
    """
    if getattr(model.prepare_inputs_for_generation, "__self__", None) is model:
        return inputs
    if "cache" in inputs:
        inputs["past_key_values"] = inputs.pop("cache")
    if isinstance(inputs.get("attention_mask"), dict):
        inputs["attention_mask"] = attention_mask
    return inputs


def question_answering(
    scores: torch.Tensor,
    start_positions: torch.Tensor | None,
    end_positions: torch.Tensor | None,
    num_items_in_batch: torch.Tensor | int | None,
) -> tuple[torch.Tensor | None, torch.Tensor, torch.Tensor]:
    """Return the loss of extractive question answering, and the scores of begin and end.

    Args:
        scores: *Shape:* `(batch, length, 2)`, floating point.
        start_positions: where answers begin; outside the text: no target. *Shape:* `(batch,)` or `(batch, 1)`, int64.
        end_positions: where they end.
        num_items_in_batch: divides the summed loss.

    Returns:
        The mean of both losses or None, and twice *Shape:* `(batch, length)`.
    """
    start_scores, end_scores = (part.contiguous() for part in scores.unbind(-1))
    if start_positions is None or end_positions is None:
        return None, start_scores, end_scores
    losses = []
    for part, positions in ((start_scores, start_positions), (end_scores, end_positions)):
        positions = positions.to(part.device).flatten()
        inside = (positions >= 0) & (positions < part.shape[1])
        positions = torch.where(inside, positions, IGNORE)
        losses.append(classification_loss(part, positions, "single_label_classification", num_items_in_batch))
    return (losses[0] + losses[1]) / 2, start_scores, end_scores


def last_real_position(
    hidden_states: torch.Tensor,
    attention_mask: torch.Tensor | None,
    input_ids: torch.Tensor | None,
    pad_token_id: int | None,
) -> torch.Tensor:
    """Return the index of the last real token of every row, whichever side is padded. *Shape:* `(batch,)`, int64.

    Raises:
        ValueError: if there are several rows, and neither a mask nor a padding token; or if a row has only padding, as
            in a chunk after the end of a text.
    """
    batch, length = hidden_states.shape[:2]
    if attention_mask is not None and attention_mask.ndim == 2:
        real = attention_mask[:, -length:].bool()
        empty = ~real.any(-1)
        refuse_where(
            empty,
            lambda: (
                f"rows {empty.nonzero().flatten().tolist()} only have padding in this call, so there is no last "
                "token to classify."
            ),
        )
    elif input_ids is not None and pad_token_id is not None:
        real = input_ids != pad_token_id
    elif batch == 1:
        real = hidden_states.new_ones((batch, length), dtype=torch.bool)
    else:
        raise ValueError(
            f"{batch} rows, but it is not known which tokens are padding: pass a 2-D attention_mask, or input_ids "
            "with "
            "config.pad_token_id set."
        )
    index = torch.arange(length, device=real.device)
    return torch.where(real, index, 0).amax(-1).to(hidden_states.device)


def pooled_states(hidden_states: torch.Tensor, attention_mask: torch.Tensor | None, pooling: str) -> torch.Tensor:
    """Return one state per row: that of the `first` token, or the `mean` of the tokens, without padding.

    Args:
        hidden_states: *Shape:* `(batch, length, hidden_size)`.
        attention_mask: 1 for real tokens. *Shape:* `(batch, length)`, or None when all are.
        pooling: `first` or `mean`.

    Returns:
        *Shape:* `(batch, hidden_size)`.
    """
    if attention_mask is not None and attention_mask.ndim != 2:
        torch_compilable_check(False, f"pooling {pooling!r} needs a 2-D attention_mask")
    if pooling == "mean":
        if attention_mask is None:
            return hidden_states.mean(dim=1)
        weights = attention_mask.to(hidden_states.dtype)[..., None]
        return (hidden_states * weights).sum(dim=1) / weights.sum(dim=1).clamp(min=1)
    if attention_mask is None:
        return hidden_states[:, 0]
    first = attention_mask.long().argmax(dim=-1)
    return hidden_states[torch.arange(hidden_states.shape[0], device=hidden_states.device), first]
