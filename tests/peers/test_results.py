# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""RESULTS.md has the rows that the tests know, and says of each what is compared."""

from pathlib import Path

import pytest
from conversion.test_families import HEADS
from peers.results import CHECKS, PATH, document, listed, refusals, rows
from peers.test_parity import CAUSAL, PEERS, SEQ2SEQ, comparisons

from hf_tx.conversion import FAMILIES


def test_the_committed_table_is_that_of_the_tests() -> None:
    """If this fails: `python tests/peers/results.py`."""
    text = PATH.read_text("utf-8")
    variants, messages = rows(), list(refusals())
    assert set(variants.values()) == set(FAMILIES)
    cells = listed(text)
    assert [tuple(line) for line in cells[: len(variants)]] == [(family, name) for name, family in variants.items()]
    assert [tuple(line) for line in cells[len(variants) :]] == messages
    assert "fails" not in text
    cases = len(comparisons()) + 2 * len(CAUSAL | SEQ2SEQ) + len(PEERS)
    assert f"{len(FAMILIES)} families go in and out, in {len(PEERS)} variants; {cases} of {cases} cases pass." in text
    assert f"Of their {len(HEADS)} classes,\n{len(HEADS)} compute the same and come back." in text
    lines = [line.split(" | ") for line in text.splitlines() if line.startswith("| `")][: len(variants)]
    for _, variant, compared, gradients, generated, back in lines:
        name = variant.strip("`")
        assert compared == gradients == f"{', '.join(PEERS[name].backends)}; {', '.join(PEERS[name].sides)}"
        assert generated == ("greedy, beam" if name in CAUSAL | SEQ2SEQ else "-")
        assert back == "equal |"


@pytest.mark.parametrize("tag", ["failure", "error", "skipped"])
def test_a_case_that_does_not_pass_shows(tag: str, tmp_path: Path) -> None:
    cases = "".join(f'<testcase name="{test}[gpt2]"><{tag}/></testcase>' for test in CHECKS)
    (tmp_path / "report.xml").write_text(f"<testsuites><testsuite>{cases}</testsuite></testsuites>")
    row = next(
        line for line in document(tmp_path / "report.xml").splitlines() if line.startswith("| `gpt2` | `gpt2` |")
    )
    assert row.count("**fails: it**") == 4
