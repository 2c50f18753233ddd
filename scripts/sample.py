# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""`hf-tx sample` as a file. Nothing of hf_tx is imported in its process, only found."""

import runpy
import sys
from importlib.util import find_spec

if __name__ == "__main__":
    (folder,) = find_spec("hf_tx").submodule_search_locations
    sys.exit(runpy.run_path(f"{folder}/cli/sample.py")["main"](sys.argv[1:], "sample.py"))
