# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""`python -m hf_tx.cli`, where the command is not on the path."""

import sys

from . import main

if __name__ == "__main__":
    sys.exit(main())
