# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""`hf-tx estimate`: what a model costs."""

import argparse
import dataclasses
import json
import logging

HELP = (
    "Measure parameters, operations, cache and attention's share of any model of transformers, from its config alone: "
    "weights and tokenizer are not read, and need not be there."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="CONFIG_OR_MODEL", help="a folder, a config.json, or a name on the Hub")
    parser.add_argument("--context", type=int, required=True, help="tokens a row")
    parser.add_argument("--batch", type=int, default=1, help="rows (default: 1)")
    parser.add_argument("--dtype", help="of weights and cache, such as bf16 (default: the config's, or float32)")
    parser.add_argument(
        "--attn-implementation", default="eager", help="the attention backend to count (default: eager)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace) -> int:
    from ..analysis import estimate
    from ..common.quiet import without_warnings

    # A model that is never run for real has nothing to warn of, and fake tensors log what they also raise.
    fakes = logging.getLogger("torch._subclasses")
    level = fakes.level
    fakes.setLevel(logging.CRITICAL)
    try:
        with without_warnings():
            costs = estimate(
                arguments.model, arguments.context, arguments.batch, arguments.dtype, arguments.attn_implementation
            )
    finally:
        fakes.setLevel(level)
    if arguments.json:
        print(json.dumps({**dataclasses.asdict(costs), "attention_share": costs.attention_share}, indent=2))
    else:
        print(costs)
    return 0
