# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Lists, shows, loads and checks installed plug-ins. README.md has a complete plug-in."""

from .inspection import PluginReport, check_plugin, list_plugins, load_plugin, resolve_reference, show_plugin

__all__ = ["PluginReport", "check_plugin", "list_plugins", "load_plugin", "resolve_reference", "show_plugin"]
