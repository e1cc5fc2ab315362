"""The sandbox client: one call in, one typed ending out, whatever the server does."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import aiohttp

from sfusion_tools._loops import PerLoop, before_loop_ends
from sfusion_tools._version import __version__
from sfusion_tools.errors import LimiterError, PermitTimeout
from sfusion_tools.limiter import Limiter, Permit
from sfusion_tools.outcome import Outcome
from sfusion_tools.sandbox.answer import Reading, read_answer
from sfusion_tools.sandbox.endpoints import Endpoint, Endpoints, is_placeholder, redact
from sfusion_tools.sandbox.languages import COMPILED
from sfusion_tools.sandbox.proxy import proxy_for
from sfusion_tools.sandbox.result import Attempt, CallResult
from sfusion_tools.sandbox.retry import MAY_HAVE_RUN_STATUSES, RETRIED_STATUSES, RetryPolicy, retry_after

logger = logging.getLogger(__name__)

CONNECT_SECONDS = 10.0
IDLE_SECONDS = 4.0
"""Sandbox Fusion closes an idle connection after 5 s; one that we drop first is never reused while it is dying."""

Event = Callable[[str, dict[str, Any]], None]


@dataclass(frozen=True, slots=True)
class Program:
    """What to run."""

    code: str
    language: str = "python"
    timeout: float = 30.0
    compile_timeout: float = 10.0
    memory_limit_mb: int = 1024
    stdin: str | None = None
    files: Mapping[str, str] = field(default_factory=dict)
    fetch_files: Sequence[str] = ()

    def body(self) -> bytes:
        """The request body of ``/run_code``."""
        request: dict[str, Any] = {
            "compile_timeout": self.compile_timeout,
            "run_timeout": self.timeout,
            "memory_limit_MB": self.memory_limit_mb,
            "code": self.code,
            "stdin": self.stdin,
            "language": self.language,
            "files": dict(self.files),
            "fetch_files": list(self.fetch_files),
        }
        return json.dumps(request).encode()

    @property
    def seconds(self) -> float:
        """How long the sandbox may work on it."""
        return self.timeout + (self.compile_timeout if self.language in COMPILED else 0.0)


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a call may cost beside the program's own time."""

    margin: float = 10.0
    """Seconds that an attempt may take on top of what the sandbox was allowed."""
    deadline: float | None = None
    """Seconds for all attempts and pauses of a call, time in line not counted; None: twice an attempt and 10 s."""
    queue: float | None = 600.0
    """Seconds to wait in line for a permit before giving up; None: as long as it takes."""
    response_bytes: int = 16 * 2**20

    def of(self, program: Program) -> tuple[float, float]:
        """Seconds for one attempt, and for the whole call."""
        attempt = program.seconds + self.margin
        return attempt, self.deadline if self.deadline is not None else 2 * attempt + 10.0


@dataclass(slots=True)
class _Sent:
    """How one attempt ended, before anybody decides whether to try again."""

    reading: Reading
    status: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    may_have_run: bool = True
    transient: bool = False
    """True when trying again may help."""


class SandboxClient:
    """Sends programs to one or several sandboxes, from any number of event loops."""

    def __init__(
        self,
        urls: str | Sequence[str],
        *,
        limiter: Callable[[], Limiter | None] = lambda: None,
        retry: RetryPolicy | None = None,
        bounds: Bounds | None = None,
        headers: Mapping[str, str] | None = None,
        trust_proxy_env: bool = True,
        on_event: Event | None = None,
    ) -> None:
        """``limiter`` gives the limiter of the running loop, or None to go without one."""
        self._endpoints = Endpoints([urls] if isinstance(urls, str) else list(urls))
        self._limiter = limiter
        self._retry = retry or RetryPolicy()
        self._bounds = bounds or Bounds()
        self._headers = {"Content-Type": "application/json", **(headers or {})}
        self._on_event = on_event
        self._sessions = PerLoop(_Session)
        self._proxies = {e.url: proxy_for(e.url, os.environ) if trust_proxy_env else None for e in self._endpoints}
        for url, proxy in self._proxies.items():
            if proxy is not None:
                logger.warning("requests to %s go through the proxy %s of the environment", redact(url), redact(proxy))
            if is_placeholder(url):
                logger.warning(
                    "%s looks like a placeholder that was never filled in; every call will fail", redact(url)
                )

    async def run(self, program: Program, *, call_id: str | None = None) -> CallResult:
        """Run a program. Every ending is a result; only cancelling the caller raises."""
        loop = asyncio.get_running_loop()
        started = loop.time()
        result = CallResult(call_id or uuid4().hex, Outcome.CANCELLED)
        self._tell("call_started", result)
        try:
            reading = await self._until_ended(program, result)
            result.outcome, result.message = reading.outcome, reading.message
            result.stdout, result.stderr = reading.stdout, reading.stderr
            result.return_code, result.execution_time = reading.return_code, reading.execution_time
            result.files = reading.files
        finally:
            result.seconds = loop.time() - started
            self._tell("call_ended", result, outcome=result.outcome.value, executions=result.possible_executions)
        return result

    async def aclose(self) -> None:
        """Close the connections of the running loop; the end of the loop does it too."""
        session = self._sessions.pop()
        if session is not None:
            await session.aclose()

    async def _until_ended(self, program: Program, result: CallResult) -> Reading:
        loop = asyncio.get_running_loop()
        attempt_seconds, left = self._bounds.of(program)
        body = program.body()
        while True:
            number = len(result.attempts) + 1
            try:
                sent = await self._attempt(body, result, number, min(attempt_seconds, left))
            except PermitTimeout:
                return Reading(Outcome.THROTTLED, f"no permit of the limiter within {self._bounds.queue:g} s")
            except LimiterError as error:
                return Reading(Outcome.CANCELLED, str(error))
            left -= result.attempts[-1].seconds
            if not sent.transient:
                return sent.reading
            if sent.may_have_run and not self._retry.retry_may_have_run:
                sent.reading.message += "; not repeated because the program may have run"
                return sent.reading
            if number >= self._retry.max_attempts:
                sent.reading.message += f"; gave up after {number} attempts"
                return sent.reading
            asked = retry_after(sent.headers, time.time())
            pause = self._retry.pause(result.call_id, number, asked)
            if pause >= left:
                sent.reading.message += f"; gave up after {number} attempts: the next would come after the deadline"
                return sent.reading
            self._tell("backing_off", result, attempt=number, seconds=pause, asked=asked)
            before = loop.time()
            try:
                await asyncio.sleep(pause)
            finally:
                result.backed_off += loop.time() - before
            left -= pause

    async def _attempt(self, body: bytes, result: CallResult, number: int, seconds: float) -> _Sent:
        """One request under one permit; the permit is given back before anything else happens."""
        loop = asyncio.get_running_loop()
        limiter = self._limiter()
        permit: Permit | None = None
        if limiter is not None:
            asked = loop.time()
            try:
                permit = await limiter.acquire(self._bounds.queue)
            finally:
                result.waited += loop.time() - asked
            self._tell("permit_granted", result, attempt=number, permit=permit.id, waited=permit.waited)
        endpoint = self._endpoints.take(loop.time())
        result.proxy = self._proxies[endpoint.url]
        began = loop.time()
        sent = _Sent(Reading(Outcome.CANCELLED))
        held = permit.id if permit is not None else ""
        self._tell("attempt_started", result, attempt=number, endpoint=redact(endpoint.url))
        try:
            sent = await self._send(endpoint, body, seconds)
        finally:
            ended = loop.time()
            throttled = sent.reading.outcome is Outcome.THROTTLED
            if permit is not None:
                permit.release(succeeded=sent.reading.outcome.is_programs, throttled=throttled)
                self._tell("permit_released", result, attempt=number, permit=held)
            self._endpoints.give(endpoint, ended, healthy=_health(sent))
            attempt = Attempt(
                number,
                redact(endpoint.url),
                sent.reading.outcome,
                sent.status,
                sent.reading.message,
                sent.may_have_run,
                permit.waited if permit is not None else 0.0,
                ended - began,
            )
            result.attempts.append(attempt)
            self._tell("attempt_ended", result, attempt=number, outcome=attempt.outcome.value, status=attempt.status)
        return sent

    async def _send(self, endpoint: Endpoint, body: bytes, seconds: float) -> _Sent:
        session = await self._sessions.get().open()
        proxy = self._proxies[endpoint.url]
        try:
            async with (
                asyncio.timeout(seconds),
                session.post(
                    endpoint.path("run_code"), data=body, headers=self._headers, proxy=proxy, allow_redirects=False
                ) as answer,
            ):
                data = await self._read(answer)
                if data is None:
                    limit = self._bounds.response_bytes
                    return _Sent(Reading(Outcome.BAD_RESPONSE, f"the answer is over {limit:,} bytes"), answer.status)
                reading = read_answer(answer.status, answer.headers.get("Content-Type", ""), data)
                return _Sent(
                    reading,
                    answer.status,
                    answer.headers,
                    may_have_run=answer.status == 200 or answer.status in MAY_HAVE_RUN_STATUSES,
                    transient=answer.status in RETRIED_STATUSES,
                )
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            text = f"no connection to {redact(endpoint.url)}: {_reason(error)}"
            return _Sent(Reading(Outcome.UNREACHABLE, text), may_have_run=False, transient=True)
        except TimeoutError:
            text = f"no complete answer within {seconds:g} s"
            return _Sent(Reading(Outcome.TRANSPORT_TIMEOUT, text), transient=True)
        except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError) as error:
            return _Sent(Reading(Outcome.UNREACHABLE, f"the connection was lost: {_reason(error)}"), transient=True)
        except aiohttp.ClientPayloadError as error:
            text = f"the answer broke off or is garbled: {_reason(error)}"
            return _Sent(Reading(Outcome.BAD_RESPONSE, text), transient=True)
        except (aiohttp.ClientError, ValueError) as error:
            return _Sent(Reading(Outcome.BAD_RESPONSE, f"not an answer in HTTP: {_reason(error)}"))

    async def _read(self, answer: aiohttp.ClientResponse) -> bytes | None:
        """The whole body, None as soon as it is over the bound."""
        limit = self._bounds.response_bytes
        length = answer.content_length
        if length is not None and length > limit:
            return None
        if length is not None and "Content-Encoding" not in answer.headers:
            return await answer.read()
        parts: list[bytes] = []
        size = 0
        async for part in answer.content.iter_any():
            size += len(part)
            if size > limit:
                return None
            parts.append(part)
        return b"".join(parts)

    def _tell(self, event: str, result: CallResult, **facts: Any) -> None:
        if self._on_event is not None:
            self._on_event(event, {"call": result.call_id, **facts})


class _Session:
    """The HTTP session of one event loop, closed when the loop ends."""

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None

    async def open(self) -> aiohttp.ClientSession:
        if self._session is None or self._session.closed:
            self._session = aiohttp.ClientSession(
                # How many may be in flight is the limiter's business.
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=IDLE_SECONDS),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS),
                headers={"User-Agent": f"sfusion/{__version__}"},
                cookie_jar=aiohttp.DummyCookieJar(),
            )
            self._guard = before_loop_ends(self.aclose)
            await anext(self._guard)
        return self._session

    async def aclose(self) -> None:
        if self._session is not None:
            await self._session.close()


def _health(sent: _Sent) -> bool | None:
    if sent.reading.outcome.is_programs:
        return True
    if sent.transient or (sent.reading.outcome is Outcome.SANDBOX_ERROR and sent.status != 200):
        return False
    return None


def _reason(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
