# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""A folder becomes a repository on the Hub, as it was asked for or not at all."""

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

# Of an earlier model, beside the files of another, these would give a model that is neither.
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
    """Push a model's folder, in one commit, after it has been checked.

    Args:
        folder: of the model, with its card; what training leaves beside it (checkpoints, what begins with `_`) stays.
        repo_id: `name` or `owner/name`; made if it is not there.
        private: whether the repository is private; one that is there must be so. Default: as it is, and for a new one
            as the owner has set it.
        token: with the right to write. Default: the one that is logged in.
        revision: the branch; made if it is not there. Default: `main`.
        commit_message: what the commit says.
        overwrite: whether the folder takes the place of all that the branch holds, also of another model.

    Returns:
        The commit; its `oid` is the revision to pin.

    Raises:
        ValueError: [`check_repository`] finds problems, which the message lists; the repository is not as `private`
            says; the token must not write there; `revision` is no branch; or without `overwrite`, the branch holds
            another model, or files that would be read with the new ones. Nothing has been pushed then.
        FileNotFoundError: the folder is no model.
        HfHubHTTPError: the Hub refuses; a push that breaks off leaves the repository as it was.
    """
    problems = check_repository(folder)
    if problems:
        listed = "; ".join(str(problem) for problem in problems)
        raise ValueError(f"{folder}: nothing was pushed, since the repository would not be right: {listed}")
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
    """Find a repository and a branch to push to, or make them.

    Args:
        repo_id: `name` or `owner/name`.
        private: whether it must be private, or must not be. Default: either.
        token: with the right to write. Default: the one that is logged in.
        revision: the branch. Default: `main`.
        model: `model_type` and class of what is to be pushed; the branch must not hold another. Default: it may.

    Returns:
        The name with its owner.

    Raises:
        ValueError: see [`push_folder`].
        HfHubHTTPError: the Hub refuses.
    """
    if revision is not None and re.fullmatch("[0-9a-f]{40}", revision):
        raise ValueError(f"revision = {revision!r}: is a commit; only a branch can be pushed to.")
    name, api = find_repository(repo_id, private, token), HfApi(token=token)
    try:
        api.auth_check(name, write=True)
    except HfHubHTTPError as error:
        if error.response.status_code not in (401, 403, 404):
            raise
        raise ValueError(
            f"{name}: the token has no right to write there: nothing was pushed. Log in to that account, or name "
            "another repository."
        ) from error
    refs = api.list_repo_refs(name, include_pull_requests=False)
    new = revision is not None and not revision.startswith("refs/pr/") and revision not in _names(refs.branches)
    if new and revision in _names(refs.tags):
        raise ValueError(f"revision = {revision!r}: is a tag of {name}; only a branch can be pushed to.")
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
        there = ("what cannot be read",)
    if there != model:
        raise ValueError(
            f"{name}: holds another model, {' '.join(map(str, there))}, where {' '.join(model)} is to be pushed: "
            "nothing was pushed. Choose another name, or replace all that it holds (`hf-tx push --overwrite`)."
        )


def _refuse_left(name: str, revision: str | None, token: str | None, pushed: Iterable[str]) -> None:
    there = set(HfApi(token=token).list_repo_files(name, revision=revision)) - set(pushed)
    left = sorted(file for file in there if matches(file, _READ) and "/" not in file)
    if left:
        raise ValueError(
            f"{name}: holds {', '.join(left)}, which this push would not replace, and which would be read with it: "
            "nothing was pushed. Remove them, or replace all that it holds (`hf-tx push --overwrite`)."
        )
