"""One request to a fake whose sandboxes have a life cycle: its route, its sandbox, its call."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs

from sfusion_tools.bounded_input import parse_json
from sfusion_tools.errors import InputError

from ..call_mark import CALL_MARK
from ..errors import SandboxFull
from ..faults.rule import Operation
from ..lifecycle.events import EventCause
from ..lifecycle.ledger import CreateRefusal
from ..lifecycle.sandbox import Sandbox
from ..sandbox.protocol import CommandResult, short_digest
from ..wire.app import App, Execution, Request, Subject, Visit, digest_of, is_json
from ..wire.message import Answer, phrase_of
from .host import Host

EPISODE_LABELS = ("sfusion.episode", "episode")
"""Labels, or metadata, under which a client may name the episode that a sandbox is for."""
LONGEST_BODY = 16 * 1024 * 1024
"""Bytes of a request that is served (chosen: larger than any file of an episode)."""
MOST_LABELS = 64
"""Labels of a sandbox that are kept (chosen)."""
LONGEST_LABEL = 1000
"""Characters of a label that are kept (chosen)."""

Work = Callable[["HostedVisit", Execution], Awaitable[Answer]]


@dataclass(frozen=True, slots=True)
class Route:
    """A method, a path with the sandbox in it as ``{id}``, and what is done there."""

    method: str
    path: str
    work: Work
    on: Operation | None = None

    @property
    def pattern(self) -> re.Pattern[str]:
        parts = re.split(r"(\{\w+\})", self.path)
        named = [
            f"(?P<{part[1:-1]}>[^/]+)" if part.startswith("{") else re.escape(part)
            for part in parts
        ]
        return re.compile("".join(named))


class RouteTable:
    """Finds the route of a request."""

    def __init__(self, routes: list[Route]) -> None:
        self._routes = [(route, route.pattern) for route in routes]

    def find(self, method: str, path: str) -> tuple[Route, dict[str, str]] | None:
        for route, pattern in self._routes:
            match = pattern.fullmatch(path)
            if match is not None and route.method == method:
                return route, match.groupdict()
        return None


class HostApp(App):
    """Serves the sandboxes of one host; a face adds routes and the shape of errors."""

    def __init__(self, host: Host, routes: list[Route]) -> None:
        self.host = host
        self._table = RouteTable(routes)
        self.paths = frozenset(route.path for route in routes if "{" not in route.path)

    def visit(self, request: Request) -> HostedVisit:
        return HostedVisit(self, request, self._table.find(request.method, request.path))

    def error(self, status: int, message: str) -> Answer:
        """An error in the shape of the faked service."""
        return Answer.json({"message": message}, status=status)

    def unknown(self, request: Request) -> Answer:
        """The answer where there is no route."""
        return self.error(404, f"Cannot {request.method} {request.path[:200]}")

    def gone(self, visit: HostedVisit) -> Answer:
        """The answer about a sandbox that cannot be used any more, or never was."""
        return self.error(404, f"Sandbox {visit.name[:100]} not found")

    def refused(self, refusal: CreateRefusal) -> Answer:
        """The answer to a create at a limit."""
        answer = self.error(refusal.status, f"too many sandboxes: {refusal.why} limit reached")
        if refusal.retry_after is not None:
            answer.headers = (*answer.headers, ("retry-after", f"{refusal.retry_after:g}"))
        return answer

    def named(self, request: Request, given: Mapping[str, str]) -> str:
        """The id or name of the sandbox that a request is about."""
        return given.get("id", "")

    def command(self, visit: HostedVisit) -> str | None:
        """The command or program that a request runs."""
        fields = visit.fields
        text = fields.get("command") or fields.get("code")
        return text if isinstance(text, str) else None


class HostedVisit(Visit):
    """One request, or one message of a socket."""

    def __init__(
        self,
        app: HostApp,
        request: Request,
        found: tuple[Route, dict[str, str]] | None,
        *,
        sandbox: Sandbox | None = None,
    ) -> None:
        super().__init__(request)
        self.expects_json = False
        self.app = app
        self.host = app.host
        self.route = found[0] if found is not None else None
        self.given = found[1] if found is not None else {}
        self.name = app.named(request, self.given)
        self.sandbox = sandbox
        self.fields: dict[str, Any] = {}
        """The body, if it is a JSON object."""
        self.call = ""
        self.by = EventCause("", 0)
        """What the events of the ledger name as their cause."""
        self._refusal: Answer | None = None

    @property
    def query(self) -> dict[str, str]:
        return {key: values[-1] for key, values in parse_qs(self.request.query).items()}

    def describe(self) -> Subject:
        request = self.request
        route = self.route
        if route is None:
            return Subject(f"{request.method} elsewhere", work=False)
        if len(request.body) > LONGEST_BODY:
            self._refusal = self.app.error(413, f"more than {LONGEST_BODY:,} bytes")
        elif request.body and _is_json(request.headers.get("Content-Type", "")):
            self._read_fields(request.body)
        if route.on is None:
            return Subject(f"{request.method} {route.path}", work=False)

        self.sandbox = self.sandbox or self.host.ledger.find(self.name, self.host.now())
        code = self.app.command(self) if route.on == "exec" else None
        self.call = self._call_of(route.on, code)
        sent: dict[str, Any] = {"on": route.on}
        if self.sandbox is not None:
            sent["instance"] = self.sandbox.id
            sent["episode"] = self.sandbox.episode
        if code is not None:
            sent["command"] = short_digest(code)
        return Subject(self.call, code=code, sent=sent, route=route.path, on=route.on)

    def _read_fields(self, body: bytes) -> None:
        try:
            fields = parse_json(body, "body")
        except InputError as error:
            self._refusal = self.app.error(400, str(error))
            return
        if isinstance(fields, dict):
            self.fields = fields
        else:
            self._refusal = self.app.error(400, "the body must be a JSON object")

    def _call_of(self, on: Operation, code: str | None) -> str:
        """By what a request is known: the mark in it, else what it is about."""
        body = self.request.body
        if on == "create":
            return digest_of(body).replace("body", "create")
        text = code if code is not None else body[:LONGEST_BODY].decode("utf-8", "replace")
        found = CALL_MARK.search(text) if on in ("exec", "file") else None
        if found is not None:
            return found[1]
        about = f"{self.name}\x1f{self.request.target}\x1f{text if on == 'exec' else ''}"
        return f"{on}-{short_digest(about)}"

    async def answer(self, execution: Execution) -> Answer:
        if self.route is None:
            return self.app.unknown(self.request)
        if self._refusal is not None:
            return self._refusal
        self.by = EventCause(self.call, execution.attempt)
        try:
            return await self.route.work(self, execution)
        except SandboxFull as error:
            execution.finished()
            return self.app.error(507, str(error))
        finally:
            self.host.advance()

    def error_body(self, status: int) -> Any:
        return json.loads(self.app.error(status, phrase_of(status) or f"status {status}").body)

    def die(self) -> Answer:
        if self.sandbox is not None:
            self.host.ledger.kill(self.sandbox, self.host.now(), by=self.by if self.call else None)
            self.host.advance()
        return self.app.gone(self)

    # -- what routes do --

    def usable(self) -> Sandbox | None:
        """The sandbox, if commands and files can reach it."""
        self.sandbox = self.sandbox or self.host.ledger.find(self.name, self.host.now())
        self.host.ledger.advance(self.host.now())
        if self.sandbox is not None and self.sandbox.state == "running":
            return self.sandbox
        return None

    def create(
        self,
        *,
        name: str = "",
        key: str = "",
        labels: Mapping[str, str] | None = None,
        settings: Mapping[str, Any] | None = None,
        ttl: float | None = None,
        idle: float | None = None,
    ) -> Sandbox | CreateRefusal:
        """Create a sandbox; the label of its episode is its tag."""
        kept = _kept(labels or {})
        episode = next((kept[label] for label in EPISODE_LABELS if label in kept), name)
        made = self.host.ledger.create(
            self.host.now(),
            episode=episode,
            name=name,
            key=key,
            labels=kept,
            settings=settings,
            ttl=ttl,
            idle=idle,
            by=self.by,
        )
        if isinstance(made, Sandbox):
            self.sandbox = made
            self.name = made.id
        self.host.advance()
        return made

    async def execute(
        self,
        execution: Execution,
        command: str,
        *,
        language: str = "bash",
        limit: float | None = None,
    ) -> CommandResult | None:
        """Run a command in the sandbox; None if it is gone, or went meanwhile."""
        sandbox = self.usable()
        if sandbox is None:
            return None
        execution.started()
        result = await self.host.run(
            sandbox, command, call=self.call, language=language, limit=limit
        )
        if result is None:
            execution.failed("broken_off", why="the sandbox ended")
        elif result.timed_out:
            execution.finished(stopped=True)
        else:
            execution.finished()
        return result

    def write(self, sandbox: Sandbox, path: str, content: bytes) -> None:
        """Store a file; its writer is the mark in it."""
        found = CALL_MARK.search(content[:LONGEST_BODY].decode("utf-8", "replace"))
        writer = found[1] if found is not None else ""
        self.host.ledger.write(
            sandbox, path, content, now=self.host.now(), writer=writer, by=self.by
        )

    def read(self, sandbox: Sandbox, path: str) -> bytes | None:
        """The content of a file."""
        stored = self.host.ledger.read(sandbox, path, now=self.host.now(), by=self.by)
        return stored.content if stored is not None else None


def _is_json(content_type: str) -> bool:
    """Is a body JSON as it stands, and not in frames?"""
    return is_json(content_type) and "connect" not in content_type


def _kept(labels: Mapping[str, Any]) -> dict[str, str]:
    """Labels as they are kept: texts, not too many and not too long."""
    pairs = list(labels.items())[:MOST_LABELS]
    return {str(key)[:LONGEST_LABEL]: _text(value)[:LONGEST_LABEL] for key, value in pairs}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str)
