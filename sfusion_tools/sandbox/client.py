"""The sandbox client: every call ends with a typed result, whatever the server does."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import aiohttp
from yarl import URL

from sfusion_tools.errors import LimiterClosed, LimiterError, PermitTimeout
from sfusion_tools.limiter import Limiter, Permit
from sfusion_tools.outcome import Outcome
from sfusion_tools.sandbox.answer import Reading, read_answer
from sfusion_tools.sandbox.endpoints import Endpoint, Endpoints, is_placeholder, redact
from sfusion_tools.sandbox.program import Bounds, Program
from sfusion_tools.sandbox.proxy import is_usable, proxy_for
from sfusion_tools.sandbox.result import Attempt, CallResult
from sfusion_tools.sandbox.retry import RETRIED_STATUSES, RetryPolicy, may_have_run, retry_after
from sfusion_tools.sandbox.session import leave, session_for
from sfusion_tools.wording import counted

logger = logging.getLogger(__name__)

CONNECT_SECONDS = 10.0
"""Limit for connecting, or half an attempt's time if that is less, so that a slow connect is reported as such."""

_URL = re.compile(r"\w+://[^\s'\"]+")

Event = Callable[[str, dict[str, Any]], None]


@dataclass(slots=True)
class _Sent:
    """How one attempt ended, before deciding whether to retry."""

    reading: Reading
    status: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    may_have_run: bool = True
    transient: bool = False
    """True if a retry may help."""


class SandboxClient:
    """Sends programs to one or more sandboxes, from any number of event loops."""

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
        """``limiter`` returns the limiter of the running loop, or None for no limit."""
        self._endpoints = Endpoints([urls] if isinstance(urls, str) else list(urls))
        self._limiter = limiter
        self._retry = retry or RetryPolicy()
        self._bounds = bounds or Bounds()
        self._headers = dict(headers or {})
        self._on_event = on_event
        self._targets = {e.url: URL(e.path("run_code")) for e in self._endpoints}
        self._proxies = {e.url: _proxy(e.url) if trust_proxy_env else None for e in self._endpoints}
        self._timeouts: dict[float, aiohttp.ClientTimeout] = {}
        for endpoint in self._endpoints:
            if is_placeholder(endpoint.url):
                logger.warning(
                    "%s looks like a placeholder that was never filled in; every call will fail", endpoint.label
                )

    async def run(self, program: Program, *, call_id: str | None = None) -> CallResult:
        """Run a program. Every failure is a result; only cancelling the caller raises."""
        loop = asyncio.get_running_loop()
        started = loop.time()
        result = CallResult(call_id or uuid4().hex, Outcome.CANCELLED)
        self._emit("call_started", result)
        try:
            reading = await self._retry_until_done(program, result)
            result.outcome, result.message = reading.outcome, reading.message
            result.stdout, result.stderr = reading.stdout, reading.stderr
            result.return_code, result.execution_time = reading.return_code, reading.execution_time
            result.files = reading.files
        finally:
            result.seconds = loop.time() - started
            self._emit("call_ended", result, outcome=result.outcome.value, executions=result.possible_executions)
        return result

    async def aclose(self) -> None:
        """Close the running loop's connections unless other clients use them; the end of the loop closes them too."""
        await leave(self)

    async def _retry_until_done(self, program: Program, result: CallResult) -> Reading:
        loop = asyncio.get_running_loop()
        attempt_seconds, left = self._bounds.of(program)
        body = program.body()
        while True:
            number = len(result.attempts) + 1
            try:
                sent = await self._attempt(body, result, number, min(attempt_seconds, left))
            except PermitTimeout:
                return Reading(Outcome.THROTTLED, f"no permit from the limiter within {self._bounds.queue:g} s")
            except LimiterClosed as error:
                return Reading(Outcome.CANCELLED, str(error))
            except LimiterError as error:
                return Reading(Outcome.THROTTLED, f"no permit: {error}")
            left -= result.attempts[-1].seconds
            if not sent.transient:
                return sent.reading
            if sent.may_have_run and not self._retry.retry_may_have_run:
                sent.reading.message += "; not repeated because the program may have run"
                return sent.reading
            if number >= self._retry.max_attempts:
                sent.reading.message += f"; gave up after {counted(number, 'attempt')}"
                return sent.reading
            asked = retry_after(sent.headers, time.time())
            pause = self._retry.pause(result.call_id, number, asked)
            if pause >= left:
                sent.reading.message += (
                    f"; gave up after {counted(number, 'attempt')}: the next attempt would miss the deadline"
                )
                return sent.reading
            self._emit("backing_off", result, attempt=number, seconds=pause, asked=asked)
            before = loop.time()
            try:
                await asyncio.sleep(pause)
            finally:
                result.backed_off += loop.time() - before
            left -= pause

    async def _attempt(self, body: bytes, result: CallResult, number: int, seconds: float) -> _Sent:
        """Send one request under one permit, which is released before anything else happens."""
        limiter = self._limiter()
        if limiter is None:
            return await self._send_once(body, result, number, seconds, None)
        permit = limiter.permit(self._bounds.queue)
        try:
            async with permit:
                self._emit("permit_granted", result, attempt=number, permit=permit.id, waited=permit.waited)
                return await self._send_once(body, result, number, seconds, permit)
        finally:
            result.waited += permit.waited

    async def _send_once(
        self, body: bytes, result: CallResult, number: int, seconds: float, permit: Permit | None
    ) -> _Sent:
        loop = asyncio.get_running_loop()
        endpoint = self._endpoints.take(loop.time())
        proxy = self._proxies[endpoint.url]
        result.proxy = redact(proxy) if proxy is not None else None
        began = loop.time()
        sent = _Sent(Reading(Outcome.CANCELLED))
        self._emit("attempt_started", result, attempt=number, endpoint=endpoint.label)
        try:
            sent = await self._send(endpoint, body, seconds)
        finally:
            ended = loop.time()
            if permit is not None:
                throttled = sent.reading.outcome is Outcome.THROTTLED
                permit.report(succeeded=sent.reading.outcome.is_from_program, throttled=throttled)
                self._emit("permit_released", result, attempt=number, permit=permit.id)
            self._endpoints.give(endpoint, ended, began=began, healthy=_health(sent))
            attempt = Attempt(
                number,
                endpoint.label,
                sent.reading.outcome,
                sent.status,
                sent.reading.message,
                sent.may_have_run,
                permit.waited if permit is not None else 0.0,
                ended - began,
            )
            result.attempts.append(attempt)
            self._emit("attempt_ended", result, attempt=number, outcome=attempt.outcome.value, status=attempt.status)
        return sent

    async def _send(self, endpoint: Endpoint, body: bytes, seconds: float) -> _Sent:
        proxy = self._proxies[endpoint.url]
        if proxy is None:
            return await self._exchange(endpoint, None, body, seconds)
        sent = await self._exchange(endpoint, proxy, body, seconds)
        if not sent.reading.outcome.is_from_program:
            sent.reading.message += f" (through the proxy {redact(proxy)})"
        return sent

    async def _exchange(self, endpoint: Endpoint, proxy: str | None, body: bytes, seconds: float) -> _Sent:
        session = await session_for(self)
        connect = min(CONNECT_SECONDS, seconds / 2)
        connect_timeout = self._timeouts.get(connect)
        if connect_timeout is None:
            # Behind a proxy, connecting is more than opening a socket; without one, use the cheaper timer.
            part = "sock_connect" if proxy is None else "connect"
            connect_timeout = self._timeouts[connect] = aiohttp.ClientTimeout(total=None, **{part: connect})
        try:
            async with (
                asyncio.timeout(seconds),
                session.post(
                    self._targets[endpoint.url],
                    data=body,
                    headers=self._headers or None,
                    proxy=proxy,
                    allow_redirects=False,
                    timeout=connect_timeout,
                ) as answer,
            ):
                return await self._parse(answer)
        except aiohttp.ConnectionTimeoutError:
            text = f"no connection to {endpoint.label} within {connect:g} s"
            return _Sent(Reading(Outcome.UNREACHABLE, text), may_have_run=False, transient=True)
        except aiohttp.ClientConnectorError as error:
            text = f"no connection to {endpoint.label}: {_reason(error)}"
            return _Sent(Reading(Outcome.UNREACHABLE, text), may_have_run=False, transient=True)
        except aiohttp.ClientHttpProxyError as error:
            text = f"no connection to {endpoint.label}: the proxy answered {error.status} {error.message}"
            transient = error.status in RETRIED_STATUSES
            return _Sent(Reading(Outcome.UNREACHABLE, text), may_have_run=False, transient=transient)
        except TimeoutError:
            text = f"no complete answer within {seconds:g} s"
            return _Sent(Reading(Outcome.TRANSPORT_TIMEOUT, text), transient=True)
        except (aiohttp.ClientConnectionError, OSError) as error:
            return _Sent(Reading(Outcome.UNREACHABLE, f"the connection was lost: {_reason(error)}"), transient=True)
        except aiohttp.ClientPayloadError as error:
            text = f"the answer broke off or is garbled: {_reason(error)}"
            return _Sent(Reading(Outcome.BAD_RESPONSE, text), transient=True)
        except (aiohttp.ClientError, ValueError) as error:
            return _Sent(Reading(Outcome.BAD_RESPONSE, f"not a valid HTTP response: {_reason(error)}"))

    async def _parse(self, answer: aiohttp.ClientResponse) -> _Sent:
        data, whole = await self._read(answer)
        if whole or answer.status != 200:  # the status decides; the body of a refusal only adds detail
            reading = read_answer(answer.status, answer.headers.get("Content-Type", ""), data)
        else:
            reading = Reading(Outcome.BAD_RESPONSE, f"the answer is over {self._bounds.response_bytes:,} bytes")
        return _Sent(
            reading,
            answer.status,
            answer.headers,
            may_have_run=may_have_run(answer.status),
            transient=answer.status in RETRIED_STATUSES,
        )

    async def _read(self, answer: aiohttp.ClientResponse) -> tuple[bytes, bool]:
        """Return the body up to the size limit, and whether it is complete."""
        limit = self._bounds.response_bytes
        length = answer.content_length
        if length is not None and length > limit and answer.status == 200:
            return b"", False
        if length is not None and answer.status == 200 and "Content-Encoding" not in answer.headers:
            return await answer.read(), True
        parts: list[bytes] = []
        try:
            async for part in answer.content.iter_any():
                parts.append(part)
                limit -= len(part)
                if limit < 0:
                    return b"".join(parts), False
        except aiohttp.ClientPayloadError:
            if answer.status == 200:
                raise
            return b"".join(parts), False
        return b"".join(parts), True

    def _emit(self, event: str, result: CallResult, **facts: Any) -> None:
        if self._on_event is not None:
            self._on_event(event, {"call": result.call_id, **facts})


def _health(sent: _Sent) -> bool | None:
    if sent.reading.outcome.is_from_program:
        return True
    if sent.transient or (sent.reading.outcome is Outcome.SANDBOX_ERROR and sent.status != 200):
        return False
    return None


def _proxy(url: str) -> str | None:
    """Return the proxy for this URL, and log it: its failures look like those of the sandbox."""
    proxy = proxy_for(url, os.environ)
    if proxy is None:
        return None
    if not is_usable(proxy):
        logger.warning(
            "the environment names the proxy %s for %s, but only HTTP proxies can be used: requests go there directly",
            redact(proxy),
            redact(url),
        )
        return None
    logger.warning("requests to %s go through the proxy %s of the environment", redact(url), redact(proxy))
    return proxy


def _reason(error: BaseException) -> str:
    # aiohttp quotes the URL, which may contain a password or a token.
    text = _URL.sub(lambda found: redact(found[0]), str(error))
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
