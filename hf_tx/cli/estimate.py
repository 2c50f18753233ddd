# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""`hf-tx estimate`: parameters, operations and memory of a model."""

import argparse
import dataclasses
import json
import logging

HELP = (
    "Compute parameters, operations, cache size and the share of attention from the config of any model of "
    "transformers. Weights and tokenizer are not needed."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="CONFIG_OR_MODEL", help="a folder, a config.json, or a name on the Hub")
    parser.add_argument("--context", type=int, required=True, help="number of tokens per row")
    parser.add_argument("--batch", type=int, default=1, help="number of rows (default: 1)")
    parser.add_argument(
        "--dtype", help="dtype of weights and cache, such as bf16 (default: the dtype of the config, or float32)"
    )
    parser.add_argument(
        "--attn-implementation",
        default="eager",
        help="the attention backend whose operations are counted (default: eager)",
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def run(arguments: argparse.Namespace) -> int:
    from ..analysis import estimate
    from ..common.quiet import without_warnings

    # Warnings do not apply to a model that runs without data, and fake tensors log the errors that they raise.
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
