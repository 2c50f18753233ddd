# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Creates decoders and encoder-decoders from the weights of encoders."""

from typing import Any

import torch

from ..common.quiet import without_progress_bars
from ..models.configuration_decoder import TxDecoderConfig
from ..models.configuration_encoder import TxEncoderConfig
from ..models.configuration_encoder_decoder import TxEncoderDecoderConfig
from ..models.modeling_base import TxPreTrainedModel
from ..models.modeling_decoder import TxDecoderForCausalLM
from ..models.modeling_encoder_decoder import TxEncoderDecoderForConditionalGeneration
from .building import build_config, device_of, empty_model, require_shapes
from .convert import from_hf

State = dict[str, torch.Tensor]


def warm_start_decoder(
    encoder: Any, *, config_changes: dict[str, Any] | None = None, output_loading_info: bool = False
) -> Any:
    """Create a causal language model with the weights of an encoder (Rothe et al., 2020,
    https://huggingface.co/papers/1907.12461).

    It computes the same as the encoder if nothing after a position is visible. Windows reach as far back (a causal
    window counts its own position, so `sliding_window` is increased by one), and of relative positions the buckets
    before a position are kept. The head gets the weights and the bias of a masked language modeling head. Not used are
    the projection before it (`transform`), poolers, classifiers, and a head whose input is not the hidden size
    (ELECTRA, which also needs `tie_word_embeddings=False`). They are reported, as in `from_pretrained`.

    Args:
        encoder: an encoder of hf_tx, or a source that [`from_hf`] converts to one: a model of transformers, a folder
            or a name on the Hub.
        config_changes: fields of [`TxDecoderConfig`] to change, such as `mixers`.
        output_loading_info: also return a dict with `missing_keys` (initialized) and `unexpected_keys` (not used).

    Returns:
        The model, in evaluation mode, with a copy of the weights. With `output_loading_info`, a tuple of model and
        dict.

    Raises:
        ValueError: if the source is not an encoder, a changed field does not exist, or the weights of a layer have
            another shape in a decoder (recurrent networks).
        StrictDataclassError: if the config is invalid for a decoder.

    Example:

    ```python
    >>> import hf_tx, transformers
    >>> config = transformers.BertConfig(
    ...     vocab_size=32, hidden_size=32, num_hidden_layers=1, num_attention_heads=4, intermediate_size=64
    ... )
    >>> model, info = hf_tx.warm_start_decoder(transformers.BertForMaskedLM(config), output_loading_info=True)
    >>> type(model).__name__, list(info["missing_keys"])
    ('TxDecoderForCausalLM', [])

    ```
    """
    source = _encoder(encoder)
    settings, state = _as_decoder(source)
    config = build_config(TxDecoderConfig, settings, config_changes)
    return _load(TxDecoderForCausalLM, config, state, source, output_loading_info)


def warm_start_encoder_decoder(
    encoder: Any,
    decoder: Any = None,
    *,
    config_changes: dict[str, Any] | None = None,
    output_loading_info: bool = False,
) -> Any:
    """Return an encoder-decoder that begins with the weights of an encoder on both sides (BERT2BERT; Rothe et al.,
    2020, https://huggingface.co/papers/1907.12461), or of an encoder and a decoder (BERT2GPT).

    The attention to the encoder, and its norms, are new. See [`warm_start_decoder`] for what becomes of an encoder on
    the side of the decoder. All that is new or has no place is reported, as in `from_pretrained`.

    Args:
        encoder: an encoder of hf_tx, or what [`from_hf`] makes one of: a model of transformers, a folder, a name.
        decoder: what the decoder begins with, likewise: an encoder or a decoder. Default: `encoder`; both stacks then
            share the embeddings (`share_embeddings`), as in the paper.
        config_changes: fields of [`TxEncoderDecoderConfig`] to change, those of the stacks with the prefix `encoder_`
            or `decoder_`. BERT's config names neither `decoder_start_token_id` nor `eos_token_id`: the paper takes
            `[CLS]` and `[SEP]`.
        output_loading_info: see [`warm_start_decoder`]. What the encoder's model had besides the encoder is listed
            with the prefix `encoder.`.

    Returns:
        The model, in evaluation mode and with weights of its own. With `output_loading_info`, the dict as well.

    Raises:
        ValueError: a source that is none, a change of a field that does not exist, weights that differ but are to be
            shared, or a layer whose weights have another shape in one direction (recurrent networks).
        StrictDataclassError: stacks that do not fit, or a decoder that cannot attend to an encoder.

    Example:

    ```python
    >>> import hf_tx, transformers
    >>> config = transformers.BertConfig(
    ...     vocab_size=32, hidden_size=32, num_hidden_layers=1, num_attention_heads=4, intermediate_size=64
    ... )
    >>> model, info = hf_tx.warm_start_encoder_decoder(
    ...     transformers.BertForMaskedLM(config),
    ...     config_changes={"decoder_start_token_id": 1, "eos_token_id": 2},
    ...     output_loading_info=True,
    ... )
    >>> sorted({name.split(".")[4] for name in info["missing_keys"]})
    ['cross_mixer', 'cross_norm']

    ```
    """
    first = _encoder(encoder)
    second = first if decoder is None else _ours(decoder, "decoder")
    settings, state = _as_decoder(second)
    settings["cross_attention_hidden_size"] = first.config.hidden_size
    both = {
        "encoder": {**first.config.to_dict(), "add_pooling_layer": False},
        "decoder": settings,
        "share_embeddings": decoder is None,
        "tie_word_embeddings": settings["tie_word_embeddings"],
    }
    config = build_config(TxEncoderDecoderConfig, both, config_changes)
    state = {name.replace("model.", "model.decoder.", 1): tensor for name, tensor in state.items()}
    state |= {f"model.encoder.{name}": tensor for name, tensor in first.base_model.state_dict().items()}
    if second is not first:
        state |= {f"encoder.{name}": tensor for name, tensor in _outside(first).items()}
    return _load(TxEncoderDecoderForConditionalGeneration, config, state, first, output_loading_info)


def _ours(source: Any, name: str) -> Any:
    """Return a model of hf_tx that has one stack."""
    model = source if isinstance(source, TxPreTrainedModel) else from_hf(source, copy=False)
    if model.config.is_encoder_decoder:
        raise ValueError(
            f"{name} is a {type(model).__name__}, which has two stacks: pass one of them, such as model.get_encoder()."
        )
    return model


def _encoder(source: Any) -> Any:
    model = _ours(source, "encoder")
    if not isinstance(model.config, TxEncoderConfig):
        raise ValueError(f"encoder is a {type(model).__name__}: it must be an encoder, such as a TxEncoderModel.")
    return model


def _outside(model: Any) -> State:
    """Return the weights of a model that are not those of its base model."""
    if model.base_model is model:
        return {}
    return {name: tensor for name, tensor in model.state_dict().items() if not name.startswith("model.")}


def _as_decoder(model: Any) -> tuple[dict[str, Any], State]:
    """Return the settings of a decoder that computes what this model does when it sees nothing to come, and the
    weights of a causal language model of it."""
    config, base = model.config, model.base_model
    state = {f"model.{name}": tensor for name, tensor in base.state_dict().items()} | _outside(model)
    settings = config.to_dict()
    if not isinstance(config, TxEncoderConfig):
        return settings, state
    own = TxEncoderConfig._field_names() - TxDecoderConfig._field_names()
    settings = {name: value for name, value in settings.items() if name not in {*own, "model_type", "use_cache"}}
    for fields in (settings, *(settings.get("per_layer_config") or {}).values()):
        if fields.get("sliding_window") is not None:
            fields["sliding_window"] += 1
    head = state.get("lm_head.weight")
    if head is not None and head.shape[1] != config.hidden_size:
        state["encoder.lm_head.weight"] = state.pop("lm_head.weight")  # no name of the decoder, so that it is reported
    buckets = config.relative_attention_num_buckets // 2
    for table in [name for name in state if name.endswith(".relative_bias.weight")]:
        settings["relative_attention_num_buckets"] = buckets
        state[table] = state[table][:buckets]  # those of keys at and before the query
    return settings, state


def _load(cls: Any, config: Any, state: State, source: Any, output_loading_info: bool) -> Any:
    """Return a new model with copies of these weights."""
    shapes = {name: tensor.shape for name, tensor in state.items()}
    reason = "recurrent networks have other weights in a decoder, and config_changes cannot change sizes"
    empty = empty_model(cls, config)
    require_shapes(empty, shapes, reason)
    tied = empty.get_expanded_tied_weights_keys(all_submodels=True)
    for name, other in tied.items():
        if name in state and not torch.equal(state[name], state[other]):
            raise ValueError(
                f"{name} and {other} would be tied, but differ in the source: set tie_word_embeddings (of the head) "
                "or "
                "share_embeddings (of both stacks) to False in config_changes."
            )
    with without_progress_bars():
        model, info = cls.from_pretrained(
            None,
            config=config,
            state_dict={name: tensor.clone() for name, tensor in state.items() if name not in tied},
            dtype=source.dtype,
            device_map=device_of(source),
            output_loading_info=True,
        )
    return (model, info) if output_loading_info else model
