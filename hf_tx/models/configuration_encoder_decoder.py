# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Config of an encoder-decoder: the configs of its two stacks, and the fields for both."""

from .requirements import TRANSFORMERS  # noqa: F401  # first, since it says which version is needed

# isort: split
from typing import TYPE_CHECKING, Any, ClassVar

from transformers.configuration_utils import PreTrainedConfig

from .configuration_checks import check_crosses, require
from .configuration_decoder import TxDecoderConfig
from .configuration_encoder import TxEncoderConfig
from .configuration_storage import ALIASES, TxConfigMixin, check_version
from .configuration_strict import strict
from .version import __version__

if TYPE_CHECKING:  # so that a config that is saved alone takes the model's code along
    from .modeling_encoder_decoder import TxEncoderDecoderModel  # noqa: F401

#: Of the decoder. Clients look for them in the dict of a config, where they are not saved.
_SIZES = {"hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim"}


@strict
class TxEncoderDecoderConfig(TxConfigMixin, PreTrainedConfig):
    r"""Config of [`TxEncoderDecoderModel`] and its heads.

    Fields of the stacks are set in `encoder` and `decoder`, or with the prefix `encoder_` or `decoder_`.

    Args:
        encoder: config of the encoder, or a dict of its fields.
        decoder: config of the decoder, or a dict of its fields.
        share_embeddings: encoder and decoder share their token embeddings, and have the same `vocab_size`.
        tie_word_embeddings: the head uses the weights of the embeddings of the decoder.
        classifier_transform: a sequence classifier has a projection and a tanh before its output layer (BART, T5).
        pad_token_id: id of the padding token. Default: that of the decoder.
        bos_token_id: id of the token that begins a text. Default: that of the decoder.
        eos_token_id: id, or ids, of the tokens that end a text. Default: that of the decoder.
        decoder_start_token_id: id of the token that the decoder begins with. Default: `pad_token_id`, as in T5.
        hf_tx_version: the version that wrote the config.
        origin: see [`TxStackConfig`].

    Raises:
        ValueError: if a keyword is unknown.
        StrictDataclassError: if a field has the wrong type or an invalid value.

    Example:

    ```python
    >>> from hf_tx import TxEncoderDecoderConfig
    >>> config = TxEncoderDecoderConfig(encoder={"num_hidden_layers": 2}, decoder_num_hidden_layers=4)
    >>> config.encoder.num_hidden_layers, config.decoder.num_hidden_layers
    (2, 4)

    ```
    """

    model_type = "hf_tx_encoder_decoder"
    keys_to_ignore_at_inference: ClassVar[list[str]] = ["cache", "encoder_last_hidden_state", "aux_losses"]
    sub_configs_defaults: ClassVar[dict[str, Any]] = {"encoder": TxEncoderConfig, "decoder": TxDecoderConfig}
    base_model_fsdp_plan: ClassVar[dict[Any, str]] = {}  # the stacks have their own
    full_auto_map: ClassVar[dict[str, str]] = {
        "AutoConfig": "configuration_encoder_decoder.TxEncoderDecoderConfig",
        "AutoModel": "modeling_encoder_decoder.TxEncoderDecoderModel",
        "AutoModelForSeq2SeqLM": "modeling_encoder_decoder.TxEncoderDecoderForConditionalGeneration",
        "AutoModelForSequenceClassification": "modeling_encoder_decoder.TxEncoderDecoderForSequenceClassification",
        "AutoModelForQuestionAnswering": "modeling_encoder_decoder.TxEncoderDecoderForQuestionAnswering",
    }

    encoder: TxEncoderConfig | dict[str, Any] | None = None
    decoder: TxDecoderConfig | dict[str, Any] | None = None
    is_encoder_decoder: bool = True
    share_embeddings: bool = True
    tie_word_embeddings: bool = True
    classifier_transform: bool = False
    use_cache: bool = True
    pad_token_id: int | None = None
    bos_token_id: int | None = None
    eos_token_id: int | list[int] | None = None
    decoder_start_token_id: int | None = None
    hf_tx_version: str | None = None
    origin: dict[str, Any] | None = None

    def __post_init__(self, **kwargs: Any) -> None:
        stacks = {"encoder": dict(self._fields_of("encoder")), "decoder": dict(self._fields_of("decoder"))}
        for key in list(kwargs):
            stack, _, field = key.partition("_")
            if stack in stacks and field:
                given = isinstance(getattr(self, stack), PreTrainedConfig)
                require(not given, key, kwargs[key], f"{stack} is already a config: set {field} there")
                stacks[stack][field] = kwargs.pop(key)
        for key in _SIZES & kwargs.keys():
            if kwargs[key] == stacks["decoder"].get(key):  # what to_dict() adds
                del kwargs[key]
        for key in kwargs:
            self._refuse_flat(key)
        self._refuse_unknown(kwargs, also_known=frozenset({"decoder_start_token_id"}))
        check_version(self.hf_tx_version)
        self.hf_tx_version = self.hf_tx_version or __version__
        kwargs.pop("model_type", None)
        if not isinstance(self.encoder, PreTrainedConfig):
            self.encoder = TxEncoderConfig(**stacks["encoder"])
        if not isinstance(self.decoder, PreTrainedConfig):
            stacks["decoder"].setdefault("cross_attention_hidden_size", self.encoder.output_size)
            tied = stacks["decoder"].setdefault("tie_word_embeddings", self.tie_word_embeddings)
            rule = f"must be that of the encoder-decoder, {self.tie_word_embeddings}; leave it out of the decoder"
            require(tied == self.tie_word_embeddings, "decoder.tie_word_embeddings", tied, rule)
            self.decoder = TxDecoderConfig(**stacks["decoder"])
        for name in ("pad_token_id", "bos_token_id", "eos_token_id"):
            if getattr(self, name) is None:
                setattr(self, name, getattr(self.decoder, name))
        if self.decoder_start_token_id is None:
            self.decoder_start_token_id = self.pad_token_id
        super().__post_init__(**kwargs)

    @classmethod
    def _refuse_flat(cls, key: str) -> None:
        """Check that a field of the stacks names the stack that it is for."""
        of_stacks = TxDecoderConfig._field_names() | ALIASES
        if key in of_stacks - cls._field_names() - {"vocab_size"}:
            raise ValueError(
                f"TxEncoderDecoderConfig has no field {key!r}, but its stacks have it: use encoder_{key} or "
                f"decoder_{key}."
            )

    @classmethod
    def _changeable(cls) -> set[str]:
        prefixed = {
            f"{stack}_{name}" for stack, sub in cls.sub_configs.items() for name in sub._field_names() | ALIASES
        }
        return cls._field_names() | prefixed | TxDecoderConfig._field_names()

    @classmethod
    def _clean(cls, stored: dict[str, Any]) -> dict[str, Any]:
        decoder = stored.get("decoder")
        if isinstance(decoder, dict):
            same = {key for key in _SIZES if key in stored and stored[key] == decoder.get(key)}
            stored = {key: value for key, value in stored.items() if key not in same}
        cleaned = super()._clean(stored)
        if isinstance(cleaned.get("decoder"), dict):
            cleaned["decoder"].pop("tie_word_embeddings", None)  # it follows this config's, which may have changed
        return cleaned

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs: Any) -> Any:
        """Build a config from a dict as files hold it. Changes with the prefix `encoder_` or `decoder_` go to the
        stacks; see the method of the same name in transformers."""
        for key in list(kwargs):
            cls._refuse_flat(key)
            stack, _, field = key.partition("_")
            if stack in cls.sub_configs and field in cls.sub_configs[stack]._field_names() | ALIASES:
                given = kwargs.get(stack)
                rule = f"{stack} is already a config: set {field} there"
                require(not isinstance(given, PreTrainedConfig), key, kwargs[key], rule)
                kwargs[stack] = {**(given or {}), field: kwargs.pop(key)}
        return super().from_dict(config_dict, **kwargs)

    @property
    def stacks(self) -> tuple[TxEncoderConfig, TxDecoderConfig]:
        """The configs of encoder and decoder."""
        return self.encoder, self.decoder  # type: ignore[return-value]

    def _fields_of(self, stack: str) -> dict[str, Any]:
        given = getattr(self, stack)
        return given if isinstance(given, dict) else {}

    @property
    def vocab_size(self) -> int:
        """Size of the decoder's vocabulary, which the logits are over. Setting it sets the encoder's as well where
        both share embeddings."""
        return self.stacks[1].vocab_size

    @vocab_size.setter
    def vocab_size(self, value: int) -> None:
        for stack in self.stacks if self.share_embeddings else self.stacks[1:]:
            stack.vocab_size = value

    @property
    def hidden_size(self) -> int:
        """Features of a position of the decoder."""
        return self.stacks[1].hidden_size

    @property
    def num_attention_heads(self) -> int:
        """Query heads of the decoder."""
        return self.stacks[1].num_attention_heads

    @property
    def num_key_value_heads(self) -> int | None:
        """Key and value heads of the decoder."""
        return self.stacks[1].num_key_value_heads

    @property
    def head_dim(self) -> int | None:
        """Features of a head of the decoder."""
        return self.stacks[1].head_dim

    @property
    def num_hidden_layers(self) -> int:
        """Layers of the decoder."""
        return self.stacks[1].num_hidden_layers

    def to_dict(self) -> dict[str, Any]:
        """Return the config as a dict, with the sizes of the decoder: clients such as PEFT look for them there."""
        return super().to_dict() | {name: getattr(self, name) for name in _SIZES}

    def to_diff_dict(self) -> dict[str, Any]:
        """Return what is saved."""
        return {key: value for key, value in super().to_diff_dict().items() if key not in _SIZES}

    def get_text_config(self, decoder: bool | None = None, encoder: bool | None = None) -> Any:
        """Return the config of the stack that is asked for; this config itself if none is, or both are."""
        if bool(decoder) == bool(encoder):
            return self
        return self.decoder if decoder else self.encoder

    def validate_architecture(self) -> None:
        """Check the rules that concern both stacks."""
        first, second = self.stacks
        check_crosses(second)
        width = second.cross_attention_hidden_size or second.hidden_size
        size = "embedding_size" if first.output_projection else "hidden_size"
        require(
            width == first.output_size,
            "decoder.cross_attention_hidden_size",
            width,
            f"must equal the encoder's {size} = {first.output_size}",
        )
        if self.share_embeddings:
            for field in ("vocab_size", "embedding_size", "hidden_size"):
                mine, theirs = getattr(first, field), getattr(second, field)
                require(
                    mine == theirs,
                    f"encoder.{field}",
                    mine,
                    f"must equal decoder.{field} = {theirs}, or set share_embeddings = False",
                )
