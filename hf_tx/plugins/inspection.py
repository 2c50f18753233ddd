# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Inspects installed plug-ins. Only `load_plugin` adds their names to the registries."""

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
    """What a plug-in registers, and what is wrong with it.

    Attributes:
        plugin: the plug-in.
        names: the registered names by kind (`mixer`, `position_type`, `norm_type`, `ffn_type`,
            `attn_implementation`).
        problems: one sentence each; empty if it follows the rules.
    """

    plugin: Plugin
    names: dict[str, list[str]]
    problems: tuple[str, ...] = ()


def list_plugins() -> list[Plugin]:
    """Return the installed plug-ins from their metadata, without importing them. An empty list if plug-ins are turned
    off."""
    return installed()


def _named(name: str) -> Plugin:
    if turned_off():
        raise ImportError(f"plug-ins are turned off by the environment variable {SWITCH}=0: unset it.")
    plugin = find_plugin(name)
    if plugin is None:
        raise ImportError(f"no plug-in {name!r} is installed. Installed plug-ins: {names_of_installed()}.")
    return plugin


def show_plugin(name: str) -> PluginReport:
    """Import a plug-in and return what it registers.

    Args:
        name: name of the plug-in: the prefix of the names that it registers.

    Raises:
        ImportError: if it is not installed, or cannot be loaded.
    """
    api = collect(_named(name))
    return PluginReport(api.plugin, api.names())


def check_plugin(name: str) -> PluginReport:
    """Check that a plug-in follows the rules: it can be imported, supports this version of the api, registers names
    with its prefix that are not taken, and every part has a reference that exists. The conformance kit checks whether
    the parts compute the right result.

    Args:
        name: name of the plug-in: the prefix of the names that it registers.

    Raises:
        ImportError: if it is not installed.
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
        problems.append(
            f"the plug-in {api.plugin.name!r} registers nothing: call api.mixer, api.norm ... in its function."
        )
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
    """Return the reference of a part, and import it if it is given as a path.

    Args:
        part: an entry of a registry.

    Returns:
        A function, or for a position scheme a dict of functions; None for a part without a reference.

    Raises:
        ImportError: if the path is not that of a callable.
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
    except Exception as error:  # importing a module can raise anything
        raise ImportError(f"importing the reference {reference!r} raises {type(error).__name__}: {error}") from error
    if not callable(found):
        raise ImportError(f"the reference {reference!r} is {found!r}, which is not a function.")
    return found


def load_plugin(name: str) -> Plugin:
    """Load a plug-in and register all its names. Models of hf_tx load plug-ins by themselves. Models of transformers
    do not, so call this function before `attn_implementation="vendor_name"`.

    Args:
        name: name of the plug-in: the prefix of the names that it registers.

    Raises:
        ImportError: if it is not installed, or cannot be loaded.
    """
    plugin = loaded(name) or load(_named(name).name)
    assert plugin is not None
    return plugin
