"""What the commands share that serve something until they are interrupted."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from sfusion.harness.errors import BadOption

if TYPE_CHECKING:
    from sfusion.fakes.wire import Journal, Served


def read_yaml(text: str | None, option: str) -> Any:
    """The value of an option written as YAML."""
    import yaml

    if text is None:
        return None
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise BadOption(f"{option} {text!r} is not YAML: {getattr(error, 'problem', None) or error}") from error


def open_journal(stack: ExitStack, path: Path | None) -> Journal | None:
    """A journal that appends to a file, a JSON line for each event."""
    import json

    if path is None:
        return None
    try:
        file = stack.enter_context(path.open("a", encoding="utf-8"))
    except OSError as error:
        raise BadOption(f"--journal {path} cannot be written: {error.strerror}") from error

    def write(event: dict[str, Any]) -> None:
        file.write(json.dumps(event) + "\n")
        file.flush()

    return write


def log_to_stderr(wanted: bool) -> Callable[[str], None] | None:
    """Where lines about requests go."""
    return (lambda line: typer.echo(line, err=True)) if wanted else None


async def live(served: Served, introduce: Callable[[], Any], *, grace: float = 5.0) -> None:
    """Serve until Ctrl-C or SIGTERM, then let what is in flight finish. ``introduce`` says what was started."""
    import asyncio
    import inspect
    import signal

    over = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, over.set)
    await served.start()
    try:
        said = introduce()
        if inspect.isawaitable(said):
            await said
        await over.wait()
        typer.echo(f"stopping: requests in flight have {grace:g} s to finish")
    finally:
        await served.stop(grace=grace)
    typer.echo("stopped")
