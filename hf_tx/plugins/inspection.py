# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Looks at installed plug-ins. Nothing that is asked here but `load_plugin` makes a name known."""

import importlib
from dataclasses import dataclass
from typing import Any

from ..models.parts import Part
from ..models.plugin_api import Plugin, PluginApi
from ..models.plugin_loading import (
    SWITCH,
    collect,
    find_plugin,
    installed,
    load,
    loaded,
    names_of_installed,
    turned_off,
)


@dataclass(frozen=True)
class PluginReport:
    """What a plug-in brings, and what is wrong with it.

    Attributes:
        plugin: the plug-in.
        names: what it registers: names by kind (`mixer`, `position_type`, `norm_type`, `ffn_type`,
            `attn_implementation`).
        problems: one sentence each; none when it keeps the rules.
    """

    plugin: Plugin
    names: dict[str, list[str]]
    problems: tuple[str, ...] = ()


def list_plugins() -> list[Plugin]:
    """Return the installed plug-ins by name, from metadata alone: none is imported. An empty list when plug-ins are
    turned off."""
    return installed()


def _named(name: str) -> Plugin:
    if turned_off():
        raise ImportError(f"{SWITCH}=0 turns plug-ins off: unset it.")
    plugin = find_plugin(name)
    if plugin is None:
        raise ImportError(f"no plug-in {name!r} is installed. Installed plug-ins: {names_of_installed()}.")
    return plugin


def show_plugin(name: str) -> PluginReport:
    """Import a plug-in and return what it registers.

    Args:
        name: of the plug-in: what its names begin with.

    Raises:
        ImportError: it is not installed, or cannot be used.
    """
    api = collect(_named(name))
    return PluginReport(api.plugin, api.names())


def check_plugin(name: str) -> PluginReport:
    """Check that a plug-in keeps the rules: it can be imported, is written for this version of the api, registers
    names with its prefix that nobody else has, and gives a reference that exists for every part. Whether what it
    registers computes the right thing is for the conformance kit to say.

    Args:
        name: of the plug-in: what its names begin with.

    Raises:
        ImportError: it is not installed.
    """
    plugin = _named(name)
    try:
        api = collect(plugin)
    except ImportError as error:
        return PluginReport(plugin, {}, (str(error),))
    return PluginReport(plugin, api.names(), tuple(_problems(api)))


def _problems(api: PluginApi) -> list[str]:
    problems = []
    if not any(api.names().values()):
        problems.append(f"the plug-in {api.plugin.name!r} registers nothing.")
    if loaded(api.plugin.name) is None:
        try:
            api.refuse_taken()
        except ValueError as error:
            problems.append(str(error))
    for kind, entries in api.entries.items():
        for name in entries:
            try:
                resolve_reference(entries.get(name))
            except ImportError as error:
                problems.append(f"{kind} {name!r}: {error}")
    return problems


def resolve_reference(part: Part) -> Any:
    """Return the reference of a part, imported where it is given by its path.

    Args:
        part: an entry of a registry.

    Returns:
        A function; of a position scheme, a dict of functions; None for a part that declares none.

    Raises:
        ImportError: nothing that can be called is at that path.
    """
    if isinstance(part.reference, dict):
        return {place: _imported(reference) for place, reference in part.reference.items()}
    return _imported(part.reference)


def _imported(reference: Any) -> Any:
    if not isinstance(reference, str):
        return reference
    module, _, path = reference.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for attribute in path.split("."):
            found = getattr(found, attribute)
    except Exception as error:  # whatever a foreign module does when it is imported
        raise ImportError(f"reference {reference!r} raises {type(error).__name__}: {error}") from error
    if not callable(found):
        raise ImportError(f"reference {reference!r} is {found!r}, which cannot be called.")
    return found


def load_plugin(name: str) -> Plugin:
    """Make all names of a plug-in known at once. Models of hf_tx ask for plug-ins themselves; models of the library do
    not, so that `attn_implementation="vendor_name"` needs this call before.

    Args:
        name: of the plug-in: what its names begin with.

    Raises:
        ImportError: it is not installed, or cannot be used.
    """
    plugin = loaded(name) or load(_named(name).name)
    assert plugin is not None
    return plugin
