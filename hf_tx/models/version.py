# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""The version of hf_tx. It is saved with every checkpoint as `hf_tx_version` in config.json."""

__version__ = "0.1.0"
