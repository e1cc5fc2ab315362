"""The fake engine as a server, started from async or from synchronous code."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Mapping
from dataclasses import asdict
from typing import Any, Self, TypeVar, Unpack

from sfusion_tools.exposition import MetricFamily, single
from sfusion_tools.hosts import is_loopback

from ..call_mark import CALL_MARK
from ..errors import EngineRefused, UnsafeBindError
from ..faults import Rule
from ..recent_counts import LONGEST_NAME
from ..wire.app import (
    App,
    Execution,
    Handler,
    Refused,
    Request,
    Routes,
    Subject,
    Visit,
    digest_of,
)
from ..wire.fake_server import FakeServer, ServerOptions, queue_family, server_of
from ..wire.message import Answer
from ..wire.server import WireServer
from .completions import error_answer
from .engine import FakeSGLang
from .faults import engine_rules, split
from .more_routes import ONE_RESPONSE
from .policies import Gsm8kSolver
from .protocol import Policy
from .routes import Handlers, ModelInfo

T = TypeVar("T")

_WORK = frozenset({"/generate", "/v1/chat/completions", "/v1/completions"})
"""The routes that generate."""
_PINGS = frozenset({"/health", "/health_generate", "/ping"})
_RID = re.compile(rb'"rid"\s*:\s*"([A-Za-z0-9._-]{1,%d})"' % LONGEST_NAME)
_SHOWN_BODY = 40
"""How many bytes of a wrong body an error shows. Chosen: enough to recognize it."""


class SGLangApp(App):
    """Serves an engine."""

    def __init__(self, engine: FakeSGLang, model: ModelInfo) -> None:
        self.engine = engine
        self.handlers = Handlers(engine, model)
        self._routes: Routes[Handler] = Routes(self.handlers.table)
        self.paths = self._routes.paths

    def visit(self, request: Request) -> SGLangVisit:
        return SGLangVisit(self, request)

    def find(self, request: Request) -> Handler | Answer:
        """The handler of a request, or the answer that there is none."""
        if request.path.startswith("/v1/models/") and request.path != "/v1/models/":
            if request.method == "GET":
                return self.handlers.model
            return Answer.json(
                {"detail": "Method Not Allowed"}, status=405, headers=(("allow", "GET"),)
            )
        if ONE_RESPONSE.fullmatch(request.path):
            return self.handlers.absent
        return self._routes.find(
            request.method, request.path, host=request.host, query=request.query
        )


class SGLangVisit(Visit):
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
        return Subject(_call_of(text, request.body), code=text)

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
        except Refused as refused:
            return refused.answer
        except EngineRefused as error:
            return error_answer(str(error), str(error.status), error.status)
        finally:
            # A stream has only begun, but its request is accepted: that is what counts here.
            execution.finished()


def _call_of(text: str, body: bytes) -> str:
    """Return by what a call is known: its mark, else its rid, else its body."""
    mark = CALL_MARK.search(text)
    if mark:
        return mark[1]
    rid = _RID.search(body)
    if rid:
        return rid[1].decode()
    return digest_of(body)


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


async def _pieces(
    gone: asyncio.Future[None] | None, stream: AsyncIterator[bytes]
) -> AsyncIterator[bytes]:
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


class _EngineServer(WireServer):
    """A server that crashes and restarts together with its engine."""

    app: SGLangApp

    def crash(self, *, restart_after: float | None = None) -> None:
        super().crash(restart_after=restart_after)
        self.app.engine.crash()

    async def restart(self) -> None:
        self.app.engine.restart()
        await super().restart()


class FakeSGLangServer(FakeServer):
    """An sglang server without a model.

    ``async with FakeSGLangServer(policy) as server`` inside a loop, ``with FakeSGLangServer(policy)
    as server`` anywhere else (its loop then runs in a thread); then ``server.url``. Takes a policy,
    or an engine that has one. ``tool_call_parser`` is the format in which calls are read, and in
    which a policy's calls are written; ``auto`` is the format of the engine, and None turns tool
    calls off, as in sglang.
    """

    def __init__(
        self,
        policy: Policy | FakeSGLang | None = None,
        *,
        tool_call_parser: str | None = "auto",
        reasoning_parser: str | None = None,
        model: str = "fake-model",
        report_cache: bool = False,
        **options: Unpack[ServerOptions],
    ) -> None:
        host = options.get("host", "127.0.0.1")
        if not options.get("allow_remote") and not is_loopback(host):
            raise UnsafeBindError(
                f"{host} can be reached from other machines; give allow_remote "
                "(--allow-remote) if that is intended"
            )

        if isinstance(policy, FakeSGLang):
            self.engine = policy
        else:
            named_format = None if tool_call_parser == "auto" else tool_call_parser
            self.engine = FakeSGLang(
                policy or Gsm8kSolver(),
                format=named_format or "qwen25",
                seed=options.get("seed", 0),
            )
        if tool_call_parser == "auto":
            tool_call_parser = self.engine.format.name
        self.info = ModelInfo(
            name=model,
            tool_call_parser=tool_call_parser,
            reasoning_parser=reasoning_parser,
            report_cache=report_cache,
        )
        self.app = SGLangApp(self.engine, self.info)

        self.rules: list[Rule] = engine_rules(list(options.get("faults", ())))
        at_socket, in_engine = split(self.rules)
        if in_engine:
            self.engine.set_faults(in_engine)
        admin = {("PUT", "step"): self._set_step}
        server = server_of(self, self.app, at_socket, options, routes=admin, kind=_EngineServer)
        super().__init__(server)

    async def start(self) -> Self:
        self.app.handlers.exiting = False
        return await super().start()

    async def stop(self, grace: float = 5.0) -> None:
        self.app.handlers.exiting = True
        await super().stop(grace)

    def state(self) -> dict[str, Any]:
        return {
            "url": self.url,
            "model": self.info.name,
            "format": self.engine.format.name,
            "policy": type(self.engine.policy).__name__,
            "seed": self.engine.seed,
            "step": self.engine.step,
            "faults": [rule.name or rule.what[0].kind for rule in self.rules],
            "engine": asdict(self.engine.snapshot()),
        }

    def _strikes(self) -> Mapping[str, int]:
        return {**self.ledger.strikes, **self.engine.fault_strikes()}

    def _families(self) -> list[MetricFamily]:
        engine = self.engine.snapshot()
        return [
            *super()._families(),
            queue_family(engine.waiting),
            single(
                "sfusion_engine_running",
                "gauge",
                "Requests that the engine generates for.",
                engine.running,
            ),
            single(
                "sfusion_engine_prompt_tokens_total",
                "counter",
                "Tokens of prompts.",
                engine.prompt_tokens,
            ),
            single(
                "sfusion_engine_tokens_total",
                "counter",
                "Tokens generated.",
                engine.completion_tokens,
            ),
        ]

    def faults(self) -> dict[str, Any]:
        strikes = self.server.plan.strikes() | self.engine.fault_strikes()
        return {
            "seed": self.server.plan.seed,
            "faults": [rule.as_data() for rule in self.rules],
            "strikes": strikes,
        }

    def read_faults(self, source: object, *, where: str = "faults") -> list[Rule]:
        return engine_rules(source, where=where)

    def _replace_faults(self, rules: list[Rule], seed: int | None = None) -> None:
        self.rules = rules
        at_socket, in_engine = split(rules)
        self.server.set_faults(at_socket, seed=seed)
        self.engine.set_faults(in_engine)

    def _forget(self) -> None:
        self.ledger.clear()
        self._replace_faults(self.rules)

    def _set_step(self, request: Request) -> Answer:
        try:
            self.engine.step = int(request.body)
        except ValueError:
            found = request.body[:_SHOWN_BODY]
            return Answer.json({"detail": f"a step is a whole number, found {found!r}"}, 422)
        return Answer.json(self.state())
