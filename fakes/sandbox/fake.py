"""The fake sandbox in this process.

Its routes, their OpenAPI description, and the server around them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Unpack

from pydantic import BaseModel, TypeAdapter
from pydantic.json_schema import JsonSchemaMode

from sfusion_tools._version import __version__
from sfusion_tools.errors import near
from sfusion_tools.exposition import MetricFamily

from ..errors import SandboxSetupError
from ..faults import read_rules
from ..faults.lifecycle import without_operations
from ..wire.app import App, Execution, Refused, Request, Routes, Subject, call_of, digest_of
from ..wire.core import EventLogPath, RequestLog
from ..wire.fake_server import FakeServer, ServerOptions, queue_family, server_of
from ..wire.message import Answer
from . import protocol as known
from .body import check_body, render, server_error
from .executors import Cassette, make_executor
from .gate import Gate, GatedVisit
from .models import read_model
from .program import ProgramScript
from .protocol import (
    PROFILES,
    Executor,
    Profile,
    RunCode,
    RunCodeAnswer,
    RunJupyter,
    RunJupyterAnswer,
    sent_fields,
)

_REFERENCE = "#/components/schemas/{model}"


@dataclass
class Detail:
    detail: str


@dataclass
class ValidationDetail:
    type: str
    loc: list[str | int]
    msg: str


@dataclass
class HTTPValidationError:
    detail: list[ValidationDetail]


class OpenApi:
    """An OpenAPI document, built route by route."""

    def __init__(self) -> None:
        self._paths: dict[str, Any] = {}
        self._schemas: dict[str, Any] = {}

    def add_post(self, path: str, model: type[BaseModel], answer: type | None) -> None:
        """Add a POST route with the model of its body and, if it has one, of its answer."""
        responses = {}
        if answer is not None:
            responses["200"] = self._response("Successful Response", answer)
        responses["400"] = self._response(
            "The body cannot be parsed, or the dataset is not there", Detail
        )
        responses["422"] = self._response("Validation Error", HTTPValidationError)
        responses["500"] = self._response("The request holds what no answer can echo", Detail)

        body = {"required": True, **self._content(model)}
        self._paths[path] = {"post": {"requestBody": body, "responses": responses}}

    def add_page(self, path: str, summary: str) -> None:
        """Add a GET route."""
        responses = {"200": {"description": "Successful Response"}}
        self._paths[path] = {"get": {"summary": summary, "responses": responses}}

    def document(self) -> dict[str, Any]:
        return {
            "openapi": "3.1.0",
            "info": {"title": "Sandbox Fusion, faked by sfusion", "version": __version__},
            "paths": self._paths,
            "components": {"schemas": self._schemas},
        }

    def _response(self, description: str, kind: type) -> dict[str, Any]:
        return {"description": description, **self._content(kind)}

    def _content(self, kind: type) -> dict[str, Any]:
        """Refer to a schema, which is added to the document."""
        mode: JsonSchemaMode = "validation" if issubclass(kind, BaseModel) else "serialization"
        schema = TypeAdapter(kind).json_schema(ref_template=_REFERENCE, mode=mode)
        self._schemas.update(schema.pop("$defs", {}))
        self._schemas[kind.__name__] = schema
        reference = {"$ref": _REFERENCE.format(model=kind.__name__)}
        return {"content": {"application/json": {"schema": reference}}}


_PONG = Answer(body=b'"pong"')
_PAGE = """<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>Sandbox Fusion (faked by sfusion)</title></head>
<body><p>This is a fake Sandbox Fusion. It serves <code>POST /run_code</code> and \
<code>POST /run_jupyter</code>;
<a href="/openapi.json">openapi.json</a> says what it takes.</p></body>
</html>
"""


@dataclass(frozen=True, slots=True)
class RouteSpec:
    """What a route leads to: a page, or a checked body."""

    page: Callable[[], Answer] | None = None
    model: type[BaseModel] | None = None
    work: bool = False
    ping: bool = False


def _page() -> Answer:
    return Answer(body=_PAGE.encode(), content_type="text/html; charset=utf-8")


def _openapi(profile: Profile) -> Answer:
    run_code, run_jupyter = known.RUNS[profile]
    api = OpenApi()
    api.add_post("/run_code", run_code, RunCodeAnswer)
    api.add_post("/run_jupyter", run_jupyter, RunJupyterAnswer)
    for path, model in known.DATASETS.items():
        api.add_post(path, model, None)
    api.add_page("/", "A page for people")
    api.add_page("/v1/ping", "Is it alive")
    api.add_page("/list_datasets", "The registered datasets")
    return Answer.json(api.document())


_HTML = RouteSpec(page=_page)


@lru_cache
def _routes(profile: Profile) -> Routes[RouteSpec]:
    run_code, run_jupyter = known.RUNS[profile]
    schema = RouteSpec(page=lambda: _openapi(profile))
    table: dict[str, dict[str, RouteSpec]] = {
        "/run_code": {"POST": RouteSpec(model=run_code, work=True)},
        "/run_jupyter": {"POST": RouteSpec(model=run_jupyter, work=True)},
        "/v1/ping": {"GET": RouteSpec(page=lambda: _PONG, ping=True)},
        "/": {"GET": _HTML},
        "/openapi.json": {"GET": schema, "HEAD": schema},
        "/docs": {"GET": _HTML, "HEAD": _HTML},
        "/redoc": {"GET": _HTML, "HEAD": _HTML},
        "/list_datasets": {"GET": RouteSpec(page=lambda: Answer(body=b"[]"))},
    }
    for path, model in known.DATASETS.items():
        table[path] = {"POST": RouteSpec(model=model)}
    return Routes(table)


class SandboxApp(App):
    """Everything between the wire and an executor."""

    def __init__(self, executor: Executor, gate: Gate, *, profile: Profile = "2026-07") -> None:
        self.executor = executor
        self.gate = gate
        self.routes = _routes(profile)
        self.paths = self.routes.paths

    def visit(self, request: Request) -> SandboxVisit:
        return SandboxVisit(self, request)

    def failure(self, error: Exception) -> Answer:
        """Answer as the real server answers a bug of its own."""
        return server_error(error, str(error))


class SandboxVisit(GatedVisit):
    """One request: its route is found at once, its body checked when it has been read."""

    def __init__(self, app: SandboxApp, request: Request) -> None:
        super().__init__(request, app.gate)
        self._app = app
        self._route: RouteSpec | None = None
        self.refusal: Answer | None = None
        """The answer, where it is known before anything runs."""
        found = app.routes.find(
            request.method, request.path, host=request.host, query=request.query
        )
        if isinstance(found, Answer):
            self.refusal = found
            self.reads_body = False
        else:
            self._route = found
            self.ping = found.ping
            self.reads_body = found.model is not None

    def describe(self) -> Subject:
        """Check the body, and find out which call it belongs to."""
        request = self.request
        route = self._route
        if route is None:
            return Subject(f"{request.method} elsewhere", work=False)
        if route.model is None:
            return Subject(f"{request.method} {request.path}", work=False)

        content_type = request.headers.get("Content-Type")
        try:
            if not route.work:
                self.fields = check_body(request.body, content_type, route.model)
                return Subject(f"{request.method} {request.path}", work=False)
            self.fields, subject = _program_of(request.body, content_type, route.model)
            return subject
        except Refused as refused:
            self.refusal = refused.answer
            return Subject(digest_of(request.body), work=route.work)

    async def answer(self, execution: Execution) -> Answer:
        if self.refusal is not None:
            return self.refusal
        route = self._route
        assert route is not None
        if route.page is not None:
            if route.ping:
                await self.gate.wait_for_loop()
            return route.page()
        if not route.work:
            return no_dataset(self.fields)

        await self.gate.spawn()
        execution.started()
        if "code" in self.fields:
            return await self._run_code(execution)
        return await self._run_jupyter(execution)

    async def _run_code(self, execution: Execution) -> Answer:
        fields = self.fields
        # The fields are remembered, and an executor may change what it gets.
        copied = {
            **fields,
            "files": fields["files"].copy(),
            "fetch_files": fields["fetch_files"].copy(),
        }
        result = await self._app.executor.run_code(RunCode(**copied))
        if self.gate.model.cores is not None and result.timed_out:
            execution.finished(stopped=True)  # perhaps for want of a core
        else:
            execution.finished()
        return render(result)

    async def _run_jupyter(self, execution: Execution) -> Answer:
        notebook = await self._app.executor.run_jupyter(RunJupyter(**deepcopy(self.fields)))
        execution.finished()
        return render(notebook)


_Program = tuple[dict[str, Any], Subject]
"""The fields of a request to run code, and what it is about."""


def _read_program(body: bytes, content_type: str | None, model: type[BaseModel]) -> _Program:
    """Check a request to run code; raise Refused."""
    fields = check_body(body, content_type, model)
    code = fields["code"] if "code" in fields else "\n".join(fields["cells"])
    sent = fields
    if "memory_limit_MB" not in fields:  # which old servers do not know
        sent = {**json.loads(body), **fields}
    subject = Subject(
        call=call_of(code, body),
        language=fields.get("language", "python"),
        code=code,
        sent=sent_fields(sent),
    )
    return fields, subject


LONGEST_REMEMBERED = 4096
"""Bytes of the longest request that is remembered, so that it is checked only once (chosen)."""
_MOST_REMEMBERED = 512
"""Requests that are remembered (chosen: 2 MiB of bodies at most).

A load sends the same few programs again and again, and a retry its own.
"""
_USUAL_TYPES = (None, "application/json")
_remember_program = lru_cache(maxsize=_MOST_REMEMBERED)(_read_program)


def _program_of(body: bytes, content_type: str | None, model: type[BaseModel]) -> _Program:
    """Check a request to run code, unless the same one was checked before; raise Refused."""
    if len(body) <= LONGEST_REMEMBERED and content_type in _USUAL_TYPES:
        return _remember_program(body, content_type, model)
    return _read_program(body, content_type, model)


def no_dataset(fields: dict[str, Any]) -> Answer:
    """The real server's answer about a dataset, or a class of them, that it does not have."""
    kind = fields["config"].dataset_type
    detail = f"no eval class found for dataset {fields['dataset']}"
    if kind is not None:
        detail = f"eval class {kind} not found"
    try:
        return Answer.json({"detail": detail}, status=400)
    except UnicodeError as error:
        return server_error(error, str(error))


class FakeSandbox(FakeServer):
    """A fake Sandbox Fusion.

    ``async with FakeSandbox() as sandbox:`` or ``with FakeSandbox() as sandbox:`` (its loop then
    runs in a thread); either way ``sandbox.url`` answers when the block is entered, and nothing is
    left running when it ends. Nothing runs code unless ``executor="python"`` asks for it: a program
    without a script fails with an error.
    """

    def __init__(
        self,
        *,
        executor: str | Executor = "none",
        profile: Profile = "2026-07",
        model: Any = None,
        scripts: Iterable[ProgramScript | Mapping[str, Any]] = (),
        cassette: Cassette | str | Path | None = None,
        event_log: EventLogPath | None = None,
        **options: Unpack[ServerOptions],
    ) -> None:
        if profile not in PROFILES:
            raise SandboxSetupError(f"unknown profile {profile!r}; {near(profile, PROFILES)}")
        self.profile: Profile = profile
        self.model = read_model(model)
        rules = without_operations(read_rules(options.get("faults", ())))
        self._gate = Gate(self.model)
        self.executor: Executor
        if isinstance(executor, str):
            self.executor_name = executor
            self.executor = make_executor(
                executor,
                profile=profile,
                scripts=scripts,
                cassette=cassette,
                work=self._gate.work,
            )
        else:
            self.executor_name = getattr(executor, "name", type(executor).__name__)
            self.executor = executor

        app = SandboxApp(self.executor, self._gate, profile=profile)
        super().__init__(server_of(self, app, rules, options, runs_code=self.executor.runs_code))
        if event_log is not None:
            self.server.request_log = RequestLog(event_log, lambda: self.url)

    async def stop(self, grace: float = 5.0) -> None:
        """Stop listening; requests in flight get ``grace`` seconds, then all programs end."""
        await super().stop(grace)
        self._gate.close()
        await self.executor.aclose()

    def _families(self) -> list[MetricFamily]:
        return [*super()._families(), queue_family(self._gate.waiting)]

    def _settings(self) -> dict[str, Any]:
        return {
            "profile": self.profile,
            "executor": self.executor_name,
            "runs_code": self.executor.runs_code,
            "model": self.model.as_data(),
        }
