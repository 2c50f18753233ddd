# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""`hf-tx distill` as a file: for `python`, `torchrun` and `accelerate launch`."""

import sys

from hf_tx.cli import main

if __name__ == "__main__":
    sys.exit(main(["distill", *sys.argv[1:]], name="distill.py"))
