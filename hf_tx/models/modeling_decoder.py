# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Decoders: causal stacks, and their heads."""

from .requirements import TRANSFORMERS  # noqa: F401  # first, since it says which version is needed

# isort: split
from typing import Any

import torch
from torch import nn
from transformers.cache_utils import Cache, DynamicCache
from transformers.generation import GenerationMixin
from transformers.processing_utils import Unpack
from transformers.utils import TransformersKwargs, can_return_tuple, logging
from transformers.utils.deprecation import deprecate_kwarg
from transformers.utils.generic import merge_with_config_defaults
from transformers.utils.output_capturing import OutputRecorder, capture_outputs

from .attention import Attention
from .auxiliary import with_auxiliary
from .backend_rules import check_continuous_batching
from .block import TxBlock
from .configuration_checks import check_alone
from .configuration_decoder import TxDecoderConfig
from .documentation import arguments_of
from .heads import LanguageModelHead, TokenHead, for_wrapper, last_real_position, question_answering
from .losses import classification_loss
from .modeling_base import TxPreTrainedModel
from .modeling_stack import TxStack, pop_flags
from .outputs import (
    TxBaseModelOutputWithPast,
    TxCausalLMOutput,
    TxQuestionAnsweringOutput,
    TxSequenceClassifierOutputWithPast,
    TxTokenClassifierOutput,
)
from .serving import past_length

logger = logging.get_logger(__name__)


class TxDecoderPreTrainedModel(TxPreTrainedModel):
    """Base of the decoders."""

    config: TxDecoderConfig
    _generates_with = "TxDecoderForCausalLM"
    _can_record_outputs = {
        "hidden_states": TxBlock,
        "attentions": OutputRecorder(Attention, index=1, layer_name="mixer"),
    }


class TxDecoderModel(TxDecoderPreTrainedModel, TxStack):
    """A causal stack without a head. The arguments are those of [`TxPreTrainedModel`]."""

    is_causal = True

    def __init__(self, config: TxDecoderConfig, loss_implementation: str = "full") -> None:
        check_alone(config)
        super().__init__(config, loss_implementation)
        self.post_init()

    @deprecate_kwarg("past_key_values", "5.40.0", new_name="cache")
    @merge_with_config_defaults
    @capture_outputs
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        position_ids: torch.LongTensor | None = None,
        cache: Cache | None = None,
        inputs_embeds: torch.Tensor | None = None,
        use_cache: bool | None = None,
        token_type_ids: torch.LongTensor | None = None,
        seq_idx: torch.Tensor | None = None,
        is_causal: bool | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> TxBaseModelOutputWithPast:
        """Compute the states of all positions.

        Args:
            input_ids: tokens. *Shape:* `(batch, length)`, int64.
            attention_mask: 1 for real tokens, 0 for padding on either side. *Shape:* `(batch, past + length)`. Or the
                keys that every query sees: *Shape:* `(batch or 1, heads or 1, length, past + length)`, bool (True: it
                sees the key) or floating point (added to the scores); it replaces the causal and window masks of all
                layers.
            position_ids: zero-based positions. Where they restart at 0, a new document begins, which does not see
                earlier ones. Default: counted over the real tokens. *Shape:* `(batch or 1, length)`, int64.
            cache: states of earlier tokens, updated in place.
            inputs_embeds: embeddings instead of `input_ids`. *Shape:* `(batch, length, embedding_size)`.
            use_cache: return a cache. Default: `config.use_cache`.
            token_type_ids: types of the tokens. *Shape:* `(batch, length)`, int64.
            seq_idx: numbers of the documents packed in a row, instead of `position_ids` that restart. *Shape:*
                `(batch, length)`, int.
            is_causal: False: every position sees all others, as in an encoder; position biases are still those of a
                decoder. Default: True.
            **kwargs: `output_attentions`, `output_hidden_states`, `return_dict`; others go to the attention backend.

        Returns:
            `last_hidden_state`, *Shape:* `(batch, length, hidden_size)`, and `cache`.

        Raises:
            ValueError: inputs that contradict each other, or that the attention backend cannot compute.
        """
        output_attentions = pop_flags(kwargs, self.config)
        if is_causal is False and past_length(cache) > 0:
            raise ValueError(
                "is_causal = False cannot be used with a filled cache, because the tokens in it have not seen the "
                "new ones: pass all tokens in one call."
            )
        if use_cache and cache is None:
            cache = DynamicCache(config=self.config)
        hidden_states, aux_losses = self.run(
            input_ids=input_ids,
            attention_mask=attention_mask,
            position_ids=position_ids,
            token_type_ids=token_type_ids,
            inputs_embeds=inputs_embeds,
            seq_idx=seq_idx,
            cache=cache,
            is_causal=is_causal is not False,
            output_attentions=output_attentions,
            **kwargs,
        )
        return TxBaseModelOutputWithPast(last_hidden_state=hidden_states, cache=cache, aux_losses=aux_losses)


class TxDecoderForCausalLM(TxDecoderPreTrainedModel, GenerationMixin, LanguageModelHead):
    """A decoder that predicts the next token. The arguments are those of [`TxPreTrainedModel`]."""

    _tied_weights_keys = {"lm_head.weight": "model.embed_tokens.weight"}
    _tp_plan = {"lm_head": "colwise_gather_output"}
    _fsdp_plan = {"lm_head": "keep_full_weight"}

    def __init__(self, config: TxDecoderConfig, loss_implementation: str = "full") -> None:
        super().__init__(config, loss_implementation)
        self.model = TxDecoderModel(config)
        self.build_lm_head(config, config.output_size)
        self.post_init()

    def prepare_inputs_for_generation(
        self,
        input_ids: torch.LongTensor,
        next_sequence_length: int | None = None,
        cache: Cache | None = None,
        attention_mask: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        is_first_iteration: bool | None = False,
        **kwargs: Any,
    ) -> dict[str, Any]:
        """Prepare a step of `generate()`; see the method of the same name in transformers, and `for_wrapper`."""
        inputs = super().prepare_inputs_for_generation(
            input_ids,
            next_sequence_length=next_sequence_length,
            cache=cache,
            attention_mask=attention_mask,
            inputs_embeds=inputs_embeds,
            is_first_iteration=is_first_iteration,
            **kwargs,
        )
        return for_wrapper(self, inputs, attention_mask)

    def init_continuous_batching(self, *args: Any, **kwargs: Any) -> Any:
        """Create the manager of the requests of `generate_batch()` and servers; see the method of the same name in
        transformers.

        Raises:
            ValueError: it cannot compute a layer of this model.
        """
        check_continuous_batching(self.config, self.config._attn_implementation)
        return super().init_continuous_batching(*args, **kwargs)

    def generate_batch(self, inputs: list[list[int]], *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Generate for many requests at once; see the method of the same name in transformers, which leaves failed
        ones empty.

        Args:
            inputs: the tokens of every request.
            *args: as in transformers.
            **kwargs: as in transformers.

        Raises:
            ValueError: continuous batching cannot compute a layer of this model.
            RuntimeError: if no request succeeded. If some did, the others are logged.
        """
        answers = super().generate_batch(inputs, *args, **kwargs)
        errors = {name: answer.error for name, answer in answers.items() if answer.error is not None}
        if inputs and len(errors) == len(answers):
            raise RuntimeError(f"no request succeeded: {next(iter(errors.values()), 'the log says why')}")
        for name, error in errors.items():
            logger.warning(f"request {name} failed: {error}")
        return answers

    def create_masks_for_generate(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Build the masks of a step; see [`TxDecoderModel`]."""
        return self.model.create_masks_for_generate(*args, **kwargs)

    @deprecate_kwarg("past_key_values", "5.40.0", new_name="cache")
    @can_return_tuple
    @arguments_of(TxDecoderModel.forward)
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        position_ids: torch.LongTensor | None = None,
        cache: Cache | None = None,
        inputs_embeds: torch.Tensor | None = None,
        labels: torch.LongTensor | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int | torch.Tensor = 0,
        skip_logits: bool | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> TxCausalLMOutput:
        """Predict the token after every position.

        Args:
            input_ids: tokens. *Shape:* `(batch, length)`, int64.
            position_ids: see [`TxDecoderModel.forward`]. The first token of a packed document is no target.
            cache: states of earlier tokens.
            inputs_embeds: embeddings instead of `input_ids`.
            labels: tokens that the loss is computed for, not shifted, -100 for none. *Shape:* `(batch, length)`,
                int64.
            use_cache: return a cache.
            logits_to_keep: compute logits for the last so many positions (0: all), or for these positions.
            skip_logits: compute the loss without keeping logits. Default: in training with labels and
                `loss_implementation="chunked"`.
            **kwargs: `shift_labels` (targets, shifted already), `num_items_in_batch` (divides the summed loss), and
                those of [`TxDecoderModel.forward`].

        Returns:
            `loss`, `logits` (*Shape:* `(batch, positions, vocab_size)`, None when skipped) and `cache`.
        """
        targets = self.targets(labels, attention_mask, position_ids, kwargs)
        outputs = self.model(
            input_ids=input_ids,
            return_dict=True,
            attention_mask=attention_mask,
            position_ids=position_ids,
            cache=cache,
            inputs_embeds=inputs_embeds,
            use_cache=use_cache,
            **kwargs,
        )
        loss, logits = self.loss_and_logits(outputs, targets, logits_to_keep, skip_logits)
        return TxCausalLMOutput(
            loss=loss,
            logits=logits,
            cache=outputs.cache,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
            aux_losses=outputs.aux_losses,
        )


class TxDecoderForSequenceClassification(TxDecoderPreTrainedModel):
    """A decoder that classifies a text by the state of its last token that is not padding."""

    def __init__(self, config: TxDecoderConfig) -> None:
        super().__init__(config)
        self.num_labels = config.num_labels
        self.model = TxDecoderModel(config)
        self.score = nn.Linear(config.output_size, config.num_labels, bias=False)
        self.post_init()

    @deprecate_kwarg("past_key_values", "5.40.0", new_name="cache")
    @can_return_tuple
    @arguments_of(TxDecoderModel.forward)
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        position_ids: torch.LongTensor | None = None,
        cache: Cache | None = None,
        inputs_embeds: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        use_cache: bool | None = None,
        num_items_in_batch: torch.Tensor | int | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> TxSequenceClassifierOutputWithPast:
        """Classify every row.

        Args:
            input_ids: tokens. *Shape:* `(batch, length)`, int64.
            attention_mask: 1 for real tokens. Without it, tokens that are not `pad_token_id` are real.
            cache: states of earlier tokens.
            inputs_embeds: embeddings instead of `input_ids`.
            labels: see `classification_loss` for the shapes that `config.problem_type` asks for.
            use_cache: return a cache.
            num_items_in_batch: divides the summed loss.
            **kwargs: those of [`TxDecoderModel.forward`].

        Returns:
            `loss` and `logits`. *Shape:* `(batch, num_labels)`.

        Raises:
            ValueError: several rows, and nothing that says which tokens are padding.
        """
        outputs = self.model(
            input_ids=input_ids,
            return_dict=True,
            attention_mask=attention_mask,
            position_ids=position_ids,
            cache=cache,
            inputs_embeds=inputs_embeds,
            use_cache=use_cache,
            **kwargs,
        )
        hidden_states = outputs.last_hidden_state
        last = last_real_position(hidden_states, attention_mask, input_ids, self.config.pad_token_id)
        rows = torch.arange(hidden_states.shape[0], device=hidden_states.device)
        logits = self.score(hidden_states[rows, last])
        loss = None
        if labels is not None:
            loss = classification_loss(logits, labels, self.config.problem_type, num_items_in_batch)
            loss = with_auxiliary(loss, outputs.aux_losses, labels, num_items_in_batch, self.training)
        return TxSequenceClassifierOutputWithPast(
            loss=loss,
            logits=logits,
            cache=outputs.cache,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
            aux_losses=outputs.aux_losses,
        )


class TxDecoderForTokenClassification(TxDecoderPreTrainedModel, TokenHead):
    """A decoder that classifies every token."""

    def __init__(self, config: TxDecoderConfig) -> None:
        super().__init__(config)
        self.num_labels = config.num_labels
        self.model = TxDecoderModel(config)
        self.build_classifier(config)
        self.post_init()

    @deprecate_kwarg("past_key_values", "5.40.0", new_name="cache")
    @can_return_tuple
    @arguments_of(TxDecoderModel.forward)
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        position_ids: torch.LongTensor | None = None,
        cache: Cache | None = None,
        inputs_embeds: torch.Tensor | None = None,
        labels: torch.LongTensor | None = None,
        use_cache: bool | None = None,
        num_items_in_batch: torch.Tensor | int | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> TxTokenClassifierOutput:
        """Classify every token.

        Args:
            input_ids: tokens. *Shape:* `(batch, length)`, int64.
            cache: states of earlier tokens.
            inputs_embeds: embeddings instead of `input_ids`.
            labels: class of every token, -100 for none. *Shape:* `(batch, length)`, int64.
            use_cache: return a cache.
            num_items_in_batch: divides the summed loss.
            **kwargs: those of [`TxDecoderModel.forward`].

        Returns:
            `loss` and `logits`. *Shape:* `(batch, length, num_labels)`.
        """
        outputs = self.model(
            input_ids=input_ids,
            return_dict=True,
            attention_mask=attention_mask,
            position_ids=position_ids,
            cache=cache,
            inputs_embeds=inputs_embeds,
            use_cache=use_cache,
            **kwargs,
        )
        loss, logits = self.classify(outputs.last_hidden_state, labels, num_items_in_batch)
        loss = with_auxiliary(loss, outputs.aux_losses, labels, num_items_in_batch, self.training)
        return TxTokenClassifierOutput(
            loss=loss,
            logits=logits,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
            aux_losses=outputs.aux_losses,
        )


class TxDecoderForQuestionAnswering(TxDecoderPreTrainedModel):
    """A decoder for extractive question answering, which predicts where an answer begins and ends."""

    def __init__(self, config: TxDecoderConfig) -> None:
        super().__init__(config)
        self.model = TxDecoderModel(config)
        self.qa_outputs = nn.Linear(config.output_size, 2)
        self.post_init()

    @deprecate_kwarg("past_key_values", "5.40.0", new_name="cache")
    @can_return_tuple
    @arguments_of(TxDecoderModel.forward)
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        position_ids: torch.LongTensor | None = None,
        cache: Cache | None = None,
        inputs_embeds: torch.Tensor | None = None,
        start_positions: torch.LongTensor | None = None,
        end_positions: torch.LongTensor | None = None,
        use_cache: bool | None = None,
        num_items_in_batch: torch.Tensor | int | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> TxQuestionAnsweringOutput:
        """Score every position as begin and end of the answer.

        Args:
            input_ids: tokens. *Shape:* `(batch, length)`, int64.
            cache: states of earlier tokens.
            inputs_embeds: embeddings instead of `input_ids`.
            start_positions: where answers begin; outside the text: no target. *Shape:* `(batch,)`, int64.
            end_positions: where they end. *Shape:* `(batch,)`, int64.
            use_cache: return a cache.
            num_items_in_batch: divides the summed loss.
            **kwargs: those of [`TxDecoderModel.forward`].

        Returns:
            `loss`, `start_logits` and `end_logits`. *Shape:* `(batch, length)`.
        """
        outputs = self.model(
            input_ids=input_ids,
            return_dict=True,
            attention_mask=attention_mask,
            position_ids=position_ids,
            cache=cache,
            inputs_embeds=inputs_embeds,
            use_cache=use_cache,
            **kwargs,
        )
        loss, start_logits, end_logits = question_answering(
            self.qa_outputs(outputs.last_hidden_state), start_positions, end_positions, num_items_in_batch
        )
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
    "TxDecoderForCausalLM",
    "TxDecoderForQuestionAnswering",
    "TxDecoderForSequenceClassification",
    "TxDecoderForTokenClassification",
    "TxDecoderModel",
    "TxDecoderPreTrainedModel",
]
