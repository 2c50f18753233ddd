# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""The options of a script, from the command line or from one file."""

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NoReturn, TypeVar, cast, overload

import yaml  # type: ignore[import-untyped]
from transformers import HfArgumentParser

from . import BAD_INPUT

Options = TypeVar("Options")


class _Parser(HfArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Raise, so that a complaint is one line as all others."""
        raise ValueError(message)


@overload
def parse_options(
    options_class: type[Options], argv: Sequence[str] | None = None, description: str | None = None
) -> Options: ...


@overload
def parse_options(
    options_class: tuple[type[Any], ...], argv: Sequence[str] | None = None, description: str | None = None
) -> tuple[Any, ...]: ...


def parse_options(options_class: Any, argv: Sequence[str] | None = None, description: str | None = None) -> Any:
    """Parse the options of a script: `--name value`, or the path of one `.yaml`, `.yml` or `.json` file with names and
    values. Both go through the same parser, so that both are checked in the same way.

    Args:
        options_class: a dataclass as `HfArgumentParser` takes it, or several. Lists have `"action": "extend"` in their
            metadata.
        argv: the arguments, without the name of the program. Default: those of the process.
        description: what the script does, for `--help`.

    Returns:
        An object of the class, or of each.

    Raises:
        ValueError: an option that is missing, unknown or of another type; a file that holds no options.
        OSError: the file cannot be read.
        SystemExit: after `--help`.
    """
    argv = sys.argv[1:] if argv is None else list(argv)
    if len(argv) == 1 and Path(argv[0]).suffix.lower() in (".yaml", ".yml", ".json"):
        argv = list(_options_of_file(Path(argv[0])))
    parser = _Parser(cast(Any, options_class), description=description, allow_abbrev=False)
    # Before what is required is missed: it may be what is misspelt.
    for argument in argv:
        name = argument.partition("=")[0]
        if name.startswith("--") and name not in parser._option_string_actions:
            close = get_close_matches(name, list(parser._option_string_actions), 1)
            raise ValueError(f"unknown argument {name}" + (f": did you mean {close[0]}?" if close else ""))
    found = parser.parse_args_into_dataclasses(argv, look_for_args_file=False)
    return tuple(found) if isinstance(options_class, tuple) else found[0]


def run_script(
    name: str,
    run: Callable[[Sequence[str] | None], None],
    argv: Sequence[str] | None = None,
    interrupted: str = "interrupted",
) -> int:
    """Run a script; return its exit code: 0, 2 and one message for what the user can mend, or 130 after Ctrl-C, with
    what `interrupted` says."""
    try:
        run(argv)
    except BAD_INPUT as error:
        print(f"{name}: error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"{name}: {interrupted}", file=sys.stderr)
        return 130
    return 0


def _options_of_file(path: Path) -> Iterator[str]:
    text = path.read_text("utf-8")
    try:
        found: Any = json.loads(text) if path.suffix.lower() == ".json" else yaml.safe_load(text)
    except (json.JSONDecodeError, yaml.YAMLError) as error:
        raise ValueError(f"{str(path)!r} cannot be read: {error}") from error
    if not isinstance(found, dict):
        raise ValueError(f"{str(path)!r} holds no options: it must be names and values")
    for name, value in found.items():
        for item in value if isinstance(value, list) else [value]:
            # null is what leaving an option out means.
            if item is not None:
                yield f"--{name}={json.dumps(item) if isinstance(item, dict) else item}"
