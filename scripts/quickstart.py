# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""`hf-tx quickstart` as a file: for `python`, `torchrun` and `accelerate launch`."""

import sys

from hf_tx.cli import main

if __name__ == "__main__":
    sys.exit(main(["quickstart", *sys.argv[1:]], name="quickstart.py"))
