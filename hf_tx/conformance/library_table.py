# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Writes the table of README.md: what `check_model` says of models of transformers.

`python -m hf_tx.conformance.library_table` replaces the table between its two marks; it takes some minutes.
"""

from collections.abc import Iterable
from pathlib import Path

import transformers

from .checks import run_checks
from .model_checks import check_model

README = Path(__file__).with_name("README.md")
BEGIN, END = "<!-- library_table: begin -->", "<!-- library_table: end -->"
CLASSES = (
    *("LlamaForCausalLM", "Qwen3ForCausalLM", "MistralForCausalLM", "MixtralForCausalLM", "Gemma2ForCausalLM"),
    *("GPT2LMHeadModel", "GPTNeoXForCausalLM", "OPTForCausalLM", "Olmo2ForCausalLM", "GptOssForCausalLM"),
    *("Qwen3NextForCausalLM", "Mamba2ForCausalLM", "LlamaForSequenceClassification", "BertForMaskedLM"),
    *("BertForSequenceClassification", "RobertaForMaskedLM", "ModernBertForMaskedLM", "DebertaV2ForMaskedLM"),
    *("T5ForConditionalGeneration", "BartForConditionalGeneration"),
)


def rows(classes: Iterable[str]) -> Iterable[str]:
    """Yield a row for every class: what failed, what is not offered, and the number of checks that passed."""
    for name in classes:
        found: dict[str, list[str]] = {}
        checks = [check for check in check_model(getattr(transformers, name)) if not check.slow]
        for result in run_checks(checks):
            found.setdefault(result.outcome, []).append(f"`{result.check.name}`")
        failed, absent = (", ".join(found.get(outcome, ())) or "-" for outcome in ("failed", "not offered"))
        yield f"| `{name}` | {len(found.get('ok', ()))} | {failed} | {absent} |"


def main() -> None:
    """Write the table."""
    text = README.read_text()
    head = f"transformers {transformers.__version__}\n\n| class | ok | failed | not offered |\n|---|---|---|---|"
    before, after = text.split(BEGIN)[0], text.split(END)[1]
    README.write_text("\n".join((f"{before}{BEGIN}", head, *rows(CLASSES), f"{END}{after}")))


if __name__ == "__main__":
    main()
