"""What the sandbox itself saw of a run, counted without asking the clients."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from sfusion.harness.lab.journal import Event, Journal
from sfusion.harness.lab.promises.permits import count_in_flight
from sfusion.harness.lab.promises.story import Story, attempt_of
from sfusion_tools.wording import counted


@dataclass(frozen=True, slots=True)
class SandboxCount:
    """Requests and executions at the sandbox."""

    peak: int
    """The highest number of requests at once."""
    problems: list[str] = field(default_factory=list)


def count_at_sandbox(journal: Journal, lease: float) -> SandboxCount:
    """Count from the sandbox's own events: requests in flight against the limit, and executions of each call."""
    story = Story(journal)
    problems: list[str] = []
    found = count_in_flight(_steps(journal, lease), story.began["limit"])
    if found.broken:
        at = found.first[-1]["at"]
        problems.append(f"at {at:g} s the sandbox had {found.crowd} requests in flight; the limit was {found.limit}")
    for call in story.made:
        done = len(call.of_server("finished"))
        undelivered = [one for one in call.of_server("unanswered") + call.of_server("answered") if _is_lost(one)]
        if done > 1 + len(undelivered):
            problems.append(f"the sandbox ran {call.call} to its end {done} times")
        returned = call.returned or {}
        if returned.get("outcome") in ("ok", "program_error") and not done:
            problems.append(f"{call.call} returned {returned['outcome']}, but the sandbox never ran it to its end")
    twice = [call for call, count in _endings(journal).items() if count > 1]
    if twice:
        problems.append(f"{counted(len(twice), 'call')} ended more than once, first {twice[0]}")
    return SandboxCount(found.peak, problems)


def _is_lost(answer: Event) -> bool:
    return answer["event"] == "unanswered" or bool(answer.get("client_gone")) or answer["status"] != 200


def _endings(journal: Journal) -> Counter[str]:
    ends = ("returned", "cancelled", "lost")
    return Counter(one["call"] for one in journal.events if one["source"] == "world" and one["event"] in ends)


def _steps(journal: Journal, lease: float) -> list[tuple[str, Any, Event]]:
    """Return arrivals and ends of requests, and changes of the limit with the permits that were out.

    Not counted from then on: requests of a caller that gave up, since the program runs on at the sandbox, and of a
    worker that was stopped for longer than its lease, which loses its permits but cannot take requests back.
    """
    steps: list[tuple[str, Any, Event]] = []
    requests: dict[str, list[Any]] = {}
    calls: dict[str, dict[str, None]] = {}
    stopped: dict[str, float] = {}
    excused: set[str] = set()

    def excuse(call: str, event: Event) -> None:
        excused.add(call)
        steps.extend(("end", key, event) for key in requests.pop(call, ()))

    for event in journal.events:
        match event["source"], event["event"]:
            case "server", "arrived" if event["call"] not in excused:
                requests.setdefault(event["call"], []).append(attempt_of(event))
                steps.append(("begin", attempt_of(event), event))
            case "server", "answered" | "unanswered":
                steps.append(("end", attempt_of(event), event))
            case "world", "called":
                calls.setdefault(event["worker"], {})[event["call"]] = None
            case "world", "cancelled":
                excuse(event["call"], event)
            case "world", "worker_paused":
                stopped.setdefault(event["worker"], event["at"])
            case "world", "worker_resumed" if event["at"] - stopped.pop(event["worker"], event["at"]) >= lease:
                for call in calls.pop(event["worker"], ()):
                    excuse(call, event)
            case "limiter", "granted" | "learned":
                steps.append(("granted", event["permit"], event))
            case "limiter", "released" | "expired":
                steps.append(("returned", event["permit"], event))
            case "limiter", "resized":
                steps.append(("limit", None, event))
    return steps
