# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""A Hub on 127.0.0.1: enough of its endpoints for the real client to create, push, and load repositories of models."""

import base64
import contextlib
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

TOKEN = "hf_test_server_accepts_this_token"  # no secret: the server checks that a token arrives
USER = "tester"
LFS_FROM = 10_000


@dataclass
class Repository:
    """Commits by branch, oldest first; each commit is all files.

    Attributes:
        private: whether its owner alone sees it.
        moved_to: the name that it has now.
        tags: commits by tag.
    """

    private: bool = False
    moved_to: str | None = None
    tags: dict[str, str] = field(default_factory=dict)
    branches: dict[str, list[str]] = field(default_factory=lambda: {"main": []})
    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    messages: dict[str, str] = field(default_factory=dict)

    def commit(self, branch: str, files: dict[str, bytes], message: str) -> str:
        content = b"".join(name.encode() + hashlib.sha256(data).digest() for name, data in sorted(files.items()))
        sha = hashlib.sha1(content + str(len(self.commits)).encode()).hexdigest()
        self.commits[sha], self.messages[sha] = files, message
        self.branches[branch].append(sha)
        return sha

    def resolve(self, revision: str) -> str | None:
        """Return the commit of a branch, or of a hash."""
        if revision in self.branches:
            return self.branches[revision][-1]
        return revision if revision in self.commits else None

    @property
    def files(self) -> dict[str, bytes]:
        return self.commits[self.branches["main"][-1]]


class Hub:
    """The state of the server.

    Attributes:
        repositories: by id.
        objects: large files by their sha256, before and after the commit that names them.
        requests: method and path of all requests.
        drop_uploads: how many uploads of large files to break off before their end.
    """

    def __init__(self) -> None:
        self.repositories: dict[str, Repository] = {}
        self.objects: dict[str, bytes] = {}
        self.requests: list[str] = []
        self.drop_uploads = 0
        self.endpoint = ""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: Hub

    def log_message(self, *arguments: Any) -> None:
        pass

    # --------------------------------------------------------------------------------------------------------- answers
    def _answer(self, status: int, body: Any = b"", **headers: str) -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        sent = {"Content-Type": "application/json", "Content-Length": str(len(data))}
        for name, value in (sent | {name.replace("_", "-"): value for name, value in headers.items()}).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def _refuse(self, status: int, code: str, message: str) -> None:
        self._answer(status, {"error": message}, X_Error_Code=code, X_Error_Message=message)

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def _allowed(self) -> bool:
        return self.headers.get("Authorization") == f"Bearer {TOKEN}"

    # --------------------------------------------------------------------------------------------------------- routes
    def _route(self) -> None:
        path = unquote(urlsplit(self.path).path)
        self.hub.requests.append(f"{self.command} {path}")
        for method, pattern, action in ROUTES:
            if self.command in method and (found := re.fullmatch(pattern, path)):
                needs_token = self.command in ("POST", "PUT") and "validate-yaml" not in path and "lfs-put" not in path
                if (needs_token or "whoami" in path) and not self._allowed():
                    self._body()
                    self._refuse(401, "", "Invalid credentials in Authorization header")
                    return
                try:
                    getattr(self, action)(**found.groupdict())
                except KeyError:
                    self._body()
                    self._refuse(404, "RepoNotFound", "Repository not found")
                return
        self._body()
        self._refuse(404, "", f"this test server has no {self.command} {path}")

    do_GET = do_HEAD = do_POST = do_PUT = _route

    def _repository(self, repo: str) -> Repository:
        found = self.hub.repositories[repo]
        if found.private and not self._allowed():
            raise KeyError(repo)
        return found

    def whoami(self) -> None:
        self._answer(200, {"name": USER, "type": "user", "orgs": [], "auth": {"accessToken": {"role": "write"}}})

    def create(self) -> None:
        asked = json.loads(self._body())
        owner = asked.get("organization") or USER
        repo = f"{owner}/{asked['name']}"
        if owner != USER:
            self._refuse(403, "", f"You don't have the rights to create a model under the namespace {owner}")
            return
        status = 409 if repo in self.hub.repositories else 200
        if status == 200:
            made = self.hub.repositories[repo] = Repository(
                asked.get("private") or asked.get("visibility") == "private"
            )
            made.commit("main", {".gitattributes": b""}, "initial commit")
        self._answer(status, {"url": f"{self.hub.endpoint}/{repo}", "name": repo, "id": repo})

    def branch(self, repo: str, revision: str) -> None:
        self._body()
        repository = self._repository(repo)
        if revision in repository.branches:
            self._refuse(409, "", "Reference already exists")
            return
        repository.branches[revision] = list(repository.branches["main"])
        self._answer(200, b"")

    def auth_check(self, repo: str, write: str) -> None:
        self._repository(repo)
        if write and not (self._allowed() and repo.startswith(f"{USER}/")):
            self._refuse(403, "", "You have no right to write here")
            return
        self._answer(200, b"")

    def refs(self, repo: str) -> None:
        repository = self._repository(repo)
        branches = {name: commits[-1] for name, commits in repository.branches.items()}
        listed = [
            [{"name": name, "ref": f"refs/{kind}/{name}", "targetCommit": sha} for name, sha in refs.items()]
            for kind, refs in (("heads", branches), ("tags", repository.tags))
        ]
        self._answer(200, {"branches": listed[0], "tags": listed[1], "converts": []})

    def validate_yaml(self) -> None:
        self._body()
        self._answer(200, {"errors": [], "warnings": []})

    def info(self, repo: str, revision: str = "main") -> None:
        repository = self._repository(repo)
        sha = repository.resolve(revision)
        if sha is None:
            self._refuse(404, "RevisionNotFound", f"Invalid rev id: {revision}")
            return
        siblings = [{"rfilename": name} for name in repository.commits[sha]]
        name = repository.moved_to or repo
        self._answer(200, {"id": name, "sha": sha, "private": repository.private, "siblings": siblings, "tags": []})

    def tree(self, repo: str, revision: str, under: str | None = None) -> None:
        repository = self._repository(repo)
        sha = repository.resolve(revision)
        if sha is None:
            self._refuse(404, "RevisionNotFound", f"Invalid rev id: {revision}")
            return
        files = [
            {"type": "file", "path": name, "size": len(data), "oid": hashlib.sha1(data).hexdigest()}
            for name, data in repository.commits[sha].items()
            if under is None or name.startswith(under)
        ]
        self._answer(200, files)

    def preupload(self, repo: str, revision: str) -> None:
        repository = self._repository(repo)
        asked = json.loads(self._body())
        hosted = repository.commits[repository.resolve(revision) or ""].get(".gitignore", b"").decode()
        ignored = asked.get("gitIgnore", hosted).split()  # names of files alone
        files = asked["files"]
        modes = [
            "lfs" if item["size"] >= LFS_FROM or item["path"].endswith(".safetensors") else "regular" for item in files
        ]
        answer = [
            {"path": item["path"], "uploadMode": mode, "shouldIgnore": item["path"].rpartition("/")[2] in ignored}
            for item, mode in zip(files, modes, strict=True)
        ]
        self._answer(200, {"files": answer})

    def batch(self, repo: str) -> None:
        self._repository(repo)
        objects = json.loads(self._body())["objects"]
        answer = [
            {
                "oid": item["oid"],
                "size": item["size"],
                **(
                    {}
                    if item["oid"] in self.hub.objects
                    else {"actions": {"upload": {"href": f"{self.hub.endpoint}/lfs-put/{item['oid']}"}}}
                ),
            }
            for item in objects
        ]
        self._answer(200, {"transfer": "basic", "objects": answer}, Content_Type="application/vnd.git-lfs+json")

    def put(self, oid: str) -> None:
        if self.hub.drop_uploads:
            self.hub.drop_uploads -= 1
            self.rfile.read(100)
            self.close_connection = True
            self.connection.close()
            return
        data = self._body()
        if hashlib.sha256(data).hexdigest() != oid:
            self._refuse(400, "", "the object is not what its name says")
            return
        self.hub.objects[oid] = data
        self._answer(200, b"")

    def commit(self, repo: str, revision: str) -> None:
        repository = self._repository(repo)
        files = dict(repository.commits[repository.resolve(revision) or ""])
        message = ""
        for line in self._body().splitlines():
            entry = json.loads(line)
            value = entry["value"]
            if entry["key"] == "header":
                message = value["summary"]
            elif entry["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif entry["key"] == "lfsFile":
                files[value["path"]] = self.hub.objects[value["oid"]]
            elif entry["key"] == "deletedFile":
                del files[value["path"]]
        sha = repository.commit(revision, files, message)
        self._answer(200, {"success": True, "commitOid": sha, "commitUrl": f"{self.hub.endpoint}/{repo}/commit/{sha}"})

    def resolve(self, repo: str, revision: str, name: str) -> None:
        repository = self._repository(repo)
        sha = repository.resolve(revision)
        if sha is None:
            self._refuse(404, "RevisionNotFound", f"Invalid rev id: {revision}")
            return
        if name not in repository.commits[sha]:
            self._answer(404, {"error": "Entry not found"}, X_Error_Code="EntryNotFound", X_Repo_Commit=sha)
            return
        data = repository.commits[sha][name]
        etag = f'"{hashlib.sha256(data).hexdigest()}"'
        self._answer(200, data, ETag=etag, X_Repo_Commit=sha, Content_Type="application/octet-stream")


_REPO = r"(?P<repo>[^/]+/[^/]+)"
_REVISION = r"(?P<revision>[^/]+)"
ROUTES = [
    (("GET",), r"/api/whoami-v2", "whoami"),
    (("POST",), r"/api/repos/create", "create"),
    (("POST",), r"/api/validate-yaml", "validate_yaml"),
    (("GET",), rf"/api/models/{_REPO}/auth-check(?P<write>(/write)?)", "auth_check"),
    (("GET",), rf"/api/models/{_REPO}/refs", "refs"),
    (("POST",), rf"/api/models/{_REPO}/branch/{_REVISION}", "branch"),
    (("POST",), rf"/api/models/{_REPO}/preupload/{_REVISION}", "preupload"),
    (("POST",), rf"/api/models/{_REPO}/commit/{_REVISION}", "commit"),
    (("GET",), rf"/api/models/{_REPO}/revision/{_REVISION}", "info"),
    (("GET",), rf"/api/models/{_REPO}/tree/{_REVISION}(/(?P<under>.*))?", "tree"),
    (("GET",), rf"/api/models/{_REPO}", "info"),
    (("POST",), rf"/{_REPO}\.git/info/lfs/objects/batch", "batch"),
    (("PUT",), r"/lfs-put/(?P<oid>[0-9a-f]{64})", "put"),
    (("GET", "HEAD"), rf"/{_REPO}/resolve/{_REVISION}/(?P<name>.+)", "resolve"),
]


@contextlib.contextmanager
def running_hub() -> Iterator[Hub]:
    """Run a Hub of its own, which ends with the block; `hub.endpoint` is its address."""
    hub = Hub()
    handler = type("Handler", (_Handler,), {"hub": hub})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    hub.endpoint = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
