# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Encoder-decoders: a bidirectional stack that a causal one attends to, and their heads."""

from .requirements import TRANSFORMERS  # noqa: F401  # first, since it says which version is needed

# isort: split
from typing import Any

import torch
from torch import nn
from transformers.cache_utils import Cache, DynamicCache, EncoderDecoderCache
from transformers.generation import GenerationMixin
from transformers.modeling_outputs import BaseModelOutput
from transformers.processing_utils import Unpack
from transformers.utils import ModelOutput, TransformersKwargs, can_return_tuple
from transformers.utils.deprecation import deprecate_kwarg
from transformers.utils.generic import merge_with_config_defaults
from transformers.utils.output_capturing import OutputRecorder, capture_outputs

from .attention import Attention
from .auxiliary import added, with_auxiliary
from .backend_rules import check_continuous_batching
from .block import TxBlock
from .configuration_decoder import TxDecoderConfig
from .configuration_encoder_decoder import TxEncoderDecoderConfig
from .cross_attention import AdditiveCrossAttention
from .documentation import arguments_of
from .documents import begins_document
from .heads import LanguageModelHead, classifier_dropout, for_wrapper, last_real_position, question_answering
from .keywords import check_keywords
from .losses import IGNORE, classification_loss
from .modeling_base import TxPreTrainedModel
from .modeling_encoder import TxEncoderModel
from .modeling_stack import TxStack, pop_flags
from .outputs import (
    TxBaseModelOutputWithCrossAttentions,
    TxSeq2SeqLMOutput,
    TxSeq2SeqModelOutput,
    TxSeq2SeqQuestionAnsweringOutput,
    TxSeq2SeqSequenceClassifierOutput,
)
from .values import refuse_where


class TxCrossDecoder(TxStack):
    """The decoder of an encoder-decoder: a causal stack whose layers attend to the encoder as well."""

    config: TxDecoderConfig
    is_causal = True
    crosses = True
    _can_record_outputs = {
        "hidden_states": TxBlock,
        "attentions": OutputRecorder(Attention, index=1, layer_name="mixer"),
        "cross_attentions": [
            OutputRecorder(kind, index=1, layer_name="cross_mixer") for kind in (Attention, AdditiveCrossAttention)
        ],
    }
    _generates_with = "TxEncoderDecoderForConditionalGeneration"

    def __init__(self, config: TxDecoderConfig) -> None:
        super().__init__(config)
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
        encoder_hidden_states: torch.Tensor | None = None,
        encoder_attention_mask: torch.Tensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> TxBaseModelOutputWithCrossAttentions:
        """Compute the states of all positions; see [`TxEncoderDecoderModel.forward`], whose arguments with the prefix
        `decoder_` these are.

        Args:
            input_ids: tokens. *Shape:* `(batch, length)`, int64.
            attention_mask: 1 for real tokens. *Shape:* `(batch, past + length)`.
            position_ids: zero-based positions. *Shape:* `(batch or 1, length)`, int64.
            cache: states of earlier tokens and of the encoder.
            inputs_embeds: embeddings instead of `input_ids`.
            use_cache: return a cache.
            encoder_hidden_states: *Shape:* `(batch, source_length, encoder_hidden_size)`.
            encoder_attention_mask: 1 for real tokens of the source. *Shape:* `(batch, source_length)`.
            **kwargs: flags, and keywords of the attention backend.

        Returns:
            `last_hidden_state`, *Shape:* `(batch, length, hidden_size)`, and `cache`.
        """
        output_attentions = pop_flags(kwargs, self.config)
        if use_cache and cache is None:
            cache = EncoderDecoderCache(DynamicCache(config=self.config), DynamicCache())
        hidden_states, aux_losses = self.run(
            input_ids=input_ids,
            attention_mask=attention_mask,
            position_ids=position_ids,
            inputs_embeds=inputs_embeds,
            cache=cache,
            is_causal=True,
            output_attentions=output_attentions,
            encoder_hidden_states=encoder_hidden_states,
            encoder_attention_mask=encoder_attention_mask,
            **kwargs,
        )
        return TxBaseModelOutputWithCrossAttentions(
            last_hidden_state=hidden_states, cache=cache, aux_losses=aux_losses
        )


class TxEncoderDecoderPreTrainedModel(TxPreTrainedModel):
    """Base of the encoder-decoders."""

    config: TxEncoderDecoderConfig
    _generates_with = "TxEncoderDecoderForConditionalGeneration"

    def _shift_right(self, tokens: torch.Tensor, attention_mask: torch.Tensor | None = None) -> torch.Tensor:
        """Return what the decoder reads to predict `tokens`: the start token and all of them but the last.

        Args:
            tokens: *Shape:* `(batch, length)`, int64.
            attention_mask: 1 for real tokens; the start token is before the first of them, for padding on either side.
                *Shape:* `(batch, length)`.

        Raises:
            ValueError: the config names no start token, or no padding to put in place of -100.
        """
        start, pad = self.config.decoder_start_token_id, self.config.pad_token_id
        if start is None or pad is None:
            raise ValueError(
                f"decoder_start_token_id = {start}, pad_token_id = {pad}: both must be set to create "
                "decoder_input_ids from the labels or from input_ids; or pass decoder_input_ids."
            )
        shifted = torch.cat((torch.full_like(tokens[:, :1], start), tokens[:, :-1]), dim=1)
        if attention_mask is not None:
            shifted = shifted.scatter(1, attention_mask.long().argmax(dim=-1, keepdim=True), start)
        return shifted.masked_fill(shifted == IGNORE, pad)

    def _reread(
        self, input_ids: torch.Tensor | None, attention_mask: torch.Tensor | None, decoder_mask: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return the decoder's tokens and mask when it is to read the source once more, shifted right.

        Raises:
            ValueError: there are no tokens of the source.
        """
        if input_ids is None:
            raise ValueError("without input_ids, pass decoder_input_ids or decoder_inputs_embeds.")
        shifted = self._shift_right(input_ids, attention_mask if decoder_mask is None else None)
        return shifted, attention_mask if decoder_mask is None else decoder_mask

    def prepare_decoder_input_ids_from_labels(self, labels: torch.Tensor) -> torch.Tensor:
        """Return what the decoder reads to predict the labels, for data collators. *Shape:* that of `labels`."""
        return self._shift_right(labels)

    def _resize_token_embeddings(
        self, new_num_tokens: int | None, pad_to_multiple_of: int | None = None, *args: Any, **kwargs: Any
    ) -> nn.Embedding:
        if new_num_tokens is None and pad_to_multiple_of is None:
            return self.get_input_embeddings()
        resized = super()._resize_token_embeddings(new_num_tokens, pad_to_multiple_of, *args, **kwargs)
        size = resized.weight.shape[0]
        decoder = self.get_decoder()
        if not self.config.share_embeddings and decoder.embed_tokens.weight.shape[0] != size:
            decoder.embed_tokens = self._get_resized_embeddings(decoder.embed_tokens, size)
        for stack in self.config.stacks:
            stack.vocab_size = size
        return resized

    def get_input_embeddings(self) -> Any:
        """Return the embeddings of the encoder's tokens."""
        return self.get_encoder().embed_tokens

    def set_input_embeddings(self, value: nn.Module) -> None:
        """Replace the embeddings of the encoder's tokens, and the decoder's where both share them."""
        self.get_encoder().embed_tokens = value
        if self.config.share_embeddings:
            self.get_decoder().embed_tokens = value


class TxEncoderDecoderModel(TxEncoderDecoderPreTrainedModel):
    """An encoder-decoder without a head. The arguments are those of
    [`TxPreTrainedModel`]."""

    def __init__(self, config: TxEncoderDecoderConfig, loss_implementation: str = "full") -> None:
        super().__init__(config, loss_implementation)
        encoder, decoder = config.stacks
        self.encoder = TxEncoderModel(encoder, add_pooling_layer=False)
        self.decoder = TxCrossDecoder(decoder)
        if config.share_embeddings:
            self._tied_weights_keys = {"decoder.embed_tokens.weight": "encoder.embed_tokens.weight"}
        self.post_init()

    def get_expanded_tied_weights_keys(self, all_submodels: bool = False) -> dict[str, str]:
        """Return what is tied. Sharing embeddings does not depend on `tie_word_embeddings`, which ties the head."""
        if all_submodels:
            return super().get_expanded_tied_weights_keys(all_submodels=True)
        return dict(self._tied_weights_keys or {})

    @deprecate_kwarg("past_key_values", "5.40.0", new_name="cache")
    @can_return_tuple
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        decoder_input_ids: torch.Tensor | None = None,
        decoder_attention_mask: torch.Tensor | None = None,
        encoder_outputs: Any = None,
        cache: Cache | None = None,
        inputs_embeds: torch.Tensor | None = None,
        decoder_inputs_embeds: torch.Tensor | None = None,
        position_ids: torch.LongTensor | None = None,
        decoder_position_ids: torch.LongTensor | None = None,
        token_type_ids: torch.LongTensor | None = None,
        use_cache: bool | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> TxSeq2SeqModelOutput:
        """Encode the source and compute the decoder's states.

        Args:
            input_ids: tokens of the source. *Shape:* `(batch, source_length)`, int64.
            attention_mask: 1 for real tokens of the source. *Shape:* `(batch, source_length)`.
            decoder_input_ids: tokens of the target. Default: those of the source, shifted right, as in BART. *Shape:*
                `(batch, length)`, int64.
            decoder_attention_mask: 1 for real tokens of the target. *Shape:* `(batch, past + length)`.
            encoder_outputs: outputs of the encoder, instead of the source.
            cache: states of earlier tokens and of the encoder; updated in place.
            inputs_embeds: embeddings of the source instead of `input_ids`.
            decoder_inputs_embeds: embeddings of the target instead of `decoder_input_ids`.
            position_ids: zero-based positions of the source. *Shape:* `(batch or 1, source_length)`, int64.
            decoder_position_ids: zero-based positions of the target. *Shape:* `(batch or 1, length)`, int64.
            token_type_ids: types of the source's tokens. *Shape:* `(batch, source_length)`, int64.
            use_cache: return a cache. Default: `config.use_cache`.
            **kwargs: `output_attentions`, `output_hidden_states`, `return_dict`; others go to the attention backend.

        Returns:
            `last_hidden_state` of the decoder, *Shape:* `(batch, length, hidden_size)`, `cache`, and
            `encoder_last_hidden_state`, *Shape:* `(batch, source_length, encoder_hidden_size)`.

        Raises:
            ValueError: if documents are packed, which cross-attention cannot isolate; and as in
                [`TxDecoderModel.forward`].
        """
        _refuse_packing("position_ids", position_ids, attention_mask)
        _refuse_packing("decoder_position_ids", decoder_position_ids, decoder_attention_mask)
        for name in ("seq_idx", "cu_seq_lens_q", "cu_seq_lens_k"):
            if kwargs.get(name) is not None:
                raise ValueError(
                    f"{name}: encoder-decoders do not support packed documents; put every document into its own row."
                )
        if kwargs.pop("is_causal", None) is not None:
            raise ValueError(
                "is_causal cannot be set: the encoder of an encoder-decoder is bidirectional and its decoder causal."
            )
        own_cache = getattr(cache, "self_attention_cache", cache)
        check_keywords(self, self.config._attn_implementation, kwargs, own_cache)
        if attention_mask is not None and attention_mask.ndim != 2:
            raise ValueError(
                f"attention_mask has shape {tuple(attention_mask.shape)}: it must be (batch, source_length), because "
                "the cross-attention uses it too. For another mask inside of the encoder, call get_encoder() with "
                "it, and pass encoder_outputs."
            )
        if decoder_input_ids is None and decoder_inputs_embeds is None:
            decoder_input_ids, decoder_attention_mask = self._reread(input_ids, attention_mask, decoder_attention_mask)
        if use_cache is None:
            use_cache = self.config.use_cache
        if self.config.output_hidden_states:
            kwargs.setdefault("output_hidden_states", self.config.output_hidden_states)
        if encoder_outputs is None:
            encoder_outputs = self.encoder(
                input_ids=input_ids,
                return_dict=True,
                attention_mask=attention_mask,
                token_type_ids=token_type_ids,
                position_ids=position_ids,
                inputs_embeds=inputs_embeds,
                **kwargs,
            )
        elif not isinstance(encoder_outputs, ModelOutput):
            parts = (*encoder_outputs, None, None)
            encoder_outputs = BaseModelOutput(last_hidden_state=parts[0], hidden_states=parts[1], attentions=parts[2])
        decoder_outputs = self.decoder(
            input_ids=decoder_input_ids,
            return_dict=True,
            attention_mask=decoder_attention_mask,
            position_ids=decoder_position_ids,
            cache=cache,
            inputs_embeds=decoder_inputs_embeds,
            use_cache=use_cache,
            encoder_hidden_states=encoder_outputs[0],
            encoder_attention_mask=attention_mask,
            **kwargs,
        )
        return TxSeq2SeqModelOutput(
            last_hidden_state=decoder_outputs.last_hidden_state,
            cache=decoder_outputs.cache,
            decoder_hidden_states=decoder_outputs.hidden_states,
            decoder_attentions=decoder_outputs.attentions,
            cross_attentions=decoder_outputs.cross_attentions,
            encoder_last_hidden_state=encoder_outputs.last_hidden_state,
            encoder_hidden_states=encoder_outputs.hidden_states,
            encoder_attentions=encoder_outputs.attentions,
            aux_losses=added(getattr(encoder_outputs, "aux_losses", None), decoder_outputs.aux_losses),
        )


def _refuse_packing(name: str, position_ids: torch.Tensor | None, attention_mask: Any) -> None:
    if position_ids is None:
        return
    begins = begins_document(position_ids)
    if isinstance(attention_mask, torch.Tensor) and attention_mask.ndim == 2:
        goes_on = attention_mask[:, -position_ids.shape[1] : -1].bool()  # padding may have any position
    else:
        goes_on = ~begins[:, :-1]
    refuse_where(
        begins[:, 1:] & goes_on,
        f"{name} restart at 0: encoder-decoders do not support packed documents; put every document into its own row.",
    )


class TxEncoderDecoderForConditionalGeneration(TxEncoderDecoderPreTrainedModel, GenerationMixin, LanguageModelHead):
    """An encoder-decoder that generates a text from a text. The arguments are those of [`TxPreTrainedModel`]."""

    shifts_labels = False
    _tp_plan = {"lm_head": "colwise_gather_output"}
    _fsdp_plan = {"lm_head": "keep_full_weight"}

    def __init__(self, config: TxEncoderDecoderConfig, loss_implementation: str = "full") -> None:
        super().__init__(config, loss_implementation)
        self.model = TxEncoderDecoderModel(config)
        _, decoder = config.stacks
        self.build_lm_head(decoder, decoder.output_size)
        source = "encoder" if config.share_embeddings else "decoder"
        self._tied_weights_keys = {"lm_head.weight": f"model.{source}.embed_tokens.weight"}
        self.post_init()

    def prepare_inputs_for_generation(
        self,
        input_ids: torch.LongTensor,
        next_sequence_length: int | None = None,
        cache: Cache | None = None,
        is_first_iteration: bool | None = False,
        **kwargs: Any,
    ) -> dict[str, Any]:
        """Prepare a step of `generate()`; see the method of the same name in transformers.

        When generation continues with a filled cache, the whole text of the decoder is passed, because it must begin
        with the start token. Tokens in the cache are not computed again.
        """
        past = int(cache.get_seq_length()) if is_first_iteration and cache is not None else 0
        if next_sequence_length is None and 0 < past < input_ids.shape[1]:
            next_sequence_length = input_ids.shape[1] - past
        inputs = super().prepare_inputs_for_generation(
            input_ids,
            next_sequence_length=next_sequence_length,
            cache=cache,
            is_first_iteration=is_first_iteration,
            **kwargs,
        )
        return for_wrapper(self, inputs)

    def init_continuous_batching(self, *args: Any, **kwargs: Any) -> Any:
        """Raise an error, because continuous batching does not support cross-attention; see the method of the same
        name in transformers.

        Raises:
            ValueError: always.
        """
        check_continuous_batching(self.config, self.config._attn_implementation)
        return super().init_continuous_batching(*args, **kwargs)

    def create_masks_for_generate(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Build the masks of a step; see [`TxStack`]."""
        cache = kwargs.get("cache")
        kwargs["cache"] = getattr(cache, "self_attention_cache", cache)
        return self.model.decoder.create_masks_for_generate(*args, **kwargs)

    @deprecate_kwarg("past_key_values", "5.40.0", new_name="cache")
    @can_return_tuple
    @arguments_of(TxEncoderDecoderModel.forward)
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        decoder_input_ids: torch.Tensor | None = None,
        decoder_attention_mask: torch.Tensor | None = None,
        encoder_outputs: Any = None,
        cache: Cache | None = None,
        inputs_embeds: torch.Tensor | None = None,
        decoder_inputs_embeds: torch.Tensor | None = None,
        labels: torch.LongTensor | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int | torch.Tensor = 0,
        skip_logits: bool | None = None,
        decoder_position_ids: torch.LongTensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> TxSeq2SeqLMOutput:
        """Predict the target.

        Args:
            input_ids: tokens of the source. *Shape:* `(batch, source_length)`, int64.
            decoder_input_ids: tokens that the decoder reads. Default: the labels, shifted right.
            labels: tokens of the target, -100 for none. *Shape:* `(batch, length)`, int64.
            use_cache: return a cache.
            logits_to_keep: compute logits for the last so many positions (0: all), or for these positions.
            skip_logits: compute the loss without keeping logits. Default: in training with labels and
                `loss_implementation="chunked"`.
            **kwargs: `num_items_in_batch` (divides the summed loss), and those of [`TxEncoderDecoderModel.forward`].

        Returns:
            `loss`, `logits` (*Shape:* `(batch, positions, vocab_size)`, None when skipped), `cache` and
            `encoder_last_hidden_state`.
        """
        targets = self.targets(labels, None, None, kwargs)
        if decoder_input_ids is None and decoder_inputs_embeds is None:
            if labels is None:
                raise ValueError(
                    "without labels, pass decoder_input_ids or decoder_inputs_embeds. If the Trainer removes the "
                    "labels, as for label smoothing, use DataCollatorForSeq2Seq(tokenizer, model=model), which "
                    "creates them."
                )
            decoder_input_ids = self._shift_right(labels)
        outputs = self.model(
            input_ids=input_ids,
            return_dict=True,
            attention_mask=attention_mask,
            decoder_input_ids=decoder_input_ids,
            decoder_attention_mask=decoder_attention_mask,
            encoder_outputs=encoder_outputs,
            cache=cache,
            inputs_embeds=inputs_embeds,
            decoder_inputs_embeds=decoder_inputs_embeds,
            decoder_position_ids=decoder_position_ids,
            use_cache=use_cache,
            **kwargs,
        )
        loss, logits = self.loss_and_logits(outputs, targets, logits_to_keep, skip_logits)
        return TxSeq2SeqLMOutput(
            loss=loss,
            logits=logits,
            cache=outputs.cache,
            decoder_hidden_states=outputs.decoder_hidden_states,
            decoder_attentions=outputs.decoder_attentions,
            cross_attentions=outputs.cross_attentions,
            encoder_last_hidden_state=outputs.encoder_last_hidden_state,
            encoder_hidden_states=outputs.encoder_hidden_states,
            encoder_attentions=outputs.encoder_attentions,
            aux_losses=outputs.aux_losses,
        )


class TxEncoderDecoderForSequenceClassification(TxEncoderDecoderPreTrainedModel):
    """An encoder-decoder that classifies a text: the decoder reads the text again, shifted right, and its last token
    that is not padding is classified (Lewis et al., 2019, section 3.1, https://huggingface.co/papers/1910.13461)."""

    def __init__(self, config: TxEncoderDecoderConfig) -> None:
        super().__init__(config)
        _, decoder = config.stacks
        self.num_labels = config.num_labels
        self.model = TxEncoderDecoderModel(config)
        size = decoder.output_size
        self.transform = nn.Linear(size, size) if config.classifier_transform else None
        self.dropout = classifier_dropout(decoder)
        self.score = nn.Linear(size, config.num_labels)
        self.post_init()

    @can_return_tuple
    @arguments_of(TxEncoderDecoderModel.forward)
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        decoder_input_ids: torch.Tensor | None = None,
        decoder_attention_mask: torch.Tensor | None = None,
        encoder_outputs: Any = None,
        inputs_embeds: torch.Tensor | None = None,
        decoder_inputs_embeds: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        use_cache: bool | None = None,
        num_items_in_batch: torch.Tensor | int | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> TxSeq2SeqSequenceClassifierOutput:
        """Classify every row.

        Args:
            input_ids: tokens. *Shape:* `(batch, length)`, int64.
            attention_mask: 1 for real tokens.
            decoder_input_ids: tokens that the decoder reads. Default: `input_ids`, shifted right.
            decoder_attention_mask: 1 for real tokens of the decoder. Default: `attention_mask`.
            inputs_embeds: embeddings instead of `input_ids`; the decoder then needs an input of its own.
            labels: see `classification_loss` for the shapes that `config.problem_type` asks for.
            use_cache: return a cache. Default: no.
            num_items_in_batch: divides the summed loss.
            **kwargs: those of [`TxEncoderDecoderModel.forward`].

        Returns:
            `loss` and `logits`. *Shape:* `(batch, num_labels)`.

        Raises:
            ValueError: no input for the decoder, or nothing that says which of its tokens are padding.
        """
        if decoder_input_ids is None and decoder_inputs_embeds is None:
            decoder_input_ids, decoder_attention_mask = self._reread(input_ids, attention_mask, decoder_attention_mask)
        outputs = self.model(
            input_ids=input_ids,
            return_dict=True,
            attention_mask=attention_mask,
            decoder_input_ids=decoder_input_ids,
            decoder_attention_mask=decoder_attention_mask,
            encoder_outputs=encoder_outputs,
            inputs_embeds=inputs_embeds,
            decoder_inputs_embeds=decoder_inputs_embeds,
            use_cache=bool(use_cache),
            **kwargs,
        )
        hidden_states = outputs.last_hidden_state
        last = last_real_position(hidden_states, decoder_attention_mask, decoder_input_ids, self.config.pad_token_id)
        rows = torch.arange(hidden_states.shape[0], device=hidden_states.device)
        pooled = hidden_states[rows, last]
        if self.transform is not None:
            pooled = torch.tanh(self.transform(self.dropout(pooled)))
        logits = self.score(self.dropout(pooled))
        loss = None
        if labels is not None:
            loss = classification_loss(logits, labels, self.config.problem_type, num_items_in_batch)
            loss = with_auxiliary(loss, outputs.aux_losses, labels, num_items_in_batch, self.training)
        return TxSeq2SeqSequenceClassifierOutput(
            loss=loss,
            logits=logits,
            cache=outputs.cache,
            decoder_hidden_states=outputs.decoder_hidden_states,
            decoder_attentions=outputs.decoder_attentions,
            cross_attentions=outputs.cross_attentions,
            encoder_last_hidden_state=outputs.encoder_last_hidden_state,
            encoder_hidden_states=outputs.encoder_hidden_states,
            encoder_attentions=outputs.encoder_attentions,
            aux_losses=outputs.aux_losses,
        )


class TxEncoderDecoderForQuestionAnswering(TxEncoderDecoderPreTrainedModel):
    """An encoder-decoder for extractive question answering: the decoder reads the text again, shifted right, and its
    states predict where an answer begins and ends (Lewis et al., 2019, https://huggingface.co/papers/1910.13461)."""

    def __init__(self, config: TxEncoderDecoderConfig) -> None:
        super().__init__(config)
        self.model = TxEncoderDecoderModel(config)
        self.qa_outputs = nn.Linear(config.stacks[1].output_size, 2)
        self.post_init()

    @can_return_tuple
    @arguments_of(TxEncoderDecoderModel.forward)
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        decoder_input_ids: torch.Tensor | None = None,
        decoder_attention_mask: torch.Tensor | None = None,
        encoder_outputs: Any = None,
        inputs_embeds: torch.Tensor | None = None,
        decoder_inputs_embeds: torch.Tensor | None = None,
        start_positions: torch.LongTensor | None = None,
        end_positions: torch.LongTensor | None = None,
        use_cache: bool | None = None,
        num_items_in_batch: torch.Tensor | int | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> TxSeq2SeqQuestionAnsweringOutput:
        """Score every position as begin and end of the answer.

        Args:
            input_ids: tokens. *Shape:* `(batch, length)`, int64.
            attention_mask: 1 for real tokens.
            decoder_input_ids: tokens that the decoder reads. Default: `input_ids`, shifted right.
            decoder_attention_mask: 1 for real tokens of the decoder. Default: `attention_mask`.
            inputs_embeds: embeddings instead of `input_ids`; the decoder then needs an input of its own.
            start_positions: where answers begin; outside the text: no target. *Shape:* `(batch,)`, int64.
            end_positions: where they end. *Shape:* `(batch,)`, int64.
            use_cache: return a cache. Default: no.
            num_items_in_batch: divides the summed loss.
            **kwargs: those of [`TxEncoderDecoderModel.forward`].

        Returns:
            `loss`, `start_logits` and `end_logits`. *Shape:* `(batch, length)`.

        Raises:
            ValueError: no input for the decoder.
        """
        outputs = self.model(
            input_ids=input_ids,
            return_dict=True,
            attention_mask=attention_mask,
            decoder_input_ids=decoder_input_ids,
            decoder_attention_mask=decoder_attention_mask,
            encoder_outputs=encoder_outputs,
            inputs_embeds=inputs_embeds,
            decoder_inputs_embeds=decoder_inputs_embeds,
            use_cache=bool(use_cache),
            **kwargs,
        )
        loss, start_logits, end_logits = question_answering(
            self.qa_outputs(outputs.last_hidden_state), start_positions, end_positions, num_items_in_batch
        )
        loss = with_auxiliary(loss, outputs.aux_losses, start_positions, num_items_in_batch, self.training)
        return TxSeq2SeqQuestionAnsweringOutput(
            loss=loss,
            start_logits=start_logits,
            end_logits=end_logits,
            cache=outputs.cache,
            decoder_hidden_states=outputs.decoder_hidden_states,
            decoder_attentions=outputs.decoder_attentions,
            cross_attentions=outputs.cross_attentions,
            encoder_last_hidden_state=outputs.encoder_last_hidden_state,
            encoder_hidden_states=outputs.encoder_hidden_states,
            encoder_attentions=outputs.encoder_attentions,
            aux_losses=outputs.aux_losses,
        )


__all__ = [
    "TxEncoderDecoderForConditionalGeneration",
    "TxEncoderDecoderForQuestionAnswering",
    "TxEncoderDecoderForSequenceClassification",
    "TxEncoderDecoderModel",
    "TxEncoderDecoderPreTrainedModel",
]
