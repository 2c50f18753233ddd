# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Saves and loads the configs of all families: unknown keys, versions, and the code that is saved with them."""

import dataclasses
import difflib
import json
import re
from copy import copy
from pathlib import Path
from typing import Any, ClassVar

from transformers.generation.configuration_utils import GenerationConfig
from transformers.utils import logging

from .configuration_checks import check_labels
from .hub_repositories import PushesAsAsked, repository_of_save
from .registry import nearest
from .version import __version__

logger = logging.get_logger(__name__)

# Keywords that PreTrainedConfig itself understands and turns into something else than a field.
_CONSTRUCTOR_KEYS = frozenset(
    [
        "num_labels",
        "torch_dtype",
        "name_or_path",
        "_name_or_path",
        "attn_implementation",
        "experts_implementation",
        "output_attentions",
        "per_layer_config",
        "rope_theta",
        "rope_scaling",
        "partial_rotary_factor",
        "auto_map",
        "layer_types",
        "model_type",
        "tie_last_hidden_states",
        "quantization_config",
        "allow_global_per_layer_attribute_access",
        "serialize_explicit_per_layer_config",
    ]
)
# Keywords of a load that change fields under another name.
ALIASES = frozenset(["rope_theta", "rope_scaling", "partial_rotary_factor", "per_layer_config"])
# What other versions of transformers, and its clients, leave in a file.
_FILE_KEYS = _CONSTRUCTOR_KEYS | frozenset(
    [
        "_commit_hash",
        "custom_pipelines",
        "transformers_weights",
        "distributed_config",
        "base_model_name_or_path",
        "_attn_implementation_autoset",
        "_attn_implementation_internal",
        "_experts_implementation_internal",
    ]
)


class TxConfigMixin(PushesAsAsked):
    """Unknown keys, versions, and the code that is saved with a config of any family."""

    #: Auto class to "module.Class" of every class that a checkpoint of this family can be loaded with.
    full_auto_map: ClassVar[dict[str, str]] = {}
    model_type: ClassVar[str]
    hf_tx_version: str | None
    num_labels: int
    # Makes transformers copy the config's file, and all that it imports, into every folder that is saved.
    _auto_class: ClassVar[str | None] = "AutoConfig"
    keys_to_ignore_at_inference: ClassVar[list[str]] = ["cache", "aux_losses"]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        # The dataclass of each subclass compares all fields, also those that a config lacks or has by layer.
        cls.__eq__ = TxConfigMixin.__eq__  # type: ignore[method-assign]

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return False
        mine, theirs = self.to_dict(), other.to_dict()  # type: ignore[attr-defined]
        # The folder of a config, and the other files in it, are no settings.
        return all(mine.get(key) == theirs.get(key) for key in {*mine, *theirs} - {"_name_or_path", "auto_map"})

    __hash__ = None  # type: ignore[assignment]

    @classmethod
    def _field_names(cls) -> set[str]:
        return {field.name for field in dataclasses.fields(cls)}  # type: ignore[arg-type]

    @classmethod
    def _changeable(cls) -> set[str]:
        """Names that a load may change."""
        return cls._field_names()

    def _refuse_unknown(self, keys: Any, also_known: frozenset[str] = frozenset()) -> None:
        for key in keys:
            if key not in _CONSTRUCTOR_KEYS and key not in also_known:
                raise ValueError(f"{type(self).__name__} has no field {key!r}.{nearest(key, self._field_names())}")

    @classmethod
    def _clean(cls, stored: dict[str, Any]) -> dict[str, Any]:
        """Return what a file says, without keys of transformers and keys that are null; other unknown keys raise an
        error."""
        written_by = stored.get("hf_tx_version")
        check_version(written_by)
        known = cls._field_names() | _CONSTRUCTOR_KEYS
        owned = _FILE_KEYS | GenerationConfig._get_default_generation_params().keys()
        for key, value in stored.items():
            if key not in known and key not in owned and value is not None:
                other = written_by not in (None, __version__)
                newer = f" The file was written by hf_tx {written_by}, this is {__version__}." if other else ""
                raise ValueError(f"{cls.__name__} has no field {key!r}.{nearest(key, known)}{newer}")
        cleaned = {key: value for key, value in stored.items() if key in known}
        for name, sub_config in cls.sub_configs.items():  # type: ignore[attr-defined]
            if isinstance(cleaned.get(name), dict):
                cleaned[name] = sub_config._clean(cleaned[name])
        return cleaned

    def validate_labels(self) -> None:
        """Check what concerns classifiers."""
        check_labels(self)

    def _without_function(self) -> set[str]:
        """Names of attributes that the model does not read; they are not saved."""
        known = self._field_names() | _FILE_KEYS
        return {key for key in self.__dict__ if key not in known and not key.startswith("_")}

    def to_dict(self) -> dict[str, Any]:
        """Return the config as files hold it: without attributes that are no fields, which no load would accept."""
        dropped = self._without_function() | {"_saved_without_code"}
        return {key: value for key, value in super().to_dict().items() if key not in dropped}  # type: ignore[misc]

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs: Any) -> Any:
        """Build a config from a dict as files hold it; see the method of the same name in transformers.

        Raises:
            ValueError: if a key is unknown and not null, a change is misspelled, or the major version of hf_tx is
                newer.
        """
        # transformers also passes keywords of other classes here, so only names that look like a field raise an error.
        names = cls._changeable()
        for key in kwargs:
            close = difflib.get_close_matches(key, names, n=1, cutoff=0.85)
            if close and key not in names:
                raise ValueError(f"{cls.__name__} has no field {key!r}. Did you mean {close[0]!r}?")
        for key in ("dtype", "torch_dtype"):
            if kwargs.get(key) == "auto":  # what the file says
                del kwargs[key]
        # transformers would assign changes to the finished config, where nothing derives from them or checks them.
        changes = {key: kwargs.pop(key) for key in list(kwargs) if key in cls._field_names() | ALIASES}
        return super().from_dict(cls._changed(cls._clean(config_dict), changes), **kwargs)  # type: ignore[misc]

    @classmethod
    def _changed(cls, stored: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
        """Return what a file says with the changes of the caller; fields of a nested config are changed one by one."""
        changed = {**stored, **changes}
        for name, sub_config in cls.sub_configs.items():  # type: ignore[attr-defined]
            if isinstance(changes.get(name), dict):
                changed[name] = sub_config._changed(stored.get(name) or {}, changes[name])
        return changed

    @classmethod
    def from_json_file(cls, json_file: Any) -> Any:
        """Build a config from a JSON file; unknown keys are treated as in `from_dict`."""
        return cls.from_dict(cls._decode_special_floats(json.loads(Path(json_file).read_text("utf-8"))))  # type: ignore

    def save_pretrained(
        self, save_directory: Any, push_to_hub: bool = False, include_code: bool | None = None, **kwargs: Any
    ) -> None:
        """Save the config together with the code of the model; see the method of the same name in transformers.

        Args:
            save_directory: folder to write to.
            push_to_hub: upload the folder as well.
            include_code: write the code, and the `auto_map` that lets others load the checkpoint without hf_tx.
                Default: yes.
            **kwargs: for the upload.

        Raises:
            ValueError: the repository is there and is not as `private` says; nothing has been saved or sent.
        """
        if push_to_hub:
            kwargs["repo_id"] = repository_of_save(save_directory, kwargs)
        if dropped := {key for key in self._without_function() if getattr(self, key, None) is not None}:
            logger.warning(f"not saved, because the model does not use them: {', '.join(sorted(dropped))}")
        self.hf_tx_version = __version__
        if not self.__dict__.get("_saved_without_code") if include_code is None else include_code:
            # The full map, without the "repo--" prefixes of a checkpoint that was loaded from elsewhere.
            self.auto_map = dict(self.full_auto_map)
            super().save_pretrained(save_directory, push_to_hub=push_to_hub, **kwargs)  # type: ignore[misc]
            return
        bare = copy(self)
        bare.__dict__.pop("auto_map", None)
        bare._auto_class = None
        super(TxConfigMixin, bare).save_pretrained(  # type: ignore[misc]
            save_directory, push_to_hub=push_to_hub, **kwargs
        )


def check_version(written_by: str | None) -> None:
    """Check that a checkpoint does not have a newer major version.

    Raises:
        ValueError: if the code is older than the checkpoint, or `hf_tx_version` is not a version.
    """
    if written_by is None:
        return
    if not re.match(r"\d+\.\d+", str(written_by)):
        raise ValueError(f"hf_tx_version = {written_by!r}: must be a version, such as {__version__!r}.")
    if int(written_by.split(".")[0]) > int(__version__.split(".")[0]):
        raise ValueError(
            f"this checkpoint was written by hf_tx {written_by}, but hf_tx {__version__} is installed: pip install "
            "--upgrade hf_tx"
        )
