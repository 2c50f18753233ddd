# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Writes RESULTS.md from a run of the tests: `python tests/peers/results.py` runs them (minutes) and writes it.

What every variant is compared with, and which rows the table must have, stands in the tests themselves.
"""

import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parents[1]
PATH = Path(__file__).with_name("RESULTS.md")
COLUMNS = ("family", "variant", "states, logits, loss", "gradients", "generate", "there and back")
COMPARED = "test_states_logits_loss_and_gradients_equal_the_peers"
CLASSES = "test_every_class_computes_the_same_and_comes_back"
CHECKS = {COMPARED: (2, 3), "test_generated_tokens_equal_the_peers": (4,), "test_there_and_back": (5,)}

HEADER = """# Models of transformers as models of hf_tx

Made from a run of the tests by `python tests/peers/results.py`, with transformers {version}; not written by hand.

A row is a tiny random model of transformers, with weights so large that every one of them shows. `from_hf` makes a
model of hf_tx of it. Compared are all hidden states, logits, loss and the gradients of all parameters (float32, within
1e-5 of their scale), with each backend and with padding on each side that the cell names; tokens that `generate`
writes, with a dynamic cache, a static one and none; and the tensors (bit by bit) and the config that `to_hf` gives
back.

{count} families go in and out, in {variants} variants; {passed} of {cases} cases pass. Of their {classes} classes,
{classes_passed} compute the same and come back.

"""
REFUSALS = """
## What is not expressible

A field with a value that hf_tx cannot compute raises an error, as do classes and families that cannot be converted.

"""


def rows() -> dict[str, str]:
    """Return the family of every variant that the tests know."""
    from conversion.test_families import PEERS

    families = {name: peer.theirs.config_class.model_type for name, peer in PEERS.items()}
    return dict(sorted(families.items(), key=lambda item: item[1]))


def refusals() -> Iterator[tuple[str, str]]:
    """Yield the families with what of them is refused, and the messages."""
    from conversion.test_families import REFUSALS, config_of

    from hf_tx.conversion import FAMILIES, NotExpressible
    from hf_tx.conversion.families import REFUSED, family_named, family_of

    def of_fields(name: str, changes: dict[str, Any]) -> None:
        config = config_of(name, **changes)
        family_of(config).read(config)

    attempts = [(name, partial(of_fields, name, changes)) for name, changes, _ in REFUSALS]
    attempts += [(name, partial(family.head_of, cls)) for name, family in FAMILIES.items() for cls in family.refused]
    attempts += [(name, partial(family_named, name)) for name in REFUSED]
    for name, attempt in attempts:
        try:
            attempt()
        except NotExpressible as error:
            yield name, str(error)
        else:
            raise AssertionError(f"{name} is expressible: {attempt}")


def table(lines: list[tuple[str, ...]]) -> str:
    lines = [lines[0], ("---",) * len(lines[0]), *lines[1:]]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def listed(document: str) -> list[list[str]]:
    """Return the cells of all tables of a document, without their headers."""
    return [re.findall(r"`(.*?)`", line) for line in document.splitlines() if line.startswith("| `")]


def read(report: Path) -> dict[tuple[str, str], list[tuple[str, bool]]]:
    """Return the cases of every test and variant, and which of them passed."""
    found = defaultdict(list)
    for case in ElementTree.parse(report).iter("testcase"):
        test, _, parameters = case.attrib["name"].rstrip("]").partition("[")
        variant, _, rest = parameters.partition("-")
        found[test, variant].append((rest, not any(each.tag in ("failure", "error", "skipped") for each in case)))
    return found


def cell(cases: list[tuple[str, bool]]) -> str:
    """Say what passed: the parts of the names of its cases, or which of them failed."""
    if not cases:
        return "-"
    failed = [name or "it" for name, passed in cases if not passed]
    if failed:
        return f"**fails: {', '.join(failed)}**"
    parts = zip(*(name.split("-") for name, _ in cases if name), strict=True)
    return "; ".join(", ".join(dict.fromkeys(each)) for each in parts) or "equal"


def document(report: Path) -> str:
    """Return the text for a report of pytest in the format of JUnit."""
    import transformers

    cases, lines = read(report), [COLUMNS]
    for variant, family in rows().items():
        line = [f"`{family}`", f"`{variant}`", "", "", "", ""]
        for test, columns in CHECKS.items():
            for column in columns:
                line[column] = cell(cases[test, variant])
        lines.append(tuple(line))
    passed = [
        case[1] for (test, variant), found in cases.items() if test in CHECKS and variant in rows() for case in found
    ]
    classes = [case[1] for (test, _), found in cases.items() if test == CLASSES for case in found]
    header = HEADER.format(
        version=transformers.__version__,
        count=len(set(rows().values())),
        variants=len(rows()),
        passed=sum(passed),
        cases=len(passed),
        classes=len(classes),
        classes_passed=sum(classes),
    )
    refused = [("family", "message"), *((f"`{name}`", f"`{message}`") for name, message in refusals())]
    return header + table(lines) + REFUSALS + table(refused)


def main() -> int:
    """Run the tests and write the document; the exit code is that of pytest."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        files = [TESTS / "peers" / "test_parity.py", TESTS / "conversion" / "test_families.py"]
        code = subprocess.run(
            [
                sys.executable,
                "-m",
                "pytest",
                "-q",
                *map(str, files),
                "-k",
                " or ".join((*CHECKS, CLASSES)),
                f"--junitxml={report}",
            ],
            cwd=TESTS.parent,
        ).returncode
        PATH.write_text(document(report), "utf-8")
    return code


if __name__ == "__main__":
    sys.path[:0] = [str(TESTS), str(TESTS.parent)]
    sys.exit(main())
