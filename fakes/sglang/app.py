"""The fake engine as an app of the shared server."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable
from typing import TypeVar

from sfusion.fakes.sglang.engine import FakeSGLang
from sfusion.fakes.sglang.routes import Handlers, ModelInfo, refused
from sfusion.fakes.wire import (
    MARK,
    Answer,
    Execution,
    PlainVisit,
    Request,
    Routes,
    Subject,
    digest_of,
)
from sfusion.fakes.wire.app import Handler

T = TypeVar("T")

_WORK = frozenset({"/generate", "/v1/chat/completions", "/v1/completions"})
_PINGS = frozenset({"/health", "/health_generate"})
_RID = re.compile(rb'"rid"\s*:\s*"([A-Za-z0-9._-]+)"')


class SGLangApp:
    """Serves an engine."""

    def __init__(self, engine: FakeSGLang, model: ModelInfo) -> None:
        self.engine = engine
        self.handlers = Handlers(engine, model)
        self._routes: Routes[Handler] = Routes(self.handlers.table)
        self.paths = self._routes.paths

    def visit(self, request: Request) -> SGLangVisit:
        return SGLangVisit(self, request)

    def failure(self, error: Exception) -> Answer:
        """Starlette's plain 500."""
        return Answer.text("Internal Server Error", status=500)

    def find(self, request: Request) -> Handler | Answer:
        """The handler of a request, or the answer that there is none."""
        if request.path.startswith("/v1/models/") and request.path != "/v1/models/":
            if request.method == "GET":
                return self.handlers.model
            return Answer.json({"detail": "Method Not Allowed"}, status=405, headers=(("allow", "GET"),))
        return self._routes.find(request.method, request.path, host=request.host, query=request.query)


class SGLangVisit(PlainVisit):
    """One request. Only generating is work; a call is known by its mark, its rid, or its body."""

    def __init__(self, app: SGLangApp, request: Request) -> None:
        super().__init__(request)
        self._app = app
        self.ping = request.path in _PINGS

    def describe(self) -> Subject:
        request = self.request
        if request.path not in _WORK or request.method not in ("POST", "PUT"):
            return Subject(f"{request.method} {request.path}", work=False)
        text = request.body.decode("utf-8", "replace")
        mark, rid = MARK.search(text), _RID.search(request.body)
        call = mark[1] if mark else rid[1].decode() if rid else digest_of(request.body)
        return Subject(call, code=text)

    async def answer(self, execution: Execution) -> Answer:
        request = self.request
        handler = self._app.find(request)
        if isinstance(handler, Answer):
            return handler
        execution.started()
        gone = request.gone() if request.gone is not None else None
        try:
            answer = await _unless(gone, handler(request))
            if answer.stream is not None:
                answer.stream = _pieces(gone, answer.stream)
            return answer
        except Exception as error:
            meant = refused(error)
            if meant is None:
                raise
            return meant
        finally:
            # A stream has only begun, but its request is accepted, which is what can be counted here.
            execution.finished()


async def _unless(gone: asyncio.Future[None] | None, work: Awaitable[T]) -> T:
    """Do some work, but stop when the client disconnects, as sglang does."""
    task = asyncio.current_task()
    if gone is None or task is None:
        return await work

    def leave(_: object) -> None:
        task.cancel()

    gone.add_done_callback(leave)
    try:
        return await work
    finally:
        gone.remove_done_callback(leave)


async def _pieces(gone: asyncio.Future[None] | None, stream: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """A stream that ends when the client disconnects, and always closes its source."""
    try:
        while True:
            try:
                piece = await _unless(gone, anext(stream))
            except StopAsyncIteration:
                return
            yield piece
    finally:
        close = getattr(stream, "aclose", None)
        if close is not None:
            await close()
