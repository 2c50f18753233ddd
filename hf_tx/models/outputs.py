# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Outputs of the models: those of transformers, with the auxiliary losses of a model by name."""

from dataclasses import dataclass

import torch
from transformers import modeling_outputs as library


@dataclass
class _AuxiliaryLosses:
    """
    Args:
        aux_losses: what parts of the model add to the loss in training, by name, each with its factor and summed over
            the layers. *Shape:* each `()`, floating point; or None. See `auxiliary`.
    """

    aux_losses: dict[str, torch.Tensor] | None = None


@dataclass
class TxBaseModelOutputWithPast(_AuxiliaryLosses, library.BaseModelOutputWithPast):
    """[`BaseModelOutputWithPast`], and `aux_losses`."""


@dataclass
class TxBaseModelOutputWithPooling(_AuxiliaryLosses, library.BaseModelOutputWithPooling):
    """[`BaseModelOutputWithPooling`], and `aux_losses`."""


@dataclass
class TxBaseModelOutputWithCrossAttentions(_AuxiliaryLosses, library.BaseModelOutputWithPastAndCrossAttentions):
    """[`BaseModelOutputWithPastAndCrossAttentions`], and `aux_losses`."""


@dataclass
class TxCausalLMOutput(_AuxiliaryLosses, library.CausalLMOutputWithPast):
    """[`CausalLMOutputWithPast`], and `aux_losses`."""


@dataclass
class TxMaskedLMOutput(_AuxiliaryLosses, library.MaskedLMOutput):
    """[`MaskedLMOutput`], and `aux_losses`."""


@dataclass
class TxMultipleChoiceOutput(_AuxiliaryLosses, library.MultipleChoiceModelOutput):
    """[`MultipleChoiceModelOutput`], and `aux_losses`."""


@dataclass
class TxQuestionAnsweringOutput(_AuxiliaryLosses, library.QuestionAnsweringModelOutput):
    """[`QuestionAnsweringModelOutput`], and `aux_losses`."""


@dataclass
class TxSequenceClassifierOutput(_AuxiliaryLosses, library.SequenceClassifierOutput):
    """[`SequenceClassifierOutput`], and `aux_losses`."""


@dataclass
class TxSequenceClassifierOutputWithPast(_AuxiliaryLosses, library.SequenceClassifierOutputWithPast):
    """[`SequenceClassifierOutputWithPast`], and `aux_losses`."""


@dataclass
class TxTokenClassifierOutput(_AuxiliaryLosses, library.TokenClassifierOutput):
    """[`TokenClassifierOutput`], and `aux_losses`."""


@dataclass
class TxSeq2SeqLMOutput(_AuxiliaryLosses, library.Seq2SeqLMOutput):
    """[`Seq2SeqLMOutput`], and `aux_losses`."""


@dataclass
class TxSeq2SeqModelOutput(_AuxiliaryLosses, library.Seq2SeqModelOutput):
    """[`Seq2SeqModelOutput`], and `aux_losses`."""


@dataclass
class TxSeq2SeqQuestionAnsweringOutput(_AuxiliaryLosses, library.Seq2SeqQuestionAnsweringModelOutput):
    """[`Seq2SeqQuestionAnsweringModelOutput`], and `aux_losses`."""


@dataclass
class TxSeq2SeqSequenceClassifierOutput(_AuxiliaryLosses, library.Seq2SeqSequenceClassifierOutput):
    """[`Seq2SeqSequenceClassifierOutput`], and `aux_losses`."""
