"""The routes of E2B: the API that creates sandboxes, envd inside them, and the code interpreter."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Mapping

from ..errors import BrokenStream
from ..hosting.host import Host
from ..hosting.multipart import read_parts
from ..hosting.visit import HostApp, HostedVisit, Route
from ..lifecycle.ledger import CreateRefusal
from ..sandbox.protocol import CommandResult
from ..wire.app import Execution, Request
from ..wire.message import Answer
from . import errors
from .wire import (
    CONNECT,
    Pieces,
    aiter_of,
    created,
    described,
    execution_lines,
    process_frames,
    read_command,
    started_frame,
    stopped_frames,
    streamed,
)

_TTL = 300.0
"""Seconds of a sandbox whose client asks for none: the API's default is 15, the SDK's 300."""
_MILLISECONDS = 1000.0
_PIDS = itertools.count(1000)


# -- the API --


async def create(visit: HostedVisit, execution: Execution) -> Answer:
    """Create a sandbox, and answer when it can be used."""
    fields = visit.fields
    metadata = fields.get("metadata")
    timeout = fields.get("timeout")
    made = visit.create(
        key=visit.request.headers.get("Idempotency-Key", "")[:200],
        labels=metadata if isinstance(metadata, dict) else {},
        settings={"templateID": str(fields.get("templateID"))[:200]},
        ttl=float(timeout) if isinstance(timeout, int | float) else _TTL,
    )
    if isinstance(made, CreateRefusal):
        return visit.app.refused(made)
    execution.started()
    await visit.host.until_settled(made)
    execution.finished()
    if made.state != "running":
        return errors.error(500, "sfusion: the sandbox died before it was ready")
    return Answer.json(created(made), status=201)


async def get(visit: HostedVisit, execution: Execution) -> Answer:
    sandbox = visit.usable()
    if sandbox is None:
        return errors.no_sandbox(visit.name)
    return Answer.json(described(sandbox, visit.host.now()))


async def listed(visit: HostedVisit, execution: Execution) -> Answer:
    now = visit.host.now()
    listed_now = visit.host.ledger.listed(now)
    running = [sandbox for sandbox in listed_now if sandbox.state == "running"]
    return Answer.json([described(sandbox, now) for sandbox in running])


async def renew(visit: HostedVisit, execution: Execution) -> Answer:
    sandbox = visit.usable()
    if sandbox is None:
        return errors.no_sandbox(visit.name)
    execution.started()
    timeout = visit.fields.get("timeout")
    ttl = float(timeout) if isinstance(timeout, int | float) else None
    visit.host.ledger.renew(sandbox, visit.host.now(), ttl=ttl, by=visit.by)
    execution.finished()
    return Answer(status=204, content_type=None)


async def delete(visit: HostedVisit, execution: Execution) -> Answer:
    was_running = visit.usable() is not None
    visit.host.ledger.delete(visit.name, visit.host.now(), by=visit.by)
    if not was_running:
        return errors.no_sandbox(visit.name)
    execution.started()
    execution.finished()
    return Answer(status=204, content_type=None)


# -- envd --


async def health(visit: HostedVisit, execution: Execution) -> Answer:
    if visit.usable() is None:
        return visit.app.gone(visit)
    return Answer(status=204, content_type=None)


async def start(visit: HostedVisit, execution: Execution) -> Answer:
    """Run a command; its frames are sent when it has ended."""
    command = visit.app.command(visit)
    if command is None:
        return errors.error(400, "the body is not a command in one frame")
    if visit.usable() is None:
        return visit.app.gone(visit)
    result = await visit.execute(execution, command, limit=_limit(visit.request.headers))
    if result is None:
        return _broken(started_frame(next(_PIDS)))
    frames = stopped_frames() if result.timed_out else process_frames(result)
    return streamed(CONNECT, [started_frame(next(_PIDS)), *frames])


def _limit(headers: Mapping[str, str]) -> float | None:
    text = headers.get("Connect-Timeout-Ms", "")
    return int(text) / _MILLISECONDS if text.isdecimal() and int(text) else None


def _broken(first: bytes) -> Answer:
    """A stream that breaks off after its first piece, because its sandbox died."""

    async def rest() -> AsyncIterator[list[bytes]]:
        raise BrokenStream("the sandbox ended")
        yield []

    return Answer(content_type=CONNECT, stream=aiter_of(Pieces(first, rest)))


async def write(visit: HostedVisit, execution: Execution) -> Answer:
    sandbox = visit.usable()
    if sandbox is None:
        return visit.app.gone(visit)
    content_type = visit.request.headers.get("Content-Type", "")
    path = visit.query.get("path", "")
    if "octet-stream" in content_type:
        files = [(path, visit.request.body)]
    else:
        parts = read_parts(visit.request.body, content_type)
        if parts is None:
            return errors.error(400, "the body is not a whole multipart form")
        files = [(path or part.filename or part.name, part.content) for part in parts]
    execution.started()
    for name, content in files:
        visit.write(sandbox, absolute(name), content)
    execution.finished()
    shown = [absolute(name) for name, _ in files]
    return Answer.json(
        [{"name": path.rpartition("/")[2], "type": "file", "path": path} for path in shown]
    )


async def read(visit: HostedVisit, execution: Execution) -> Answer:
    sandbox = visit.usable()
    if sandbox is None:
        return visit.app.gone(visit)
    execution.started()
    path = absolute(visit.query.get("path", ""))
    content = visit.read(sandbox, path)
    execution.finished()
    if content is None:
        return errors.error(404, f"path '{path[:200]}' does not exist")
    return Answer(body=content, content_type="application/octet-stream")


async def interpret(visit: HostedVisit, execution: Execution) -> Answer:
    """Run code as the interpreter does: a line of JSON for each thing that it has to say."""
    if visit.usable() is None:
        return visit.app.gone(visit)
    code = visit.app.command(visit) or ""
    result: CommandResult | None = await visit.execute(execution, code, language="python")
    if result is None:
        return _broken(b"")
    return streamed("application/json", execution_lines(result))


def absolute(path: str) -> str:
    """A path as envd resolves it: relative ones from the home directory."""
    return path if path.startswith("/") else f"/home/user/{path}"


_ID = "/sandboxes/{id}"
_START = "/process.Process/Start"
ROUTES = [
    Route("POST", "/v2/sandboxes", create, on="create"),
    Route("POST", "/sandboxes", create, on="create"),
    Route("GET", "/v2/sandboxes", listed),
    Route("GET", "/sandboxes", listed),
    Route("GET", _ID, get),
    Route("DELETE", _ID, delete, on="delete"),
    Route("POST", f"{_ID}/timeout", renew, on="renew"),
    Route("GET", "/health", health),
    Route("POST", _START, start, on="exec"),
    Route("POST", "/files", write, on="file"),
    Route("GET", "/files", read, on="file"),
    Route("POST", "/execute", interpret, on="exec"),
]


class E2BApp(HostApp):
    """E2B's API and its sandboxes on one address: a header names the sandbox."""

    def __init__(self, host: Host) -> None:
        super().__init__(host, ROUTES)

    def error(self, status: int, message: str) -> Answer:
        return errors.error(status, message)

    def gone(self, visit: HostedVisit) -> Answer:
        return errors.not_running(visit.name)

    def named(self, request: Request, given: Mapping[str, str]) -> str:
        name = given.get("id") or request.headers.get("E2b-Sandbox-Id", "")
        if not name:
            # A client that was given no address for sandboxes names them in the host: PORT-ID.
            name = request.host.partition(".")[0].partition("-")[2]
        return name

    def command(self, visit: HostedVisit) -> str | None:
        if visit.request.path == _START:
            found = read_command(visit.request.body)
            return found[0] if found is not None else None
        code = visit.fields.get("code")
        return code if isinstance(code, str) else None
