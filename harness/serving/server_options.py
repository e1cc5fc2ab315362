"""The options of a server that runs until it is interrupted, and how such a server is run."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import signal
import stat
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sfusion_tools.errors import YamlError
from sfusion_tools.marked_yaml import parse_marked
from sfusion_tools.wording import counted

from ...fakes.faults import Rule, load_rules
from ...fakes.wire import FakeServer
from ...fakes.wire.events import EventSink, ServerEvent
from ..commandline.declaring import option
from ..commandline.exits import say
from ..commandline.options import Faults, Seed
from ..errors import BadOption

if TYPE_CHECKING:
    from ...fakes.sandbox.protocol import Executor

VARIABLE = "SFUSION_TOKEN"
_LONGEST = 1000
"""Characters of a token (chosen: far below what servers accept in a header)."""
_NEW_TOKEN = 24
"""Random bytes of a new token (chosen: 192 bits cannot be guessed)."""


def read_token(typed: str | None, file: Path | None, *, required: bool) -> str | None:
    """The token of ``--token-file`` or of the environment, None if there is none.

    Errors never show it.
    """
    if typed is not None:
        raise BadOption(
            "--token on the command line can be read by other users and by the programs that the "
            f"server runs; set {VARIABLE}, or use --token-file FILE"
        )
    token = os.environ.pop(VARIABLE, None) or None
    if token is not None and file is not None:
        raise BadOption(f"give the token either in {VARIABLE} or in --token-file, not in both")
    if file is not None:
        token = _from_file(file)
    if token is None:
        if required:
            raise BadOption(
                f"--require-token needs a token: set {VARIABLE}, or use --token-file FILE"
            )
        return None
    is_word = token.isascii() and token.isprintable() and " " not in token
    if not is_word or len(token) > _LONGEST:
        where = VARIABLE if file is None else f"--token-file {file}"
        raise BadOption(f"{where}: a token is one word of up to {_LONGEST} ASCII characters")
    _hide_this_process()
    return token


def _from_file(file: Path) -> str:
    try:
        with contextlib.suppress(FileExistsError):
            made = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(made, "w") as new:
                new.write(secrets.token_urlsafe(_NEW_TOKEN) + "\n")
            typer.echo(f"a new token was written to {file}", err=True)
        with file.open(encoding="utf-8") as opened:
            mode = os.fstat(opened.fileno()).st_mode
            text = opened.read(_LONGEST + 2).strip()
    except OSError as error:
        raise BadOption(f"--token-file {file} cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError:
        raise BadOption(f"--token-file {file}: a token is one word of ASCII characters") from None
    if not text:
        raise BadOption(f"--token-file {file} is empty")
    if stat.S_ISREG(mode) and mode & stat.S_IROTH:
        typer.echo(f"every user of this machine can read {file}: chmod 600 {file}", err=True)
    return text


_PR_SET_DUMPABLE = 4
"""The kernel's number: linux/prctl.h."""


def _hide_this_process() -> None:
    """Keep other processes of the same user from reading environment and memory of this one."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


_HIDDEN = "hidden"
"""What the program below prints if it cannot read the token."""


def _reading(file: Path | None) -> str | None:
    """A program that tries to read the file; None for a pipe, which nobody can read again."""
    if file is None or not file.is_file():
        return None
    return (
        f"try:\n    open({str(file.absolute())!r}, 'rb').read(1)\n"
        f"except OSError:\n    print({_HIDDEN!r})\n"
    )


async def refuse_readable(executor: Executor, file: Path | None) -> None:
    """Raise BadOption unless the programs that an executor runs cannot read the token.

    They may run as the server's user.
    """
    from ...fakes.sandbox.protocol import RunCode

    program = _reading(file)
    if program is None or not executor.runs_code:
        return
    answer = await executor.run_code(RunCode(code=program, language="python"))
    told = answer.run_result
    if told is None or told.return_code != 0:
        end = told.status if told is not None else answer.message
        raise BadOption(
            f"whether programs that this server runs can read {file} could not be tried: the "
            f"program that tries it did not end well ({end}); start again, or {_SAFE}"
        )
    if (told.stdout or "").strip() != _HIDDEN:
        raise BadOption(f"the programs that this server runs can read {file}; {_SAFE}")


_SAFE = (
    f"give the token in {VARIABLE}, through a pipe (--token-file <(COMMAND)), or in a file under "
    "/tmp if programs have a /tmp of their own"
)


_ACCESS = "Who may use it"
_LOGS = "Logs"
_GRACE = 5.0
"""Seconds that requests in flight get to finish (chosen)."""

Port = Annotated[int, option("Port to listen on; 0 picks a free one.", names="--port")]


@dataclass(frozen=True, kw_only=True)
class ServingOptions:
    """Where a server listens, who may use it, what it does wrong and what it logs."""

    host: Annotated[
        str, option("Address to listen on; other than loopback needs --allow-remote.", "ADDRESS")
    ] = "127.0.0.1"
    port: Port = 8080
    faults: Faults = None
    seed: Seed = 0
    token_file: Annotated[
        Path | None,
        option(
            "File with the token; a new one is written if there is none. Or set SFUSION_TOKEN.",
            panel=_ACCESS,
        ),
    ] = None
    token: Annotated[
        str | None, option("Refused: others can read a command line.", hidden=True)
    ] = None
    require_token: Annotated[
        bool, option("Require the token for every request but the ping.", panel=_ACCESS)
    ] = False
    allow_remote: Annotated[
        bool,
        option(
            "Let other machines connect; needs a token if their code would be run.", panel=_ACCESS
        ),
    ] = False
    allow_host: Annotated[
        list[str] | None, option("Another name of this server. Repeatable.", "NAME", _ACCESS)
    ] = None
    allow_origin: Annotated[
        list[str] | None, option("Web pages that may use it. Repeatable.", "URL", _ACCESS)
    ] = None
    access_log: Annotated[bool, option("Write a line per request to stderr.", panel=_LOGS)] = False
    journal: Annotated[
        Path | None, option("Append events to this file, one JSON line each.", panel=_LOGS)
    ] = None

    @contextmanager
    def keywords(self) -> Iterator[dict[str, Any]]:
        """Yield what a server is made with; its journal is open meanwhile."""
        token = read_token(self.token, self.token_file, required=self.require_token)
        with _journal(self.journal) as journal:
            yield {
                "faults": [] if self.faults is None else self.load_rules(self.faults),
                "host": self.host,
                "port": self.port,
                "seed": self.seed,
                "token": token,
                "require_token": self.require_token,
                "allow_remote": self.allow_remote,
                "allow_hosts": self.allow_host or (),
                "allow_origins": self.allow_origin or (),
                "journal": journal,
                "access_log": say if self.access_log else None,
            }

    def load_rules(self, file: Path) -> list[Rule]:
        return load_rules(file)

    def fault_count(self, keywords: dict[str, Any]) -> str:
        """Say how many rules are in force and where they come from."""
        if self.faults is None:
            return "no faults"
        count = counted(len(keywords["faults"]), "fault rule")
        return f"{count} from {self.faults}"


@dataclass(frozen=True, kw_only=True)
class LoadedOptions(ServingOptions):
    """The same for a server of programs.

    It has a behaviour under load and a log of its requests.
    """

    model: Annotated[
        str | None,
        option(
            "Behaviour under load: unbounded, '{kind: quota, in_flight: 8}', '{kind: queue}'.",
            "YAML",
        ),
    ] = None
    event_log: Annotated[
        Path | None,
        option(
            "Log of requests for `sfusion look`; FILE.ndjson becomes FILE.HOST-PID-001.ndjson.",
            panel=_LOGS,
        ),
    ] = None

    @contextmanager
    def keywords(self) -> Iterator[dict[str, Any]]:
        with super().keywords() as keywords:
            yield {
                **keywords,
                "model": self._model(),
                "event_log": _checked_event_log(self.event_log),
            }

    def _model(self) -> Any:
        if self.model is None:
            return None
        try:
            return parse_marked(self.model, "--model").data
        except YamlError as error:
            raise BadOption(f"{error}; found {self.model!r:.200}") from error


@contextmanager
def _journal(path: Path | None) -> Iterator[EventSink | None]:
    """Open a journal that appends one JSON line per event to a file."""
    if path is None:
        yield None
        return
    try:
        file = path.open("a", encoding="utf-8")
    except OSError as error:
        raise BadOption(f"--journal {path} cannot be written: {error.strerror}") from error

    def write(event: ServerEvent) -> None:
        # The time of the event loop means nothing to other logs.
        file.write(json.dumps({**event, "at": round(time.time(), 6)}) + "\n")
        file.flush()

    with file:
        yield write


def _checked_event_log(path: Path | None) -> Path | None:
    """Return the path of an event log whose folder can be written to."""
    if path is None:
        return None
    folder = path if path.is_dir() else path.parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadOption(f"--event-log {path} cannot be written: {error.strerror}") from error
    if not os.access(folder, os.W_OK):
        raise BadOption(f"--event-log {path} cannot be written: no permission for {folder}")
    return path


async def serve_until_interrupted(
    served: FakeServer, token: str | None, print_banner: Callable[[], Awaitable[None]]
) -> None:
    """Serve until Ctrl-C or SIGTERM, then let requests in flight finish.

    ``print_banner`` prints what was started; then it is said whether the ``token`` that was given
    opens admin routes.
    """
    interrupted = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, interrupted.set)
    await served.start()
    try:
        await print_banner()
        typer.echo(_admin_line(served, token))
        await interrupted.wait()
        typer.echo(f"stopping: requests in flight get {_GRACE:g} s to finish")
    finally:
        await served.stop(grace=_GRACE)
    typer.echo("stopped")


def _admin_line(served: FakeServer, token: str | None) -> str:
    url = f"admin: {served.url}/__sfusion/state (faults, ledger, reset)"
    if served.token is None:
        return url
    if token is not None:
        return f"{url}, with the token"
    return "admin: closed, as there is no token: set SFUSION_TOKEN, or use --token-file FILE"
