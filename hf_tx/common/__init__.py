# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Helpers that several parts of hf_tx use: loading with clear errors, files of checkpoints, writing files completely
or not at all, and options."""
