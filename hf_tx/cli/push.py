# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""`hf-tx push`: a model's folder becomes a repository on the Hub."""

import argparse

HELP = "Check a model's folder, and push it to the Hub in one commit, without what training leaves beside the model."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="FOLDER", help="of the model, with its card")
    parser.add_argument("repository", metavar="NAME", help="name, or owner/name; made if it is not there")
    parser.add_argument("--private", action="store_true", default=None, help="the repository is private")
    parser.add_argument("--revision", metavar="BRANCH", help="made if it is not there (default: main)")
    parser.add_argument("--overwrite", action="store_true", help="replace all that the branch holds")
    parser.add_argument("--commit-message", metavar="TEXT", default="Upload model", help="what the commit says")


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
