# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""The command line: `hf-tx COMMAND`. It prints what the library returns."""

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from huggingface_hub.errors import StrictDataclassError

from ..common.messages import message_of
from ..models.version import __version__
from . import check, convert, estimate, plugins, push
from .launch import chat, serve

# One module a command, with HELP, add_arguments(parser) and run(arguments) -> exit code. What takes long to import is
# imported in run().
_COMMANDS: dict[str, Any] = {
    "chat": chat,
    "check": check,
    "convert": convert,
    "estimate": estimate,
    "plugins": plugins,
    "push": push,
    "serve": serve,
}
#: What bad input raises, of which the message is printed.
BAD_INPUT = (ValueError, StrictDataclassError, OSError, ImportError, FloatingPointError)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="hf-tx", description=__doc__.partition(": ")[0] + " of hf_tx.")
    parser.add_argument("--version", action="version", version=f"hf_tx {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, module in _COMMANDS.items():
        settings = getattr(module, "PARSER", {})
        command = commands.add_parser(name, help=module.HELP, description=module.HELP, **settings)
        module.add_arguments(command)
        command.set_defaults(run=module.run)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: the arguments, without the name of the program. Default: those of the process.

    Returns:
        The exit code: 0, or 2 for bad input, with one message on stderr.

    Raises:
        SystemExit: after `--help` and `--version` with 0, and when arguments are missing or misspelt with 2.
    """
    arguments = _parser().parse_args(argv)
    try:
        return arguments.run(arguments)
    except BAD_INPUT as error:
        print(f"hf-tx {arguments.command}: error: {message_of(error)}", file=sys.stderr)
        return 2
