"""Tells a journal call by call: what each call did, when, and how it ended."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from sfusion_tools.outcome import Outcome

Event: TypeAlias = Mapping[str, Any]
"""One line of a journal, without its header."""

UNFINISHED = "unfinished"
"""What a report says of a call that has no ending: its worker died, or the run stopped before it."""

_ENDINGS = {
    ("client", "call_ended"): "",
    ("world", "returned"): "",
    ("world", "cancelled"): Outcome.CANCELLED.value,
    ("world", "lost"): UNFINISHED,
}
"""The events that end a call, and what they say of its outcome by themselves."""

OUTCOMES = (*(outcome.value for outcome in Outcome), UNFINISHED)


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of a call's life: ``waiting`` for a permit, an ``attempt``, ``running`` at the server, a ``pause``."""

    kind: str
    start: float
    end: float
    attempt: int = 0
    outcome: str = ""
    status: int | None = None


@dataclass(slots=True)
class Story:
    """One call from its start to its end, with every event that names it."""

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


def stories(events: Iterable[Event]) -> list[Story]:
    """The calls of a journal in the order in which they began."""
    listed = list(events)
    by_call: dict[str, list[Event]] = {}
    for event in listed:
        if event.get("call") is not None:
            by_call.setdefault(str(event["call"]), []).append(event)
    deaths = _deaths(listed)
    last = max((float(event["at"]) for event in listed), default=0.0)
    told = [_story(call, own, deaths, last) for call, own in by_call.items()]
    return sorted(told, key=lambda story: story.start)


def _story(call: str, events: list[Event], deaths: Mapping[str, list[float]], last: float) -> Story:
    worker = next((str(event["worker"]) for event in events if event.get("worker") is not None), "")
    start = float(events[0]["at"])
    endings = [event for event in events if (event.get("source"), event["event"]) in _ENDINGS]
    story = Story(call, worker, start, last, events=events)
    if endings:
        story.end = float(endings[-1]["at"])
        told = [str(one.get("outcome") or _ENDINGS[one["source"], one["event"]]) for one in endings]
        story.outcome = next((outcome for outcome in reversed(told) if outcome), UNFINISHED)
    else:
        # The server may still work for a dead caller; the caller itself ends with its worker.
        story.end = next((at for at in deaths.get(worker, ()) if at >= start), last)
    _spans(story, events)
    return story


def _spans(story: Story, events: list[Event]) -> None:
    """Pair beginnings with ends. What has no end goes on until the call's."""
    opened: dict[tuple[str, int], float] = {}
    free_since: float | None = story.start
    asked = any(event["event"] == "permit_granted" for event in events)
    # Somebody else's tool does not tell of its attempts; then the server's word is taken.
    begins, ends = ("attempt_started", "attempt_ended") if _tells(events) else ("arrived", "answered")
    for event in events:
        at, number = float(event["at"]), int(event.get("attempt") or 0)
        match event["event"]:
            case "permit_granted":
                waited = float(event.get("waited") or 0.0)
                if waited > 0:
                    story.spans.append(Span("waiting", max(at - waited, story.start), at, number))
                free_since = None
            case name if name == begins:
                story.attempts += 1
                opened["attempt", number] = at
                free_since = None
            case name if name == ends or (name == "unanswered" and ends == "answered"):
                begun = opened.pop(("attempt", number), at)
                outcome, status = str(event.get("outcome") or _by_status(event, story)), event.get("status")
                story.spans.append(Span("attempt", begun, at, number, outcome, status))
            case "backing_off":
                until = min(at + float(event.get("seconds") or 0.0), story.end)
                story.spans.append(Span("pause", at, until, number))
                free_since = until
            case "started":
                story.executions += 1
                opened["running", number] = at
            case "forwarded":
                opened["running", number] = at  # whether the code ran all that time only the real server knows
            case "finished" | "broken_off" | "replied" | "upstream_failed":
                story.spans.append(Span("running", opened.pop(("running", number), at), at, number))
            case "strike":
                story.strikes += 1
    for (kind, number), begun in opened.items():
        outcome = UNFINISHED if kind == "attempt" else ""
        story.spans.append(Span(kind, begun, max(begun, story.end), number, outcome))
    if free_since is not None and free_since < story.end and (asked or not story.attempts):
        story.spans.append(Span("waiting", free_since, story.end, story.attempts + 1))
    story.spans.sort(key=lambda span: (span.start, span.end))


def _tells(events: Iterable[Event]) -> bool:
    return any(event["event"] == "attempt_started" for event in events)


def _by_status(answer: Event, story: Story) -> str:
    """The outcome of an attempt as far as the server can say; whether a program did well only its caller knows."""
    match answer.get("status"):
        case 200:
            return story.outcome
        case 429:
            return Outcome.THROTTLED.value
        case int(status) if status >= 500:
            return Outcome.SANDBOX_ERROR.value
        case None | 0:
            return Outcome.UNREACHABLE.value
    return Outcome.BAD_RESPONSE.value


def _deaths(events: Iterable[Event]) -> dict[str, list[float]]:
    """When each worker died, as far as the world says so."""
    deaths: dict[str, list[float]] = {}
    for event in events:
        if event.get("source") == "world" and event["event"] in ("kill", "worker_died"):
            for name in names_of(event):
                deaths.setdefault(name, []).append(float(event["at"]))
    return deaths


def names_of(event: Event) -> list[str]:
    """Whom an event of the world concerns, however many it names."""
    found: list[str] = []
    for key in ("target", "worker", "workers", "node", "sandbox"):
        value = event.get(key)
        found.extend([value] if isinstance(value, str) else [str(one) for one in value or ()])
    return found
