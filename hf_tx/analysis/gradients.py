# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""How far gradients reach into the past."""

import inspect
from typing import Any

import torch


def gradient_by_distance(
    model: Any,
    input_ids: torch.Tensor,
    position: int = -1,
    target: torch.Tensor | None = None,
    probes: int | None = 8,
    seed: int = 0,
    **inputs: Any,
) -> torch.Tensor:
    """Return the size of the gradient at one position with respect to the input at every distance before it.

    Where it shrinks or grows exponentially with the distance, gradients vanish or explode: the network cannot learn
    what depends on the far past, or not stably (Bengio, Simard and Frasconi, 1994,
    https://doi.org/10.1109/72.279181; Pascanu, Mikolov and Bengio, 2013, https://arxiv.org/abs/1211.5063). Beyond the
    reach of windows it is exactly 0.

    Without a target it is the Frobenius norm of the Jacobian `J` of the output (the hidden states of a base model, the
    logits of one with a head): the root of the mean of `|J^T v|^2` over standard normal vectors `v` (Hutchinson, 1990,
    https://doi.org/10.1080/03610919008812866). With a target it is the norm of the gradient of the cross-entropy of
    that token. Over the rows it is the root of the mean square.

    Dropout is off during the call; gradients of the parameters are left alone.

    Args:
        model: any model that takes `inputs_embeds` and whose `get_input_embeddings()` makes them; an encoder-decoder
            takes `decoder_inputs_embeds`, and its source by keyword.
        input_ids: tokens; of an encoder-decoder, those of the target. *Shape:* `(batch, length)`, int64.
        position: the position whose output is differentiated; negative ones count from the end.
        target: the token whose loss is differentiated, for models with logits. *Shape:* `(batch,)`, int64. Default:
            the output itself.
        probes: number of random vectors, one backward pass each; None takes every feature once, which is exact.
        seed: of the random vectors.
        **inputs: what the model takes besides, such as `attention_mask`. For an encoder-decoder `source_ids`, *Shape:*
            `(batch, source length)`, or `encoder_outputs`.

    Returns:
        The norm at distance 0, 1, ... *Shape:* `(position + 1,)`, float32.

    Raises:
        ValueError: a position outside of the text, less than one probe, a target without logits or of another shape,
            or a model that does not take embeddings.

    Example:

    ```python
    >>> import torch
    >>> from hf_tx import TxDecoderConfig, TxDecoderModel
    >>> from hf_tx.analysis import gradient_by_distance
    >>> config = TxDecoderConfig(vocab_size=50, hidden_size=32, num_hidden_layers=1, num_attention_heads=4,
    ...                          mixers="sliding", sliding_window=3)
    >>> norms = gradient_by_distance(TxDecoderModel(config), torch.arange(6)[None])
    >>> (norms > 0).tolist()  # a window of 3 keys reaches 2 back
    [True, True, True, False, False, False]

    ```
    """
    length = input_ids.shape[1]
    if not -length <= position < length:
        raise ValueError(f"position = {position}: must be one of the {length} tokens of input_ids.")
    position %= length
    if probes is not None and probes < 1:
        raise ValueError(f"probes = {probes}: must be at least 1, or None for the exact norm.")
    if target is not None and target.shape != input_ids.shape[:1]:
        raise ValueError(
            f"target has the shape {tuple(target.shape)}: it must have one token per row, ({len(input_ids)},)."
        )

    training = model.training
    model.eval()
    try:
        # The kernels of cuDNN have no backward pass for recurrent layers outside of training.
        with torch.enable_grad(), torch.backends.cudnn.flags(enabled=False):
            embeddings, output = _run(model, input_ids, position, inputs)
            squares = torch.zeros(embeddings.shape[:2], device=embeddings.device)
            directions = _directions(output, target, probes, seed)
            for idx, (scalar, weight) in enumerate(directions):
                last = idx == len(directions) - 1
                (gradient,) = torch.autograd.grad(scalar, embeddings, weight, retain_graph=not last)
                squares += gradient.float().square().sum(-1)
    finally:
        model.train(training)
    if target is None and probes is not None:
        squares /= probes
    return squares.mean(0).sqrt()[: position + 1].flip(0)


def _run(
    model: Any, input_ids: torch.Tensor, position: int, inputs: dict[str, Any]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the embeddings, *Shape:* `(batch, length, features)`, and the output at the position, *Shape:* `(batch,
    features)`."""
    pair = bool(getattr(getattr(model, "config", None), "is_encoder_decoder", False))
    name = "decoder_inputs_embeds" if pair else "inputs_embeds"
    taken = inspect.signature(model.forward).parameters
    if name not in taken:
        raise ValueError(
            f"{type(model).__name__}.forward must accept {name}, because gradients are computed with respect to them."
        )
    if pair:
        if "source_ids" in inputs:
            inputs["input_ids"] = inputs.pop("source_ids")
        elif "encoder_outputs" not in inputs:
            raise ValueError(f"{type(model).__name__} is an encoder-decoder: pass source_ids or encoder_outputs.")
    embed = (model.get_decoder() if pair else model).get_input_embeddings()
    embeddings = embed(input_ids).detach().requires_grad_()
    if "use_cache" in taken:
        inputs.setdefault("use_cache", False)
    outputs = model(**{name: embeddings}, **inputs)
    states = outputs if isinstance(outputs, torch.Tensor) else outputs[0]
    if states.ndim != 3 or states.shape[:2] != input_ids.shape:
        raise ValueError(
            f"{type(model).__name__} returns an output of shape {tuple(states.shape)}, but one output per token is "
            "needed, (batch, length, features): pass the base model."
        )
    return embeddings, states[:, position]


def _directions(
    output: torch.Tensor, target: torch.Tensor | None, probes: int | None, seed: int
) -> list[tuple[torch.Tensor, torch.Tensor | None]]:
    """Return what is differentiated, with the vector that its Jacobian is multiplied by."""
    if target is not None:
        return [(torch.nn.functional.cross_entropy(output.float(), target, reduction="sum"), None)]
    rows, features = output.shape
    if probes is None:
        vectors = torch.eye(features)[:, None].expand(-1, rows, -1)
    else:
        vectors = torch.randn(probes, rows, features, generator=torch.Generator().manual_seed(seed))
    return [(output, vector) for vector in vectors.to(output)]
