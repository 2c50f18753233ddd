# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Encoders: bidirectional stacks, and their heads."""

from .requirements import TRANSFORMERS  # noqa: F401  # first, since it says which version is needed

# isort: split
from typing import Any

import torch
from torch import nn
from transformers.processing_utils import Unpack
from transformers.utils import TransformersKwargs, can_return_tuple
from transformers.utils.generic import merge_with_config_defaults
from transformers.utils.output_capturing import OutputRecorder, capture_outputs

from .attention import Attention
from .auxiliary import with_auxiliary
from .block import TxBlock
from .configuration_encoder import TxEncoderConfig
from .documentation import arguments_of
from .feed_forward import build_activation
from .heads import LanguageModelHead, TokenHead, classifier_dropout, pooled_states, question_answering
from .losses import classification_loss
from .modeling_base import TxPreTrainedModel
from .modeling_stack import TxStack, pop_flags
from .norms import build_norm
from .outputs import (
    TxBaseModelOutputWithPooling,
    TxMaskedLMOutput,
    TxMultipleChoiceOutput,
    TxQuestionAnsweringOutput,
    TxSequenceClassifierOutput,
    TxTokenClassifierOutput,
)


class TxEncoderPreTrainedModel(TxPreTrainedModel):
    """Base of the encoders."""

    config: TxEncoderConfig
    _generates_with = "TxDecoderForCausalLM or TxEncoderDecoderForConditionalGeneration"
    _can_record_outputs = {
        "hidden_states": TxBlock,
        "attentions": OutputRecorder(Attention, index=1, layer_name="mixer"),
    }


class Pooler(nn.Module):
    """Projects and activates the state of the first real position (BERT), the mean of the real ones, or each of them
    before it takes the mean."""

    def __init__(self, config: TxEncoderConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.output_size, config.output_size)
        self.act_fn = build_activation(config.pooler_act)
        self.pooling = config.pooler_pooling

    def forward(self, hidden_states: torch.Tensor, attention_mask: torch.Tensor | None) -> torch.Tensor:
        """*Shape:* `(batch, length, hidden_size)` to `(batch, hidden_size)`."""
        if self.pooling == "late":
            return pooled_states(self.act_fn(self.dense(hidden_states)), attention_mask, "mean")
        return self.act_fn(self.dense(pooled_states(hidden_states, attention_mask, self.pooling)))


class TxEncoderModel(TxEncoderPreTrainedModel, TxStack):
    """A bidirectional stack without a head. The arguments are those of [`TxPreTrainedModel`], and:

    Args:
        config: config of the model.
        loss_implementation: see [`TxPreTrainedModel`].
        add_pooling_layer: overrides `config.add_pooling_layer`.
    """

    is_causal = False

    def __init__(
        self, config: TxEncoderConfig, loss_implementation: str = "full", add_pooling_layer: bool | None = None
    ) -> None:
        super().__init__(config, loss_implementation)
        pools = config.add_pooling_layer if add_pooling_layer is None else add_pooling_layer
        self.pooler = Pooler(config) if pools else None
        self.post_init()

    @merge_with_config_defaults
    @capture_outputs
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.LongTensor | None = None,
        position_ids: torch.LongTensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        seq_idx: torch.Tensor | None = None,
        is_causal: bool | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> TxBaseModelOutputWithPooling:
        """Compute the states of all positions.

        Args:
            input_ids: tokens. *Shape:* `(batch, length)`, int64.
            attention_mask: 1 for real tokens, 0 for padding on either side. *Shape:* `(batch, length)`. Or the keys
                that every query sees: *Shape:* `(batch or 1, heads or 1, length, length)`, bool (True: it sees the
                key) or floating point (added to the scores); it replaces the window masks of all layers.
            token_type_ids: types of the tokens. *Shape:* `(batch, length)`, int64.
            position_ids: zero-based positions. Where they restart at 0, a new document begins, which does not see
                the others. Default: counted over the real tokens. *Shape:* `(batch or 1, length)`, int64.
            inputs_embeds: embeddings instead of `input_ids`. *Shape:* `(batch, length, embedding_size)`.
            seq_idx: numbers of the documents packed in a row, instead of `position_ids` that restart. *Shape:*
                `(batch, length)`, int.
            is_causal: must be False or None, because an encoder is bidirectional.
            **kwargs: `output_attentions`, `output_hidden_states`, `return_dict`; others go to the attention backend.

        Returns:
            `last_hidden_state`, *Shape:* `(batch, length, hidden_size)`, and `pooler_output`, *Shape:* `(batch,
            hidden_size)`, if there is a pooling layer.

        Raises:
            ValueError: inputs that contradict each other, or that the attention backend cannot compute.
        """
        if is_causal:
            raise ValueError("is_causal = True: an encoder is bidirectional; use TxDecoderModel for a causal model.")
        for name in ("cache", "past_key_values"):
            if kwargs.get(name) is not None:
                raise ValueError(f"{name} is given, but an encoder has no cache; prefix tuning needs a decoder.")
        output_attentions = pop_flags(kwargs, self.config)
        kwargs.pop("use_cache", None)
        hidden_states, aux_losses = self.run(
            input_ids=input_ids,
            attention_mask=attention_mask,
            position_ids=position_ids,
            token_type_ids=token_type_ids,
            inputs_embeds=inputs_embeds,
            seq_idx=seq_idx,
            cache=None,
            is_causal=False,
            output_attentions=output_attentions,
            **kwargs,
        )
        pooled = self.pooler(hidden_states, attention_mask) if self.pooler is not None else None
        return TxBaseModelOutputWithPooling(
            last_hidden_state=hidden_states, pooler_output=pooled, aux_losses=aux_losses
        )


class HeadTransform(nn.Module):
    """Projection, activation and norm before the output of a head: of a masked language model (BERT), or of any
    (ModernBERT)."""

    def __init__(self, config: TxEncoderConfig, size: int) -> None:
        super().__init__()
        self.dense = nn.Linear(config.output_size, size, bias=config.transform_bias)
        self.act_fn = build_activation(vars(config)["hidden_act"])  # layers may have their own
        self.norm = build_norm(config, size)

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """*Shape:* `(..., hidden_size)` to `(..., size)`."""
        return self.norm(self.act_fn(self.dense(hidden_states)))


def _classifier_transform(config: TxEncoderConfig) -> nn.Module:
    return HeadTransform(config, config.output_size) if config.classifier_transform else nn.Identity()


class TxEncoderForMaskedLM(TxEncoderPreTrainedModel, LanguageModelHead):
    """An encoder that predicts masked tokens. In training the head is only computed for positions with labels."""

    shifts_labels = False
    labels_are_sparse = True
    _tied_weights_keys = {"lm_head.weight": "model.embed_tokens.weight"}
    _tp_plan = {"lm_head": "colwise_gather_output"}
    _fsdp_plan = {"lm_head": "keep_full_weight"}

    def __init__(self, config: TxEncoderConfig, loss_implementation: str = "full") -> None:
        super().__init__(config, loss_implementation)
        self.model = TxEncoderModel(config, add_pooling_layer=False)
        size = config.token_size if config.mlm_head_transform else config.output_size
        self.transform = HeadTransform(config, size) if config.mlm_head_transform else None
        self.build_lm_head(config, size)
        self.post_init()

    def compute_logits(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """Map states to scores of the tokens. *Shape:* `(..., hidden_size)` to `(..., vocab_size)`."""
        return super().compute_logits(hidden_states if self.transform is None else self.transform(hidden_states))

    @can_return_tuple
    @arguments_of(TxEncoderModel.forward)
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.LongTensor | None = None,
        position_ids: torch.LongTensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        labels: torch.LongTensor | None = None,
        skip_logits: bool | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> TxMaskedLMOutput:
        """Predict the token at every position.

        Args:
            input_ids: tokens, some of them masked. *Shape:* `(batch, length)`, int64.
            inputs_embeds: embeddings instead of `input_ids`.
            labels: the tokens to predict, -100 elsewhere. *Shape:* `(batch, length)`, int64.
            skip_logits: compute the loss without keeping logits. Default: in training with labels.
            **kwargs: `num_items_in_batch` (divides the summed loss), and those of [`TxEncoderModel.forward`].

        Returns:
            `loss` and `logits`. *Shape:* `(batch, length, vocab_size)`; None when skipped.
        """
        targets = self.targets(labels, attention_mask, position_ids, kwargs)
        outputs = self.model(
            input_ids=input_ids,
            return_dict=True,
            attention_mask=attention_mask,
            token_type_ids=token_type_ids,
            position_ids=position_ids,
            inputs_embeds=inputs_embeds,
            **kwargs,
        )
        loss, logits = self.loss_and_logits(outputs, targets, 0, skip_logits)
        return TxMaskedLMOutput(
            loss=loss,
            logits=logits,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
            aux_losses=outputs.aux_losses,
        )


class _TextScorer(TxEncoderPreTrainedModel):
    """Pools a text and scores it: what classification and multiple choice share."""

    def __init__(self, config: TxEncoderConfig, num_scores: int) -> None:
        super().__init__(config)
        self.model = TxEncoderModel(config)
        self.transform = _classifier_transform(config)
        self.dropout = classifier_dropout(config)
        self.score = nn.Linear(config.output_size, num_scores)
        self.post_init()

    def scores(self, attention_mask: torch.Tensor | None, **inputs: Any) -> tuple[torch.Tensor, Any]:
        """Return the scores of every row, *Shape:* `(batch, num_scores)`, and the outputs of the base model."""
        outputs = self.model(attention_mask=attention_mask, return_dict=True, **inputs)
        pooled = outputs.pooler_output
        if pooled is None:
            pooled = pooled_states(outputs.last_hidden_state, attention_mask, self.config.classifier_pooling)
        return self.score(self.dropout(self.transform(pooled))), outputs


class TxEncoderForSequenceClassification(_TextScorer):
    """An encoder that classifies a text by its pooled state."""

    def __init__(self, config: TxEncoderConfig) -> None:
        super().__init__(config, config.num_labels)
        self.num_labels = config.num_labels

    @can_return_tuple
    @arguments_of(TxEncoderModel.forward)
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.LongTensor | None = None,
        position_ids: torch.LongTensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        num_items_in_batch: torch.Tensor | int | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> TxSequenceClassifierOutput:
        """Classify every row.

        Args:
            input_ids: tokens. *Shape:* `(batch, length)`, int64.
            inputs_embeds: embeddings instead of `input_ids`.
            labels: see `classification_loss` for the shapes that `config.problem_type` asks for.
            num_items_in_batch: divides the summed loss.
            **kwargs: those of [`TxEncoderModel.forward`].

        Returns:
            `loss` and `logits`. *Shape:* `(batch, num_labels)`.
        """
        logits, outputs = self.scores(
            attention_mask,
            input_ids=input_ids,
            token_type_ids=token_type_ids,
            position_ids=position_ids,
            inputs_embeds=inputs_embeds,
            **kwargs,
        )
        loss = None
        if labels is not None:
            loss = classification_loss(logits, labels, self.config.problem_type, num_items_in_batch)
            loss = with_auxiliary(loss, outputs.aux_losses, labels, num_items_in_batch, self.training)
        return TxSequenceClassifierOutput(
            loss=loss,
            logits=logits,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
            aux_losses=outputs.aux_losses,
        )


class TxEncoderForMultipleChoice(_TextScorer):
    """An encoder for multiple choice, which scores each of several texts."""

    def __init__(self, config: TxEncoderConfig) -> None:
        super().__init__(config, 1)

    @can_return_tuple
    @arguments_of(TxEncoderModel.forward)
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.LongTensor | None = None,
        position_ids: torch.LongTensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        labels: torch.LongTensor | None = None,
        num_items_in_batch: torch.Tensor | int | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> TxMultipleChoiceOutput:
        """Score every choice.

        Args:
            input_ids: tokens. *Shape:* `(batch, choices, length)`, int64.
            attention_mask: 1 for real tokens. *Shape:* `(batch, choices, length)`.
            token_type_ids: types of the tokens. *Shape:* `(batch, choices, length)`, int64.
            position_ids: positions. *Shape:* `(batch, choices, length)`, int64.
            inputs_embeds: embeddings instead of `input_ids`. *Shape:* `(batch, choices, length, embedding_size)`.
            labels: the right choice. *Shape:* `(batch,)`, int64.
            num_items_in_batch: divides the summed loss.
            **kwargs: those of [`TxEncoderModel.forward`].

        Returns:
            `loss` and `logits`. *Shape:* `(batch, choices)`.
        """
        given = input_ids if input_ids is not None else inputs_embeds
        if given is None:
            raise ValueError("You must specify exactly one of input_ids or inputs_embeds")
        choices = given.shape[1]

        def flat(tensor: torch.Tensor | None) -> torch.Tensor | None:
            return None if tensor is None else tensor.flatten(0, 1)

        logits, outputs = self.scores(
            flat(attention_mask),
            input_ids=flat(input_ids),
            token_type_ids=flat(token_type_ids),
            position_ids=flat(position_ids),
            inputs_embeds=flat(inputs_embeds),
            **kwargs,
        )
        logits = logits.view(-1, choices)
        loss = None
        if labels is not None:
            loss = classification_loss(logits, labels, "single_label_classification", num_items_in_batch)
            loss = with_auxiliary(loss, outputs.aux_losses, labels, num_items_in_batch, self.training)
        return TxMultipleChoiceOutput(
            loss=loss,
            logits=logits,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
            aux_losses=outputs.aux_losses,
        )


class TxEncoderForTokenClassification(TxEncoderPreTrainedModel, TokenHead):
    """An encoder that classifies every token."""

    def __init__(self, config: TxEncoderConfig) -> None:
        super().__init__(config)
        self.num_labels = config.num_labels
        self.model = TxEncoderModel(config, add_pooling_layer=False)
        self.transform = _classifier_transform(config)
        self.build_classifier(config)
        self.post_init()

    @can_return_tuple
    @arguments_of(TxEncoderModel.forward)
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.LongTensor | None = None,
        position_ids: torch.LongTensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        labels: torch.LongTensor | None = None,
        num_items_in_batch: torch.Tensor | int | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> TxTokenClassifierOutput:
        """Classify every token.

        Args:
            input_ids: tokens. *Shape:* `(batch, length)`, int64.
            inputs_embeds: embeddings instead of `input_ids`.
            labels: class of every token, -100 for none. *Shape:* `(batch, length)`, int64.
            num_items_in_batch: divides the summed loss.
            **kwargs: those of [`TxEncoderModel.forward`].

        Returns:
            `loss` and `logits`. *Shape:* `(batch, length, num_labels)`.
        """
        outputs = self.model(
            input_ids=input_ids,
            return_dict=True,
            attention_mask=attention_mask,
            token_type_ids=token_type_ids,
            position_ids=position_ids,
            inputs_embeds=inputs_embeds,
            **kwargs,
        )
        loss, logits = self.classify(self.transform(outputs.last_hidden_state), labels, num_items_in_batch)
        loss = with_auxiliary(loss, outputs.aux_losses, labels, num_items_in_batch, self.training)
        return TxTokenClassifierOutput(
            loss=loss,
            logits=logits,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
            aux_losses=outputs.aux_losses,
        )


class TxEncoderForQuestionAnswering(TxEncoderPreTrainedModel):
    """An encoder for extractive question answering, which predicts where an answer begins and ends."""

    def __init__(self, config: TxEncoderConfig) -> None:
        super().__init__(config)
        self.model = TxEncoderModel(config, add_pooling_layer=False)
        self.transform = _classifier_transform(config)
        self.qa_outputs = nn.Linear(config.output_size, 2)
        self.post_init()

    @can_return_tuple
    @arguments_of(TxEncoderModel.forward)
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.LongTensor | None = None,
        position_ids: torch.LongTensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        start_positions: torch.LongTensor | None = None,
        end_positions: torch.LongTensor | None = None,
        num_items_in_batch: torch.Tensor | int | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> TxQuestionAnsweringOutput:
        """Score every position as begin and end of the answer.

        Args:
            input_ids: tokens. *Shape:* `(batch, length)`, int64.
            inputs_embeds: embeddings instead of `input_ids`.
            start_positions: where answers begin; outside the text: no target. *Shape:* `(batch,)`, int64.
            end_positions: where they end. *Shape:* `(batch,)`, int64.
            num_items_in_batch: divides the summed loss.
            **kwargs: those of [`TxEncoderModel.forward`].

        Returns:
            `loss`, `start_logits` and `end_logits`. *Shape:* `(batch, length)`.
        """
        outputs = self.model(
            input_ids=input_ids,
            return_dict=True,
            attention_mask=attention_mask,
            token_type_ids=token_type_ids,
            position_ids=position_ids,
            inputs_embeds=inputs_embeds,
            **kwargs,
        )
        scores = self.qa_outputs(self.transform(outputs.last_hidden_state))
        loss, start_logits, end_logits = question_answering(scores, start_positions, end_positions, num_items_in_batch)
        loss = with_auxiliary(loss, outputs.aux_losses, start_positions, num_items_in_batch, self.training)
        return TxQuestionAnsweringOutput(
            loss=loss,
            start_logits=start_logits,
            end_logits=end_logits,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
            aux_losses=outputs.aux_losses,
        )


__all__ = [
    "TxEncoderForMaskedLM",
    "TxEncoderForMultipleChoice",
    "TxEncoderForQuestionAnswering",
    "TxEncoderForSequenceClassification",
    "TxEncoderForTokenClassification",
    "TxEncoderModel",
    "TxEncoderPreTrainedModel",
]
