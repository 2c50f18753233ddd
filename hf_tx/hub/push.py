# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""A folder becomes a repository on the Hub."""

import os
from pathlib import Path

from huggingface_hub import CommitInfo, HfApi

from .repository import IGNORED, check_repository


def push_folder(
    folder: str | os.PathLike[str],
    repo_id: str,
    *,
    private: bool | None = None,
    token: str | None = None,
    revision: str | None = None,
    commit_message: str = "Upload model",
) -> CommitInfo:
    """Push a model's folder, in one commit, after it has been checked.

    Args:
        folder: of the model, with its card; what training leaves beside it (checkpoints, what begins with `_`) stays.
        repo_id: `name` or `owner/name`; made if it is not there.
        private: whether a new repository is private. Default: as the owner has set it.
        token: with the right to write. Default: the one that is logged in.
        revision: the branch; made if it is not there. Default: `main`.
        commit_message: what the commit says.

    Returns:
        The commit; its `oid` is the revision to pin.

    Raises:
        ValueError: [`check_repository`] finds problems; the message lists them, and nothing has been pushed.
        FileNotFoundError: the folder is no model.
        HfHubHTTPError: the Hub refuses; a push that breaks off leaves the repository as it was.
    """
    problems = check_repository(folder)
    if problems:
        listed = "; ".join(str(problem) for problem in problems)
        raise ValueError(f"{folder}: nothing was pushed, since the repository would not be right: {listed}")
    api = HfApi(token=token)
    name = api.create_repo(repo_id, private=private, exist_ok=True).repo_id
    if revision is not None:
        api.create_branch(name, branch=revision, exist_ok=True)
    return api.upload_folder(
        repo_id=name,
        folder_path=Path(folder),
        commit_message=commit_message,
        revision=revision,
        ignore_patterns=list(IGNORED),
    )
