# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""`hf-tx convert`: converts checkpoints from and to transformers."""

import argparse

from ..common.options import json_option

HELP = "Convert a checkpoint of transformers into one of hf_tx, or back."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", metavar="SRC", help="a folder, or a name on the Hub")
    parser.add_argument("target", metavar="DST", help="the output folder, which must be new or empty")
    parser.add_argument(
        "--architecture", metavar="CLASS", help="load SRC as this class (default: the class in its config)"
    )
    parser.add_argument("--mixers", help='replace the mixers, such as "sliding*3,full"')
    parser.add_argument(
        "--config-changes", metavar="JSON", help='change fields of the config, such as {"sliding_window": 256}'
    )
    parser.add_argument("--context", metavar="N", type=int, help="extend the context to N tokens")
    parser.add_argument(
        "--context-method", metavar="METHOD", help="with --context: the scaling of rotary positions (default: yarn)"
    )
    parser.add_argument("--to-hf", action="store_true", help="convert a checkpoint of hf_tx to transformers")
    parser.add_argument(
        "--model-type",
        help="with --to-hf: the model type to convert to (default: the one that SRC was converted from)",
    )
    parser.add_argument("--dtype", help="dtype of the saved weights, such as bfloat16 (default: the dtype of SRC)")


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
