# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""`hf-tx plugins`: lists installed plug-ins, shows what they register, and checks them."""

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..plugins import PluginReport

HELP = "List, show and check installed plug-ins."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    actions.add_parser("list", help="list the installed plug-ins, without importing them")
    show = actions.add_parser("show", help="show what a plug-in registers")
    check = actions.add_parser(
        "check", help="check a plug-in with the conformance kit; the exit code is 1 if a check fails"
    )
    for action in (show, check):
        action.add_argument(
            "name", metavar="NAME", help="name of the plug-in: the prefix of the names that it registers"
        )
    check.add_argument("--fast", action="store_true", help="skip checks that take seconds")
    check.add_argument(
        "--rules-only", action="store_true", help="check only the rules of plug-ins, without the conformance kit"
    )


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
        print(f"  problem: {problem}")
    failures = len(report.problems)
    if not failures:
        print("  follows the rules of plug-ins")
        if arguments.rules_only:
            print("  not checked: what it computes, because --rules-only skips the conformance kit")
        else:
            failures = _run_kit(report, arguments.fast)
    return 1 if failures else 0


def _run_kit(report: "PluginReport", fast: bool) -> int:
    """Run the conformance kit on everything that is registered, print what it did not check, and return how many
    checks fail."""
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
                skipped["skipped by --fast, because they take seconds"] = [each.name for each in checks if each.slow]
                checks = [each for each in checks if not each.slow]
            for result in conformance.run_checks(checks):
                outcomes[result.outcome] += 1
                if result.outcome == "failed":
                    print(f"  problem: {kind} {name!r}: {result.check.name}: {result.message}")
                elif result.outcome == "skipped":
                    skipped.setdefault(result.message, []).append(result.check.name)
            counts = ", ".join(f"{count} {outcome}" for outcome, count in outcomes.items())
            print(f"  conformance kit, {kind} {name!r}: {counts}")
            for reason, left_out in skipped.items():
                if left_out:
                    print(f"    not checked: {', '.join(left_out)}: {reason}")
            failures += outcomes["failed"]
    return failures
