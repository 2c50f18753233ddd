# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""What several rooms do that belongs to none of them: let the library work quietly and say what it loads, know the
files of a checkpoint, write whole files or none, spell options."""
