# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""`hf-tx serve` and `hf-tx chat`: the commands of transformers, with the classes of hf_tx."""

import importlib.util
from collections.abc import Callable, Sequence
from typing import Any


def _tell_refusals() -> None:
    """Let the server return a ValueError of a model as its message with status 400, not as a status 500."""
    from fastapi.responses import JSONResponse
    from transformers.cli.serving import server

    def refused(request: Any, error: Exception) -> JSONResponse:
        return JSONResponse({"error": str(error)}, status_code=400)

    def build(*args: Any, **kwargs: Any) -> Any:
        app = build_server(*args, **kwargs)
        app.add_exception_handler(ValueError, refused)
        return app

    build_server, server.build_server = server.build_server, build


class Launcher:
    """A command of transformers, which gets all arguments, including `--help`.

    Args:
        name: name of the command and of its module in `transformers.cli`; its class is the name in title case.
        help: what the command does.
        libraries: libraries that the command needs.
        prepare: called before the command starts.
    """

    def __init__(
        self, name: str, help: str, libraries: tuple[str, ...], prepare: Callable[[], None] | None = None
    ) -> None:
        self.name, self.libraries, self.prepare = name, libraries, prepare
        self.HELP = f"{help} The arguments are those of `transformers {name}`."

    def run(self, argv: Sequence[str], name: str) -> None:
        absent = [name for name in self.libraries if not importlib.util.find_spec(name)]
        if absent:
            raise ImportError(f'not installed: {", ".join(absent)}. Install them with `pip install "hf_tx[serving]"`.')
        import transformers
        import typer

        import hf_tx

        from ..common.checkpoint_files import check_files

        # transformers would open pickles, and report broken files only to the clients.
        for argument in argv:
            check_files(argument.rpartition("=")[2])

        for each in hf_tx.__all__:  # where the server looks up the class that a config names
            if each.startswith("Tx"):
                setattr(transformers, each, getattr(hf_tx, each))
        if self.prepare is not None:
            self.prepare()
        app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
        app.command()(getattr(importlib.import_module(f"transformers.cli.{self.name}"), self.name.title()))
        # The standalone mode of typer prints its errors together with the usage.
        app(list(argv), prog_name=name)


serve = Launcher(
    "serve",
    "Serve a model with an OpenAI-compatible HTTP API.",
    ("fastapi", "uvicorn", "openai", "pydantic"),
    prepare=_tell_refusals,
)
chat = Launcher("chat", "Chat with a served model in the terminal.", ("rich",))
