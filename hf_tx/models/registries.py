# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""All kinds of parts, with the built-in ones registered."""

from typing import Any

from .feed_forwards import FEED_FORWARDS
from .mixers import CROSS_MIXERS, MIXERS
from .norms import NORMS
from .parts import PartRegistry
from .positions import POSITIONS

REGISTRIES: tuple[PartRegistry[Any], ...] = (MIXERS, CROSS_MIXERS, POSITIONS, NORMS, FEED_FORWARDS)
