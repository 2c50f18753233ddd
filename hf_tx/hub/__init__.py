# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""What a repository on the Hub must hold, and its way there."""

from .push import push_folder
from .repository import Problem, check_repository

__all__ = ["Problem", "check_repository", "push_folder"]
