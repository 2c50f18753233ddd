# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""The built-in mixers. A new one is one new file that registers itself, and one import line here."""

from .attention import Attention as Attention
from .cross_attention import AdditiveCrossAttention as AdditiveCrossAttention
from .linear_attention import LinearMixer as LinearMixer
from .mixer import CROSS_MIXERS, MIXERS, CrossMixer, Mixer, expand_pattern
from .patterns import chunked as chunked
from .recurrent import RecurrentMixer as RecurrentMixer

__all__ = ["CROSS_MIXERS", "MIXERS", "CrossMixer", "Mixer", "expand_pattern"]
