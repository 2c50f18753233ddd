# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Pushes to repositories on the Hub with the requested visibility."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from huggingface_hub import HfApi


def find_repository(repo_id: str, private: bool | None = None, token: str | bool | None = None) -> str:
    """Find a repository of models to push to; make it if it is not there. transformers does so too, and ignores what
    is asked for of one that is there.

    Args:
        repo_id: `name` or `owner/name`.
        private: whether it must be private, or must not be. Default: either.
        token: of the Hub. Default: the one that is logged in.

    Returns:
        The name with its owner.

    Raises:
        ValueError: it is public where a private one is asked for, or the reverse; or it has been moved to another
            name. Nothing has been sent.
        HfHubHTTPError: if the Hub returns an error.
    """
    api = HfApi(token=token)
    name = api.create_repo(repo_id, private=private, exist_ok=True).repo_id
    info: Any = api.model_info(name)
    if info.id.lower() != name.lower():
        raise ValueError(
            f"{name}: nothing was pushed, because the repository has been renamed to {info.id} on the Hub: use that "
            "name."
        )
    if private is not None and bool(info.private) != private:
        there, asked = ("public", "private") if private else ("private", "public")
        raise ValueError(
            f"{name}: nothing was pushed, because the repository is {there}, but should be {asked}. Change it "
            f"first (`hf repos settings {name} --{asked}`), or choose another name."
        )
    return name


def repository_of_save(save_directory: str | os.PathLike[str], keywords: Mapping[str, Any]) -> str:
    """Find the repository of a save that pushes, which is called as its folder if `keywords` does not name it. See
    [`find_repository`]."""
    return find_repository(
        keywords.get("repo_id") or Path(save_directory).name, keywords.get("private"), keywords.get("token")
    )


class PushesAsAsked:
    """Gives configs and models transformers' ways to the Hub, which stop where `private` would not hold."""

    def push_to_hub(self, repo_id: str, *args: Any, private: bool | None = None, **kwargs: Any) -> Any:
        """Upload to the Hub; see the method of the same name in transformers.

        Args:
            repo_id: `name` or `owner/name`; made if it is not there.
            *args: as in transformers.
            private: whether the repository is private, a new one or one that is there. Default: as it is, and for a
                new one as the owner has set it.
            **kwargs: as in transformers.

        Raises:
            ValueError: the repository is there and is not as `private` says; nothing has been sent.
        """
        name = find_repository(repo_id, private, kwargs.get("token"))
        return super().push_to_hub(name, *args, private=private, **kwargs)  # type: ignore[misc]
