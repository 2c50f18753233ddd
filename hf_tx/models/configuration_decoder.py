# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Config of a decoder: a causal stack."""

from .requirements import TRANSFORMERS  # noqa: F401  # first, since it says which version is needed

# isort: split
from typing import TYPE_CHECKING, Any, ClassVar

from .configuration_base import TxStackConfig
from .configuration_checks import require, require_known
from .configuration_strict import strict
from .mixers import CROSS_MIXERS, MIXERS
from .parts import PartRegistry

if TYPE_CHECKING:  # so that a config that is saved alone takes the model's code along
    from .modeling_decoder import TxDecoderModel  # noqa: F401


@strict
class TxDecoderConfig(TxStackConfig):
    r"""Config of [`TxDecoderModel`] and its heads. The defaults are those of a Llama-like model.

    Args:
        cross_mixer: cross-attention of the decoder of an encoder-decoder: `full`, `additive` (Bahdanau) or
            `multiplicative` (Luong).
        cross_mixer_options: options of cross mixers, by the name of the mixer.
        cross_attention_hidden_size: number of features of the encoder states. Default: `hidden_size`.
        initial_state: initial state of recurrent layers in the decoder of an encoder-decoder: `zero`, or `encoder`, a
            learned projection of the encoder state of the first token (Bahdanau).

    All other arguments are those of [`TxStackConfig`].

    Example:

    ```python
    >>> from hf_tx import TxDecoderConfig
    >>> config = TxDecoderConfig(num_hidden_layers=6, mixers="sliding*2,full", sliding_window=256)
    >>> config.mixers
    ['sliding', 'sliding', 'full', 'sliding', 'sliding', 'full']
    >>> TxDecoderConfig(num_hiden_layers=6)
    Traceback (most recent call last):
        ...
    ValueError: TxDecoderConfig has no field 'num_hiden_layers'. Did you mean 'num_hidden_layers'?

    ```
    """

    model_type = "hf_tx_decoder"
    full_auto_map: ClassVar[dict[str, str]] = {
        "AutoConfig": "configuration_decoder.TxDecoderConfig",
        "AutoModel": "modeling_decoder.TxDecoderModel",
        "AutoModelForCausalLM": "modeling_decoder.TxDecoderForCausalLM",
        "AutoModelForSequenceClassification": "modeling_decoder.TxDecoderForSequenceClassification",
        "AutoModelForTokenClassification": "modeling_decoder.TxDecoderForTokenClassification",
        "AutoModelForQuestionAnswering": "modeling_decoder.TxDecoderForQuestionAnswering",
    }

    registries: ClassVar[tuple[PartRegistry[Any], ...]] = (*TxStackConfig.registries, CROSS_MIXERS)

    cross_mixer: str = "full"
    cross_mixer_options: dict[str, dict[str, Any]] | None = None
    cross_attention_hidden_size: int | None = None
    initial_state: str = "zero"

    def validate_cross_mixer(self) -> None:
        """Check how the decoder attends to an encoder."""
        CROSS_MIXERS.get(self.cross_mixer)

    def validate_initial_state(self) -> None:
        """Check what recurrent layers start from."""
        require_known("initial_state", self.initial_state, ("zero", "encoder"))
        starts = any(MIXERS.get(name).takes_start for name in self.mixers)
        rule = f"no layer has a state to start: the mixers are {', '.join(dict.fromkeys(self.mixers))}"
        require(starts or self.initial_state == "zero", "initial_state", self.initial_state, rule)
