# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Ties and unties the embeddings and the head of a language model."""

from typing import Any

from torch import nn

from .sources import require_ours


def tie_embeddings(model: Any) -> Any:
    """Let the head of a language model use the weights of the embeddings (Press and Wolf, 2017,
    https://huggingface.co/papers/1608.05859), in place. The weights of the head are discarded; its bias is kept. A
    model that is already tied does not change.

    The model has one parameter less, so create optimizers afterwards. `config.tie_word_embeddings` is set, so that the
    model is saved and loaded in this way.

    Args:
        model: a language model of hf_tx; of an encoder-decoder, the head is tied to the decoder's embeddings.

    Returns:
        The model.

    Raises:
        ValueError: if the model has no such head, or if head and embeddings have different shapes.

    Example:

    ```python
    >>> import hf_tx
    >>> config = hf_tx.TxDecoderConfig(
    ...     vocab_size=32, hidden_size=32, num_hidden_layers=1, num_attention_heads=4, tie_word_embeddings=False
    ... )
    >>> model = hf_tx.tie_embeddings(hf_tx.TxDecoderForCausalLM(config))
    >>> model.lm_head.weight is model.get_input_embeddings().weight, model.config.tie_word_embeddings
    (True, True)
    >>> model = hf_tx.untie_embeddings(model)
    >>> model.lm_head.weight is model.get_input_embeddings().weight, model.config.tie_word_embeddings
    (False, False)

    ```
    """
    head, embeddings = _head_and_embeddings(model)
    if head.weight.shape != embeddings.weight.shape:
        raise ValueError(
            f"the weights of the head have the shape {tuple(head.weight.shape)} and those of the embeddings "
            f"{tuple(embeddings.weight.shape)}: only weights of the same shape can be tied."
        )
    _say(model, True)
    model.tie_weights()
    return model


def untie_embeddings(model: Any) -> Any:
    """Give the head of a language model its own weights, in place: a copy of those of the embeddings, so that the
    model computes the same until it is trained. A model that is not tied does not change.

    The model has one parameter more, so create optimizers afterwards. `config.tie_word_embeddings` is set, so that the
    model is saved and loaded in this way.

    Args:
        model: a language model of hf_tx.

    Returns:
        The model.

    Raises:
        ValueError: if the model has no such head.
    """
    head, embeddings = _head_and_embeddings(model)
    if head.weight is embeddings.weight:
        head.weight = nn.Parameter(head.weight.detach().clone(), requires_grad=head.weight.requires_grad)
    _say(model, False)
    return model


def _head_and_embeddings(model: Any) -> tuple[Any, Any]:
    """Return the output layer, and the embeddings that it can be tied to."""
    require_ours(model)
    head = model.get_output_embeddings()
    if head is None:
        raise ValueError(
            f"{type(model).__name__} has no head that could be tied to its embeddings; use a language model."
        )
    stack = model.get_decoder() if model.config.is_encoder_decoder else model.base_model
    return head, stack.embed_tokens


def _say(model: Any, tied: bool) -> None:
    """Store whether the head is tied in the config, and in what transformers derived from it."""
    model.config.tie_word_embeddings = tied
    if model.config.is_encoder_decoder:
        model.config.decoder.tie_word_embeddings = tied
    # Read when a model is saved.
    model.all_tied_weights_keys = model.get_expanded_tied_weights_keys(all_submodels=True)
