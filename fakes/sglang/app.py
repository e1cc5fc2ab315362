"""The fake as an app of the shared wire: who is asked what, and what faults concern."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable
from typing import TypeVar

from sfusion.fakes.sglang.admin import Admin
from sfusion.fakes.sglang.engine import FakeSGLang
from sfusion.fakes.sglang.routes import Handler, Handlers, ModelInfo, refused
from sfusion.fakes.wire import MARK, PREFIX, Answer, Execution, Request, Routes, Subject, WireApp, digest_of

T = TypeVar("T")

_WORK = frozenset({"/generate", "/v1/chat/completions", "/v1/completions"})
_RID = re.compile(rb'"rid"\s*:\s*"([A-Za-z0-9._-]+)"')


class SGLangApp(WireApp):
    """Serves an engine. Only generating is work; a call is known by its mark, its rid, or its body."""

    def __init__(self, engine: FakeSGLang, model: ModelInfo) -> None:
        super().__init__()
        self.handlers = Handlers(engine, model)
        self.admin: Admin | None = None
        self._routes: Routes[Handler] = Routes(self.handlers.table)

    def describe(self, request: Request) -> Subject | None:
        """What the request is about; faults and ledger do not concern the admin door."""
        if self.admin is not None and request.path.startswith(PREFIX):
            return None
        if request.path not in _WORK or request.method not in ("POST", "PUT"):
            return Subject(f"{request.method} {request.path}", work=False)
        text = request.body.decode("utf-8", "replace")
        mark, rid = MARK.search(text), _RID.search(request.body)
        call = mark[1] if mark else rid[1].decode() if rid else digest_of(request.body)
        return Subject(call, code=text)

    def is_ping(self, request: Request) -> bool:
        """The health check."""
        return request.path in ("/health", "/health_generate")

    async def answer(self, request: Request, execution: Execution) -> Answer:
        """Find the handler and let it answer."""
        if self.admin is not None and request.path.startswith(PREFIX):
            return self.admin.answer(request)
        handler = self._found(request)
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

    def _found(self, request: Request) -> Handler | Answer:
        if request.path.startswith("/v1/models/") and request.path != "/v1/models/":
            if request.method == "GET":
                return self.handlers.model
            return Answer.json({"detail": "Method Not Allowed"}, status=405, headers=(("allow", "GET"),))
        return self._routes.find(request.method, request.path, host=request.host, query=request.query)


async def _unless(gone: asyncio.Future[None] | None, work: Awaitable[T]) -> T:
    """Do some work, but stop when the client leaves: sglang aborts what nobody waits for."""
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
    """A stream that ends when the client leaves, and closes what is behind it in any case."""
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
