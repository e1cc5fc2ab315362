"""What is known about a call and its attempts, from a client, a server, a log or a journal.

No I/O. Readers of logs make a ``Call`` of each line; ``CallFold`` makes calls out of the events of
a journal, and ``fold_call`` one call out of its own events. Event log, promises, look, learn,
compare, figures and pages read these.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Required, TypedDict, cast

from sfusion_tools.outcome import OUTCOMES, Outcome

ANSWERED = "answered"
UNFINISHED = "unfinished"
UNKNOWN = "unknown"
"""Kinds of calls and attempts without an outcome: status 200, no end, neither."""

KINDS = (*OUTCOMES, UNFINISHED, ANSWERED, UNKNOWN)

MOST_OPEN = 100_000
"""Calls in flight at once; beyond that, the oldest are taken for unfinished. Chosen: more than any
run has, and little memory."""

ENDINGS = ("returned", "cancelled", "lost")
"""Events of the world that end a call."""


class CallEvent(TypedDict, total=False):
    """An event of a journal, as far as it is about a call.

    docs/journal.md lists which event has which keys.
    """

    at: Required[float]
    source: Required[str]
    event: Required[str]
    call: str
    attempt: int
    worker: str | None
    endpoint: str
    sandbox: str | None
    outcome: str | None
    status: int | None
    problem: str
    waited: float
    seconds: float
    rule: str
    client_gone: bool
    retry_after: str | float | None
    text: str


@dataclass(slots=True, eq=False)
class Attempt:
    """One HTTP request made for a call."""

    number: int
    endpoint: str = ""
    """The label of the sandbox, never a secret."""
    outcome: Outcome | None = None
    status: int | None = None
    """The HTTP status, None if there was no answer."""
    detail: str = ""
    may_have_run: bool = False
    """True if this attempt may have executed the program, as far as is known."""
    waited: float = 0.0
    """Seconds in the queue for the permit, before it began."""
    seconds: float | None = None
    """Seconds from sending the request to the end of the answer; None: its end was not seen."""
    after: float = 0.0
    """Seconds from the beginning of the call to that of this attempt, which had its permit then."""
    sent: int = 0
    """Bytes of the request's body."""
    received: int = 0
    """Bytes of the answer's body that were read."""
    retry_after: float | None = None
    """Seconds that a refusal asked to wait."""
    execution_time: float | None = None
    """Seconds that the program ran, as the sandbox reports them."""
    fault: str | None = None
    """The rule that struck first, where a fake or a proxy tells."""
    worked: tuple[float, float | None] | None = None
    """From when to when the server worked on it, where a journal tells.

    Both count from the beginning of the call.
    """

    @property
    def kind(self) -> str:
        """The outcome, or how much of it is known."""
        if self.outcome is not None:
            return self.outcome._value_
        if self.status == 200:
            return ANSWERED
        return UNFINISHED if self.seconds is None and self.status is None else UNKNOWN


@dataclass(slots=True, eq=False)
class Call:
    """One tool call; where a log knows requests only, one request.

    Times are unix seconds, or seconds of a run.
    """

    call: str
    began: float
    seconds: float | None = None
    """None: its end was not seen."""
    source: str = "client"
    """client, server (a fake or a proxy), access (uvicorn, nginx) or dump (rollouts)."""
    outcome: Outcome | None = None
    worker: str = ""
    attempts: list[Attempt] = field(default_factory=list)
    problem: str | None = None
    """What was wrong with a malformed tool call."""
    timed: bool = True
    """False: the log has no times, and ``began`` counts its lines, or the steps of a training."""
    waited: float = 0.0
    """Seconds in the queue for a permit that it did not get, before it ended."""
    refused: str = ""
    """Who refused the call before anything was sent: the guard."""
    read: str = ""
    """What the model read of a failure, where a log has it."""
    trajectory: str = ""
    """The trajectory that made it, and the group of its siblings, where a log has them."""
    group: str = ""
    score: float = 0.0
    """The score of its sample, where a dump has it."""
    stopped: float | None = None
    """When its journal ends or its worker died, if its own end was not seen."""

    @property
    def kind(self) -> str:
        """The outcome, or how much of it is known."""
        if self.outcome is not None:
            return self.outcome._value_
        if self.attempts and self.attempts[-1].status == 200:
            return ANSWERED
        if self.seconds is None and self.source in ("client", "server"):
            return UNFINISHED
        return UNKNOWN

    @property
    def ended(self) -> float:
        """When it ended, or when no more of it was seen."""
        if self.seconds is not None:
            return round(self.began + self.seconds, 6)
        if self.stopped is None:
            return self.began
        return max(self.began, self.stopped)

    def span(self, attempt: Attempt) -> tuple[float, float | None]:
        """Return when one of its attempts began and ended.

        Both are rounded, so that equal times in a journal stay equal.
        """
        began = self.began + attempt.after
        if attempt.seconds is None:
            return round(began, 6), None
        return round(began, 6), round(began + attempt.seconds, 6)


class Span(NamedTuple):
    """Part of a call.

    Its kind is ``waiting`` for a permit, ``attempt``, ``running`` at the server or ``pause``.
    """

    kind: str
    start: float
    end: float
    attempt: int = 0
    outcome: str = ""
    status: int | None = None


def spans_of(call: Call) -> list[Span]:
    """Return what a call consists of, in order. What has no end ends with the call."""
    spans: list[Span] = []
    previous_ended = call.began
    end = call.ended
    for number, attempt in enumerate(call.attempts, 1):
        began, ended = call.span(attempt)
        queued = max(round(began - attempt.waited, 6), call.began)
        if number > 1 and queued > previous_ended:
            spans.append(Span("pause", previous_ended, queued, number - 1))
        if attempt.waited > 0:
            spans.append(Span("waiting", queued, began, number))
        if ended is None:
            # With a status it was answered, but how long that took is not known.
            ended = max(began, end) if attempt.status is None else began
        spans.append(
            Span(
                kind="attempt",
                start=began,
                end=ended,
                attempt=number,
                outcome=attempt.kind,
                status=attempt.status,
            )
        )
        if attempt.worked is not None:
            spans.append(_running(call, number, attempt.worked))
        previous_ended = ended
    if call.waited > 0:
        queued = max(round(end - call.waited, 6), call.began)
        if call.attempts and queued > previous_ended:
            spans.append(Span("pause", previous_ended, queued, len(call.attempts)))
        spans.append(Span("waiting", queued, end, len(call.attempts) + 1))
    return sorted(spans, key=lambda span: (span.start, span.end))


def _running(call: Call, number: int, worked: tuple[float, float | None]) -> Span:
    """Return when the server worked on an attempt; what has no end ends with the call."""
    began, ended = worked
    start = round(call.began + began, 6)
    stop = max(start, call.ended) if ended is None else round(call.began + ended, 6)
    return Span("running", start, stop, number)


class _Followed:
    """A call as far as the events until now tell."""

    __slots__ = (
        "_by_world",
        "_granted",
        "_idle",
        "_open",
        "_requests",
        "_served",
        "_unmet",
        "_waited",
        "call",
    )

    def __init__(self, name: str, event: CallEvent, source: str = "client") -> None:
        self.call = Call(name, event["at"], source=source)
        self._by_world = event["source"] == "world"
        """The world tells of the call, so its end is the end that the world saw."""
        self._granted = False
        """The client has had a permit: it has a limiter."""
        self._waited = 0.0
        """Seconds that the attempt which begins next waited for its permit."""
        self._idle: float | None = None
        """Since when the client has had neither an attempt nor a pause.

        If it has a limiter, it waits for a permit.
        """
        self._open: dict[Any, Attempt] = {}
        """The attempts that the client has not seen the end of."""
        self._unmet: Attempt | None = None
        """The client's last attempt, if its request has not arrived at a server."""
        self._requests: dict[tuple[Any, Any], Attempt] = {}
        """The attempt that belongs to a request: the key is the sandbox and the number there."""
        self._served: dict[tuple[Any, Any], Attempt] = {}
        """Those of them that only the server tells of."""

    def note(self, event: CallEvent) -> bool:
        """Add an event; return True if it ends the call."""
        call = self.call
        source = event["source"]
        kind = event["event"]
        after = event["at"] - call.began
        if not call.worker:
            call.worker = event.get("worker") or ""
        if source == "server":
            request_ended = self._note_server(event, kind, after)
            return request_ended and call.source == "server"
        if source == "client":
            client_ended = self._note_client(event, kind, after)
            return client_ended and not self._by_world
        if source == "world" and kind in ENDINGS:
            self._note_ending(event, kind, after)
            return True
        return False

    def _note_ending(self, event: CallEvent, kind: str, after: float) -> None:
        """Note how the world saw the call end."""
        call = self.call
        call.seconds = None if kind == "lost" else max(0.0, after)
        call.problem = event.get("problem") or call.problem
        if kind == "returned":
            call.outcome = _outcome(event) or call.outcome
            if call.outcome is not None and not call.outcome.is_from_program:
                call.read = event.get("text") or ""
        else:
            call.outcome = Outcome.CANCELLED if kind == "cancelled" else None

    def _note_client(self, event: CallEvent, kind: str, after: float) -> bool:
        """Note an event of the client; return True if it ends the call."""
        call = self.call
        match kind:
            case "call_started":
                self._idle = after
            case "permit_granted":
                self._waited = event.get("waited") or 0.0
                self._granted = True
                self._idle = None
            case "attempt_started":
                self._begin_attempt(event, after)
            case "attempt_ended":
                ended = self._open.pop(event.get("attempt") or 0, None)
                if ended is not None:
                    ended.seconds = max(0.0, after - ended.after)
                    ended.status = event.get("status")
                    ended.outcome = _outcome(event)
                    self._unmet = None
            case "backing_off":
                self._idle = after + (event.get("seconds") or 0.0)
            case "call_ended":
                call.seconds = max(0.0, after)
                call.outcome = _outcome(event)
                return True
        return False

    def _begin_attempt(self, event: CallEvent, after: float) -> None:
        number = event.get("attempt") or 0
        begun = Attempt(number, event.get("endpoint") or "", waited=self._waited, after=after)
        self.call.attempts.append(begun)
        self._open[number] = begun
        self._unmet = begun
        self._waited = 0.0
        self._idle = None

    def _note_server(self, event: CallEvent, kind: str, after: float) -> bool:
        """Note an event of a server; return True if it ends the request."""
        key = event.get("sandbox"), event.get("attempt")
        request = self._request(key, kind, after)
        if request is None:
            return False
        match kind:
            case "started" | "forwarded":
                # Only the real server knows how much of that time the code ran.
                request.may_have_run = kind == "started"
                request.worked = (after, None)
            case "finished" | "broken_off" | "replied" | "upstream_failed":
                start = after if request.worked is None else request.worked[0]
                request.worked = (start, after)
                if kind == "finished":
                    request.execution_time = max(0.0, after - start)
            case "strike":
                request.fault = request.fault or event.get("rule")
            case "answered" | "unanswered":
                request.retry_after = _seconds_asked(event.get("retry_after"))
                if key in self._served:
                    gone = bool(event.get("client_gone"))
                    request.seconds = max(0.0, after - request.after)
                    request.status = event.get("status") or None
                    request.outcome = Outcome.of_status(request.status, client_gone=gone)
                return True
        return False

    def _request(
        self, key: tuple[str | None, int | None], kind: str, after: float
    ) -> Attempt | None:
        """Return the attempt that a server's event is about; None if it cannot be told.

        It is the client's last one if that has not arrived anywhere, or one that the client does
        not tell of.
        """
        request = self._requests.get(key)
        if request is not None:
            return request
        if self._unmet is not None:
            request = self._unmet
            self._unmet = None
        elif kind in ("arrived", "started", "forwarded"):
            sandbox, number = key
            request = Attempt(number or 0, sandbox or "", after=after)
            self._served[key] = request
        else:
            return None
        self._requests[key] = request
        return request

    def end(self, last: float | None = None, deaths: Mapping[str, float] | None = None) -> Call:
        """Return the call after its last event.

        If its end was not seen, it stopped with its worker, or with the ``last`` event of the
        journal.
        """
        call = self.call
        if call.seconds is None:
            died = (deaths or {}).get(call.worker)
            call.stopped = last if died is None else died
        if not call.attempts:
            # Tools of other people do not record their attempts; then the server's events have to
            # do.
            call.attempts = list(self._served.values())
            if call.attempts:
                self._share_outcome(call.attempts[-1])
        has_limiter = self._granted or not call.attempts  # without one, an attempt begins at once
        if self._idle is not None and has_limiter:
            call.waited = max(0.0, call.ended - call.began - self._idle)
        return call

    def _share_outcome(self, last: Attempt) -> None:
        """Give a request's end to its call, or a call's outcome to its last answered attempt."""
        call = self.call
        if call.source == "server":
            call.seconds = last.seconds
            call.outcome = last.outcome
        elif call.kind in OUTCOMES and last.status == 200:
            last.outcome = call.outcome


def fold_call(
    name: str, events: Sequence[Mapping[str, Any]], last: float, deaths: Mapping[str, float]
) -> Call:
    """Return a call out of its events, of which there is one at least, see ``_Followed.end``."""
    told = cast("Sequence[CallEvent]", events)
    followed = _Followed(name, told[0])
    for event in told:
        followed.note(event)
    return followed.end(last, deaths)


class CallFold:
    """Makes calls out of the events of a journal as they come; memory holds those in flight.

    In the journal of a proxy or a fake, which knows requests only, each request is a call.
    """

    def __init__(self, *, of_run: bool = False) -> None:
        self.of_run = of_run
        """The journal is that of a run: servers' events belong to calls.

        Otherwise the first other event tells.
        """
        self._open: OrderedDict[Any, _Followed] = OrderedDict()

    def add(self, told: Mapping[str, Any]) -> Iterator[Call]:
        """Add an event; yield the calls that end with it."""
        event = cast("CallEvent", told)
        name = event.get("call")
        if not name:
            return
        self.of_run = self.of_run or event["source"] != "server"
        key = name if self.of_run else (event.get("sandbox"), name, event.get("attempt"))
        followed = self._open.get(key)
        if followed is None:
            if not self._begins_call(event):
                return
            followed = _Followed(name, event, "client" if self.of_run else "server")
            self._open[key] = followed
            if len(self._open) > MOST_OPEN:
                yield self._open.popitem(last=False)[1].end()
        if followed.note(event):
            del self._open[key]
            yield followed.end()

    def _begins_call(self, event: CallEvent) -> bool:
        """Is this the first event of a call?

        Others are of a call that ended, such as what the server still did for it.
        """
        source = event["source"]
        kind = event["event"]
        if (source, kind) in (("world", "called"), ("client", "call_started")):
            return True
        return not self.of_run and kind == "arrived"

    def rest(self) -> Iterator[Call]:
        """Yield the calls whose end is not in the journal."""
        while self._open:
            yield self._open.popitem(last=False)[1].end()


def _outcome(event: CallEvent) -> Outcome | None:
    stated: object = event.get("outcome")
    return OUTCOMES.get(stated) if isinstance(stated, str) else None  # any tool may state anything


def _seconds_asked(value: object) -> float | None:
    """Return the seconds of a Retry-After as the header has it; None for a date."""
    if not isinstance(value, str | int | float):
        return None
    try:
        seconds = float(value)
    except (ValueError, OverflowError):
        return None
    return max(0.0, seconds) if math.isfinite(seconds) else None
