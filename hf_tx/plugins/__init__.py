# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Plug-ins: what is installed, what it brings, and whether it keeps the rules. README.md has a complete one."""

from .inspection import PluginReport, check_plugin, list_plugins, load_plugin, resolve_reference, show_plugin

__all__ = ["PluginReport", "check_plugin", "list_plugins", "load_plugin", "resolve_reference", "show_plugin"]
