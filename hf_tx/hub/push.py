# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Pushes a folder to the Hub, after checks that it can be pushed as requested."""

import json
import os
import re
from collections.abc import Iterable
from pathlib import Path

from huggingface_hub import CommitInfo, HfApi
from huggingface_hub.errors import HfHubHTTPError

from ..common.checkpoint_files import SETTINGS, matches
from ..models.hub_repositories import find_repository
from .repository import IGNORED, check_repository, pushed_files

# If files of these names from an earlier model were left, they would be loaded together with the new model.
_READ = (*SETTINGS, "*.safetensors", "*.bin", "*.index.json", "vocab.*", "merges.txt", "*.model")


def push_folder(
    folder: str | os.PathLike[str],
    repo_id: str,
    *,
    private: bool | None = None,
    token: str | None = None,
    revision: str | None = None,
    commit_message: str = "Upload model",
    overwrite: bool = False,
) -> CommitInfo:
    """Check the folder of a model, and push it in one commit.

    Args:
        folder: folder of the model, with its card. Training checkpoints and names that begin with `_` are not pushed.
        repo_id: `name` or `owner/name` of the repository. It is created if it does not exist.
        private: whether the repository is private. An existing repository must have this visibility. Default: the
            visibility of an existing repository, or the default of the owner.
        token: a token with write access. Default: the token of `hf auth login`.
        revision: the branch. It is created if it does not exist. Default: `main`.
        commit_message: the commit message.
        overwrite: replace all files of the branch, also those of another model.

    Returns:
        The commit; its `oid` is the revision to pin.

    Raises:
        ValueError: if [`check_repository`] finds problems, which the message lists; if the repository does not have
            the visibility `private`; if the token has no write access; if `revision` is not a branch; or, without
            `overwrite`, if the branch contains another model, or files that would be loaded with the new ones. Nothing
            is pushed in these cases.
        FileNotFoundError: if the folder is not a model.
        HfHubHTTPError: if the Hub returns an error; the repository is not changed.
    """
    problems = check_repository(folder)
    if problems:
        listed = "; ".join(str(problem) for problem in problems)
        raise ValueError(f"{folder}: nothing was pushed, because the repository would have problems: {listed}")
    folder = Path(folder)
    config = json.loads((folder / "config.json").read_text("utf-8"))
    replaces = None if overwrite else (config["model_type"], config["architectures"][0])
    name = open_repository(repo_id, private=private, token=token, revision=revision, model=replaces)
    if not overwrite:
        _refuse_left(name, revision, token, (path.as_posix() for path in pushed_files(folder)))
    return HfApi(token=token).upload_folder(
        repo_id=name,
        folder_path=folder,
        commit_message=commit_message,
        revision=revision,
        ignore_patterns=list(IGNORED),
        delete_patterns="*" if overwrite else None,
    )


def open_repository(
    repo_id: str,
    *,
    private: bool | None = None,
    token: str | None = None,
    revision: str | None = None,
    model: tuple[str, str] | None = None,
) -> str:
    """Find or create a repository and a branch to push to.

    Args:
        repo_id: `name` or `owner/name`.
        private: whether it must be private or public. Default: either.
        token: a token with write access. Default: the token of `hf auth login`.
        revision: the branch. Default: `main`.
        model: `model_type` and class of the model to push; the branch must not contain another. Default: not checked.

    Returns:
        The name with its owner.

    Raises:
        ValueError: see [`push_folder`].
        HfHubHTTPError: if the Hub returns an error.
    """
    if revision is not None and re.fullmatch("[0-9a-f]{40}", revision):
        raise ValueError(f"revision = {revision!r} is a commit: only a branch can be pushed to.")
    name, api = find_repository(repo_id, private, token), HfApi(token=token)
    try:
        api.auth_check(name, write=True)
    except HfHubHTTPError as error:
        if error.response.status_code not in (401, 403, 404):
            raise
        raise ValueError(
            f"{name}: nothing was pushed, because the token has no write access. Log in to an account with write "
            "access (`hf auth login`), or choose another repository."
        ) from error
    refs = api.list_repo_refs(name, include_pull_requests=False)
    new = revision is not None and not revision.startswith("refs/pr/") and revision not in _names(refs.branches)
    if new and revision in _names(refs.tags):
        raise ValueError(f"revision = {revision!r} is a tag of {name}: only a branch can be pushed to.")
    if model is not None:
        _refuse_another(name, None if new else revision, token, model)
    if new:
        api.create_branch(name, branch=str(revision))
    return name


def _names(refs: Iterable[object]) -> set[str]:
    return {ref.name for ref in refs}  # type: ignore[attr-defined]


def _refuse_another(name: str, revision: str | None, token: str | None, model: tuple[str, str]) -> None:
    api = HfApi(token=token)
    if not api.file_exists(name, "config.json", revision=revision):
        return
    stored = Path(api.hf_hub_download(name, "config.json", revision=revision)).read_text("utf-8")
    try:
        config = json.loads(stored)
        there = (config.get("model_type"), *(config.get("architectures") or ())[:1])
    except (ValueError, AttributeError, TypeError):
        there = ("an unreadable config.json",)
    if there != model:
        raise ValueError(
            f"{name}: nothing was pushed, because the repository contains another model "
            f"({' '.join(map(str, there))}) than the one to push ({' '.join(model)}). Choose another name, or replace "
            "all files of the repository (`hf-tx push --overwrite`)."
        )


def _refuse_left(name: str, revision: str | None, token: str | None, pushed: Iterable[str]) -> None:
    there = set(HfApi(token=token).list_repo_files(name, revision=revision)) - set(pushed)
    left = sorted(file for file in there if matches(file, _READ) and "/" not in file)
    if left:
        raise ValueError(
            f"{name}: nothing was pushed, because the repository contains {', '.join(left)}, which would not be "
            "replaced, and would be loaded together with the new files. Remove them from the repository, or replace "
            "all its files (`hf-tx push --overwrite`)."
        )
