"""Promises about recovery and throughput, in the time of the world."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from sfusion.fakes.faults import Seconds
from sfusion.harness.journal import Event
from sfusion.harness.promises.base import Promise
from sfusion.harness.promises.story import Story
from sfusion.harness.promises.verdict import Verdict
from sfusion_tools.wording import counted

_OVER = {
    ("server", "restart"), ("server", "unwedge"), ("world", "limiter_started"), ("world", "worker_resumed"),
    ("world", "reconnected"), ("world", "worker_died"),
}  # fmt: skip


class RecoversWithin(Promise):
    """After a disturbance (crash, wedge, pause, death of a worker or limiter) has ended, a program completes within
    this time. Fault rules count as disturbances too: the last strike is taken as the end.
    """

    seconds: Seconds = Field(description="maximum time until a program completes again")

    @classmethod
    def from_scalar(cls, value: Any) -> dict[str, Any]:
        return {"seconds": value}

    def judge(self, story: Story) -> Verdict:
        ends: list[Event] = []
        good: list[Event] = []
        strike: Event | None = None
        for event in story.journal.events:
            if (event["source"], event["event"]) in _OVER and event.get("first") is not True:
                ends.append(event)
            elif event["source"] == "server" and event["event"] == "strike":
                strike = event
            elif event["source"] == "server" and event["event"] == "answered" and event["status"] == 200:
                good.append(event)
        if strike is not None and not any(end["at"] >= strike["at"] for end in ends):
            ends.append(strike)
        if not ends:
            return self.unknown("there was no disturbance to recover from")
        wrong: list[tuple[str, list[Event]]] = []
        longest = 0.0
        unseen = 0
        last = story.journal.events[-1]
        for end in ends:
            after = next((event for event in good if event["at"] >= end["at"] and event is not end), None)
            waiting = any(c.called and (not c.endings or c.endings[0]["at"] > end["at"]) for c in story.made)
            if after is None and not waiting:
                unseen += 1
                continue
            took = (after or last)["at"] - end["at"]
            longest = max(longest, took)
            if after is None or took > self.seconds:
                what = f"{end['event']} at {end['at']:g} s"
                text = f"after {what} it took {took:.3g} s until a program completed, promised {self.seconds:g} s"
                if after is None:
                    text = f"after {what} no program completed again"
                wrong.append((text, [end, after or last]))
        if wrong:
            return self.broken(*wrong[0], len(wrong))
        if unseen == len(ends):
            return self.unknown("no call was under way after the disturbance, so recovery could not be observed")
        count = counted(len(ends), "disturbance")
        return self.held(f"{count}, the longest recovery took {longest:.3g} s")


class ThroughputAtLeast(Promise):
    """At least `per_second` calls per second get a result of their program, from the first call to the last result."""

    per_second: float = Field(gt=0, description="calls per second, in the time of the world")

    @classmethod
    def from_scalar(cls, value: Any) -> dict[str, Any]:
        return {"per_second": value}

    def judge(self, story: Story) -> Verdict:
        done = [
            call.returned
            for call in story.made
            if call.returned is not None and call.returned.get("infrastructure") is not True
        ]
        ends = [event for event in done if event is not None]
        if not ends:
            return self.unknown("no call ended with a result of the program")
        begin = min(call.called["at"] for call in story.made if call.called is not None)
        took = max(event["at"] for event in ends) - begin
        if took <= 0:
            return self.unknown("no time passed")
        rate = len(ends) / took
        text = f"{len(ends)} calls in {took:.4g} s, {rate:.4g} per second"
        if rate < self.per_second:
            return self.broken(f"{text}; promised {self.per_second:g}", [ends[-1]])
        return self.held(text)
