# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""The version of transformers that the code of a checkpoint needs, checked when this module is imported.

The modules that load a checkpoint import it before anything that an older version does not have.
"""

import re

import transformers

#: Major and minor version.
TRANSFORMERS = (5, 24)


def _check(installed: str) -> None:
    """Raise an error for an older version.

    Raises:
        ImportError: with the command that installs a newer one.
    """
    found = re.match(r"(\d+)\.(\d+)", installed)
    if found is not None and tuple(map(int, found.groups())) < TRANSFORMERS:
        needed = ".".join(map(str, TRANSFORMERS))
        raise ImportError(
            f"the code of this model needs transformers >= {needed}, but transformers {installed} is installed: "
            f'pip install --upgrade "transformers>={needed}"'
        )


_check(transformers.__version__)
