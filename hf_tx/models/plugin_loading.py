# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Finds and loads installed plug-ins when one of their names is used.

A plug-in is an entry point of the group `hf_tx.plugins`; its name is the prefix of all names that it registers, so
that only one plug-in is imported for a name. Every copy of this code in a process has its own registries, and loads a
plug-in into them when its own configs use it.
"""

import os
import re
import threading
from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.utils import logging

from .backend_rules import BACKENDS
from .plugin_api import API_VERSION, Plugin, PluginApi
from .registries import REGISTRIES

logger = logging.get_logger(__name__)

GROUP = "hf_tx.plugins"
#: Set to 0, this variable of the environment turns plug-ins off.
SWITCH = "HF_TX_PLUGINS"

#: Called when a plug-in has become known.
AFTER_LOAD: list[Callable[[], None]] = []
_loaded: dict[str, Plugin] = {}
_lock = threading.RLock()


def turned_off() -> bool:
    """Whether plug-ins are turned off in the environment.

    Raises:
        ValueError: the variable is neither 0 nor 1.
    """
    value = os.environ.get(SWITCH) or "1"
    if value not in ("0", "1"):
        raise ValueError(f"{SWITCH} = {value!r}: must be 0, which turns plug-ins off, or 1.")
    return value == "0"


def installed(name: str | None = None) -> list[Plugin]:
    """Return the installed plug-ins, or those of one name, from metadata alone; none when they are turned off."""
    if turned_off():
        return []
    entries = entry_points(group=GROUP) if name is None else entry_points(group=GROUP, name=name)
    return sorted(map(_described, entries), key=lambda plugin: (plugin.name, plugin.distribution))


def _described(entry: EntryPoint) -> Plugin:
    distribution: Any = entry.dist
    return Plugin(entry.name, distribution.name, distribution.version, entry.value)


def names_of_installed() -> str:
    """Return the names of the installed plug-ins, for messages."""
    return ", ".join(dict.fromkeys(plugin.name for plugin in installed())) or "none"


def loaded(vendor: str) -> Plugin | None:
    """Return the plug-in of a vendor if this copy of the code has loaded it."""
    return _loaded.get(vendor)


def find_plugin(vendor: str) -> Plugin | None:
    """Return the installed plug-in of a vendor, or None when there is none.

    Raises:
        ImportError: two distributions claim the vendor's name.
    """
    claims = installed(vendor)
    if len(claims) > 1:
        origins = " and ".join(plugin.origin for plugin in claims)
        raise ImportError(f"the plug-in {vendor!r} is claimed by {origins}; uninstall all but one of them.")
    return claims[0] if claims else None


def collect(plugin: Plugin) -> PluginApi:
    """Import a plug-in and collect what it registers, without adding it to the registries.

    Raises:
        ImportError: if it cannot be used; the message has the reason and its origin.
    """

    def refused(reason: str) -> ImportError:
        return ImportError(f"the plug-in {plugin.name!r} of {plugin.origin} cannot be used: {reason}")

    if not plugin.name or set("/._") & set(plugin.name):
        raise refused("the name of its entry point must not be empty, and must not contain '/', '.' or '_'.")
    try:
        register: Any = EntryPoint(plugin.name, plugin.target, GROUP).load()
    except Exception as error:  # importing a module can raise anything
        raise refused(f"importing it raises {type(error).__name__}: {error}") from error
    written_for = getattr(register, "api_version", API_VERSION)
    if written_for != API_VERSION:
        raise refused(
            f"it needs version {written_for!r} of the plug-in api, but this hf_tx has version {API_VERSION}. Install "
            "versions that fit together."
        )
    api = PluginApi(plugin)
    try:
        register(api)
    except Exception as error:
        raise refused(f"its register function raises {type(error).__name__}: {error}") from error
    return api


def load(vendor: str) -> Plugin | None:
    """Load the plug-in with this prefix, once: everything that it registers is added, or nothing.

    Returns:
        The plug-in, or None when none is installed.

    Raises:
        ImportError: it cannot be used, or two distributions claim the name.
    """
    with _lock:
        plugin = _loaded.get(vendor) or find_plugin(vendor)
        if plugin is not None and vendor not in _loaded:
            api = collect(plugin)
            try:
                api.commit()
            except ValueError as error:
                raise ImportError(f"the plug-in {vendor!r} of {plugin.origin} cannot be used: {error}") from error
            _loaded[vendor] = plugin
            for call in AFTER_LOAD:
                call()
        return plugin


def find(name: str) -> str:
    """Load the plug-in that a name with a vendor's prefix belongs to.

    Returns:
        A sentence for the message in case that the name stays unknown.

    Raises:
        ImportError: see `load`.
    """
    vendor, slash, _ = name.partition("/")
    if not slash:
        return ""
    plugin = load(vendor)
    if plugin is not None:
        return f" The plug-in {vendor!r} of {plugin.origin} does not register it."
    if turned_off():
        return f" Names with '/' belong to plug-ins, and {SWITCH}=0 turns them off."
    return (
        f" Names with '/' belong to plug-ins, and the plug-in {vendor!r} is not installed. Installed plug-ins: "
        f"{names_of_installed()}."
    )


def find_backend(name: str) -> None:
    """Load the plug-in that an attention backend belongs to, `vendor_name`, if this copy of the code does not know it.
    transformers may: its tables are global, and another copy may have filled them.

    Raises:
        ImportError: see `load`.
        ValueError: nobody knows it, and plug-ins are turned off.
    """
    vendor, underscore, _ = name.partition("_")
    if not underscore or "/" in name or "|" in name or name in BACKENDS:
        return
    if turned_off() and name not in ALL_ATTENTION_FUNCTIONS:
        raise ValueError(
            f"attn_implementation={name!r} is unknown. If it belongs to a plug-in, unset {SWITCH}: {SWITCH}=0 turns "
            "plug-ins off."
        )
    load(vendor)


def require_plugins(names: list[str], recorded: dict[str, dict[str, str]] | None) -> None:
    """Load the plug-ins that the names of a config belong to.

    Args:
        names: of mixers, norms and whatever else can have a vendor's prefix.
        recorded: what the config says of the plug-ins: distribution and version of each, by vendor.

    Raises:
        ImportError: one is missing, with the command that installs it; or another distribution has taken its name.
        ValueError: what is recorded names no distribution.
    """
    for vendor, name in {name.partition("/")[0]: name for name in names if "/" in name}.items():
        record = (recorded or {}).get(vendor)
        if record is None:
            load(vendor)
            continue  # the registries say what is unknown
        distribution, version = record.get("distribution", ""), record.get("version", "")
        if not re.fullmatch(r"\w[\w.-]*", distribution):  # it becomes part of a command
            raise ValueError(
                f"plugins[{vendor!r}]['distribution'] = {distribution!r}: must be the name of a distribution."
            )
        needed = f"this config needs the plug-in {vendor!r} (for {name!r}), saved with {distribution} {version}"
        if turned_off() and loaded(vendor) is None:
            raise ImportError(f"{needed}; unset {SWITCH}: {SWITCH}=0 turns plug-ins off.")
        plugin = load(vendor)
        if plugin is None:
            raise ImportError(f"{needed}. It is not installed: pip install {distribution}")
        if _normalized(plugin.distribution) != _normalized(distribution):
            raise ImportError(f"{needed}; the installed plug-in {vendor!r} is of {plugin.origin}.")
        if plugin.version != version:
            logger.warning_once(f"{needed}; the installed version is {plugin.version}.")


def _normalized(distribution: str) -> str:
    """Return the one spelling of a distribution's name that all tools agree on."""
    return re.sub(r"[-_.]+", "-", distribution).lower()


def used_plugins(names: list[str]) -> dict[str, dict[str, str]] | None:
    """Return what a config records of the plug-ins that its names belong to, or None when there are none."""
    vendors = sorted({name.partition("/")[0] for name in names if "/" in name})
    plugins = [plugin for vendor in vendors if (plugin := loaded(vendor))]
    return {
        plugin.name: {"distribution": plugin.distribution, "version": plugin.version} for plugin in plugins
    } or None


for _registry in REGISTRIES:
    _registry.find = find
