"""Promises about recovery and throughput, in the time of the world."""

from __future__ import annotations

import math
from typing import Any

from pydantic import Field

from sfusion.fakes.faults import Seconds
from sfusion.harness.lab.journal import Event
from sfusion.harness.lab.promises.base import Promise
from sfusion.harness.lab.promises.story import CallStory, Story, attempt_of
from sfusion.harness.lab.promises.verdict import Verdict
from sfusion_tools.wording import counted

_OVER = {
    ("server", "restart"), ("server", "unwedge"), ("world", "limiter_started"), ("world", "worker_resumed"),
    ("world", "reconnected"), ("world", "worker_died"),
}  # fmt: skip


class RecoversWithin(Promise):
    """After a disturbance (crash, wedge, pause, death of a worker or limiter) has ended, a request sent from then on
    gives a caller the result of its program within this time. Fault rules count as disturbances too: the last strike
    is taken as the end.
    """

    seconds: Seconds = Field(description="maximum time until a program completes again")

    @classmethod
    def from_scalar(cls, value: Any) -> dict[str, Any]:
        return {"seconds": value}

    def judge(self, story: Story) -> Verdict:
        ends = _disturbances(story)
        if not ends:
            why = "there was no disturbance to recover from"
            return self.not_applicable(why) if story.foreign else self.unknown(why)
        good = _completions(story)
        down = _down_for_good(story)
        wrong: list[tuple[str, list[Event]]] = []
        longest = 0.0
        unseen = 0
        last = story.journal.events[-1]
        for end in ends:
            after = next((done for sent, done in good if sent["at"] >= end["at"]), None)
            down_again = after is None and end["at"] + self.seconds > down
            if down_again or (after is None and not any(_was_refused(call, end["at"]) for call in story.made)):
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
            return self.unknown("no call was sent after the disturbance, so recovery could not be observed")
        count = counted(len(ends), "disturbance")
        return self.held(f"{count}, the longest recovery took {longest:.3g} s")


def _disturbances(story: Story) -> list[Event]:
    """Return the events that ended a disturbance."""
    ends: list[Event] = []
    strike: Event | None = None
    for event in story.journal.events:
        if (event["source"], event["event"]) in _OVER and event.get("first") is not True:
            ends.append(event)
        elif event["source"] == "server" and event["event"] == "strike":
            strike = event
    if strike is not None and not any(end["at"] >= strike["at"] for end in ends):
        ends.append(strike)
    return ends


def _down_for_good(story: Story) -> float:
    """Return the time from which no sandbox answers any more; infinity if one does until the end."""
    down: dict[Any, float] = {}
    for event in story.server:
        if event["event"] in ("crash", "wedge"):
            down.setdefault(event.get("sandbox"), event["at"])
        elif event["event"] in ("restart", "unwedge"):
            down.pop(event.get("sandbox"), None)
    return max(down.values()) if down and len(down) == story.began.get("sandboxes") else math.inf


def _completions(story: Story) -> list[tuple[Event, Event]]:
    """Return the arrival and the answer of every attempt that gave a caller the result of its program, by answer."""
    found: list[tuple[Event, Event]] = []
    for call in story.made:
        if call.succeeded:
            arrived = {attempt_of(one): one for one in call.of_server("arrived")}
            found += [(arrived[attempt_of(one)], one) for one in call.results if attempt_of(one) in arrived]
    return sorted(found, key=lambda pair: pair[1]["at"])


_NEVER_COMPLETE = ("program_timeout", "bad_arguments", "sandbox_error")
"""Kinds of programs that give no result, however well all goes."""


def _was_refused(call: CallStory, since: float) -> bool:
    """Was the call under way after that time, without getting its result from a request sent before?"""
    if call.called is None or (call.endings and (call.endings[0]["at"] <= since or call.returned is None)):
        return False
    return not call.succeeded and call.called["intent"]["kind"] not in _NEVER_COMPLETE


class ThroughputAtLeast(Promise):
    """At least `per_second` calls per second get a result of their program, from the first call to the last result."""

    per_second: float = Field(gt=0, description="calls per second, in the time of the world")

    @classmethod
    def from_scalar(cls, value: Any) -> dict[str, Any]:
        return {"per_second": value}

    def judge(self, story: Story) -> Verdict:
        ends = [call.returned for call in story.made if call.returned is not None and call.succeeded]
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
