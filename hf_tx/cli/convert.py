# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""`hf-tx convert`: checkpoints in and out."""

import argparse

from ..common.options import json_option

HELP = "Convert a checkpoint of transformers into one of hf_tx, or back."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", metavar="SRC", help="a folder, or a name on the Hub")
    parser.add_argument("target", metavar="DST", help="the folder to write, new or empty")
    parser.add_argument("--architecture", metavar="CLASS", help="the class to read SRC as (default: its config's)")
    parser.add_argument("--mixers", help='other mixers, such as "sliding*3,full"')
    parser.add_argument("--config-changes", metavar="JSON", help='other fields, such as {"sliding_window": 256}')
    parser.add_argument("--context", metavar="N", type=int, help="make it read longer texts, of N tokens")
    parser.add_argument(
        "--context-method", metavar="METHOD", help="with --context: how rotary positions are scaled (default: yarn)"
    )
    parser.add_argument("--to-hf", action="store_true", help="convert a checkpoint of hf_tx to transformers")
    parser.add_argument("--model-type", help="with --to-hf: the family (default: the one that it came from)")
    parser.add_argument("--dtype", help="of the weights, such as bfloat16 (default: the source's)")


def run(arguments: argparse.Namespace) -> int:
    from ..conversion.folders import convert_checkpoint

    model = convert_checkpoint(
        arguments.source,
        arguments.target,
        back=arguments.to_hf,
        model_type=arguments.model_type,
        dtype=arguments.dtype,
        architecture=arguments.architecture,
        mixers=arguments.mixers,
        config_changes=json_option(arguments, "config_changes"),
        context=arguments.context,
        context_method=arguments.context_method,
    )
    print(f"{arguments.target}: {type(model).__name__}, {model.num_parameters():,} parameters, {model.dtype}")
    return 0
