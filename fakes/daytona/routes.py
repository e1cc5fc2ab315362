"""The routes of Daytona: the API that creates sandboxes, and the toolbox inside each of them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

from ..hosting.host import Host
from ..hosting.multipart import Part, read_parts, write_parts
from ..hosting.visit import HostApp, HostedVisit, Route
from ..lifecycle.ledger import CreateRefusal
from ..sandbox.protocol import CommandResult
from ..wire.app import Conversation, Execution, Request, parse_target
from ..wire.message import Answer
from . import errors
from .wire import HOME, executed, minutes, sandbox_json

_BOUNDARY = "DAYTONA-FILE-BOUNDARY"
_MOST_LISTED = 100
"""Sandboxes on one page of a list, unless the client asks for fewer: the API's own limit."""
_AUTO_STOP = 15
"""Minutes without use after which a sandbox stops whose client asks for nothing else; the default
that the SDK documents."""
_INTERPRETER_TIMED_OUT = 4008
"""The code with which the interpreter's socket is closed when its time is up."""


# -- the API --


async def create(visit: HostedVisit, execution: Execution) -> Answer:
    fields = visit.fields
    name = str(fields.get("name") or "")
    known = visit.host.ledger.find(name, visit.host.now()) if name else None
    if known is not None and known.is_live:
        return errors.name_taken(name)
    labels = fields.get("labels")
    stops = fields.get("autoStopInterval")
    made = visit.create(
        name=name,
        labels=labels if isinstance(labels, dict) else {},
        settings={key: fields[key] for key in fields if isinstance(fields[key], int | str)},
        ttl=minutes(fields.get("ttlMinutes")),
        idle=minutes(_AUTO_STOP if stops is None else stops),
    )
    if isinstance(made, CreateRefusal):
        return visit.app.refused(made)
    execution.started()
    execution.finished()
    return Answer.json(sandbox_json(made, visit.request.host))


async def get(visit: HostedVisit, execution: Execution) -> Answer:
    if visit.sandbox is None:
        return visit.app.gone(visit)
    execution.started()
    execution.finished()
    return Answer.json(sandbox_json(visit.sandbox, visit.request.host))


async def listed(visit: HostedVisit, execution: Execution) -> Answer:
    """A page of the list, in the shape of the version that asks."""
    query = visit.query
    found = visit.host.ledger.listed(visit.host.now())
    for key, value in _labels(query.get("labels", "")).items():
        found = [sandbox for sandbox in found if sandbox.labels.get(key) == value]
    size = min(_MOST_LISTED, _number(query.get("limit"), _MOST_LISTED))
    start = _number(query.get("cursor"), 0)
    if visit.request.path.endswith("/paginated"):
        page = _number(query.get("page"), 1)
        start = (page - 1) * size
    page_of_them = found[start : start + size]
    shown = [sandbox_json(sandbox, visit.request.host) for sandbox in page_of_them]
    if visit.request.path.endswith("/paginated"):
        pages = -(-len(found) // size)
        total = {"total": len(found), "page": start // size + 1, "totalPages": pages}
        return Answer.json({"items": shown, **total})
    more = str(start + size) if start + size < len(found) else None
    return Answer.json({"items": shown, "nextCursor": more})


def _labels(text: str) -> dict[str, Any]:
    try:
        labels = json.loads(text) if text else {}
    except ValueError:
        return {}
    return labels if isinstance(labels, dict) else {}


def _number(text: str | None, usual: int) -> int:
    return int(text) if text is not None and text.isdecimal() and int(text) > 0 else usual


async def delete(visit: HostedVisit, execution: Execution) -> Answer:
    sandbox = visit.host.ledger.delete(visit.name, visit.host.now(), by=visit.by)
    if sandbox is None:
        return visit.app.gone(visit)
    execution.started()
    execution.finished()
    return Answer.json(sandbox_json(sandbox, visit.request.host))


async def renew(visit: HostedVisit, execution: Execution) -> Answer:
    """Count as activity; an interval in the path is taken up."""
    sandbox = visit.usable()
    if sandbox is None:
        return visit.app.gone(visit)
    execution.started()
    given = visit.given.get("minutes", "")
    if "/autostop/" in visit.request.path and given.isdecimal():
        sandbox.idle = minutes(int(given))
    ttl = minutes(int(given)) if "/ttl/" in visit.request.path and given.isdecimal() else None
    visit.host.ledger.renew(sandbox, visit.host.now(), ttl=ttl, by=visit.by)
    execution.finished()
    return Answer.json(sandbox_json(sandbox, visit.request.host))


# -- the toolbox --


async def execute(visit: HostedVisit, execution: Execution) -> Answer:
    limit = visit.fields.get("timeout")
    seconds = float(limit) if isinstance(limit, int | float) and limit > 0 else None
    is_code = visit.request.path.endswith("/code-run")
    language = str(visit.fields.get("language") or "python") if is_code else "bash"
    result = await visit.execute(
        execution, visit.app.command(visit) or "", language=language, limit=seconds
    )
    if result is None:
        return visit.app.gone(visit)
    if result.timed_out:
        return errors.timed_out(seconds)
    return Answer.json(executed(result))


async def home(visit: HostedVisit, execution: Execution) -> Answer:
    return Answer.json({"dir": HOME})


async def upload(visit: HostedVisit, execution: Execution) -> Answer:
    """Store the files of a form: ``files[N].path`` and ``files[N].file``, or one ``file``."""
    sandbox = visit.usable()
    if sandbox is None:
        return visit.app.gone(visit)
    content_type = visit.request.headers.get("Content-Type", "")
    parts = read_parts(visit.request.body, content_type)
    if parts is None:
        return errors.error(400, "the body is not a whole multipart form")
    execution.started()
    paths = {part.name: part.content.decode("utf-8", "replace") for part in parts}
    for part in parts:
        if not part.name.endswith("file"):
            continue
        path = paths.get(part.name.removesuffix("file") + "path") or visit.query.get("path", "")
        visit.write(sandbox, absolute(path or part.filename or ""), part.content)
    execution.finished()
    return Answer.json({})


async def bulk_download(visit: HostedVisit, execution: Execution) -> Answer:
    sandbox = visit.usable()
    if sandbox is None:
        return visit.app.gone(visit)
    execution.started()
    parts = []
    asked = visit.fields.get("paths")
    for path in asked if isinstance(asked, list) else []:
        content = visit.read(sandbox, absolute(str(path)))
        if content is None:
            parts.append(Part("error", str(path), b"file not found: " + str(path).encode()))
        else:
            parts.append(Part("file", str(path), content))
    execution.finished()
    return Answer(
        body=write_parts(parts, _BOUNDARY),
        content_type=f"multipart/form-data; boundary={_BOUNDARY}",
    )


async def download(visit: HostedVisit, execution: Execution) -> Answer:
    sandbox = visit.usable()
    if sandbox is None:
        return visit.app.gone(visit)
    execution.started()
    content = visit.read(sandbox, absolute(visit.query.get("path", "")))
    execution.finished()
    if content is None:
        return errors.error(404, "file not found")
    return Answer(body=content, content_type="application/octet-stream")


async def interpret(visit: HostedVisit, execution: Execution) -> Answer:
    """Run the code of a message; what it prints is sent in messages, then the socket closes."""
    limit = visit.fields.get("timeout")
    seconds = float(limit) if isinstance(limit, int | float) and limit > 0 else None
    code = visit.app.command(visit) or ""
    result = await visit.execute(execution, code, language="python", limit=seconds)
    if result is None:
        return visit.app.gone(visit)
    if result.timed_out:
        return Answer(close=True, close_code=_INTERPRETER_TIMED_OUT)
    return Answer(stream=_chunks(result), close=True)


async def _chunks(result: CommandResult) -> AsyncIterator[bytes]:
    if result.stdout:
        yield json.dumps({"type": "stdout", "text": result.stdout}).encode()
    if result.stderr and result.return_code == 0:
        yield json.dumps({"type": "stderr", "text": result.stderr}).encode()
    elif result.return_code:
        last = (result.stderr or "").strip().rpartition("\n")[2]
        name, _, value = last.partition(": ")
        said = {"name": name or "Error", "value": value, "traceback": result.stderr or ""}
        yield json.dumps({"type": "error", **said}).encode()


def absolute(path: str) -> str:
    """A path as the daemon resolves it: relative ones from the home directory."""
    return path if path.startswith("/") else f"{HOME}/{path}"


_API = "/api/sandbox"
_TOOLBOX = "/toolbox/{id}"
ROUTES = [
    Route("POST", _API, create, on="create"),
    Route("GET", _API, listed),
    Route("GET", f"{_API}/paginated", listed),
    Route("GET", f"{_API}/{{id}}", get, on="ready"),
    Route("DELETE", f"{_API}/{{id}}", delete, on="delete"),
    Route("POST", f"{_API}/{{id}}/last-activity", renew, on="renew"),
    Route("POST", f"{_API}/{{id}}/autostop/{{minutes}}", renew, on="renew"),
    Route("POST", f"{_API}/{{id}}/ttl/{{minutes}}", renew, on="renew"),
    Route("POST", f"{_API}/{{id}}/autodelete/{{minutes}}", renew, on="renew"),
    Route("POST", f"{_TOOLBOX}/process/execute", execute, on="exec"),
    Route("POST", f"{_TOOLBOX}/process/code-run", execute, on="exec"),
    Route("POST", f"{_TOOLBOX}/files/bulk-upload", upload, on="file"),
    Route("POST", f"{_TOOLBOX}/files/upload", upload, on="file"),
    Route("POST", f"{_TOOLBOX}/files/bulk-download", bulk_download, on="file"),
    Route("GET", f"{_TOOLBOX}/files/download", download, on="file"),
    Route("GET", f"{_TOOLBOX}/user-home-dir", home),
    Route("GET", f"{_TOOLBOX}/work-dir", home),
]
_INTERPRETER = Route("GET", f"{_TOOLBOX}/process/interpreter/execute", interpret, on="exec")


class DaytonaApp(HostApp):
    """Daytona's API and toolbox on one address."""

    def __init__(self, host: Host) -> None:
        super().__init__(host, ROUTES)

    def error(self, status: int, message: str) -> Answer:
        return errors.error(status, message)

    def gone(self, visit: HostedVisit) -> Answer:
        return errors.no_sandbox(visit.name)

    def converse(self, request: Request) -> Conversation | Answer | None:
        path, _query = parse_target(request.target)
        match = _INTERPRETER.pattern.fullmatch(path)
        if match is None:
            return errors.error(404, f"Cannot GET {path[:200]}")
        running = self.host.ledger.running(match["id"], self.host.now())
        if running is None:
            return errors.no_sandbox(match["id"])
        return InterpreterSession(self, request, match.groupdict())


class InterpreterSession(Conversation):
    """A socket of the stateful interpreter: one program, then it is closed."""

    def __init__(self, app: DaytonaApp, request: Request, given: dict[str, str]) -> None:
        self._app = app
        self._request = request
        self._given = given

    def visit(self, text: str) -> HostedVisit:
        request = Request(
            method="GET",
            path=self._request.path,
            query="",
            headers={"Content-Type": "application/json"},
            target=self._request.target,
            gone=self._request.gone,
            body=text.encode("utf-8", "replace"),
        )
        return HostedVisit(self._app, request, (_INTERPRETER, self._given))
