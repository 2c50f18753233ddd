# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""`hf-tx push`: pushes the folder of a model to the Hub."""

import argparse

HELP = "Check the folder of a model and push it to the Hub in one commit, without training checkpoints."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="FOLDER", help="folder of the model, with its card")
    parser.add_argument(
        "repository", metavar="NAME", help="name or owner/name of the repository; it is created if it does not exist"
    )
    parser.add_argument(
        "--private",
        action="store_true",
        default=None,
        help="create a private repository; raises an error if a public one exists",
    )
    parser.add_argument(
        "--revision", metavar="BRANCH", help="branch; it is created if it does not exist (default: main)"
    )
    parser.add_argument("--overwrite", action="store_true", help="replace all files of the branch")
    parser.add_argument(
        "--commit-message", metavar="TEXT", default="Upload model", help="commit message (default: Upload model)"
    )


def run(arguments: argparse.Namespace) -> int:
    from ..hub import push_folder

    commit = push_folder(
        arguments.folder,
        arguments.repository,
        private=arguments.private,
        revision=arguments.revision,
        commit_message=arguments.commit_message,
        overwrite=arguments.overwrite,
    )
    print(commit.commit_url)
    return 0
