"""The sandbox client: every call ends with a typed result, whatever the server does."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from sfusion_tools.errors import GuardTripped, LimiterClosed, LimiterError, PermitTimeout
from sfusion_tools.limiter import Permit, PermitSource
from sfusion_tools.outcome import CAUSABLE, Outcome
from sfusion_tools.record import Attempt
from sfusion_tools.runtime import runtime
from sfusion_tools.sandbox.answer import Reading, Response, TransportError, read_answer
from sfusion_tools.sandbox.call_log import CallLog
from sfusion_tools.sandbox.endpoints import (
    Address,
    base_urls,
    hide,
    is_placeholder,
    is_usable,
    proxy_for,
    redact,
    route,
    secrets_of,
)
from sfusion_tools.sandbox.fleet import Endpoint, Fleet, Health, Slot, slots_of
from sfusion_tools.sandbox.guard import SandboxGuard
from sfusion_tools.sandbox.program import Bounds, Program
from sfusion_tools.sandbox.provoked import Suspicion
from sfusion_tools.sandbox.result import CallResult, new_call_id
from sfusion_tools.sandbox.retry import (
    RETRIED_STATUSES,
    RetryPolicy,
    is_order_to_wait,
    may_have_run,
    retry_after,
)
from sfusion_tools.sandbox.transport_choice import chosen_transport
from sfusion_tools.wording import counted

if TYPE_CHECKING:
    from sfusion_tools.sandbox.public_transport import PublicTransport

logger = logging.getLogger(__name__)

_MOMENT = 0.001
"""Seconds that are too few to do anything in. Chosen: no sandbox answers within a millisecond."""

OnEvent = Callable[[str, dict[str, Any]], None]


@dataclass(slots=True)
class _Sent:
    """How one attempt ended, before deciding whether to retry."""

    reading: Reading
    status: int | None = None
    asked: float | None = None
    """The seconds of its Retry-After."""
    may_have_run: bool = True
    transient: bool = False
    """True if a retry may help."""
    received: int = 0
    """Bytes of the answer's body."""
    endpoint: Endpoint | None = None
    """The sandbox that failed it."""


_BROKEN_OFF = _Sent(Reading(Outcome.CANCELLED))
"""Stands for an attempt until it has ended; it stays if the caller is cancelled meanwhile."""


class _Tried(NamedTuple):
    """How often a call was attempted."""

    attempts: int
    told_to_wait: int
    """Attempts that were answered with 429 and Retry-After."""

    def __str__(self) -> str:
        text = counted(self.attempts, "attempt")
        if self.told_to_wait and self.attempts > 1:
            text += f" ({self.told_to_wait} answered with 429 and Retry-After)"
        return text


@dataclass(frozen=True, slots=True)
class _Sandbox:
    address: Address
    proxy: str | None
    """The redacted URL of the proxy."""
    secrets: Sequence[str]


class SandboxClient:
    """Sends programs to one or more sandboxes, from any number of event loops and threads."""

    def __init__(
        self,
        urls: str | Sequence[str],
        *,
        limiter: Callable[[], PermitSource | None] = lambda: None,
        retry: RetryPolicy | None = None,
        bounds: Bounds | None = None,
        headers: Mapping[str, str] | None = None,
        trust_proxy_env: bool = True,
        on_event: OnEvent | None = None,
        fleet: Fleet | None = None,
        guard: Callable[[], SandboxGuard] | None = None,
        call_log: CallLog | None = None,
        score_provoked: bool = False,
    ) -> None:
        """Connect to nothing yet: connections are opened by calls.

        ``limiter`` returns the limiter of the running loop, or None for no limit, and ``guard`` its
        guard. An ``on_event`` that raises is logged once and does not affect the call. ``fleet`` is
        the state of the sandboxes if it is not to be that of this process. With ``score_provoked``
        a call counts as a failed program if that perhaps caused the failure.
        """
        self._urls = base_urls(urls)
        self._limiter = limiter
        self._retry = retry or RetryPolicy()
        self._bounds = bounds or Bounds()
        self._headers = dict(headers or {})
        self._on_event = on_event
        self._event_failed = False
        self._fleet = fleet
        self._guard = guard
        self._call_log = call_log
        self._score_provoked = score_provoked
        self._transport = chosen_transport()
        self._sandboxes: dict[str, _Sandbox] = {}
        for url in self._urls:
            proxy = _proxy(url) if trust_proxy_env else None
            address = Address(
                route(url, "run_code"), redact(url), proxy, tuple(self._headers.items())
            )
            self._sandboxes[url] = _Sandbox(
                address=address,
                proxy=None if proxy is None else redact(proxy),
                secrets=secrets_of(url, self._headers),
            )
            if is_placeholder(url):
                logger.warning(
                    "%s looks like a placeholder that was never filled in; every call will fail",
                    address.label,
                )

    async def run(
        self, program: Program, *, call_id: str | None = None, result: CallResult | None = None
    ) -> CallResult:
        """Run a program. Every failure of the sandbox is a result.

        This raises if the caller is cancelled, if the guard stops the call, or if ``limiter``
        raises an error that is not a LimiterError. A ``result`` that is given is filled in as the
        call goes along, so that what was done is known then too.
        """
        # If the loop is closed during the call and all is collected, a timeout below must not hold
        # the last reference to the task: CPython 3.11 crashes when a task is freed from within its
        # own coroutine.
        loop = asyncio.get_running_loop()
        _task = asyncio.current_task(loop)
        if result is None:
            result = CallResult(call_id or new_call_id(), Outcome.CANCELLED)
        started = loop.time()
        call_log = self._call_log
        log = None
        guard = None
        guarded = None
        ended = None
        if self._guard is not None:
            guard = self._guard()
            try:
                guarded = guard.begin(started)
            except GuardTripped:
                if call_log is not None:
                    call_log.refused(result, program)
                raise
        try:
            try:
                if call_log is not None:
                    # The log of the last call, if that was in the same loop.
                    loop_of_last_call, log = call_log.known
                    if loop_of_last_call() is not loop:
                        log = call_log.enter(loop)
                if self._on_event is not None:
                    self._emit("call_started", result)
                reading = await self._retry_until_done(program, result, started)
                result.outcome = reading.outcome
                if result.provoked:
                    # So it was until the last attempt: only what a call ends with counts.
                    result.provoked = reading.outcome in CAUSABLE
                    result.scored = result.provoked and self._score_provoked
                result.message = reading.message
                result.stdout = reading.stdout
                result.stderr = reading.stderr
                result.return_code = reading.return_code
                result.execution_time = reading.execution_time
                result.files = reading.files
            finally:
                result.seconds = loop.time() - started
                if self._on_event is not None:
                    facts = {
                        "outcome": result.outcome.value,
                        "executions": result.possible_executions,
                    }
                    self._emit("call_ended", result, **facts)
                if call_log is not None and log is not None:
                    call_log.ended(log, result, program)
            ended = result
        finally:
            if guard is not None and guarded is not None:
                guard.end(guarded, loop.time(), ended)
        return result

    def permit(self) -> Permit[Any] | None:
        """Return a permit to enter, None without a limiter."""
        limiter = self._limiter()
        return None if limiter is None else limiter.permit(self._bounds.queue)

    async def aclose(self) -> None:
        """Close the running loop's connections unless other clients use them.

        The end of the loop closes them too.
        """
        await self._transport.leave(runtime.scope(), self)

    async def _retry_until_done(
        self, program: Program, result: CallResult, started: float
    ) -> Reading:
        """Attempt a call until it has a result, or no further attempt is allowed.

        Two deadlines count: ``left`` are the seconds that attempts and pauses may still take, the
        queue for permits apart; ``end`` is when the whole call has to end, the queue included.
        """
        attempt_seconds, left = self._bounds.of(program)
        end = math.inf if self._bounds.total is None else started + self._bounds.total
        body = program.body()
        told_to_wait = 0
        suspicion: Suspicion | None = None
        while True:
            number = len(result.attempts) + 1
            try:
                sent = await self._attempt(
                    body,
                    result,
                    number=number,
                    seconds=min(attempt_seconds, left),
                    started=started,
                    end=end,
                )
            except LimiterError as error:
                return self._without_permit(error, result, end)
            outcome = sent.reading.outcome
            if not outcome.is_from_program:
                suspicion = suspicion or Suspicion()
                suspicion.failed(outcome, sent.endpoint)
                result.provoked = suspicion.provoked
            if not sent.transient:
                return sent.reading

            told_to_wait += is_order_to_wait(sent.status, sent.asked)
            left -= result.attempts[-1].seconds or 0.0
            pause = self._retry.pause(result.call_id, number, sent.asked)
            tried = _Tried(number, told_to_wait)
            result.out_of_time = self._limit_reached(end)
            reason = self._reason_to_stop(sent, result, tried, pause, left=left, end=end)
            if reason is not None:
                sent.reading.message += reason
                return sent.reading
            await self._back_off(result, number, pause, sent.asked)
            left -= pause

    def _without_permit(self, error: LimiterError, result: CallResult, end: float) -> Reading:
        """Return how a call ends that the limiter gave no permit."""
        if isinstance(error, PermitTimeout):
            result.out_of_time = self._limit_reached(end)
            bound = self._bounds.queue if result.out_of_time is None else result.out_of_time
            return Reading(Outcome.THROTTLED, f"no permit from the limiter within {bound:g} s")
        if isinstance(error, LimiterClosed):
            return Reading(Outcome.CANCELLED, str(error))
        return Reading(Outcome.THROTTLED, f"no permit: {error}")

    def _reason_to_stop(
        self,
        sent: _Sent,
        result: CallResult,
        tried: _Tried,
        pause: float,
        *,
        left: float,
        end: float,
    ) -> str | None:
        """Return why a call is not attempted again, to be added to its message; None if it is.

        The reason is empty where nobody expects another attempt. ``left`` and ``end`` are the
        deadlines, as in ``_retry_until_done``. If the pause would not end before that of the whole
        call, its limit is noted as what ended the call.
        """
        most = self._retry.max_attempts
        if sent.may_have_run and not self._retry.retry_may_have_run:
            return "; not repeated because the program may have run"
        if most == 1:
            return ""
        if tried.attempts - tried.told_to_wait >= most:
            return f"; gave up after {tried}"
        if pause >= min(left, end - asyncio.get_running_loop().time()):
            result.out_of_time = self._limit_reached(end - pause)
            return f"; gave up after {tried}: the next attempt would miss the deadline"
        return None

    async def _back_off(
        self, result: CallResult, number: int, pause: float, asked: float | None
    ) -> None:
        self._emit("backing_off", result, attempt=number, seconds=pause, asked=asked)
        loop = asyncio.get_running_loop()
        before = loop.time()
        try:
            await asyncio.sleep(pause)
        finally:
            result.backed_off += loop.time() - before

    def _limit_reached(self, end: float) -> float | None:
        """Return the limit for the whole call if that time has come, else None."""
        return self._bounds.total if asyncio.get_running_loop().time() > end - _MOMENT else None

    def _queue_seconds(self, end: float) -> float | None:
        left = end - asyncio.get_running_loop().time()
        return left if self._bounds.queue is None else min(left, self._bounds.queue)

    async def _attempt(
        self,
        body: bytes,
        result: CallResult,
        *,
        number: int,
        seconds: float,
        started: float,
        end: float,
    ) -> _Sent:
        """Send one request under one permit.

        Whatever happens, permit and slot have returned when this ends. It is one function because
        every call comes through here: each further call of a function would cost it.
        """
        scope = runtime.scope()
        loop = scope.loop
        limiter = self._limiter()
        watched = self._on_event is not None
        permit = None
        if limiter is not None:
            permit = limiter.permit(
                self._bounds.queue if end == math.inf else self._queue_seconds(end)
            )
        sent = _BROKEN_OFF
        began = ended = math.nan
        sandbox: _Sandbox | None = None
        try:
            async with permit or _UNLIMITED:
                began = ended = loop.time()
                if began > end - _MOMENT:
                    result.out_of_time = self._bounds.total
                    late = f"no attempt could begin within {self._bounds.total:g} s"
                    return _Sent(Reading(Outcome.THROTTLED, late))
                if watched and permit is not None:
                    self._emit(
                        "permit_granted",
                        result,
                        attempt=number,
                        permit=permit.id,
                        waited=permit.waited,
                    )
                with Slot(slots_of(scope, self._fleet), self._urls, began) as slot:
                    sandbox = self._sandboxes[slot.endpoint.url]
                    result.proxy = sandbox.proxy
                    if watched:
                        self._emit(
                            "attempt_started",
                            result,
                            attempt=number,
                            endpoint=sandbox.address.label,
                        )
                    transport = self._transport.of(scope, self)
                    try:
                        sent = await self._send(transport, sandbox, body, min(seconds, end - began))
                    finally:
                        ended = loop.time()
                    if sent.reading.outcome.is_from_program:
                        slot.report(ended, Health.ANSWERED)
                    else:
                        slot.report(ended, _health(sent), asked=sent.asked)
                        sent.endpoint = slot.endpoint
                        sent.reading.message = hide(sent.reading.message, sandbox.secrets)
                        if sandbox.proxy is not None:
                            sent.reading.message += f" (through the proxy {sandbox.proxy})"
                if permit is not None:
                    outcome = sent.reading.outcome
                    permit.report(
                        succeeded=outcome.is_from_program, throttled=outcome is Outcome.THROTTLED
                    )
        finally:
            waited = permit.waited if permit is not None else 0.0
            result.waited += waited
            if sandbox is not None:
                if watched and permit is not None:
                    self._emit("permit_released", result, attempt=number, permit=permit.id)
                attempt = Attempt(
                    number=number,
                    endpoint=sandbox.address.label,
                    outcome=sent.reading.outcome,
                    status=sent.status,
                    detail=sent.reading.message,
                    may_have_run=sent.may_have_run,
                    waited=waited,
                    seconds=ended - began,
                    after=began - started,
                    sent=len(body),
                    received=sent.received,
                    retry_after=sent.asked,
                    execution_time=sent.reading.execution_time,
                )
                result.attempts.append(attempt)
                if watched:
                    facts = {"outcome": attempt.kind, "status": attempt.status}
                    self._emit("attempt_ended", result, attempt=number, **facts)
        return sent

    async def _send(
        self, transport: PublicTransport, sandbox: _Sandbox, body: bytes, seconds: float
    ) -> _Sent:
        try:
            answer = await transport.send(
                sandbox.address, body, seconds, self._bounds.response_bytes
            )
        except TransportError as error:
            reading = Reading(error.outcome, str(error))
            return _Sent(reading, may_have_run=error.may_have_run, transient=error.transient)
        return self._parse(answer)

    def _parse(self, answer: Response) -> _Sent:
        """Return what an answer means."""
        status = answer.status
        headers = answer.headers
        # The status decides; the body of a refusal only adds detail.
        if answer.whole or status != 200:
            reading = read_answer(status, headers.get("Content-Type", ""), answer.body)
            # Programs are stateless in this sandbox, so one without a result can be run again.
            transient = status in RETRIED_STATUSES or (
                status == 200 and not reading.outcome.is_from_program
            )
        else:
            reading = Reading(
                Outcome.BAD_RESPONSE, f"the answer is over {self._bounds.response_bytes:,} bytes"
            )
            transient = False
        asked = retry_after(headers, time.time()) if transient else None
        return _Sent(
            reading=reading,
            status=status,
            asked=asked,
            may_have_run=may_have_run(status),
            transient=transient,
            received=len(answer.body),
        )

    def _emit(self, event: str, result: CallResult, **facts: Any) -> None:
        if self._on_event is None:
            return
        try:
            self._on_event(event, {"call": result.call_id, **facts})
        except Exception:
            if not self._event_failed:
                self._event_failed = True
                logger.exception(
                    "on_event raised at %r; calls go on, and this is logged only once", event
                )


_UNLIMITED = nullcontext()


def _health(sent: _Sent) -> Health:
    """Return what an attempt without a result of the program says about its sandbox."""
    if sent.status == 200:
        # A SandboxError, or an answer that cannot be read. The program may be the cause; then the
        # other sandboxes refuse it just as often, and this one is not set aside.
        return Health.REFUSED
    if sent.transient or sent.reading.outcome is Outcome.SANDBOX_ERROR:
        return Health.FAILED
    return Health.REFUSED


def _proxy(url: str) -> str | None:
    """Return the proxy for this URL, and log it: its failures look like those of the sandbox."""
    proxy = proxy_for(url, os.environ)
    if proxy is None:
        return None
    if not is_usable(proxy):
        logger.warning(
            "the environment names the proxy %s for %s, but only HTTP proxies can be used: "
            "requests go there directly",
            redact(proxy),
            redact(url),
        )
        return None
    logger.warning(
        "requests to %s go through the proxy %s of the environment", redact(url), redact(proxy)
    )
    return proxy
