"""The fake's endpoints: from a request to the real server's answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sfusion.fakes.faults import Action
from sfusion.fakes.sandbox import openapi
from sfusion.fakes.sandbox import requests as known
from sfusion.fakes.sandbox.body import Unusable, check_body, server_error
from sfusion.fakes.sandbox.gate import Gate
from sfusion.fakes.sandbox.program import mark_of
from sfusion.fakes.sandbox.protocol import Executor, RunCode, RunJupyter
from sfusion.fakes.sandbox.rendering import render_run_code, render_run_jupyter
from sfusion.fakes.sandbox.schema import Model
from sfusion.fakes.sandbox.spoil import spoil
from sfusion.fakes.wire import PREFIX, Answer, Execution, Request, Routes, Subject, digest_of
from sfusion.fakes.wire.admin import Admin, authorised, not_authorised

_PONG = Answer(body=b'"pong"')
_PAGE = """<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>Sandbox Fusion (faked by sfusion)</title></head>
<body><p>This is a fake Sandbox Fusion. It serves <code>POST /run_code</code> and <code>POST /run_jupyter</code>;
<a href="/openapi.json">openapi.json</a> says what it takes.</p></body>
</html>
"""
_DATASETS = {
    "/list_ids": known.GET_PROMPTS,
    "/get_prompts": known.GET_PROMPTS,
    "/get_prompt_by_id": known.GET_PROMPT_BY_ID,
    "/submit": known.SUBMIT,
    "/get_metrics": known.GET_METRICS,
    "/get_metrics_function": known.GET_METRICS_FUNCTION,
}


@dataclass(frozen=True, slots=True)
class Endpoint:
    """What a route leads to: a page, or a checked body."""

    page: Callable[[], Answer] | None = None
    model: Model | None = None
    work: bool = False
    ping: bool = False


@dataclass(slots=True)
class Visit:
    """What is known about a request between the steps of answering it."""

    endpoint: Endpoint | None = None
    fields: dict[str, Any] | None = None
    answer: Answer | None = None
    admin: bool = False


def _page() -> Answer:
    return Answer(body=_PAGE.encode(), content_type="text/html; charset=utf-8")


def _openapi() -> Answer:
    posts: dict[str, tuple[Model, str | None]] = {
        "/run_code": (known.RUN_CODE, "RunCodeResponse"),
        "/run_jupyter": (known.RUN_JUPYTER, "RunJupyterResponse"),
        **{path: (model, None) for path, model in _DATASETS.items()},
    }
    pages = {"/": "A page for people", "/v1/ping": "Is it alive", "/list_datasets": "The registered datasets"}
    return Answer.json(openapi.describe(posts, pages))


_HTML = Endpoint(page=_page)
_SCHEMA = Endpoint(page=_openapi)
_ROUTES: Routes[Endpoint] = Routes(
    {
        "/run_code": {"POST": Endpoint(model=known.RUN_CODE, work=True)},
        "/run_jupyter": {"POST": Endpoint(model=known.RUN_JUPYTER, work=True)},
        "/v1/ping": {"GET": Endpoint(page=lambda: _PONG, ping=True)},
        "/": {"GET": _HTML},
        "/openapi.json": {"GET": _SCHEMA, "HEAD": _SCHEMA},
        "/docs": {"GET": _HTML, "HEAD": _HTML},
        "/redoc": {"GET": _HTML, "HEAD": _HTML},
        "/list_datasets": {"GET": Endpoint(page=lambda: Answer(body=b"[]"))},
        **{path: {"POST": Endpoint(model=model)} for path, model in _DATASETS.items()},
    }
)


class SandboxApp:
    """Everything between the wire and an executor."""

    def __init__(self, executor: Executor, gate: Gate, *, token: str | None = None, guard_all: bool = False) -> None:
        self.executor = executor
        self.gate = gate
        self.admin: Admin | None = None
        self._token = token
        self._guard_all = guard_all

    # -- what the server asks --

    def reads_body(self, request: Request) -> bool:
        """Find the route; only known POSTs (and admin) read their body."""
        visit = request.parsed = Visit()
        if request.path.startswith(PREFIX):
            visit.admin = True
            visit.answer = self._stop_at_door(request, guarded=self._token is not None)
            return visit.answer is None
        visit.answer = self._stop_at_door(request, guarded=self._guard_all and request.path != "/v1/ping")
        if visit.answer is not None:
            return False
        found = _ROUTES.find(request.method, request.path, host=request.host, query=request.query)
        if isinstance(found, Answer):
            visit.answer = found
            return False
        visit.endpoint = found
        return found.model is not None

    def describe(self, request: Request) -> Subject | None:
        """Check the body, and say which call it belongs to."""
        visit: Visit = request.parsed
        if visit.admin:
            return None
        endpoint = visit.endpoint
        if endpoint is None:
            return Subject(f"{request.method} elsewhere", work=False)
        if endpoint.model is None:
            return Subject(f"{request.method} {request.path}", work=False)
        try:
            fields = check_body(request.body, request.headers.get("Content-Type"), endpoint.model)
        except Unusable as unusable:
            visit.answer = unusable.answer
            return Subject(digest_of(request.body), work=endpoint.work)
        visit.fields = fields
        if not endpoint.work:
            return Subject(f"{request.method} {request.path}", work=False)
        code = fields["code"] if "code" in fields else "\n".join(fields["cells"])
        return Subject(mark_of(code) or digest_of(request.body), True, fields.get("language", "python"), code)

    def is_ping(self, request: Request) -> bool:
        """``/v1/ping``."""
        endpoint = request.parsed.endpoint
        return endpoint is not None and endpoint.ping

    async def admit(self, request: Request, subject: Subject) -> Answer | None:
        """Ask the server model."""
        return None if self.gate.open else await self.gate.admit()

    def leave(self, subject: Subject) -> None:
        """Tell the server model."""
        if not self.gate.open:
            self.gate.leave()

    async def answer(self, request: Request, execution: Execution) -> Answer:
        """The answer when no fault strikes."""
        visit: Visit = request.parsed
        if visit.answer is not None:
            return visit.answer
        if visit.admin:
            assert self.admin is not None
            return self.admin.answer(request)
        endpoint, fields = visit.endpoint, visit.fields
        assert endpoint is not None
        if endpoint.page is not None:
            if endpoint.ping:
                await self.gate.be_heard()
            return endpoint.page()
        assert fields is not None
        if not endpoint.work:
            return no_dataset(fields)
        if self.gate.model.spawn_cost:
            await self.gate.spawn()
        execution.started()
        if endpoint.model is known.RUN_CODE:
            answer = render_run_code(await self.executor.run_code(RunCode(**fields)))
        else:
            answer = render_run_jupyter(await self.executor.run_jupyter(RunJupyter(**fields)))
        execution.finished()
        return answer

    def spoil(self, request: Request, answer: Answer | None, action: Action) -> tuple[Answer, float]:
        """A fault of content."""
        return spoil(request.path, request.parsed.fields or {}, answer, action)

    def failure(self, error: Exception) -> Answer:
        """A bug of the fake looks like a bug of the real server."""
        return server_error(error, str(error))

    def _stop_at_door(self, request: Request, *, guarded: bool) -> Answer | None:
        if guarded and (self._token is None or not authorised(request.headers, self._token)):
            return not_authorised()
        return None


def no_dataset(fields: dict[str, Any]) -> Answer:
    """What the real server says about a dataset, or a class of them, that it does not have."""
    kind = fields["config"]["dataset_type"]
    detail = f"no eval class found for dataset {fields['dataset']}"
    if kind is not None:
        detail = f"eval class {kind} not found"
    try:
        return Answer.json({"detail": detail}, status=400)
    except UnicodeError as error:
        return server_error(error, str(error))
