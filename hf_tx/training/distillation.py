# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Distillation of a language model into another one with the same layers, some of which compute something else."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch import nn
from transformers import Trainer

from ..models.losses import IGNORE
from ..models.modeling_stack import TxStack

Batch = dict[str, torch.Tensor]
# What no position counts for is no division by 0.
_TINY = torch.finfo(torch.float32).tiny


def transfer_errors(student: Any, teacher: Any, inputs: Batch) -> torch.Tensor:
    """Compute how far every layer of the student is from the teacher's, when both read the teacher's hidden states.

    The error of a layer is the squared distance of its outputs from the teacher's, relative to their squared size,
    both summed over the positions that count: in an encoder the tokens that are no padding, in a decoder those that
    predict a target, which are neither padding nor the end of a packed document. Since no layer reads what the one
    before it has made of its input, each is learnt by itself: attention transfer (Zhang et al., 2024,
    https://huggingface.co/papers/2410.10254), of whole layers as in the second stage of MOHAWK (Bick et al., 2024,
    https://huggingface.co/papers/2408.10189).

    Args:
        student: a language model of hf_tx; gets gradients.
        teacher: one with as many layers of the same size; gets none.
        inputs: a batch with labels, as for the forward of both.

    Returns:
        The errors, those of an encoder before those of its decoder. *Shape:* `(layers,)`, float32.

    Raises:
        ValueError: the models do not have as many layers.
    """
    mine, theirs = _layers(student), _layers(teacher)
    if len(mine) != len(theirs):
        raise ValueError(
            f"the student has {len(mine)} layers and the teacher {len(theirs)}: hidden states are transferred from "
            "layer to layer. Keep num_hidden_layers, or learn from the logits only, without transfer steps."
        )
    read: dict[int, tuple[Any, ...]] = {}
    wanted: dict[int, torch.Tensor] = {}
    made: dict[int, torch.Tensor] = {}

    def record(idx: int, args: tuple[Any, ...], output: torch.Tensor) -> None:
        # Hidden states and, where the layer attends to an encoder, those of the encoder.
        read[idx], wanted[idx] = args[:2], output

    with torch.no_grad(), ExitStack() as hooks:
        for idx, (layer, _) in enumerate(theirs):
            hook = layer.register_forward_hook(lambda _, args, output, idx=idx: record(idx, args, output))
            hooks.callback(hook.remove)
        _states(teacher, inputs)
    with ExitStack() as hooks:
        for idx, (layer, _) in enumerate(mine):
            for hook in (
                layer.register_forward_pre_hook(lambda _, args, idx=idx: read[idx] + args[2:]),
                layer.register_forward_hook(lambda _, args, output, idx=idx: made.update({idx: output})),
            ):
                hooks.callback(hook.remove)
        _states(student, inputs)

    real, predicting = _real(student, inputs), _targets(student, inputs) != IGNORE
    errors = []
    for idx, (_, is_causal) in enumerate(mine):
        counted = predicting if is_causal else real
        target = wanted[idx][counted].float()
        distance = made[idx][counted].float() - target
        errors.append(distance.square().sum() / target.square().sum().clamp(min=_TINY))
    return torch.stack(errors)


def transfer_loss(student: Any, teacher: Any, inputs: Batch, layers: Sequence[int] | None = None) -> torch.Tensor:
    """Return the mean of `transfer_errors`.

    Args:
        student: see `transfer_errors`.
        teacher: see `transfer_errors`.
        inputs: see `transfer_errors`.
        layers: the layers to learn. Default: all. What differs by rounding only is better left out: optimizers that
            divide by the size of a gradient would follow it.

    Returns:
        The loss. *Shape:* `()`, float32.
    """
    errors = transfer_errors(student, teacher, inputs)
    return (errors if layers is None else errors[list(layers)]).mean()


def logits_loss(
    student: Any, teacher: Any, inputs: Batch, temperature: float = 1.0, labels_weight: float = 0.0
) -> torch.Tensor:
    """Compute how far the student's predictions are from the teacher's, at the positions that have a target.

    `(1 - w) * t ** 2 * KL(teacher || student) + w * cross-entropy of the labels`, with both distributions of the
    divergence at the temperature `t`, whose square keeps the size of the gradients (Hinton et al., 2015,
    https://huggingface.co/papers/1503.02531).

    Args:
        student: a language model of hf_tx; gets gradients.
        teacher: one with the same vocabulary; gets none.
        inputs: a batch with labels, as for the forward of both.
        temperature: divides the logits, above 0.
        labels_weight: the share `w` of the labels, from 0 to 1.

    Returns:
        The loss, a mean over the targets. *Shape:* `()`, float32.
    """
    targets = _targets(student, inputs)
    counted = targets != IGNORE
    num_targets = counted.sum().clamp(min=1)
    with torch.no_grad():
        theirs = teacher.compute_logits(_states(teacher, inputs)[counted]).float()
    mine = student.compute_logits(_states(student, inputs)[counted]).float()
    divergence = nn.functional.kl_div(
        (mine / temperature).log_softmax(-1), (theirs / temperature).log_softmax(-1), reduction="sum", log_target=True
    )
    labels = nn.functional.cross_entropy(mine, targets[counted], reduction="sum")
    return ((1 - labels_weight) * temperature**2 * divergence + labels_weight * labels) / num_targets


class DistillationTrainer(Trainer):
    """A Trainer whose loss compares the model with a teacher. It runs in one process, on one device.

    Args:
        *args: as in the Trainer.
        teacher: the model to learn from; it is moved to the device of training, put into evaluation mode, and not
            trained.
        objective: computes the loss from student, teacher and batch: `transfer_loss` or `logits_loss`.
        **kwargs: as in the Trainer.

    Raises:
        ValueError: there are several processes or devices.
    """

    # The losses are means over a batch.
    loss_is_scaled_for_ga = False

    def __init__(
        self, *args: Any, teacher: Any, objective: Callable[[Any, Any, Batch], torch.Tensor], **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        if self.args.world_size > 1 or self.args.n_gpu > 1:
            raise ValueError(
                "distillation runs in one process and on one device: start it with python, and let it see one GPU "
                "(CUDA_VISIBLE_DEVICES=0)."
            )
        self.teacher = teacher.to(self.args.device).eval().requires_grad_(False)
        self.objective: Callable[[Any, Any, Batch], torch.Tensor] = objective

    def compute_loss(
        self,
        model: nn.Module,
        inputs: Batch,
        return_outputs: bool = False,
        num_items_in_batch: torch.Tensor | int | None = None,
    ) -> Any:
        """Compute the objective on a batch; see transformers' method of this name."""
        with self.accelerator.autocast():
            loss = self.objective(self.model, self.teacher, inputs)
        return (loss, {}) if return_outputs else loss


# ------------------------------------------------------------------------------------------------------------- parts
def _layers(model: nn.Module) -> list[tuple[nn.Module, bool]]:
    """Return the layers in the order in which they are computed, and whether they are causal."""
    stacks = [module for module in model.modules() if isinstance(module, TxStack)]
    return [(layer, stack.is_causal) for stack in stacks for layer in stack.layers]


def _states(model: Any, inputs: Batch) -> torch.Tensor:
    """Return what the head reads."""
    return model.base_model(**_inputs(model, inputs), use_cache=False).last_hidden_state


def inputs_and_targets(model: Any, batch: Batch) -> tuple[Batch, torch.Tensor]:
    """Return what a model of hf_tx reads of a batch with labels, and what each of its logits is to predict.

    Returns:
        The inputs, and the targets. *Shape:* that of the labels, int64, -100 for nothing.
    """
    return _inputs(model, batch), _targets(model, batch)


def _inputs(model: Any, batch: Batch) -> Batch:
    """Return a batch without its labels, which a decoder reads where it has an encoder."""
    given = {name: value for name, value in batch.items() if name != "labels"}
    if model.config.is_encoder_decoder and "decoder_input_ids" not in given:
        given["decoder_input_ids"] = model.prepare_decoder_input_ids_from_labels(batch["labels"])
    return given


def _targets(model: Any, inputs: Batch) -> torch.Tensor:
    """Return what every position is to predict. *Shape:* that of the labels, int64, -100 for nothing."""
    # The labels of an encoder-decoder are not shifted, so that the mask of the source does not matter.
    found = model.targets(inputs["labels"], inputs.get("attention_mask"), inputs.get("position_ids"), dict(inputs))
    return found.of_positions


def _real(model: Any, inputs: Batch) -> torch.Tensor:
    """Return which tokens are no padding. *Shape:* that of the tokens, bool."""
    real = inputs.get("attention_mask", torch.ones_like(inputs["input_ids"])).bool()
    # Packed rows are padded without a mask.
    pad = model.config.pad_token_id
    return real if pad is None else real & (inputs["input_ids"] != pad)
