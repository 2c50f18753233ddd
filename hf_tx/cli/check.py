# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""`hf-tx check`: runs the conformance kit, or checks a folder before it is pushed."""

import argparse
import importlib
from pathlib import Path
from typing import Any

from ..common.options import json_option

HELP = "Run the conformance kit on a part, a backend or any model of transformers, or check a repository."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    kinds = parser.add_subparsers(dest="kind", metavar="KIND", required=True)
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--fast", action="store_true", help="skip checks that take seconds")
    common.add_argument(
        "--expect",
        metavar="CHECK=REASON",
        action="append",
        default=[],
        help="a check that is expected to fail, with the reason (can be repeated); if it passes, it counts as failed",
    )
    named = {
        "mixer": "check a mixer of hf_tx or of a plug-in",
        "cross-mixer": "check a mixer between decoder and encoder (cross-attention)",
        "norm": "check a norm of hf_tx or of a plug-in",
        "feed-forward": "check a feed-forward layer of hf_tx or of a plug-in",
        "position": "check a position scheme of hf_tx or of a plug-in",
        "backend": "check an attention backend (a value of attn_implementation)",
    }
    for kind, what in named.items():
        aliases = [kind.replace("-", "_")] if "-" in kind else []
        parser = kinds.add_parser(kind, help=what, parents=[common], aliases=aliases)
        parser.add_argument("name", metavar="NAME", help=f"name of the {kind}")
        if kind in ("mixer", "norm", "feed-forward"):
            parser.add_argument(
                "--settings",
                metavar="JSON",
                help='config fields of the tested model, and options: {"sliding_window": 4, "options": {...}}',
            )
    model = kinds.add_parser("model", help="check any model of transformers that takes input_ids", parents=[common])
    model.add_argument(
        "name", metavar="FOLDER_OR_CLASS", help="a folder, or module:Class, which is tested with a tiny config"
    )
    model.add_argument("--trust-remote-code", action="store_true", help="run the code in the folder")
    model.add_argument(
        "--offers",
        metavar="CHECK",
        action="append",
        default=[],
        help="an optional check that must pass (can be repeated); other optional checks never count as failed",
    )
    repo = kinds.add_parser("repo", help="check a folder before it is pushed to the Hub")
    repo.add_argument("name", metavar="FOLDER", help="folder of the model")


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
    print(
        "\n".join(map(str, problems))
        or f"{folder}: no problems in files, weights, code and card; no secrets and no pickles."
    )
    return 1 if problems else 0


def _expected(items: list[str]) -> dict[str, str]:
    expected = {}
    for item in items:
        name, _, reason = item.partition("=")
        if not reason:
            raise ValueError(f"--expect {item}: must have the form CHECK=REASON.")
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
