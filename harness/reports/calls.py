"""The timeline of each call in a journal: when it waited, which attempts it made, how it ended."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from sfusion.harness.lab.journal import Event, Journal
from sfusion.harness.lab.promises.story import Story
from sfusion_tools.outcome import Outcome

UNFINISHED = "unfinished"
"""Shown in place of an outcome when a call never ended: its worker died, or the run stopped first."""

_ENDINGS = {
    ("client", "call_ended"): "",
    ("world", "returned"): "",
    ("world", "cancelled"): Outcome.CANCELLED.value,
    ("world", "lost"): UNFINISHED,
}
"""The events that end a call, with the outcome that each implies."""

OUTCOMES = (*(outcome.value for outcome in Outcome), UNFINISHED)


@dataclass(frozen=True, slots=True)
class Span:
    """Part of a call: ``waiting`` for a permit, an ``attempt``, ``running`` at the server or a ``pause``."""

    kind: str
    start: float
    end: float
    attempt: int = 0
    outcome: str = ""
    status: int | None = None


@dataclass(slots=True)
class CallTimeline:
    """One call from start to end, with every event that names it."""

    call: str
    worker: str
    start: float
    end: float
    outcome: str = UNFINISHED
    attempts: int = 0
    executions: int = 0
    strikes: int = 0
    spans: list[Span] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)


def call_timelines(events: Iterable[Event]) -> list[CallTimeline]:
    """Return the calls of a journal in the order in which they started."""
    index = Story(Journal({}, list(events)))
    last = max((float(event["at"]) for event in index.journal.events), default=0.0)
    timelines = [_timeline(call, one.events, index.deaths, last) for call, one in index.calls.items()]
    return sorted(timelines, key=lambda timeline: timeline.start)


def _timeline(call: str, events: list[Event], deaths: dict[str, float], last: float) -> CallTimeline:
    worker = next((str(event["worker"]) for event in events if event.get("worker") is not None), "")
    timeline = CallTimeline(call, worker, float(events[0]["at"]), last, events=events)
    endings = [event for event in events if (event["source"], event["event"]) in _ENDINGS]
    if endings:
        timeline.end = float(endings[-1]["at"])
        outcomes = [str(one.get("outcome") or _ENDINGS[one["source"], one["event"]]) for one in endings]
        timeline.outcome = next((outcome for outcome in reversed(outcomes) if outcome), UNFINISHED)
    else:
        # The server may go on working after the caller has died with its worker.
        timeline.end = max(deaths.get(worker, last), timeline.start)
    _add_spans(timeline)
    return timeline


def _add_spans(timeline: CallTimeline) -> None:
    """Pair the events that open a span with those that close it. An open span ends with the call."""
    opened: dict[tuple[str, int], float] = {}
    idle_since: float | None = timeline.start
    names = {event["event"] for event in timeline.events}
    # Tools of other people do not record their attempts; then the server's events have to do.
    has_client = "attempt_started" in names
    opening, closing = ("attempt_started", "attempt_ended") if has_client else ("arrived", "answered")
    for event in timeline.events:
        at, number = float(event["at"]), int(event.get("attempt") or 0)
        match event["event"]:
            case "permit_granted":
                waited = float(event.get("waited") or 0.0)
                if waited > 0:
                    timeline.spans.append(Span("waiting", max(at - waited, timeline.start), at, number))
                idle_since = None
            case name if name == opening:
                timeline.attempts += 1
                opened["attempt", number] = at
                idle_since = None
            case name if name == closing or (name == "unanswered" and not has_client):
                start = opened.pop(("attempt", number), at)
                outcome, status = str(event.get("outcome") or _outcome_of(event, timeline)), event.get("status")
                timeline.spans.append(Span("attempt", start, at, number, outcome, status))
            case "backing_off":
                until = min(at + float(event.get("seconds") or 0.0), timeline.end)
                timeline.spans.append(Span("pause", at, until, number))
                idle_since = until
            case "started":
                timeline.executions += 1
                opened["running", number] = at
            case "forwarded":
                opened["running", number] = at  # only the real server knows how much of this time the code ran
            case "finished" | "broken_off" | "replied" | "upstream_failed":
                timeline.spans.append(Span("running", opened.pop(("running", number), at), at, number))
            case "strike":
                timeline.strikes += 1
    for (kind, number), start in opened.items():
        outcome = UNFINISHED if kind == "attempt" else ""
        timeline.spans.append(Span(kind, start, max(start, timeline.end), number, outcome))
    waits = "permit_granted" in names or not timeline.attempts
    if idle_since is not None and idle_since < timeline.end and waits:
        timeline.spans.append(Span("waiting", idle_since, timeline.end, timeline.attempts + 1))
    timeline.spans.sort(key=lambda span: (span.start, span.end))


def _outcome_of(answer: Event, timeline: CallTimeline) -> str:
    """The outcome of an attempt as far as the status tells; how the program ended only the call's outcome tells."""
    match answer.get("status"):
        case 200:
            return timeline.outcome
        case 429:
            return Outcome.THROTTLED.value
        case int(status) if status >= 500:
            return Outcome.SANDBOX_ERROR.value
        case None | 0:
            return Outcome.UNREACHABLE.value
    return Outcome.BAD_RESPONSE.value
