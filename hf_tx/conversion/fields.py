# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""The table in which a family defines how the fields of its config are converted, in both directions.

"Theirs" is transformers, "ours" is hf_tx. A table is a tuple of entries. Each entry converts some fields of theirs
to some of ours: `read` from their config to our settings, `write` from a dict of our settings to their fields. A field
without an entry raises an error, and what is written is read again and compared, so that neither direction can
silently lose a mechanism.

Settings of an encoder-decoder's stacks have the names `encoder.field` and `decoder.field`.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

Settings = Mapping[str, Any]


class NotExpressible(ValueError):
    """Raised if one side has a value that the other cannot compute.

    Args:
        field: name of the field.
        value: its value.
        reason: why the other side cannot compute it, and what to do if there is a way.
    """

    def __init__(self, field: str, value: Any, reason: str) -> None:
        super().__init__(f"not expressible: {field} = {value!r}: {reason}.")

    @classmethod
    def by_rule(cls, error: BaseException) -> "NotExpressible":
        """Return the error for a value that breaks a rule of hf_tx, with the message of the rule."""
        while error.__cause__ is not None:  # transformers wraps the error
            error = error.__cause__
        made = cls.__new__(cls)
        made.args = (f"not expressible: {error}",)
        return made


@dataclass(frozen=True)
class Entry:
    """Some fields of theirs, and how they are converted.

    Attributes:
        theirs: the fields of theirs that it reads.
        ours: the fields of ours that it sets.
        read: from their config to our settings; may raise [`NotExpressible`].
        write: from our settings to their fields.
    """

    theirs: tuple[str, ...]
    ours: tuple[str, ...]
    read: Callable[[Any], dict[str, Any]]
    write: Callable[[Settings], dict[str, Any]]


def renamed(**fields: str) -> Entry:
    """Fields, theirs to ours, whose values are the same. One that a config lacks has the default of ours."""
    return Entry(
        tuple(fields),
        tuple(fields.values()),
        lambda config: {ours: getattr(config, theirs) for theirs, ours in fields.items() if hasattr(config, theirs)},
        lambda settings: {theirs: settings[ours] for theirs, ours in fields.items()},
    )


def same(*names: str) -> Entry:
    """Fields that have the same names and values."""
    return renamed(**{name: name for name in names})


def several(theirs: str, *ours: str) -> Entry:
    """One field of theirs that is several of ours."""
    return Entry(
        (theirs,),
        ours,
        lambda config: dict.fromkeys(ours, getattr(config, theirs)),
        lambda settings: {theirs: settings[ours[0]]},
    )


def computed(theirs: str, ours: str, read: Callable[[Any], Any], write: Callable[[Settings], Any]) -> Entry:
    """One field of theirs, and one of ours that is computed from it: `read(config)`, `write(settings)`."""
    return Entry((theirs,), (ours,), lambda config: {ours: read(config)}, lambda settings: {theirs: write(settings)})


def one_of(theirs: str, ours: str, values: Mapping[Any, Any]) -> Entry:
    """One field of theirs with a few known values, and the values of ours."""

    def read(config: Any) -> dict[str, Any]:
        found = getattr(config, theirs)
        if found not in values:
            raise NotExpressible(theirs, found, f"known values are {', '.join(values)}")
        return {ours: values[found]}

    def write(settings: Settings) -> dict[str, Any]:
        names = [name for name, value in values.items() if value == settings[ours]]
        return {theirs: names[0]} if names else {}

    return Entry((theirs,), (ours,), read, write)


def always(**settings: Any) -> Entry:
    """Settings that every model of the family has, without a field in its config."""
    return Entry((), tuple(settings), lambda config: dict(settings), lambda _: {})


def derived(ours: str, read: Callable[[Any], Any]) -> Entry:
    """A field of ours that follows from the other fields of theirs."""
    return Entry((), (ours,), lambda config: {ours: read(config)}, lambda _: {})


def only(reason: str, **values: Any) -> Entry:
    """Fields of theirs that must have these values (or none), and the reason why no others are expressible."""

    def read(config: Any) -> dict[str, Any]:
        for field, value in values.items():
            found = getattr(config, field, value)
            if found is not None and found != value:
                raise NotExpressible(field, found, reason)
        return {}

    return Entry(tuple(values), (), read, lambda _: {})


def unread(*names: str) -> Entry:
    """Fields of theirs that do not affect what the model computes. They are kept in `config.origin`."""
    return Entry(names, (), lambda config: {}, lambda _: {})


def in_stacks(*entries: Entry) -> tuple[Entry, ...]:
    """Turn entries of one stack into entries that give both stacks of an encoder-decoder the same."""

    def double(entry: Entry) -> Entry:
        def read(config: Any) -> dict[str, Any]:
            found = entry.read(config)
            return {f"{stack}.{name}": value for stack in ("encoder", "decoder") for name, value in found.items()}

        def write(settings: Settings) -> dict[str, Any]:
            return entry.write({name: settings[f"decoder.{name}"] for name in entry.ours})

        names = tuple(f"{stack}.{name}" for stack in ("encoder", "decoder") for name in entry.ours)
        return Entry(entry.theirs, names, read, write)

    return tuple(double(entry) for entry in entries)


def nested(stack: str, *entries: Entry) -> Entry:
    """Turn the table of a config that theirs holds as a field into the entry of that field.

    Args:
        stack: name of the field, and of the stack of ours that it describes.
        *entries: the table; what the configs of all families have has no function there.
    """

    def read(config: Any) -> dict[str, Any]:
        inner = getattr(config, stack)
        refuse_unknown(inner, (*entries, *COMMON))
        return {f"{stack}.{name}": value for entry in entries for name, value in entry.read(inner).items()}

    def write(settings: Settings) -> dict[str, Any]:
        written: dict[str, Any] = {}
        for entry in entries:
            own = entry.write({name: settings[f"{stack}.{name}"] for name in entry.ours})
            written |= {name: value for name, value in own.items() if name in entry.theirs}
        return {stack: written}

    return Entry((stack,), tuple(f"{stack}.{name}" for entry in entries for name in entry.ours), read, write)


def refuse_unknown(config: Any, entries: Iterable[Entry]) -> None:
    """Check that all fields of a config of theirs have an entry.

    Raises:
        NotExpressible: if a field with a value has none.
    """
    understood = {name for entry in entries for name in entry.theirs}
    declared = {each.name for each in dataclasses.fields(type(config))}
    for name, value in config.to_dict().items():
        if name in understood or value is None:
            continue
        if name in SHARED and value != SHARED[name]:
            way_out = f"but code that all models share reads it; set it to {SHARED[name]!r} if it has no meaning"
            raise NotExpressible(name, value, f"a {config.model_type} has no such field, {way_out}")
        if name in declared and name not in SHARED:
            raise NotExpressible(name, value, "this version of hf_tx does not know this field")
        if name == "quantization_config":
            raise NotExpressible(name, value, "load the model dequantized, and pass it as source")


_FACTS = ("pad_token_id", "bos_token_id", "eos_token_id", "tie_word_embeddings", "use_cache")
_LABELS = ("id2label", "label2id", "problem_type")

#: What the configs of all families have.
COMMON = (
    *(same(name) for name in (*_FACTS, "output_hidden_states", "initializer_range", *_LABELS)),
    unread("transformers_version"),
    unread("architectures"),
    unread("model_type"),
    unread("_name_or_path"),
    unread("dtype"),
    unread("is_encoder_decoder"),
    unread("output_attentions"),  # which a config contains together with a backend
    unread("return_dict"),
    unread("chunk_size_feed_forward"),  # splits a product along the positions, which are independent
)

#: Fields that code shared by all models of transformers reads from any config, with the value that has no effect.
SHARED = {
    "is_causal": True,
    "sliding_window": None,
    "attention_chunk_size": None,
    "layer_types": None,
    "token_classification_bias": True,
    "per_layer_config": None,
}
