# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""One tensor or two: the embeddings of a language model and its head."""

from typing import Any

from torch import nn

from .sources import require_ours


def tie_embeddings(model: Any) -> Any:
    """Let the head of a language model use the weights of the embeddings (Press and Wolf, 2017,
    https://huggingface.co/papers/1608.05859), in place. What the head had of its own is gone; its bias stays. Nothing
    happens to a model that is tied already.

    The model has one parameter less: make optimizers after this. The config says it (`tie_word_embeddings`), so that
    the model is saved and loaded like that.

    Args:
        model: a language model of hf_tx; of an encoder-decoder, the head is tied to the decoder's embeddings.

    Returns:
        The model.

    Raises:
        ValueError: the model has no such head, or head and embeddings differ in shape.

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
            f"the head has weights of shape {tuple(head.weight.shape)}, and the embeddings of "
            f"{tuple(embeddings.weight.shape)}: only equal shapes can be tied."
        )
    _say(model, True)
    model.tie_weights()
    return model


def untie_embeddings(model: Any) -> Any:
    """Give the head of a language model weights of its own, in place: a copy of those of the embeddings, so that the
    model computes the same until it is trained. Nothing happens to a model that is not tied.

    The model has one parameter more, which no optimizer made before this knows. The config says it
    (`tie_word_embeddings`), so that the model is saved and loaded like that.

    Args:
        model: a language model of hf_tx.

    Returns:
        The model.

    Raises:
        ValueError: the model has no such head.
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
            f"{type(model).__name__} has no head over the vocabulary that could be tied to its embeddings."
        )
    stack = model.get_decoder() if model.config.is_encoder_decoder else model.base_model
    return head, stack.embed_tokens


def _say(model: Any, tied: bool) -> None:
    """Write into the config, and into what the library has derived of it, whether the head is tied."""
    model.config.tie_word_embeddings = tied
    if model.config.is_encoder_decoder:
        model.config.decoder.tie_word_embeddings = tied
    # Read when a model is saved.
    model.all_tied_weights_keys = model.get_expanded_tied_weights_keys(all_submodels=True)
