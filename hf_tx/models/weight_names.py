# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Names of weights in checkpoints: removes prefixes of wrappers, and checks that a load fills weights."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from torch import nn
from transformers.core_model_loading import WeightRenaming
from transformers.modeling_utils import PreTrainedModel

# Of torch.compile, FSDP and activation checkpointing, which may wrap any module, and of DataParallel and DDP, whose
# name a module of a plug-in may have as well: they wrap whole models.
_ANYWHERE = "_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module"
_WRAPPERS = re.compile(rf"^(?:(?:module|{_ANYWHERE})\.)+|(?<=\.)(?:{_ANYWHERE})\.")
#: The same as transformers' loading takes it for its own models (`key_mapping`), as far as one replacement goes.
UNWRAPPING = {_WRAPPERS.pattern: ""}


def unwrapped(name: str) -> str:
    """Return the name of a weight without the parts that wrappers of modules add to it.

    Example:

    ```python
    >>> unwrapped("module._orig_mod.model.layers.0._orig_mod.mlp_norm.weight")
    'model.layers.0.mlp_norm.weight'

    ```
    """
    return _WRAPPERS.sub("", name)


class UnwrappedNames:
    """Takes the names of wrappers out of those of a checkpoint. Called with a name.

    Raises:
        ValueError: two weights have the same name then.
    """

    def __init__(self) -> None:
        self._found: dict[str, str] = {}

    def __call__(self, name: str) -> str:
        """Return the name without those of wrappers."""
        new = unwrapped(name)
        if self._found.setdefault(new, name) != name:
            raise ValueError(
                f"the checkpoint contains {self._found[new]} and {name}, which are both {new}, with and without the "
                "prefix of a wrapper (torch.compile, DataParallel): remove one of them."
            )
        return new


def unwrap_names(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return weights by their names without those of wrappers.

    Raises:
        ValueError: two weights have the same name then.
    """
    rename = UnwrappedNames()
    return {rename(name): tensor for name, tensor in state.items()}


class _Unwrapping(WeightRenaming):
    """The renaming as a step of transformers' loading. It is never undone by a save."""

    __slots__ = ("_rename",)

    def __init__(self) -> None:
        super().__init__(_WRAPPERS.pattern, "")
        self._rename = UnwrappedNames()

    def rename_source_key(self, source_key: str) -> tuple[str, str | None]:
        return self._rename(source_key), None

    def reverse_transform(self) -> "_Unwrapping":
        return _Unwrapping()


def with_unwrapping(load_config: Any) -> Any:
    """Return transformers' options of a load, with the names of wrappers taken out first."""
    return replace(load_config, weight_mapping=[_Unwrapping(), *(load_config.weight_mapping or ())])


def refuse_empty_stacks(
    model: PreTrainedModel, lacking: Iterable[str], unexpected: Iterable[str], source: Any
) -> None:
    """Check that a load has filled at least one weight of each stack: a head or some layers can be new, but not a
    whole encoder or decoder.

    Args:
        model: the model.
        lacking: names of the weights that the load has not filled.
        unexpected: names of those that have no place in the model.
        source: where the weights come from; None for a state dict, which can be empty to create new weights.

    Raises:
        ValueError: if no weight of a stack was filled.
    """
    lacking, unexpected = set(lacking), sorted(unexpected)
    if source is None and not unexpected and lacking.issuperset(model.state_dict()):
        return
    for prefix, stack in _stacks(model).items():
        names = [f"{prefix}{name}" for name in stack.state_dict()]
        if lacking.issuperset(names):
            what = prefix.removesuffix(".").rpartition(".")[2] or "model"
            held = (
                f"has {len(unexpected)} other weights, such as {unexpected[0]!r}"
                if unexpected
                else "has no other weights"
            )
            raise ValueError(
                f"{source or 'state_dict'}: has none of the {len(names)} weights of the {what} of "
                f"{type(model).__name__}, such as {names[0]!r}, which would all be random; it {held}. These seem to "
                "be the weights of another model: rename them with key_mapping, or create a new model with "
                "from_config."
            )


def _stacks(model: PreTrainedModel) -> dict[str, nn.Module]:
    """Return the models in a model that hold no others, by the prefix of their weights."""
    models = {name: module for name, module in model.named_modules() if isinstance(module, PreTrainedModel)}
    return {
        f"{name}." if name else "": module
        for name, module in models.items()
        if not any(other is not module and other in set(module.modules()) for other in models.values())
    }
