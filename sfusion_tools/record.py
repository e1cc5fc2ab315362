"""What is known about a call and its attempts, whoever told it: a client, a server, a log or a
journal. Pure.

Readers of logs make a ``Call`` of each line; ``CallFold`` makes calls out of the events of a
journal, and ``fold_call`` one call out of its own events. Event log, promises, look, learn,
compare, figures and pages read these.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Required, TypedDict, cast

from sfusion_tools.outcome import OUTCOMES, Outcome

ANSWERED, UNFINISHED, UNKNOWN = "answered", "unfinished", "unknown"
"""Kinds of calls and attempts without an outcome: status 200, no end, neither."""
KINDS = (*OUTCOMES, UNFINISHED, ANSWERED, UNKNOWN)
MOST_OPEN = 100_000
"""Calls in flight at once; beyond that, the oldest are taken for unfinished."""
ENDINGS = ("returned", "cancelled", "lost")
"""Events of the world that end a call."""


class CallEvent(TypedDict, total=False):
    """An event of a journal, as far as it is about a call; docs/journal.md lists which event has
    which keys."""

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
    """From when to when the server worked on it, after the beginning of the call, where a journal
    tells."""

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
    """One tool call; where a log knows requests only, one request. Times are unix seconds, or
    seconds of a run."""

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
    stopped: float | None = None
    """When its journal ends or its worker died, if its own end was not seen."""

    @property
    def kind(self) -> str:
        """The outcome, or how much of it is known."""
        if self.outcome is not None:
            return self.outcome._value_
        if self.attempts and self.attempts[-1].status == 200:
            return ANSWERED
        return (
            UNFINISHED if self.seconds is None and self.source in ("client", "server") else UNKNOWN
        )

    @property
    def ended(self) -> float:
        """When it ended, or when no more of it was seen."""
        if self.seconds is not None:
            return round(self.began + self.seconds, 6)
        return max(self.began, self.began if self.stopped is None else self.stopped)

    def span(self, attempt: Attempt) -> tuple[float, float | None]:
        """Return when one of its attempts began and ended; rounded, so that equal times in a
        journal stay equal."""
        began = self.began + attempt.after
        return round(began, 6), None if attempt.seconds is None else round(
            began + attempt.seconds, 6
        )


class Span(NamedTuple):
    """Part of a call: ``waiting`` for a permit, an ``attempt``, ``running`` at the server or a
    ``pause``."""

    kind: str
    start: float
    end: float
    attempt: int = 0
    outcome: str = ""
    status: int | None = None


def spans_of(call: Call) -> list[Span]:
    """Return what a call consists of, in order. What has no end ends with the call."""
    spans, free, end = [], call.began, call.ended
    for number, one in enumerate(call.attempts, 1):
        began, ended = call.span(one)
        asked = max(round(began - one.waited, 6), call.began)
        if number > 1 and asked > free:
            spans.append(Span("pause", free, asked, number - 1))
        if one.waited > 0:
            spans.append(Span("waiting", asked, began, number))
        if ended is None:
            ended = max(began, end) if one.status is None else began
        spans.append(Span("attempt", began, ended, number, one.kind, one.status))
        if one.worked is not None:
            start, stop = round(call.began + one.worked[0], 6), one.worked[1]
            spans.append(
                Span(
                    "running",
                    start,
                    max(start, end) if stop is None else round(call.began + stop, 6),
                    number,
                )
            )
        free = ended
    if call.waited > 0:
        asked = max(round(end - call.waited, 6), call.began)
        if call.attempts and asked > free:
            spans.append(Span("pause", free, asked, len(call.attempts)))
        spans.append(Span("waiting", asked, end, len(call.attempts) + 1))
    return sorted(spans, key=lambda span: (span.start, span.end))


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
        self._granted = False
        self._waited = 0.0
        self._idle: float | None = None
        """Since when the client has been waiting for a permit."""
        self._open: dict[Any, Attempt] = {}
        """The attempts that the client has not seen the end of."""
        self._unmet: Attempt | None = None
        """The client's last attempt, if its request has not arrived at a server."""
        self._requests: dict[tuple[Any, Any], Attempt] = {}
        """By sandbox and its number there: the client's attempts, or those that only the server
        tells of."""
        self._served: dict[tuple[Any, Any], Attempt] = {}

    def note(self, event: CallEvent) -> bool:
        """Add an event; return True if it ends the call."""
        call, source, kind = self.call, event["source"], event["event"]
        after = event["at"] - call.began
        if not call.worker and (worker := event.get("worker")):
            call.worker = worker
        if source == "server":
            return self._note_server(event, kind, after) and call.source == "server"
        if source == "client":
            return self._note_client(event, kind, after) and not self._by_world
        if source != "world" or kind not in ENDINGS:
            return False
        call.seconds = None if kind == "lost" else max(0.0, after)
        call.problem = event.get("problem") or call.problem
        if kind == "returned":
            call.outcome = _outcome(event) or call.outcome
            if call.outcome is not None and not call.outcome.is_from_program:
                call.read = event.get("text") or ""
        else:
            call.outcome = Outcome.CANCELLED if kind == "cancelled" else None
        return True

    def _note_client(self, event: CallEvent, kind: str, after: float) -> bool:
        call = self.call
        match kind:
            case "call_started":
                self._idle = after
            case "permit_granted":
                self._waited, self._granted, self._idle = event.get("waited") or 0.0, True, None
            case "attempt_started":
                number = event.get("attempt") or 0
                begun = Attempt(
                    number, event.get("endpoint") or "", waited=self._waited, after=after
                )
                call.attempts.append(begun)
                self._open[number] = self._unmet = begun
                self._waited, self._idle = 0.0, None
            case "attempt_ended":
                if (ended := self._open.pop(event.get("attempt") or 0, None)) is not None:
                    ended.seconds = max(0.0, after - ended.after)
                    ended.status, ended.outcome = event.get("status"), _outcome(event)
                    self._unmet = None
            case "backing_off":
                self._idle = after + (event.get("seconds") or 0.0)
            case "call_ended":
                call.seconds, call.outcome = max(0.0, after), _outcome(event)
                return True
        return False

    def _note_server(self, event: CallEvent, kind: str, after: float) -> bool:
        key = event.get("sandbox"), event.get("attempt")
        request = self._requests.get(key)
        if request is None:
            if self._unmet is not None:
                request, self._unmet = self._unmet, None
            elif kind in ("arrived", "started", "forwarded"):
                request = self._served[key] = Attempt(key[1] or 0, key[0] or "", after=after)
            else:
                return False
            self._requests[key] = request
        match kind:
            case (
                "started" | "forwarded"
            ):  # only the real server knows how much of that time the code ran
                request.may_have_run, request.worked = kind == "started", (after, None)
            case "finished" | "broken_off" | "replied" | "upstream_failed":
                start = after if request.worked is None else request.worked[0]
                request.worked = start, after
                if kind == "finished":
                    request.execution_time = max(0.0, after - start)
            case "strike":
                request.fault = request.fault or event.get("rule")
            case "answered" | "unanswered":
                request.retry_after = _asked(event.get("retry_after"))
                if key in self._served:
                    request.seconds, request.status = (
                        max(0.0, after - request.after),
                        event.get("status") or None,
                    )
                    request.outcome = Outcome.of_status(
                        request.status, client_gone=bool(event.get("client_gone"))
                    )
                return True
        return False

    def end(self, last: float | None = None, deaths: Mapping[str, float] | None = None) -> Call:
        """Return the call after its last event, or at the death of its worker, or the ``last``
        event of the journal."""
        call = self.call
        if call.seconds is None:
            call.stopped = (deaths or {}).get(call.worker, last)
        if not call.attempts:
            # Tools of other people do not record their attempts; then the server's events have to
            # do.
            call.attempts = list(self._served.values())
            if call.source == "server" and call.attempts:
                call.seconds, call.outcome = call.attempts[-1].seconds, call.attempts[-1].outcome
            elif call.kind in OUTCOMES and call.attempts and call.attempts[-1].status == 200:
                call.attempts[-1].outcome = call.outcome
        if self._idle is not None and (self._granted or not call.attempts):
            call.waited = max(0.0, call.ended - call.began - self._idle)
        return call


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
        """The journal is that of a run: servers' events belong to calls. Otherwise the first other
        event tells."""
        self._open: OrderedDict[Any, _Followed] = OrderedDict()

    def add(self, told: Mapping[str, Any]) -> Iterator[Call]:
        """Add an event; yield the calls that end with it."""
        event = cast("CallEvent", told)
        name, source, kind = event.get("call"), event["source"], event["event"]
        if not name:
            return
        self.of_run = self.of_run or source != "server"
        key = name if self.of_run else (event.get("sandbox"), name, event.get("attempt"))
        followed = self._open.get(key)
        if followed is None:
            # Others are of a call that ended, such as what the server still did for it.
            if (source, kind) not in (("world", "called"), ("client", "call_started")) and (
                self.of_run or kind != "arrived"
            ):
                return
            followed = self._open[key] = _Followed(
                name, event, "client" if self.of_run else "server"
            )
            if len(self._open) > MOST_OPEN:
                yield self._open.popitem(last=False)[1].end()
        if followed.note(event):
            del self._open[key]
            yield followed.end()

    def rest(self) -> Iterator[Call]:
        """Yield the calls whose end is not in the journal."""
        while self._open:
            yield self._open.popitem(last=False)[1].end()


def _outcome(event: CallEvent) -> Outcome | None:
    stated: object = event.get("outcome")
    return OUTCOMES.get(stated) if isinstance(stated, str) else None  # any tool may state anything


def _asked(value: object) -> float | None:
    """Retry-After as the header has it: seconds, or a date, which is not kept."""
    try:
        seconds = float(value) if isinstance(value, str | int | float) else math.nan
    except (ValueError, OverflowError):
        return None
    return max(0.0, seconds) if math.isfinite(seconds) else None
