# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""The options of a script, from the command line or from one file."""

import json
import logging
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NoReturn, TypeVar, cast, overload

import yaml  # type: ignore[import-untyped]
from transformers import HfArgumentParser

from ..common.messages import message_of
from . import BAD_INPUT

Options = TypeVar("Options")
_FILES = (".yaml", ".yml", ".json")


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
    parser = _Parser(cast(Any, options_class), description=description, allow_abbrev=False)
    if len(argv) == 1 and Path(argv[0]).suffix.lower() in _FILES:
        argv = list(_options_of_file(Path(argv[0]), parser))
    elif argv and not argv[0].startswith("-"):
        raise ValueError(f"{argv[0]}: is no option; a file of options ({', '.join(_FILES)}) must be all that is given")
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
    what the interrupt says, or else `interrupted`. What hf_tx logs is shown on stderr, by the first process alone."""
    try:
        with _log_shown(name):
            run(argv)
    except BAD_INPUT as error:
        print(f"{name}: error: {message_of(error)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt as error:
        print(f"{name}: {str(error) or interrupted}", file=sys.stderr)
        return 130
    return 0


@contextmanager
def _log_shown(name: str) -> Iterator[None]:
    logger = logging.getLogger("hf_tx")
    before = logger.level, logger.propagate
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter(f"{name}: %(message)s"))
    logger.addHandler(handler)
    logger.propagate = False
    logger.setLevel(logging.INFO if os.environ.get("RANK", "0") == "0" else logging.ERROR)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.level, logger.propagate = before


class _Yaml(yaml.SafeLoader):  # type: ignore[misc]
    """Reads YAML in which no name is there twice: one would silently take the place of the other."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        _refuse_twice([key.value for key, _ in node.value])
        return super().construct_mapping(node, deep)


def _of_json(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    _refuse_twice([name for name, _ in pairs])
    return dict(pairs)


def _refuse_twice(names: list[Any]) -> None:
    twice = [name for number, name in enumerate(names) if name in names[:number]]
    if twice:
        raise ValueError(f"{twice[0]} is there twice")


def _options_of_file(path: Path, parser: HfArgumentParser) -> Iterator[str]:
    try:
        text = path.read_text("utf-8-sig")
        is_json = path.suffix.lower() == ".json"
        found: Any = json.loads(text, object_pairs_hook=_of_json) if is_json else yaml.load(text, _Yaml)
        if not isinstance(found, dict):
            raise ValueError("holds no options: it must be names and values")
        _refuse_twice([str(name).replace("-", "_") for name in found])
    except (ValueError, yaml.YAMLError) as error:
        raise ValueError(f"{str(path)!r} cannot be read: {error}") from error
    for name, value in found.items():
        action = parser._option_string_actions.get(f"--{name}")
        if isinstance(value, list) and action is not None and action.nargs is None:
            raise ValueError(f"{str(path)!r}: {name} takes one value, not a list")
        for item in value if isinstance(value, list) else [value]:
            # null is what leaving an option out means.
            if item is not None:
                yield f"--{name}={json.dumps(item, default=str) if isinstance(item, dict) else item}"
