# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Custom sequence models for transformers: encoders, decoders and encoder-decoders whose mixers are chosen by name."""

from .models.requirements import TRANSFORMERS  # noqa: F401  # first, because it checks the version

# isort: split
from .analysis import parameter_count
from .conversion import (
    extend_context,
    from_hf,
    tie_embeddings,
    to_hf,
    untie_embeddings,
    warm_start_decoder,
    warm_start_encoder_decoder,
)
from .models.configuration_decoder import TxDecoderConfig
from .models.configuration_encoder import TxEncoderConfig
from .models.configuration_encoder_decoder import TxEncoderDecoderConfig
from .models.modeling_decoder import (
    TxDecoderForCausalLM,
    TxDecoderForQuestionAnswering,
    TxDecoderForSequenceClassification,
    TxDecoderForTokenClassification,
    TxDecoderModel,
)
from .models.modeling_encoder import (
    TxEncoderForMaskedLM,
    TxEncoderForMultipleChoice,
    TxEncoderForQuestionAnswering,
    TxEncoderForSequenceClassification,
    TxEncoderForTokenClassification,
    TxEncoderModel,
)
from .models.modeling_encoder_decoder import (
    TxEncoderDecoderForConditionalGeneration,
    TxEncoderDecoderForQuestionAnswering,
    TxEncoderDecoderForSequenceClassification,
    TxEncoderDecoderModel,
)
from .models.version import __version__
from .registration import register

register()

__all__ = [
    "TxDecoderConfig",
    "TxDecoderForCausalLM",
    "TxDecoderForQuestionAnswering",
    "TxDecoderForSequenceClassification",
    "TxDecoderForTokenClassification",
    "TxDecoderModel",
    "TxEncoderConfig",
    "TxEncoderDecoderConfig",
    "TxEncoderDecoderForConditionalGeneration",
    "TxEncoderDecoderForQuestionAnswering",
    "TxEncoderDecoderForSequenceClassification",
    "TxEncoderDecoderModel",
    "TxEncoderForMaskedLM",
    "TxEncoderForMultipleChoice",
    "TxEncoderForQuestionAnswering",
    "TxEncoderForSequenceClassification",
    "TxEncoderForTokenClassification",
    "TxEncoderModel",
    "__version__",
    "extend_context",
    "from_hf",
    "parameter_count",
    "tie_embeddings",
    "to_hf",
    "untie_embeddings",
    "warm_start_decoder",
    "warm_start_encoder_decoder",
]
