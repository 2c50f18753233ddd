# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""The `api` object of a plug-in: methods that register parts, and the classes that parts can build on."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, Literal

from torch import nn
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from .attention import OF_ATTENTION, Attention
from .backend_rules import FEATURES, register_backend
from .documents import Segments
from .feed_forwards import FEED_FORWARDS, FeedForward, build_activation, drop
from .mixer import Band, CrossMixer, Mixer, Pattern
from .mixers import CROSS_MIXERS, MIXERS
from .norms import NORMS, Norm, build_norm
from .parts import Part, PartRegistry
from .positions import POSITIONS, Position, PositionScheme, apply_rotary
from .recurrent_cache import RECURRENT_LAYER_TYPE, read_state, write_state
from .registries import REGISTRIES
from .registry import Registry

#: The version of what follows. A change that breaks plug-ins raises it.
API_VERSION = 1

State = Literal["kv", "window kv", "recurrent"]
#: By the state of a mixer: the name in transformers of its cache layer.
_LAYER_TYPES: dict[State | None, str] = {
    "kv": "full_attention",
    "window kv": "sliding_attention",
    "recurrent": RECURRENT_LAYER_TYPE,
    None: "full_attention",
}
# transformers looks for these words in names, and treats the backend as its own backend of this kind.
_WORDS_OF_THE_LIBRARY = ("flash", "sdpa", "flex_attention", "paged|")


@dataclass(frozen=True)
class Plugin:
    """An installed plug-in, described by the metadata of its distribution, without importing it.

    Attributes:
        name: name of the entry point. It is the prefix of the names of the plug-in.
        distribution: the distribution that it is part of.
        version: the version of that distribution.
        target: the entry point, `module:function`.
    """

    name: str
    distribution: str
    version: str
    target: str

    @property
    def origin(self) -> str:
        """Distribution, version and entry point, for messages."""
        return f"{self.distribution} {self.version} ({self.target})"


class PluginApi:
    """The argument of the function that the entry point of a plug-in names. It collects what that function registers,
    and registers everything or, after an error, nothing.

    Its classes and functions are those of the copy of hf_tx that loads the plug-in. A plug-in therefore
    needs no import of hf_tx, and also works with the copy that is saved with a checkpoint.

    Args:
        plugin: the plug-in that registers.
    """

    def __init__(self, plugin: Plugin) -> None:
        self.version = API_VERSION
        self.plugin = plugin
        self.entries: dict[str, PartRegistry[Any]] = {
            registry.kind: type(registry)(registry.kind, registry.options_field) for registry in REGISTRIES
        }
        self.backends: Registry[dict[str, Any]] = Registry("attn_implementation")
        # What a plug-in may build on.
        self.Attention = Attention
        self.Band = Band
        self.Pattern = Pattern
        self.PositionScheme = PositionScheme
        self.Segments = Segments
        self.apply_rotary = apply_rotary
        self.build_activation = build_activation
        self.build_norm = build_norm
        self.drop = drop
        self.read_state = read_state
        self.write_state = write_state

    def mixer(
        self,
        name: str,
        module: Callable[..., nn.Module],
        *,
        state: State | None,
        cost: Literal["linear", "quadratic"] | None = None,
        is_causal: bool | None = None,
        needs: tuple[str, ...] = (),
        **fields: Any,
    ) -> None:
        """Register a mixer; see [`Mixer`].

        Args:
            name: `vendor/name`.
            module: created as `module(config, layer_idx, backend_config, is_causal)`.
            state: what the cache stores for it: `kv`, keys and values; `window kv`, those of the last `sliding_window`
                tokens; `recurrent`, one tensor of constant size; None, nothing, so that it cannot be causal. A mixer
                with keys and values is attention.
            cost: growth of the time with the length. Default: `quadratic` for `kv`, or else `linear`.
            is_causal: whether it can be causal. Default: True unless `state` is None.
            needs: config fields that must be set. `sliding_window` is among them for `window kv`.
            **fields: the other fields of [`Mixer`]; `reference` is required.

        Raises:
            ValueError: if an argument is invalid.
        """
        what = f"mixer {name!r}"
        if state not in _LAYER_TYPES:
            raise ValueError(f"{what}: state = {state!r}: must be 'kv', 'window kv', 'recurrent' or None.")
        is_causal = state is not None if is_causal is None else is_causal
        if is_causal and state is None:
            raise ValueError(f"{what}: state = None: a causal mixer needs a state, or it cannot generate.")
        attends = state in ("kv", "window kv")
        if fields.get("pattern") is not None and not attends:
            raise ValueError(f"{what}: a pattern defines which keys a query sees, so it needs state = 'kv'.")
        if state == "window kv":
            needs = tuple(dict.fromkeys((*needs, "sliding_window")))
        mixer = Mixer(
            module=module,
            layer_type=_LAYER_TYPES[state],
            cost=cost or ("quadratic" if state == "kv" else "linear"),
            is_causal=is_causal,
            is_attention=attends,
            needs=needs,
            **{**(OF_ATTENTION if attends else {}), **fields},
        )
        self._add_part(MIXERS, name, mixer)

    def cross_mixer(self, name: str, module: Callable[..., nn.Module], **fields: Any) -> None:
        """Register a mixer between a decoder and its encoder.

        Args:
            name: `vendor/name`.
            module: see [`CrossMixer`].
            **fields: the other fields; `reference` is required.

        Raises:
            ValueError: if an argument is invalid.
        """
        self._add_part(CROSS_MIXERS, name, CrossMixer(module, **fields))

    def position(self, name: str, module: type[PositionScheme], **fields: Any) -> None:
        """Register a position scheme.

        Args:
            name: `vendor/name`.
            module: see [`Position`].
            **fields: the other fields; `reference` is required.

        Raises:
            ValueError: if an argument is invalid.
        """
        self._add_part(POSITIONS, name, Position(module, **fields))

    def norm(self, name: str, module: Callable[..., nn.Module], **fields: Any) -> None:
        """Register a norm.

        Args:
            name: `vendor/name`.
            module: see [`Norm`].
            **fields: the other fields; `reference` is required.

        Raises:
            ValueError: if an argument is invalid.
        """
        self._add_part(NORMS, name, Norm(module, **fields))

    def feed_forward(self, name: str, module: Callable[..., nn.Module], **fields: Any) -> None:
        """Register a feed-forward layer.

        Args:
            name: `vendor/name`.
            module: see [`FeedForward`].
            **fields: the other fields; `reference` is required.

        Raises:
            ValueError: if an argument is invalid.
        """
        self._add_part(FEED_FORWARDS, name, FeedForward(module, **fields))

    def backend(
        self,
        name: str,
        *,
        attention: Callable[..., Any],
        mask: Callable[..., Any] | None = None,
        supports: Callable[[Any, frozenset[str]], str | None] | None = None,
        computes: Collection[str] | None = None,
        needs_band: bool = False,
        by_distance: bool = False,
    ) -> None:
        """Register an attention backend in the registries of transformers, for any model of transformers.

        Args:
            name: `vendor_name`.
            attention: function with the signature of the attention functions of transformers.
            mask: function with the signature of its mask functions. Without one transformers would pass no mask.
            supports: `supports(layer, features)` returns None if it can compute a layer with this config and these
                features, or the reason why not.
            computes: see `register_backend`, as for the rest.
            needs_band: whether it is made for layers whose keys lie in a band around the query.
            by_distance: whether it takes the bias of the positions by distance.

        Raises:
            ValueError: if an argument is invalid.
        """
        what = f"backend {name!r}"
        _check_callable(what, "attention", attention)
        if mask is None:
            raise ValueError(f"{what}: has no mask function, so padding would be ignored; pass mask=.")
        _check_callable(what, "mask", mask)
        for word in _WORDS_OF_THE_LIBRARY:
            if word in name:
                raise ValueError(
                    f"{what}: transformers treats names with {word!r} as its own backends; choose another name."
                )
        if unknown := set(computes or ()) - set(FEATURES):
            raise ValueError(
                f"{what}: computes has the unknown features {sorted(unknown)}; the features are {', '.join(FEATURES)}."
            )
        arguments = dict(
            attention=attention,
            mask=mask,
            refuses=supports,
            computes=computes,
            needs_band=needs_band,
            by_distance=by_distance,
        )
        self._add(self.backends, name, arguments, separator="_")

    def _add_part(self, registry: PartRegistry[Any], name: str, part: Part) -> None:
        what = f"{registry.kind} {name!r}"
        if part.module is None:
            raise ValueError(f"{what}: module = None: must be callable.")
        _check_reference(what, part.reference)
        self._add(self.entries[registry.kind], name, part)

    def _add(self, registry: Registry[Any], name: str, value: Any, separator: str = "/") -> None:
        prefix = f"{self.plugin.name}{separator}"
        if not name.startswith(prefix) or name == prefix:
            raise ValueError(f"{registry.kind} {name!r}: the names of this plug-in must begin with {prefix!r}.")
        registry.register(name, value, self.plugin.origin)

    def names(self) -> dict[str, list[str]]:
        """Return the registered names by kind."""
        found = {kind: list(registry) for kind, registry in self.entries.items()}
        return {kind: names for kind, names in (*found.items(), (self.backends.kind, list(self.backends))) if names}

    def refuse_taken(self) -> None:
        """Raise a ValueError with both origins if a name is already registered."""
        for registry in REGISTRIES:
            for name in self.entries[registry.kind]:
                registry.refuse_taken(name, self.plugin.origin)
        for name in self.backends:
            _refuse_taken_backend(name, self.backends.get(name)["attention"], self.plugin.origin)

    def commit(self) -> None:
        """Add everything to the registries, or nothing.

        Raises:
            ValueError: if a name is taken; the message has both origins.
        """
        self.refuse_taken()
        for registry in REGISTRIES:
            for name in self.entries[registry.kind]:
                registry.register(name, self.entries[registry.kind].get(name), self.plugin.origin)
        for name in self.backends:
            register_backend(name, **self.backends.get(name))


def _check_callable(what: str, argument: str, value: Any) -> None:
    if not callable(value):
        raise ValueError(f"{what}: {argument} = {value!r}: must be callable.")


def _check_reference(what: str, reference: Any) -> None:
    if not reference:
        raise ValueError(f"{what}: has no reference; pass the plain implementation that it must equal as reference=.")
    if isinstance(reference, dict):  # of a position scheme
        for place, function in reference.items():
            _check_reference(f"{what}: {place}", function)
    elif isinstance(reference, str):
        module, _, function = reference.partition(":")
        if not module or not function:
            raise ValueError(f"{what}: reference = {reference!r}: must be 'module:function'.")
    else:
        _check_callable(what, "reference", reference)


def _refuse_taken_backend(name: str, attention: Any, origin: str) -> None:
    """Check that a backend is not registered. The registries of transformers are global: another copy of hf_tx may
    have registered the same function."""
    known = ALL_ATTENTION_FUNCTIONS.get(name)

    def place(function: Any) -> str:
        return f"{getattr(function, '__module__', None)}.{getattr(function, '__qualname__', function)}"

    if known is not None and place(known) != place(attention):
        raise ValueError(f"backend {name!r} is already registered by {place(known)}; {origin} needs another name.")
