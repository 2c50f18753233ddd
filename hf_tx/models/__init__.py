# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Everything that a checkpoint needs to run. The files of this room travel with it: flat siblings that import torch,
transformers, the standard library and each other."""
