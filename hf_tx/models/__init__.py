# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Everything that a checkpoint needs to run. `save_pretrained` copies these files to the folder of the model, so they
are flat, and only import torch, transformers, the standard library and each other."""
