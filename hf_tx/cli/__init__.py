# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""The command line of hf_tx: `hf-tx COMMAND`."""

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from typing import Any

from ..models.version import __version__
from . import (
    benchmark,
    check,
    compare,
    convert,
    distill,
    estimate,
    evaluate,
    finetune,
    plugins,
    pretrain,
    push,
    quickstart,
    sample,
    train_tokenizer,
)
from .launch import chat, serve
from .running import run_command

# One module per command, with HELP and one of two ways to run:
# - add_arguments(parser) and run(arguments), which gets the parsed arguments;
# - only run(argv, name), which parses the arguments itself, because importing the dataclasses of the training options
#   takes seconds.
# Both return an exit code, or None for 0. Slow imports are inside run(). INTERRUPTED is the message after Ctrl-C, if
# it says more than "interrupted". The order is that of `hf-tx --help`.
_COMMANDS: dict[str, Any] = {
    "quickstart": quickstart,
    "train-tokenizer": train_tokenizer,
    "pretrain": pretrain,
    "finetune": finetune,
    "evaluate": evaluate,
    "distill": distill,
    "compare": compare,
    "sample": sample,
    "convert": convert,
    "estimate": estimate,
    "benchmark": benchmark,
    "check": check,
    "plugins": plugins,
    "push": push,
    "serve": serve,
    "chat": chat,
}


def _parser(name: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="hf-tx", description=__doc__.partition(": ")[0] + ".")
    parser.add_argument("--version", action="version", version=f"hf_tx {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for each, module in _COMMANDS.items():
        command = commands.add_parser(each, prog=name or f"hf-tx {each}", help=module.HELP, description=module.HELP)
        if hasattr(module, "add_arguments"):
            module.add_arguments(command)
    return parser


def main(argv: Sequence[str] | None = None, name: str | None = None) -> int:
    """Run one command.

    Args:
        argv: the command and its arguments. Default: those of the process.
        name: name of the command in messages; a script that wraps a command passes its own. Default: `hf-tx COMMAND`.

    Returns:
        The exit code: 0, 2 for bad input and 130 after Ctrl-C, with one message on stderr; `check` and `plugins check`
        return 1 if a check fails.

    Raises:
        SystemExit: after `--help` and `--version` with 0, and if the command is missing or misspelled with 2.
    """
    argv = sys.argv[1:] if argv is None else list(argv)
    module = _COMMANDS.get(argv[0]) if argv else None
    if module is None or hasattr(module, "add_arguments"):
        arguments = _parser(name).parse_args(argv)
        module = _COMMANDS[arguments.command]
        run = partial(module.run, arguments)
        name = name or f"hf-tx {arguments.command}"
    else:
        name = name or f"hf-tx {argv[0]}"
        run = partial(module.run, argv[1:], name)
    return run_command(name, run, getattr(module, "INTERRUPTED", "interrupted"))
