# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""The sources of a conversion: a model in memory, or files whose tensors are read one at a time."""

import copy as copies
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors import SafetensorError, safe_open
from transformers import AutoConfig, GenerationConfig, PreTrainedConfig
from transformers.modeling_utils import PreTrainedModel
from transformers.utils import SAFE_WEIGHTS_INDEX_NAME, SAFE_WEIGHTS_NAME, cached_file, find_adapter_config_file
from transformers.utils.hub import get_checkpoint_shard_files, resolve_revision

from ..common.loading import loading
from ..common.quiet import without_warnings
from ..models.modeling_base import TxPreTrainedModel
from ..models.weight_names import UNWRAPPING, unwrap_names
from .building import device_of
from .families import family_named, family_of
from .family import Head


@dataclass
class Source:
    """What is converted.

    Attributes:
        config: their config.
        cls: their class.
        state: their tensors by name, as in the state dict of the class: tensors, or [`StoredTensor`]s.
        unread: names of tensors of the checkpoint that the class does not have.
        tied: whether the output layer has the weight of the embeddings; None where there is none.
        dtype: of the weights; None if they have several.
        backend: the attention that the model has in memory.
        device: where it is.
        training: its mode.
        in_memory: whether a caller holds the model.
        generation_config: its own.
    """

    config: Any
    cls: type[Any]
    state: dict[str, Any]
    tied: bool | None
    dtype: Any
    unread: Iterable[str] = ()
    backend: str | None = None
    device: torch.device | None = None
    training: bool = False
    in_memory: bool = False
    generation_config: GenerationConfig | None = None


def of_checkpoint(source: Any, architecture: str | None, dtype: Any, hub: dict[str, Any]) -> Iterator[Source]:
    """Yield a checkpoint as files, which works if their tensors have the names of the weight table, and then as loaded
    by transformers, which also loads checkpoints of its older versions.

    Args:
        source: a folder, or a name on the Hub.
        architecture: name of the class. Default: the one that the config names.
        dtype: of the weights that transformers loads. Default: as they are stored.
        hub: where on the Hub, as keywords.

    Raises:
        NotExpressible: if hf_tx cannot compute what the config defines; weights have not been read yet.
        ValueError: if it is not a checkpoint, or one of adapters, or of hf_tx.
        OSError: if there are no weights, or only pickles.
    """
    if not isinstance(source, str | Path):
        way_out = _way_out("source", source)
        raise ValueError(
            f"source is a {type(source).__name__}: it must be a model of transformers, a folder or a name on the Hub"
            f"{way_out and f'; {way_out}'}."
        )
    with loading("source", source):
        hub["revision"] = resolve_revision(source, **hub)
    if find_adapter_config_file(str(source), **hub) is not None:
        raise ValueError(
            f"{source} contains adapters: merge them with merge_and_unload of peft, and pass the model as source."
        )
    with loading("source", source):
        stored, _ = PreTrainedConfig.get_config_dict(source, **hub)
    if "model_type" in stored:  # before transformers asks whether to run the code of an unknown model type
        family_named(stored["model_type"], "text_config" in stored)
    config = AutoConfig.from_pretrained(source, trust_remote_code=False, **hub)
    family = family_of(config)
    name = architecture or next(iter(config.architectures or ()), None)
    if name is None:
        known = ", ".join(each.theirs for each in family.heads)
        raise ValueError(f"{source}: config.json has no architectures: pass one of these as architecture: {known}.")
    family = family.for_class(name)
    head = family.head_of(name)
    family.build(family.read(config) | head.settings)  # raises before weights are loaded
    cls = getattr(transformers, head.theirs)
    if getattr(config, "transformers_weights", None) is None:
        files = find_weights(str(source), hub)
        if files is None:
            raise OSError(
                f"{source} has no weights in safetensors, and pickles (pytorch_model.bin) can run code when they are "
                "loaded. If you trust it, load it with transformers, and pass the model as source."
            )
        if config.dtype is not None:
            yield of_files(str(source), files, config, cls, _output_weight(head), hub)
    try:
        options: dict[str, Any] = dict(dtype=dtype or "auto", use_safetensors=True, output_loading_info=True)
        with without_warnings():  # missing and unexpected weights are handled by the caller
            model, info = cls.from_pretrained(source, key_mapping=UNWRAPPING, **options, **hub)
    except (OSError, RuntimeError) as error:
        raise OSError(f"{source}: the weights cannot be loaded: {error}") from error
    yield of_model(model, loaded=True, missing=info["missing_keys"], unread=info["unexpected_keys"])


def _output_weight(head: Head) -> str | None:
    """Return their name of the weight of the output layer."""
    names = (
        f"{each.theirs.removesuffix('.weight')}.weight" for each in head.rules if each.ours[0].startswith("lm_head")
    )
    return next(names, None)


def of_model(
    model: PreTrainedModel, loaded: bool = False, missing: Iterable[str] = (), unread: Iterable[str] = ()
) -> Source:
    """Return a model as a source.

    Args:
        model: the model.
        loaded: it was loaded from a folder or the Hub, which do not define a backend.
        missing: weights that its checkpoint does not have, which were initialized at random.
        unread: weights of its checkpoint that the model does not have.

    Raises:
        ValueError: if it has no weights, or has adapters.
    """
    state = {name: tensor for name, tensor in unwrap_names(model.state_dict()).items() if name not in missing}
    if any(tensor.is_meta for tensor in state.values()):
        raise ValueError(
            "source has no weights in memory, because it is on the meta device or offloaded: load it to a device."
        )
    refuse_adapters("source", state)
    dtypes = dtypes_of(state)
    output = model.get_output_embeddings()
    reader = model.get_decoder() if model.config.is_encoder_decoder else model
    return Source(
        config=model.config,
        cls=type(model),
        state=state,
        unread=sorted(unread),
        tied=None if output is None else output.weight is reader.get_input_embeddings().weight,
        dtype=model.dtype if loaded or len(dtypes) < 2 else None,
        backend=None if loaded else model.config._attn_implementation,
        device=device_of(model),
        training=model.training,
        in_memory=not loaded,
        generation_config=copies.deepcopy(getattr(model, "generation_config", None)),
    )


def refuse_adapters(what: str, names: Iterable[str]) -> None:
    """Check that a model with weights of these names has no adapters.

    Raises:
        ValueError: if it has.
    """
    if any(".base_layer." in name for name in names):
        raise ValueError(
            f"{what} has adapters in its layers: merge them first with merge_and_unload of the PeftModel."
        )


def dtypes_of(state: Mapping[str, torch.Tensor]) -> list[str]:
    """Return the names of the floating point dtypes of tensors."""
    return sorted({str(tensor.dtype) for tensor in state.values() if tensor.is_floating_point()})


def require_ours(model: Any) -> None:
    """Check that a model is one of hf_tx.

    Raises:
        ValueError: if it is not, with what to do.
    """
    if isinstance(model, TxPreTrainedModel):
        return
    way_out = _way_out("model", model) or "convert it with hf_tx.from_hf"
    if isinstance(model, PreTrainedModel) and model.config.model_type.startswith("hf_tx"):
        way_out = "it was loaded with trust_remote_code; import hf_tx, and load it without trust_remote_code"
    raise ValueError(f"model is a {type(model).__name__}, not a model of hf_tx: {way_out}.")


def _way_out(what: str, model: Any) -> str:
    """Return how to get the model inside of a wrapper, if it is one."""
    for name in ("_orig_mod", "module"):  # of torch.compile and DataParallel
        if isinstance(getattr(model, name, None), PreTrainedModel):
            return f"pass the model inside, {what}.{name}"
    return "merge its adapters first, with merge_and_unload" if hasattr(model, "merge_and_unload") else ""


def of_files(
    name: str, files: list[str], config: Any, cls: type[Any], output: str | None, hub: dict[str, Any]
) -> Source:
    """Return the files of a checkpoint as a source.

    Args:
        name: a folder, or a name on the Hub.
        files: its weights.
        config: their config.
        cls: their class.
        output: their name of the weight of the output layer, if there is one.
        hub: where on the Hub, as keywords.

    Raises:
        OSError: if a file is incomplete.
    """
    state: dict[str, Any] = {}
    for file in files:
        try:
            mapped = safe_open(file, framework="pt", backend="mmap")
            read = safe_open(file, framework="pt", backend="pread")
        except SafetensorError as error:
            raise OSError(f"{file} is not a complete safetensors file: {error}. Download or save it again.") from error
        state |= {key: StoredTensor(mapped, read, key) for key in mapped.keys()}  # noqa: SIM118
    state = unwrap_names(state)
    ties = dict(cls._tied_weights_keys or {}) if config.tie_word_embeddings else {}
    for one, other in ties.items():
        there = [key for key in (one, other) if key in state]
        # Most files store a weight with two names once. If both are stored, transformers ties them if they are equal.
        if len(there) == 1 or (there and torch.equal(state[one][...], state[other][...])):
            state[one] = state[other] = state[there[-1]]
    return Source(
        config=config,
        cls=cls,
        state=state,
        tied=None if output is None else output in ties and state.get(output) is state.get(ties[output]),
        dtype=config.dtype,
        generation_config=_generation_config(name, hub) if cls.can_generate() else None,
    )


class StoredTensor:
    """A tensor in a file; `[...]` is a view of the file, as transformers uses it when it loads.

    Args:
        mapped: the file, mapped into memory.
        read: the file, read into memory.
        name: of the tensor.
    """

    def __init__(self, mapped: Any, read: Any, name: str) -> None:
        self.mapped, self.file, self.name = mapped, read, name

    def __getitem__(self, index: Any) -> torch.Tensor:
        return self.mapped.get_slice(self.name)[index]

    @property
    def shape(self) -> torch.Size:
        """Its shape, for which nothing is read."""
        return torch.Size(self.mapped.get_slice(self.name).get_shape())

    def read(self) -> torch.Tensor:
        """Return a copy in memory: the pages of a mapped file would stay in memory together with what is made of
        them."""
        return self.file.get_tensor(self.name)


class Parts:
    """Our tensors that one of theirs holds: made when the first is asked for, each handed out once.

    Args:
        make: makes them all.
    """

    def __init__(self, make: Callable[[], list[torch.Tensor]]) -> None:
        self._make: Callable[[], list[torch.Tensor]] | None = make
        self._made: dict[int, torch.Tensor] = {}
        self._lock = threading.Lock()  # transformers loads in several threads

    def take(self, index: int) -> torch.Tensor:
        """Hand out one of them."""
        with self._lock:
            if self._make is not None:
                self._made = dict(enumerate(self._make()))
                self._make = None  # with it goes their tensor
            return self._made.pop(index)


class Part:
    """A tensor of hf_tx, with the only operation that transformers uses on a tensor when it loads."""

    def __init__(self, parts: Parts, index: int) -> None:
        self.parts, self.index = parts, index

    def __getitem__(self, index: Any) -> torch.Tensor:
        return self.parts.take(self.index)[index]


def find_weights(name: str, hub: dict[str, Any]) -> list[str] | None:
    """Return the files of weights, or None if there are none in safetensors."""
    found = cached_file(name, SAFE_WEIGHTS_NAME, **hub, _raise_exceptions_for_missing_entries=False)
    if found is not None:
        return [found]
    index = cached_file(name, SAFE_WEIGHTS_INDEX_NAME, **hub, _raise_exceptions_for_missing_entries=False)
    return None if index is None else get_checkpoint_shard_files(name, index, **hub)[0]


def _generation_config(name: str, hub: dict[str, Any]) -> GenerationConfig:
    try:
        return GenerationConfig.from_pretrained(name, **hub)
    except OSError:  # like transformers: old checkpoints have it in config.json
        return GenerationConfig.from_pretrained(name, "config.json", _from_model_config=True, **hub)
