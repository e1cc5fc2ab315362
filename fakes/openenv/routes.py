"""The routes of an OpenEnv server: a WebSocket per environment, and pages about it."""

from __future__ import annotations

import json
from typing import Any

from pydantic import ValidationError

from ..hosting.host import Host
from ..hosting.visit import HostApp, HostedVisit, Route
from ..lifecycle.ledger import CreateRefusal
from ..lifecycle.sandbox import Sandbox
from ..wire.app import Conversation, Execution, Request, parse_target
from ..wire.message import Answer
from . import errors
from .wire import METADATA, SCHEMAS, CodeAction, CodeState, observation, observed, problems, state

# -- messages --


async def connect(visit: HostedVisit, execution: Execution) -> Answer:
    """Make the environment of a connection; nothing is sent, even if there is none."""
    made = visit.create()
    if not isinstance(made, CreateRefusal):
        execution.started()
        execution.finished()
    return Answer(content_type=None)


async def reset(visit: HostedVisit, execution: Execution) -> Answer:
    """Begin an episode, once the environment has booted; its id is the tag of the sandbox."""
    sandbox = visit.sandbox
    assert sandbox is not None
    await visit.host.until_settled(sandbox)
    if visit.usable() is None:
        return visit.app.gone(visit)
    execution.started()
    data = visit.fields.get("data") or {}
    visit.host.ledger.begin_episode(sandbox, str(data.get("episode_id") or ""), visit.host.now())
    execution.finished()
    return observation()


async def step(visit: HostedVisit, execution: Execution) -> Answer:
    try:
        action = CodeAction.model_validate(visit.fields.get("data"))
    except ValidationError as error:
        return errors.invalid_message(problems(error))
    sandbox = visit.sandbox
    assert sandbox is not None
    await visit.host.until_settled(sandbox)
    result = await visit.execute(execution, action.code)
    if result is None:
        return visit.app.gone(visit)
    if result.status == "Error":
        return errors.execution_failed(result.stderr or "")
    return observation(result)


async def show_state(visit: HostedVisit, execution: Execution) -> Answer:
    sandbox = visit.sandbox
    assert sandbox is not None
    shown = CodeState(episode_id=sandbox.episode or None, step_count=sandbox.steps)
    return state(shown.model_dump())


async def close(visit: HostedVisit, execution: Execution) -> Answer:
    sandbox = visit.sandbox
    assert sandbox is not None
    execution.started()
    visit.host.ledger.delete(sandbox.id, visit.host.now(), by=visit.by)
    execution.finished()
    return Answer(content_type=None, close=True)


_SOCKET = "/ws"
_CONNECT = Route("GET", _SOCKET, connect, on="create")
_MESSAGES = {
    "reset": Route("GET", _SOCKET, reset, on="ready"),
    "step": Route("GET", _SOCKET, step, on="exec"),
    "state": Route("GET", _SOCKET, show_state),
    "close": Route("GET", _SOCKET, close, on="delete"),
}


# -- pages: each request has an environment of its own, which is gone with the answer --


async def health(visit: HostedVisit, execution: Execution) -> Answer:
    return Answer.json({"status": "healthy"})


async def metadata(visit: HostedVisit, execution: Execution) -> Answer:
    return Answer.json(METADATA)


async def schema(visit: HostedVisit, execution: Execution) -> Answer:
    return Answer.json(SCHEMAS)


async def reset_page(visit: HostedVisit, execution: Execution) -> Answer:
    return Answer.json(observed())


async def state_page(visit: HostedVisit, execution: Execution) -> Answer:
    return Answer.json(CodeState().model_dump())


PAGES = [
    Route("GET", "/health", health),
    Route("GET", "/metadata", metadata),
    Route("GET", "/schema", schema),
    Route("GET", "/state", state_page),
    Route("POST", "/reset", reset_page),
]


class OpenEnvApp(HostApp):
    """An OpenEnv server."""

    def __init__(self, host: Host) -> None:
        super().__init__(host, PAGES)

    def error(self, status: int, message: str) -> Answer:
        return Answer.json({"detail": message}, status=status)

    def unknown(self, request: Request) -> Answer:
        return self.error(404, "Not Found")

    def command(self, visit: HostedVisit) -> str | None:
        """The code of a step; of another action, the action itself."""
        data = visit.fields.get("data")
        if not isinstance(data, dict):
            return None
        code = data.get("code")
        return code if isinstance(code, str) else json.dumps(data, sort_keys=True)

    def converse(self, request: Request) -> Conversation | Answer | None:
        path, _query = parse_target(request.target)
        return Session(self, request) if path == _SOCKET else None


class Session(Conversation):
    """One connection, and the environment that belongs to it."""

    def __init__(self, app: OpenEnvApp, request: Request) -> None:
        self._app = app
        self._request = request
        self._opened: HostedVisit | None = None
        self._has_left = False

    @property
    def _sandbox(self) -> Sandbox | None:
        return self._opened.sandbox if self._opened is not None else None

    def opening(self) -> HostedVisit:
        self._opened = HostedVisit(self._app, self._message(""), (_CONNECT, {}))
        return self._opened

    def visit(self, text: str) -> HostedVisit:
        request = self._message(text)
        try:
            fields: Any = json.loads(text)
        except ValueError as error:
            return Rejected(self._app, request, errors.invalid_json(str(error)))
        if self._sandbox is None:
            ledger = self._app.host.ledger
            most = ledger.model.live or ledger.live
            return Rejected(self._app, request, errors.at_capacity(ledger.live, most))
        kind = fields.get("type", "") if isinstance(fields, dict) else ""
        route = _MESSAGES.get(kind) if isinstance(kind, str) else None
        if route is None:
            return Rejected(self._app, request, errors.unknown_type(kind))
        visit = HostedVisit(self._app, request, (route, {}), sandbox=self._sandbox)
        visit.name = self._sandbox.id
        return visit

    def _message(self, text: str) -> Request:
        return Request(
            method="GET",
            path=_SOCKET,
            query="",
            headers={"Content-Type": "application/json"},
            target=_SOCKET,
            gone=self._request.gone,
            body=text.encode("utf-8", "replace"),
        )

    def leaving(self) -> None:
        """Note that the client has gone: the environment ends when its step has ended."""
        sandbox = self._sandbox
        if sandbox is not None and sandbox.deletes == 0 and not self._has_left:
            self._has_left = True
            self._app.host.ledger.leave(sandbox, self._app.host.now())

    def left(self) -> None:
        """Delete the environment: the server does, however a connection ends."""
        sandbox = self._sandbox
        if sandbox is not None:
            host = self._app.host
            if sandbox.deletes == 0:
                host.ledger.delete(sandbox.id, host.now())
            host.advance()


class Rejected(HostedVisit):
    """A message that is none."""

    def __init__(self, app: OpenEnvApp, request: Request, answer: Answer) -> None:
        super().__init__(app, request, None)
        self._rejection = answer

    async def answer(self, execution: Execution) -> Answer:
        return self._rejection
