"""Shared by the commands that serve until they are interrupted."""

from __future__ import annotations

import os
from collections.abc import Callable, Sized
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sfusion.harness.errors import BadOption
from sfusion_tools.wording import counted

if TYPE_CHECKING:
    from sfusion.fakes.wire import EventSink, Served

TokenFile = Annotated[
    Path | None,
    typer.Option(help="File with the token; a new one is written if there is none. Or set SFUSION_TOKEN."),
]
TypedToken = Annotated[str | None, typer.Option("--token", hidden=True)]
RequireToken = Annotated[bool, typer.Option(help="Require the token for every request but the ping.")]
AllowHost = Annotated[
    list[str] | None,
    typer.Option("--allow-host", metavar="NAME", help="Another name of this server; can be repeated."),
]
EventLogFile = Annotated[
    Path | None,
    typer.Option(
        "--event-log",
        metavar="FILE",
        help="Log of requests for `sfusion look`; FILE.ndjson becomes FILE.HOST-PID-001.ndjson.",
    ),
]
AllowOrigin = Annotated[
    list[str] | None,
    typer.Option("--allow-origin", metavar="URL", help="Web pages that may use it; can be repeated."),
]


def read_yaml(text: str | None, option: str) -> Any:
    """Parse an option that is written as YAML."""
    from sfusion_tools.errors import YamlError
    from sfusion_tools.marked_yaml import parse_marked

    if text is None:
        return None
    try:
        return parse_marked(text, option).data
    except YamlError as error:
        raise BadOption(f"{error}; found {text[:200]!r}") from error


def open_journal(stack: ExitStack, path: Path | None) -> EventSink | None:
    """Open a journal that appends one JSON line per event to a file."""
    import json
    import time

    if path is None:
        return None
    try:
        file = stack.enter_context(path.open("a", encoding="utf-8"))
    except OSError as error:
        raise BadOption(f"--journal {path} cannot be written: {error.strerror}") from error

    def write(event: dict[str, Any]) -> None:
        # The time of the event loop means nothing to other logs.
        file.write(json.dumps({**event, "at": round(time.time(), 6)}) + "\n")
        file.flush()

    return write


def check_event_log(path: Path | None) -> Path | None:
    """Return the path of an event log whose folder can be written to."""
    if path is not None:
        folder = path if path.is_dir() else path.parent
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BadOption(f"--event-log {path} cannot be written: {error.strerror}") from error
        if not os.access(folder, os.W_OK):
            raise BadOption(f"--event-log {path} cannot be written: no permission for {folder}")
    return path


def log_to_stderr(wanted: bool) -> Callable[[str], None] | None:
    """Return where the access log goes."""
    return (lambda line: typer.echo(line, err=True)) if wanted else None


async def serve_until_interrupted(served: Served, print_banner: Callable[[], Any], *, grace: float = 5.0) -> None:
    """Serve until Ctrl-C or SIGTERM, then let requests in flight finish. ``print_banner`` prints what was started."""
    import asyncio
    import inspect
    import signal

    interrupted = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, interrupted.set)
    await served.start()
    try:
        result = print_banner()
        if inspect.isawaitable(result):
            await result
        await interrupted.wait()
        typer.echo(f"stopping: requests in flight get {grace:g} s to finish")
    finally:
        await served.stop(grace=grace)
    typer.echo("stopped")


def admin_line(served: Served, token: str | None) -> str:
    """Say where the admin routes are, and whether the ``token`` that was given opens them."""
    url = f"admin: {served.url}/__sfusion/state (faults, ledger, reset)"
    if served.token is None:
        return url
    if token is not None:
        return f"{url}, with the token"
    return "admin: closed, as there is no token: set SFUSION_TOKEN, or use --token-file FILE"


def fault_count(rules: Sized, path: Path | None) -> str:
    """Say how many rules are in force and where they come from."""
    return "no faults" if path is None else f"{counted(len(rules), 'fault rule')} from {path}"
