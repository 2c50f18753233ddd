# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""`hf-tx check`: runs the conformance kit, or looks at what is about to be pushed."""

import argparse
import importlib
from pathlib import Path
from typing import Any

from ..common.options import json_option

HELP = "Check a part of a model, an attention backend, any model of transformers, or a repository."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    kinds = parser.add_subparsers(dest="kind", metavar="KIND", required=True)
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--fast", action="store_true", help="leave out checks that take seconds")
    common.add_argument(
        "--expect",
        metavar="CHECK=REASON",
        action="append",
        default=[],
        help="a check that is expected to fail, and why; it is a failure if it passes",
    )
    named = {
        "mixer": "a mixer of hf_tx or of a plug-in",
        "cross-mixer": "a mixer between decoder and encoder",
        "norm": "a norm of hf_tx or of a plug-in",
        "feed-forward": "a feed-forward layer of hf_tx or of a plug-in",
        "position": "a position scheme of hf_tx or of a plug-in",
        "backend": "an attention implementation",
    }
    for kind, what in named.items():
        aliases = [kind.replace("-", "_")] if "-" in kind else []
        parser = kinds.add_parser(kind, help=what, parents=[common], aliases=aliases)
        parser.add_argument("name", metavar="NAME")
        if kind in ("mixer", "norm", "feed-forward"):
            parser.add_argument(
                "--settings",
                metavar="JSON",
                help='config fields for its stack, and its options: {"sliding_window": 4, "options": {...}}',
            )
    model = kinds.add_parser("model", help="any model of tokens", parents=[common])
    model.add_argument("name", metavar="FOLDER_OR_CLASS", help="a folder, or module:Class, which gets a tiny config")
    model.add_argument("--trust-remote-code", action="store_true", help="run code that comes with a folder")
    model.add_argument(
        "--offers",
        metavar="CHECK",
        action="append",
        default=[],
        help="an optional check - of what transformers does not promise - that the model keeps; it fails otherwise",
    )
    repo = kinds.add_parser("repo", help="a folder that is to become a repository on the Hub")
    repo.add_argument("name", metavar="FOLDER")


def run(arguments: argparse.Namespace) -> int:
    if arguments.kind == "repo":
        return _check_repository(arguments.name)
    from ..conformance import run_checks

    checks = [check for check in _checks(arguments) if not (arguments.fast and check.slow)]
    width = max(len(check.name) for check in checks)
    print(f"{'check':{width}}  {'result':11}  seconds  message")
    counts: dict[str, int] = {}
    for result in run_checks(checks, _expected(arguments.expect)):
        counts[result.outcome] = counts.get(result.outcome, 0) + 1
        message = " ".join(result.message.split())
        print(
            f"{result.check.name:{width}}  {result.outcome:11}  {result.seconds:7.2f}  {message}".rstrip(), flush=True
        )
    print(f"{checks[0].subject}: " + ", ".join(f"{count} {outcome}" for outcome, count in counts.items()))
    return 1 if counts.get("failed") else 0


def _check_repository(folder: str) -> int:
    from ..hub import check_repository

    problems = check_repository(folder)
    print("\n".join(map(str, problems)) or f"{folder}: weights, code, card, secrets and pickles are right.")
    return 1 if problems else 0


def _expected(items: list[str]) -> dict[str, str]:
    expected = {}
    for item in items:
        name, _, reason = item.partition("=")
        if not reason:
            raise ValueError(f"--expect {item}: must be CHECK=REASON.")
        expected[name] = reason
    return expected


def _checks(arguments: argparse.Namespace) -> list[Any]:
    from .. import conformance

    kind, name = arguments.kind.replace("-", "_"), arguments.name
    if kind == "model":
        return conformance.check_model(
            _model(name), trust_remote_code=arguments.trust_remote_code, offers=arguments.offers
        )
    settings = {}
    if getattr(arguments, "settings", None):
        settings["settings"] = (json_option(arguments, "settings"),)
    checks = getattr(conformance, f"check_{kind}")(name, **settings)
    return list(checks)


def _model(name: str) -> Any:
    """Return the folder, or import the class."""
    module, colon, path = name.partition(":")
    if Path(name).exists() or not colon:
        return name
    try:
        return getattr(importlib.import_module(module), path)
    except AttributeError as error:
        raise ValueError(f"{name}: {error}.") from error
