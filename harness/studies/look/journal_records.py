"""Events of journals, put together to calls: of runs, and of proxies and fakes, whose journals know requests only."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from sfusion.harness.studies.look.record import LoggedAttempt, LoggedCall
from sfusion.harness.studies.look.values import BadLine, count, duration, name, number, outcome, sandbox_label
from sfusion_tools.outcome import Outcome

MOST_OPEN = 100_000
"""Calls in flight at once; beyond that, the oldest are taken for unfinished."""


def is_journal_header(record: Mapping[str, Any]) -> bool:
    return "journal" in record and "scenario" in record


def is_journal_event(record: Mapping[str, Any]) -> bool:
    return "at" in record and "event" in record and "source" in record


def outcome_of_status(status: int | None, *, client_gone: bool = False) -> str | None:
    """Return the outcome of a request as far as its status tells: that of a program is in the body."""
    if status in (None, 0, 499):
        return (Outcome.TRANSPORT_TIMEOUT if client_gone or status == 499 else Outcome.UNREACHABLE).value
    assert status is not None
    if status == 200:
        return None
    if status == 429:
        return Outcome.THROTTLED.value
    return (Outcome.SANDBOX_ERROR if status >= 500 else Outcome.BAD_RESPONSE).value


@dataclass(slots=True)
class _Request:
    """A request as the server saw it."""

    began: float
    sandbox: str
    ended: float | None = None
    status: int | None = None
    fault: str | None = None
    client_gone: bool = False
    retry_after: float | None = None
    ran_from: float | None = None
    run_seconds: float | None = None

    def attempt(self) -> LoggedAttempt:
        ended = self.ended is not None
        return LoggedAttempt(
            self.began,
            None if self.ended is None else max(0.0, self.ended - self.began),
            self.sandbox,
            self.status or None,
            outcome_of_status(self.status, client_gone=self.client_gone) if ended else None,
            fault=self.fault,
            retry_after=self.retry_after,
            run_seconds=self.run_seconds,
        )


@dataclass(slots=True)
class _Call:
    began: float
    worker: str
    by_world: bool = False
    """Ends with an event of the world, not with that of the client before it."""
    waited: float = 0.0
    attempts: dict[float, LoggedAttempt] = field(default_factory=dict)
    requests: dict[tuple[str, float], _Request] = field(default_factory=dict)
    outcome: str | None = None
    problem: str | None = None


class JournalCalls:
    """The calls of one journal file; memory holds those in flight."""

    def __init__(self) -> None:
        self._run = False
        self._calls: OrderedDict[str, _Call] = OrderedDict()
        self._requests: OrderedDict[tuple[str, str, float], _Request] = OrderedDict()

    def header(self) -> None:
        """The file is the journal of a run."""
        self._run = True

    def add(self, event: Mapping[str, Any]) -> Iterator[LoggedCall]:
        """Add an event; yield the calls that end with it; raise BadLine."""
        at, kind, call = number(event, "at"), name(event, "event"), name(event, "call")
        if not call:
            return
        if not self._run and event["source"] == "server":
            yield from self._serve(event, at, kind, call)
            return
        self._run = True
        yield from self._follow(event, at, kind, call)

    def rest(self) -> Iterator[LoggedCall]:
        """Yield the calls whose end is not in the journal."""
        for call, state in self._calls.items():
            yield _record(call, state, None)
        for (_, call, _), request in self._requests.items():
            yield _served(call, request)
        self._calls.clear()
        self._requests.clear()

    def _serve(self, event: Mapping[str, Any], at: float, kind: str, call: str) -> Iterator[LoggedCall]:
        key = sandbox_label(event, "sandbox"), call, number(event, "attempt")
        if kind == "arrived":
            self._requests[key] = _Request(at, key[0])
            if len(self._requests) > MOST_OPEN:
                (_, oldest, _), request = self._requests.popitem(last=False)
                yield _served(oldest, request)
        elif (request := self._requests.get(key)) is not None:  # type: ignore[assignment]
            _note(request, event, at, kind)
            if request.ended is not None:
                del self._requests[key]
                yield _served(call, request)

    def _follow(self, event: Mapping[str, Any], at: float, kind: str, call: str) -> Iterator[LoggedCall]:
        source, state = event["source"], self._calls.get(call)
        if state is None:
            if (source, kind) not in (("world", "called"), ("client", "call_started")):
                return  # of a call that ended, such as what the server still did for it
            self._calls[call] = _Call(at, name(event, "worker"), by_world=source == "world")
            if len(self._calls) > MOST_OPEN:
                oldest, unfinished = self._calls.popitem(last=False)
                yield _record(oldest, unfinished, None)
            return
        if source == "server":
            key = sandbox_label(event, "sandbox"), number(event, "attempt")
            if kind == "arrived":
                state.requests[key] = _Request(at, key[0])
            elif key in state.requests:
                _note(state.requests[key], event, at, kind)
        elif source == "client":
            self._note_client(state, event, at, kind)
            if kind == "call_ended" and not state.by_world:
                yield _record(call, self._calls.pop(call), at)
        elif source == "world" and kind in ("returned", "cancelled", "lost"):
            state.outcome = outcome(event) or state.outcome
            if state.outcome == Outcome.BAD_ARGUMENTS.value:
                state.problem = name(event, "text").rpartition("nothing was run: ")[2]
            if kind == "cancelled":
                state.outcome = Outcome.CANCELLED.value
            yield _record(call, self._calls.pop(call), None if kind == "lost" else at)

    def _note_client(self, state: _Call, event: Mapping[str, Any], at: float, kind: str) -> None:
        if kind == "permit_granted":
            state.waited = duration(event, "waited") or 0.0
        elif kind == "attempt_started":
            sandbox, waited, state.waited = sandbox_label(event, "endpoint"), state.waited, 0.0
            state.attempts[number(event, "attempt")] = LoggedAttempt(at, None, sandbox, waited=waited)
        elif kind == "attempt_ended":
            key = number(event, "attempt")
            if (begun := state.attempts.get(key)) is not None:
                state.attempts[key] = replace(
                    begun, seconds=max(0.0, at - begun.began), status=count(event, "status"), outcome=outcome(event)
                )
        elif kind == "call_ended":
            state.outcome = outcome(event)


def journal_records(events: Iterable[Mapping[str, Any]]) -> Iterator[LoggedCall]:
    """Yield the calls of the journal of a run as they end, then those that never did."""
    calls = JournalCalls()
    calls.header()
    for event in events:
        yield from calls.add(event)
    yield from calls.rest()


def _note(request: _Request, event: Mapping[str, Any], at: float, kind: str) -> None:
    if kind == "started":
        request.ran_from = at
    elif kind == "finished" and request.ran_from is not None:
        request.run_seconds = max(0.0, at - request.ran_from)
    elif kind == "strike":
        request.fault = request.fault or name(event, "rule") or None
    elif kind in ("answered", "unanswered"):
        request.ended, request.status = at, count(event, "status") or None
        request.client_gone = bool(event.get("client_gone"))
        request.retry_after = _asked(event)


def _asked(event: Mapping[str, Any]) -> float | None:
    """Retry-After as the header has it: seconds, or a date, which is not kept."""
    value = event.get("retry_after")
    try:
        return duration({"retry_after": float(value)}, "retry_after") if isinstance(value, str | int | float) else None
    except (ValueError, OverflowError, BadLine):
        return None


def _served(call: str, request: _Request) -> LoggedCall:
    attempt = request.attempt()
    return LoggedCall(call, attempt.began, attempt.seconds, "server", attempt.outcome, attempts=(attempt,))


def _record(call: str, state: _Call, ended: float | None) -> LoggedCall:
    requests = list(state.requests.values())
    attempts = [_with_server(one, requests) for one in state.attempts.values()]
    seconds = None if ended is None else max(0.0, ended - state.began)
    # Tools of other people do not record their attempts; then the server's events have to do.
    found = attempts or [one.attempt() for one in requests]
    return LoggedCall(call, state.began, seconds, "client", state.outcome, state.worker, tuple(found), state.problem)


def _with_server(attempt: LoggedAttempt, requests: list[_Request]) -> LoggedAttempt:
    """Add what only the server noted of the request that arrived during an attempt."""
    end = attempt.began + (attempt.seconds or 0.0)
    for request in requests:
        if attempt.began <= request.began <= end:
            ran = request.run_seconds
            return replace(attempt, fault=request.fault, retry_after=request.retry_after, run_seconds=ran)
    return attempt
