# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""`hf-tx plugins`: what is installed, what it brings, and whether it keeps the rules."""

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..plugins import PluginReport

HELP = "List, show and check the plug-ins that are installed."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    actions.add_parser("list", help="what is installed; nothing of it is imported")
    show = actions.add_parser("show", help="what a plug-in brings")
    check = actions.add_parser("check", help="whether a plug-in keeps the rules; exits with 1 if it does not")
    for action in (show, check):
        action.add_argument("name", metavar="NAME", help="of the plug-in: what its names begin with")
    check.add_argument("--fast", action="store_true", help="leave out checks that take seconds")
    check.add_argument("--rules-only", action="store_true", help="leave the conformance kit out")


def run(arguments: argparse.Namespace) -> int:
    from ..models.plugin_loading import SWITCH, turned_off
    from ..plugins import check_plugin, list_plugins, show_plugin

    if arguments.action == "list":
        for plugin in list_plugins():
            print(f"{plugin.name}: {plugin.origin}")
        if turned_off():
            print(f"{SWITCH}=0 turns plug-ins off.")
        elif not list_plugins():
            print("No plug-ins are installed.")
        return 0
    report = show_plugin(arguments.name) if arguments.action == "show" else check_plugin(arguments.name)
    print(f"{report.plugin.name}: {report.plugin.origin}")
    for kind, names in report.names.items():
        print(f"  {kind}: {', '.join(names)}")
    if arguments.action == "show":
        return 0
    for problem in report.problems:
        print(f"  wrong: {problem}")
    failures = len(report.problems)
    if not failures:
        print("  keeps the rules of plug-ins")
        if arguments.rules_only:
            print("  not checked: what it computes, since --rules-only leaves the conformance kit out")
        else:
            failures = _run_kit(report, arguments.fast)
    return 1 if failures else 0


def _run_kit(report: "PluginReport", fast: bool) -> int:
    """Run the conformance kit on all that is registered, and say what it did not check; return how many checks
    fail."""
    from .. import conformance
    from ..plugins import load_plugin

    load_plugin(report.plugin.name)
    kit: dict[str, Callable[[str], list[conformance.Check]]] = {
        "mixer": conformance.check_mixer,
        "cross_mixer": conformance.check_cross_mixer,
        "position_type": conformance.check_position,
        "norm_type": conformance.check_norm,
        "ffn_type": conformance.check_feed_forward,
        "attn_implementation": conformance.check_backend,
    }
    failures = 0
    for kind, names in report.names.items():
        for name in names:
            outcomes = {"ok": 0, "skipped": 0, "failed": 0}
            skipped: dict[str, list[str]] = {}
            checks = kit[kind](name)
            if fast:
                skipped["they take seconds, and --fast leaves them out"] = [each.name for each in checks if each.slow]
                checks = [each for each in checks if not each.slow]
            for result in conformance.run_checks(checks):
                outcomes[result.outcome] += 1
                if result.outcome == "failed":
                    print(f"  wrong: {kind} {name!r}: {result.check.name}: {result.message}")
                elif result.outcome == "skipped":
                    skipped.setdefault(result.message, []).append(result.check.name)
            counts = ", ".join(f"{count} {outcome}" for outcome, count in outcomes.items())
            print(f"  conformance kit, {kind} {name!r}: {counts}")
            for reason, left_out in skipped.items():
                if left_out:
                    print(f"    not checked: {', '.join(left_out)}: {reason}")
            failures += outcomes["failed"]
    return failures
