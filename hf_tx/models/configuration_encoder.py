# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Config of an encoder: a bidirectional stack."""

from .requirements import TRANSFORMERS  # noqa: F401  # first, since it says which version is needed

# isort: split
from typing import TYPE_CHECKING, Any, ClassVar

from transformers.activations import ACT2FN

from .configuration_base import TxStackConfig
from .configuration_checks import check_tied_size, require, require_known
from .configuration_strict import strict

if TYPE_CHECKING:  # so that a config that is saved alone takes the model's code along
    from .modeling_encoder import TxEncoderModel  # noqa: F401


@strict
class TxEncoderConfig(TxStackConfig):
    r"""Config of [`TxEncoderModel`] and its heads. The defaults are those of a ModernBERT-like model.

    Args:
        add_pooling_layer: the base model returns `pooler_output`, a projection of the pooled hidden states, which is
            the input of sequence classifiers (BERT).
        pooler_act: activation of this projection.
        pooler_pooling: input of this projection: the `first` token, the `mean` of the tokens, or (`late`) every token,
            with the mean after the activation (EuroBERT). Padding is ignored.
        classifier_pooling: input of a sequence classifier without a pooling layer: the `first` token or the `mean` of
            the tokens, without padding.
        mlm_head_transform: the masked language modeling head has a projection, an activation and a norm before the
            output layer (BERT).
        classifier_transform: classifiers and question answering have the same before their output layer (ModernBERT).
        transform_bias: whether this projection has a bias.

    All other arguments are those of [`TxStackConfig`].

    Example:

    ```python
    >>> from hf_tx import TxEncoderConfig
    >>> bert = TxEncoderConfig(norm_position="post", embedding_norm=True, position_type="learned", ffn_type="mlp",
    ...                        attention_bias=True, mlp_bias=True, add_pooling_layer=True)
    >>> bert.final_norm
    False

    ```
    """

    model_type = "hf_tx_encoder"
    is_causal_family: ClassVar[bool] = False
    full_auto_map: ClassVar[dict[str, str]] = {
        "AutoConfig": "configuration_encoder.TxEncoderConfig",
        "AutoModel": "modeling_encoder.TxEncoderModel",
        "AutoModelForMaskedLM": "modeling_encoder.TxEncoderForMaskedLM",
        "AutoModelForSequenceClassification": "modeling_encoder.TxEncoderForSequenceClassification",
        "AutoModelForTokenClassification": "modeling_encoder.TxEncoderForTokenClassification",
        "AutoModelForQuestionAnswering": "modeling_encoder.TxEncoderForQuestionAnswering",
        "AutoModelForMultipleChoice": "modeling_encoder.TxEncoderForMultipleChoice",
    }

    norm_type: str = "layernorm"
    norm_eps: float = 1e-5
    hidden_act: str = "gelu"
    type_vocab_size: int = 2
    use_cache: bool = False
    lm_head_bias: bool = True
    add_pooling_layer: bool = False
    pooler_act: str = "tanh"
    pooler_pooling: str = "first"
    classifier_pooling: str = "first"
    mlm_head_transform: bool = True
    classifier_transform: bool = False
    transform_bias: bool = True

    def __post_init__(self, **kwargs: Any) -> None:
        require(not self.use_cache, "use_cache", self.use_cache, "an encoder has no cache")
        super().__post_init__(**kwargs)

    def validate_heads(self) -> None:
        """Check the fields of the heads."""
        require_known("classifier_pooling", self.classifier_pooling, ("first", "mean"))
        require_known("pooler_pooling", self.pooler_pooling, ("first", "mean", "late"))
        require_known("pooler_act", self.pooler_act, ACT2FN)
        require_known("hidden_act", vars(self)["hidden_act"], ACT2FN)  # that of the heads: layers may have their own
        if not self.transform_bias:
            rule = "needs mlm_head_transform = True or classifier_transform = True"
            require(self.mlm_head_transform or self.classifier_transform, "transform_bias", False, rule)
        if not self.mlm_head_transform:
            check_tied_size(self, self.tie_word_embeddings)
