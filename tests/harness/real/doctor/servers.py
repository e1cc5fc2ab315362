"""Servers with one defect each, and helpers that examine them."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp

from sfusion.fakes.sandbox import FakeSandbox, ProgramScript
from sfusion.fakes.sandbox.executors.python import PythonExecutor
from sfusion.fakes.sandbox.protocol import CommandResult, RunCode, RunCodeAnswer
from sfusion.fakes.wire import Answer, Request, WireApp, WireServer
from sfusion.fakes.wire.access import Access
from sfusion.harness.real.doctor.examination import CHECKS, Check, Examination, examine
from sfusion.harness.real.doctor.settings import Client, Plan, SandboxSettings
from sfusion_tools.sandbox.config import SandboxToolConfig

GREETS = ProgramScript(pattern=r"6 \* 7", prints="sfusion 42\n")
"""Makes a scripted fake pass for a sandbox that runs programs."""
PATIENT = Plan(patience=60.0, seconds=60.0, per_check=600.0)
"""For servers that answer, however busy the machine is."""
QUICK = replace(PATIENT, quick=True, languages=(), packages=())
HASTY = Plan(patience=1.0, connect=5.0, quick=True)
"""For servers that never answer, in virtual time."""
NOWHERE = Path("/nonexistent-root")
"""The root of a machine that is not a container."""


async def examined(
    url: str,
    plan: Plan = QUICK,
    *,
    environ: dict[str, str] | None = None,
    root: Path = NOWHERE,
    checks: Sequence[Check] = CHECKS,
    **settings: Any,
) -> Examination:
    """Examine an address with these settings of a tool config."""
    own = {name: settings.pop(name) for name in ("client", "rate_limit") if name in settings}
    config = SandboxToolConfig(sandbox_fusion_url=url, **settings)
    return await examine(
        SandboxSettings(url, config, **own), plan, environ=environ or {}, root=root, checks=checks
    )


def ids(examination: Examination) -> set[str]:
    return {finding.id for finding in examination.findings}


def breaking(examination: Examination) -> list[str]:
    return [finding.id for finding in examination.findings if finding.breaks]


def seen(examination: Examination, id: str) -> str:
    """Return the observation of a finding that occurs once, after checking that all its texts say
    something."""
    (found,) = [finding for finding in examination.findings if finding.id == id]
    for text in (found.seen, found.training, found.change):
        assert len(text) > 10, f"{id} says too little: {text!r}"
    return found.seen


def severity(examination: Examination, id: str) -> str:
    (found,) = [finding.severity.value for finding in examination.findings if finding.id == id]
    return found


def only(*names: str) -> list[Check]:
    """These checks, in the usual order."""
    chosen = [check for check in CHECKS if check.name in names]
    assert len(chosen) == len(names), f"unknown check among {names}"
    return chosen


def until(name: str) -> list[Check]:
    """The checks up to this one."""
    return list(CHECKS[: [check.name for check in CHECKS].index(name) + 1])


@asynccontextmanager
async def answering(handler: Callable[[Request], Awaitable[Answer]]) -> AsyncIterator[str]:
    """A server that passes every request to the handler; yields its URL."""
    server = WireServer(
        WireApp(handler), access=Access(allow_hosts=["*"])
    )  # it may be an HTTP proxy
    await server.start()
    try:
        yield server.url
    finally:
        await server.stop(grace=0.1)


@asynccontextmanager
async def always(answer: Answer) -> AsyncIterator[str]:
    """A server that gives the same answer to everything except pings."""

    async def handler(request: Request) -> Answer:
        return Answer(body=b'"pong"') if request.path == "/v1/ping" else replace(answer)

    async with answering(handler) as url:
        yield url


@asynccontextmanager
async def serving_tls(context: ssl.SSLContext, answer: bytes = b'"pong"') -> AsyncIterator[int]:
    """A server that speaks only TLS and answers pings; yields its port."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        status = b"200 OK" if head.startswith(b"GET /v1/ping") else b"404 Not Found"
        length = str(len(answer)).encode()
        headers = (
            b"content-type: application/json",
            b"connection: close",
            b"content-length: " + length,
        )
        reply = b"\r\n".join((b"HTTP/1.1 " + status, *headers, b"", answer))
        writer.write(reply)
        await writer.drain()
        writer.transport.abort()

    async def guarded(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await talk(reader, writer)
        except (asyncio.IncompleteReadError, OSError):
            writer.transport.abort()

    server = await asyncio.start_server(guarded, "127.0.0.1", 0, ssl=context)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


@asynccontextmanager
async def forwarding(target: str, *, token: str | None = None) -> AsyncIterator[str]:
    """A proxy that forwards every request with the right token to one server; yields its URL."""
    async with aiohttp.ClientSession() as session:

        async def handler(request: Request) -> Answer:
            if token is not None and request.headers.get("Authorization") != f"Bearer {token}":
                return Answer.json({"detail": "who are you"}, 401)
            async with session.request(
                request.method,
                target + request.path,
                data=request.body,
                headers={"content-type": "application/json"},
            ) as answer:
                body = await answer.read()
                return Answer(answer.status, body, answer.headers["content-type"])

        async with answering(handler) as url:
            yield url


class Changed:
    """The executor that really runs programs, with a defect."""

    runs_code = True

    def __init__(
        self, change: Callable[[RunCode], RunCode | RunCodeAnswer], **options: Any
    ) -> None:
        self._inner = PythonExecutor(**options)
        self._change = change

    async def run_code(self, request: RunCode) -> RunCodeAnswer:
        changed = self._change(request)
        return await self._inner.run_code(changed) if isinstance(changed, RunCode) else changed

    async def run_jupyter(self, request: Any) -> Any:
        return await self._inner.run_jupyter(request)

    async def aclose(self) -> None:
        await self._inner.aclose()


def no_limits_possible(request: RunCode) -> RunCode | RunCodeAnswer:
    """As recorded on hosts with a low hard stack limit: every memory limit fails (SandboxFusion
    issue 70)."""
    if request.memory_limit_MB <= 0:
        return request
    message = "exception on running command python: Exception occurred in preexec_fn. | None"
    return RunCodeAnswer("SandboxError", message, None, CommandResult("Error", stderr=message))


def scripted(**options: Any) -> FakeSandbox:
    """A fake that runs no code but passes for a sandbox that does."""
    return FakeSandbox(executor="scripted", scripts=[GREETS], **options)


VERL = Client.VERL
SFUSION = Client.SFUSION
