"""Promises about recovery, throughput and standing still, in the time of the world."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from pydantic import Field

from ....fakes.faults import Seconds
from ...core.events import SandboxEvent
from ...core.journal import Event
from ...core.run_events import CallEvents, RunEvents, attempt_of
from ...core.verdict import Verdict
from .base import Promise

_OVER = {
    ("server", "restart"),
    ("server", "unwedge"),
    ("world", "limiter_started"),
    ("world", "worker_resumed"),
    ("world", "reconnected"),
    ("world", "worker_died"),
}


class RecoversWithin(Promise):
    """Within this time after a disturbance, a new request returns the result of its program.

    Disturbances are a crash, wedge, pause, the death of a worker or limiter, and fault rules, which
    end with their last strike.
    """

    implied: ClassVar[bool] = False
    scalar = "seconds"
    sentences: ClassVar = {
        "too_slow": (
            "after {event} at {at:g} s it took {took:.3g} s until a program "
            "completed, promised {bound:g} s"
        ),
        "never": "after {event} at {at:g} s no program completed again",
        "undisturbed": "there was no disturbance to recover from",
        "unseen": "no call was sent after the disturbance, so recovery could not be observed",
        "held": "{ends:disturbance}, the longest recovery took {longest:.3g} s",
    }
    identity = ("event",)

    seconds: Seconds = Field(description="maximum time until a program completes again")

    def check(self, run: RunEvents) -> Verdict:
        ends = _disturbances(run)
        if not ends:
            return self.not_shown(run, "undisturbed")
        good = _completions(run)
        down = _down_for_good(run)
        wrong: list[Verdict] = []
        longest = 0.0
        unseen = 0
        last = run.journal.events[-1]
        for end in ends:
            after = next((done for sent, done in good if sent["at"] >= end["at"]), None)
            down_again = after is None and end["at"] + self.seconds > down
            if down_again or (
                after is None and not any(_was_refused(call, end["at"]) for call in run.made)
            ):
                unseen += 1
                continue
            took = (after or last)["at"] - end["at"]
            longest = max(longest, took)
            if after is None or took > self.seconds:
                facts = {
                    "event": end["event"],
                    "at": end["at"],
                    "took": took,
                    "bound": self.seconds,
                }
                wrong.append(
                    self.broken(
                        "never" if after is None else "too_slow", [end, after or last], **facts
                    )
                )
        if wrong:
            return self.first(wrong)
        return (
            self.unknown("unseen")
            if unseen == len(ends)
            else self.held(ends=len(ends), longest=longest)
        )


def _disturbances(run: RunEvents) -> list[Event]:
    """Return the events that ended a disturbance."""
    ends: list[Event] = []
    strike: Event | None = None
    for event in run.journal.events:
        if (event["source"], event["event"]) in _OVER and event.get("first") is not True:
            ends.append(event)
        elif event["source"] == "server" and event["event"] == "strike":
            strike = event
    if strike is not None and not any(end["at"] >= strike["at"] for end in ends):
        ends.append(strike)
    return ends


def _down_for_good(run: RunEvents) -> float:
    """Return the time from which no sandbox answers any more; infinity if one does until the
    end."""
    down: dict[Any, float] = {}
    for event in run.server:
        if event["event"] in ("crash", "wedge"):
            down.setdefault(event.get("sandbox"), event["at"])
        elif event["event"] in ("restart", "unwedge"):
            down.pop(event.get("sandbox"), None)
    all_down = bool(down) and len(down) == run.began.get("sandboxes")
    return max(down.values()) if all_down else math.inf


def _completions(run: RunEvents) -> list[tuple[SandboxEvent, SandboxEvent]]:
    """Return the arrival and the answer of every attempt that gave a caller the result of its
    program, by answer."""
    found: list[tuple[SandboxEvent, SandboxEvent]] = []
    for call in run.made:
        if call.succeeded:
            arrived = {attempt_of(request): request for request in call.of_server("arrived")}
            for result in call.results:
                request = arrived.get(attempt_of(result))
                if request is not None:
                    found.append((request, result))
    return sorted(found, key=lambda pair: pair[1]["at"])


_NEVER_COMPLETE = ("program_timeout", "bad_arguments", "sandbox_error")
"""Kinds of programs that give no result, however well all goes."""


def _was_refused(call: CallEvents, since: float) -> bool:
    """Was the call under way after that time, without getting its result from a request sent
    before?"""
    if call.called is None:
        return False
    if call.endings and (call.endings[0]["at"] <= since or call.returned is None):
        return False
    return not call.succeeded and call.called["intent"]["kind"] not in _NEVER_COMPLETE


class ThroughputAtLeast(Promise):
    """At least `per_second` calls per second get a result of their program, from the first call
    to the last result."""

    implied: ClassVar[bool] = False
    scalar = "per_second"
    sentences: ClassVar = {
        "too_slow": "{calls} calls in {took:.4g} s, {rate:.4g} per second; promised {bound:g}",
        "nothing": "no call ended with a result of the program",
        "no_time": "no time passed",
        "held": "{calls} calls in {took:.4g} s, {rate:.4g} per second",
    }

    per_second: float = Field(gt=0, description="calls per second, in the time of the world")

    def check(self, run: RunEvents) -> Verdict:
        ends = [call.returned for call in run.made if call.returned is not None and call.succeeded]
        if not ends:
            return self.unknown("nothing")
        begin = min(call.called["at"] for call in run.made if call.called is not None)
        took = max(event["at"] for event in ends) - begin
        if took <= 0:
            return self.unknown("no_time")
        rate = len(ends) / took
        facts = {"calls": len(ends), "took": took, "rate": rate}
        if rate < self.per_second:
            return self.broken("too_slow", [ends[-1]], **facts, bound=self.per_second)
        return self.held(**facts)


_PROGRESS = {
    "called",
    "returned",
    "cancelled",
    "lost",
    "rollout_started",
    "rollout_ended",
    "rollout_lost",
    "arrived",
    "started",
    "finished",
    "forwarded",
    "replied",
    "answered",
    "spoke",
    "broken_off",
}


_NAMED = 3
"""Calls under way that a sentence names. Chosen: it stays one line."""


class NoStall(Promise):
    """The run never stalls: while calls are under way, a request arrives at the sandbox, a
    program starts or ends, or a call ends within `at_most`."""

    implied: ClassVar[bool] = False
    needs = "ending"
    scalar = "at_most"
    sentences: ClassVar = {
        "stood_still": (
            "from {at:g} s nothing happened for {gap:.4g} s, with {calls} under "
            "way; promised {bound:g} s"
        ),
        "held": "with calls under way, something happened every {longest:.3g} s or sooner",
    }

    at_most: Seconds = Field(60.0, description="longest time in which nothing may happen")

    def check(self, run: RunEvents) -> Verdict:
        under_way: dict[str, Event] = {}
        last: Event | None = None
        longest = 0.0
        stalls: list[Verdict] = []
        for event in run.journal.events:
            if event["event"] not in _PROGRESS or event["source"] in ("client", "limiter"):
                continue
            if last is not None and under_way:
                gap = event["at"] - last["at"]
                longest = max(longest, gap)
                if gap > self.at_most:
                    calls = list(under_way)[:_NAMED]
                    if len(under_way) > _NAMED:
                        calls.append("…")
                    facts = {"at": last["at"], "gap": gap, "calls": calls, "bound": self.at_most}
                    stalls.append(self.broken("stood_still", [last, event], **facts))
            last = event
            if event["event"] == "called":
                under_way[event["call"]] = event
            elif event["event"] in ("returned", "cancelled", "lost"):
                under_way.pop(event["call"], None)
        if stalls:
            return self.first(stalls)
        return self.unknown("no_call") if last is None else self.held(longest=longest)
